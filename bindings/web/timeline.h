#pragma once
#include "cli/command.h"

namespace stepcast::cli {

/// The command `timeline` [--rank N]: a predicted step as the page draws it, one JSON document.
/// Times are of kernels alone.
///
///   ranks       [{rank, alike, memory_bytes, streams, spans}]: one of each class of ranks that
///               run the same program; of many classes evenly spaced ones, and rank N. `spans` is
///               flat, six numbers for each op: stream, name, call, then its begin since the op
///               before, its wait and its time, all in nanoseconds
///   names       of ops, "NAME [PHASE]", as in the ops of predict
///   calls       of each class: segment and micro-batch, flat
///   segments    [name, kind]
///   placement   of models with embedding tables: bytes of each table on each rank, and how long
///               each rank's ops of each kind take
void add_timeline(CLI::App& app, Context& context);

}  // namespace stepcast::cli
