#include "cli/print/print_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace stepcast::cli {

void add_choice(const studies::PlanChoice& choice, Report& report) {
  report.fact("plan_chosen", choice.chosen);
  if (choice.chosen) {
    report.fact("plans_tried", choice.tried);
    report.line(fmt::format("plan chosen: best of {} tried; `stepcast plan ...` searches all",
                            choice.tried));
  }
  if (!choice.settings.empty()) {
    report.fact("set", choice.settings);
  }
  if (!choice.notes.empty()) {
    report.line(fmt::format("{}", fmt::join(choice.notes, "; ")));
  }
}

}  // namespace stepcast::cli
