#include <fmt/format.h>

#include <cstdio>

#include "cli/show_measured.h"
#include "cli/show_tables.h"
#include "studies/show_recording.h"
#include "traces/graph/measured_recording.h"

namespace stepcast::cli {

Tables captured_tables(const traces::Recording& recording, const std::string& name,
                       std::int32_t skip, const std::string& mark) {
  const traces::MeasuredRun run = traces::measured_run(recording, mark);
  const studies::RecordedStep step = studies::recorded_step(run, skip);
  for (const std::string& w : step.warnings) {
    fmt::print(stderr, "stepcast: {}: {}\n", name, w);
  }
  Tables tables = recorded_tables(step);
  for (DataTable& t : measured_tables(studies::show_measured(run, skip))) {
    tables.push_back(std::move(t));
  }
  return tables;
}

}  // namespace stepcast::cli
