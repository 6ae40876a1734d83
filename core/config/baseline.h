#pragma once
#include <string>

#include "core/baseline.h"
#include "core/config/config.h"

namespace stepcast::config {

/// A baseline of step times, as `stepcast replay --update-baseline` writes it. Strict like every
/// other file (config.h).
Baseline read_baseline(const Source& source);
std::string baseline_to_json(const Baseline& baseline);

}  // namespace stepcast::config
