#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"

namespace stepcast::planner {

struct BaselinePlan {
  std::optional<EmbeddingPlan> plan;  ///< empty where the method found none
  std::string remark;                 ///< why there is none, or what the method says of its plan
};

/// Another planner's method, written from its description: what our own search starts from and has
/// to beat.
struct Baseline {
  std::string_view name;
  std::function<BaselinePlan(const Job& job)> make;
  bool rival = true;  ///< a row of `--compare`; else a start alone, as rules alike say the same
};
/// All of them, in the order they are tabled.
const std::vector<Baseline>& baselines();

}  // namespace stepcast::planner
