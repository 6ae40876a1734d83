#include "cli/print/bencher.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/graph/op.h"
#include "core/statistics.h"

namespace stepcast::cli {
namespace {

nlohmann::ordered_json latency(const BaselineTimes& times) {
  const auto [least, largest] = std::minmax_element(times.median.begin(), times.median.end());
  constexpr double kNanoseconds = 1e9;
  return {{"latency",
           {{"value", middle_of(times.median) * kNanoseconds},
            {"lower_value", *least * kNanoseconds},
            {"upper_value", *largest * kNanoseconds}}}};
}

}  // namespace

std::string bencher_json(const Baseline& runs) {
  nlohmann::ordered_json j = nlohmann::ordered_json::object();
  const auto add = [&j](const std::string& name, const BaselineTimes& times) {
    if (!times.median.empty()) {
      j[name] = latency(times);
    }
  };
  add("step", runs.step);
  add("host", runs.host);
  add("exposed communication", runs.exposed);
  add("small ops together", runs.small_ops);
  for (const BaselineOp& op : runs.ops) {
    if (!op.small) {
      add(fmt::format("{} ({}, {})", op.name, name_of(op.kind), name_of(op.phase)), op.time);
    }
  }
  return j.dump(2) + "\n";
}

}  // namespace stepcast::cli
