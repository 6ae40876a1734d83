#include "studies/guard/internal/guard_structure.h"

#include <fmt/format.h>

namespace stepcast::studies::internal {
namespace {

std::string shown(const BaselineRange& range) {
  return range.low == range.high ? fmt::format("{:.10g}", range.low)
                                 : fmt::format("{:.10g} to {:.10g}", range.low, range.high);
}
}  // namespace

OpKey key_of(const BaselineOp& op) { return {op.name, op.kind, op.phase}; }

std::map<OpKey, const BaselineOp*> by_key(const Baseline& baseline) {
  std::map<OpKey, const BaselineOp*> ops;
  for (const BaselineOp& op : baseline.ops) {
    ops[key_of(op)] = &op;
  }
  return ops;
}
void compare_structure(const Baseline& before, const Baseline& after,
                       const std::map<OpKey, const BaselineOp*>& ops_after, GuardResult& result) {
  if (before.ranks != after.ranks) {  // all else follows from it
    result.structure.push_back(
        {"ranks", "", "", "", std::to_string(before.ranks), std::to_string(after.ranks), ""});
    return;
  }
  const auto differ = [&result](const char* what, const BaselineOp& op, std::string was,
                                std::string is) {
    result.structure.push_back({what, op.name, std::string(shown_kind(op.kind, op.kernel)),
                                std::string(name_of(op.phase)), std::move(was), std::move(is), ""});
  };
  const auto apart = [](const BaselineRange& a, const BaselineRange& b) {
    return b.low > a.high || b.high < a.low;
  };
  std::map<OpKey, bool> known;
  for (const BaselineOp& op : before.ops) {
    known[key_of(op)] = true;
    const auto found = ops_after.find(key_of(op));
    if (found == ops_after.end()) {
      if (op.launches.low > 0) {
        differ("op is gone", op, shown(op.launches), "0");
      }
      continue;
    }
    if (apart(op.launches, found->second->launches)) {
      differ("launches", op, shown(op.launches), shown(found->second->launches));
    }
    if (apart(op.bytes, found->second->bytes)) {
      differ("collective bytes", op, shown(op.bytes), shown(found->second->bytes));
    }
  }
  for (const auto& [key, op] : ops_after) {
    if (!known.contains(key)) {
      differ("new op", *op, "0", shown(op->launches));
    }
  }
}

}  // namespace stepcast::studies::internal
