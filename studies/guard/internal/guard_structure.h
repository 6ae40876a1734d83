#pragma once
#include <map>
#include <string>
#include <tuple>

#include "core/baseline.h"
#include "studies/guard/guard.h"

namespace stepcast::studies::internal {

/// Identifies an op of a program across runs.
using OpKey = std::tuple<std::string, OpKind, Phase>;
OpKey key_of(const BaselineOp& op);
std::map<OpKey, const BaselineOp*> by_key(const Baseline& baseline);

/// Adds to `result.structure` what differs between the programs: ranks, ops, counts, sizes.
/// `ops_after`: by_key(after).
void compare_structure(const Baseline& before, const Baseline& after,
                       const std::map<OpKey, const BaselineOp*>& ops_after, GuardResult& result);

}  // namespace stepcast::studies::internal
