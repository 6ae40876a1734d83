#pragma once
#include <string>

#include "cli/print/report.h"
#include "studies/guard/guard.h"

namespace stepcast::cli {

/// The verdict of a guard (studies/guard/guard.h) for people, machines, CI servers and pull
/// requests.
void add_guard(const studies::GuardResult& result, Report& report);
/// JUnit XML: a test case per guarded time and one for structure; a verdict that cannot be given is
/// a failed one, unless that passes.
std::string guard_junit(const studies::GuardResult& result, bool cannot_judge_passes);
std::string guard_markdown(const studies::GuardResult& result);

}  // namespace stepcast::cli
