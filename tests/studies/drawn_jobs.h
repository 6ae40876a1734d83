#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "tests/planner/draw.h"

namespace stepcast::studies::testing {

/// A job as a user types it: settings that `--set` takes, and what they load.
struct DrawnJob {
  std::vector<std::string> settings;
  Job job;
};

/// "stepcast predict --set ... --set ...", as a shell takes it.
std::string command_of(const std::vector<std::string>& settings);

/// The job of these settings, on the framework that `predict` takes for it. Errors: InputError.
Job loaded(const std::vector<std::string>& settings);

/// A legal training job of any transformer of the zoo on any system: 1 to 10,000 devices, powers of
/// two or not, any schedule, format, framework, sharding, recomputation, adapters, experts, context
/// ranks, overlaps. Nothing where a few tries give none. `small`: few layers and micro-batches.
std::optional<DrawnJob> drawn_job(planner::testing::Draw& draw, bool small);

}  // namespace stepcast::studies::testing
