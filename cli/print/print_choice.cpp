#include "cli/print/print_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command.h"
#include "cli/print/human.h"
#include "cli/print/print_prediction.h"
#include "core/config/default_framework.h"

namespace stepcast::cli {

std::string plan_note(const studies::PlanChoice& choice, std::string_view typed) {
  return choice.chosen ? fmt::format("chosen: {} of {} tried; `stepcast plan{}` searches all",
                                     choice.tight ? "smallest" : "best", choice.tried,
                                     typed.empty() ? " ..." : typed)
                       : "";
}

void add_choice(const studies::PlanChoice& choice, Report& report) {
  report.fact("plan_chosen", choice.chosen);
  if (choice.chosen) {
    report.fact("plans_tried", choice.tried);
  }
  if (!choice.settings.empty()) {
    report.fact("set", choice.settings);
  }
  if (!choice.notes.empty()) {
    report.line(fmt::format("{}", fmt::join(choice.notes, "; ")));
  }
}

void add_fixes(const std::vector<studies::Fix>& fixes, const std::vector<std::string>& arguments,
               const std::string& plan, Report& report) {
  Json all = Json::array();
  for (const studies::Fix& fix : fixes) {
    all.push_back(
        {{"set", fix.set}, {"step_s", fix.step.base()}, {"memory_bytes", fix.memory.base()}});
  }
  report.fact("fixes", std::move(all));
  if (fixes.empty()) {
    report.line("\nfix: none found: no plan, batch or number of devices that was tried fits" +
                (plan.empty() ? "" : fmt::format("; `stepcast plan{}` searches all", plan)));
    return;
  }
  const std::vector<std::string>& change = fixes.front().set;
  std::string command = "stepcast";
  for (const std::string& argument : without_keys_of(change, without_output(arguments))) {
    command += ' ' + config::quoted_setting(argument);
  }
  command += ' ' + typed_settings(change);
  report.line(fmt::format("\nfix: {}   ({}, {} per step)", command, human(fixes.front().memory),
                          human(fixes.front().step)));
}

}  // namespace stepcast::cli
