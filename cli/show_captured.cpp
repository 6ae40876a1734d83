#include <fmt/format.h>

#include <cstdio>

#include "cli/show_tables.h"
#include "studies/show_recording.h"
#include "traces/graph/measured_recording.h"

namespace stepcast::cli {

Tables captured_tables(const traces::Recording& recording, const std::string& name,
                       std::int32_t skip) {
  const studies::RecordedStep step = studies::recorded_step(traces::measured_run(recording), skip);
  for (const std::string& w : step.warnings) {
    fmt::print(stderr, "stepcast: {}: {}\n", name, w);
  }
  return recorded_tables(step);
}

}  // namespace stepcast::cli
