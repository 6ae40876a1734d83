#include <fmt/format.h>

#include <cstdio>

#include "cli/show_measured.h"
#include "cli/show_tables.h"
#include "studies/show_recording.h"
#include "traces/graph/measured_recording.h"

namespace stepcast::cli {

Tables captured_tables(const traces::Recording& recording, const std::string& name,
                       std::int32_t skip) {
  traces::MeasuredRun run = traces::measured_run(recording);
  const studies::RecordedStep step = studies::recorded_step(run, skip);
  for (const std::string& w : step.warnings) {
    fmt::print(stderr, "stepcast: {}: {}\n", name, w);
  }
  std::erase_if(run.steps, [skip](const traces::MeasuredStep& s) { return s.number < skip; });
  Tables tables = recorded_tables(step);
  for (DataTable& t : measured_tables(studies::show_measured(run))) {
    tables.push_back(std::move(t));
  }
  return tables;
}

}  // namespace stepcast::cli
