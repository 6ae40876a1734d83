#pragma once
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "studies/guard/guard.h"

namespace stepcast::cli {

/// The verdict of a guard (studies/guard/guard.h) for people, machines, CI servers and pull requests.
void print_guard(const studies::GuardResult& result, std::ostream& out);
nlohmann::ordered_json guard_json(const studies::GuardResult& result);
void print_guard_csv(const studies::GuardResult& result, std::ostream& out);
/// JUnit XML: a test case per guarded time and one for structure.
std::string guard_junit(const studies::GuardResult& result);
std::string guard_markdown(const studies::GuardResult& result);

}  // namespace stepcast::cli
