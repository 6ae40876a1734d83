#include "planner/baselines/baselines.h"

#include "planner/baselines/methods.h"

namespace stepcast::planner {

const std::vector<Baseline>& baselines() {
  static const std::vector<Baseline> all{
      {"random", random_plan},
      {"round_robin", round_robin_plan},
      {"dim_greedy", dim_greedy_plan},
      {"size_greedy", size_greedy_plan},
      {"lookup_greedy", lookup_greedy_plan},
      {"size_lookup_greedy", size_lookup_greedy_plan},
      {"bytes_only", bytes_only_plan},
      {"flat_row_wise", flat_row_wise_plan},
      {"torchrec_greedy", torchrec_greedy_plan},
      {"torchrec_dp", torchrec_dp_plan},
      {"hugectr_auto", hugectr_plan},
  };
  return all;
}

}  // namespace stepcast::planner
