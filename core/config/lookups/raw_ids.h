#pragma once
#include "core/config/lookups/id_sink.h"
#include "core/input/input.h"

namespace stepcast::config {

/// Little-endian int64, one after the other. Errors: InputError where the file holds a part of one,
/// or looks like int32.
void stream_raw_ids(Input& input, IdSink& to);

}  // namespace stepcast::config
