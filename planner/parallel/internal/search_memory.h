#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "planner/parallel/internal/split_table.h"

namespace stepcast::planner::internal {

/// State that searches of one request share: its space, and what was costed of it so far. A
/// worker has paths of its own, and the tables of the task it is at.
struct SearchMemory {
  SearchMemory(const PlanRequest& request, const models::CostModel& model,
               const ParallelSearchOptions& common)
      : job(without_fits(request.job)),
        options(common),
        space(request.job, request.fixed),
        splits(job, space, options),
        tasks(splits.tasks()),
        usual(tasks.size()),
        least(tasks.size()) {
    for (int t = 0; t < std::max(options.threads, 1); ++t) {
      usual_paths.push_back(std::make_unique<ClosedFormModel>(job, model, CostBasis::kUsual));
      usual_paths.back()->reduced().share_algorithms(usual_paths.front()->reduced());
      least_paths.push_back(
          std::make_unique<ClosedFormModel>(*usual_paths.back(), CostBasis::kLowerBound));
    }
    for (const SearchTask& task : tasks) {
      split_bounds.emplace_back(task.splits.size());
      at_any_micro.emplace_back(task.splits.size());
      schedules.emplace_back(task.splits.size());
    }
  }

  [[nodiscard]] ClosedFormModel& path(CostBasis clock, std::size_t worker) const {
    return *(clock == CostBasis::kLowerBound ? least_paths : usual_paths)[worker];
  }
  [[nodiscard]] TaskTable& table(CostBasis clock, std::size_t task) {
    return (clock == CostBasis::kLowerBound ? least : usual)[task];
  }

  Job job;
  ParallelSearchOptions options;
  ParallelSpace space;
  SplitTable splits;
  std::vector<SearchTask> tasks;
  std::vector<TaskTable> usual, least;  // by task
  /// Seconds that the least clock keeps every plan of a split and micro-batch from, by task and
  /// split; 0 where nothing is known.
  std::vector<std::vector<double>> split_bounds;
  /// True if the bound of any micro-batch rules out all plans of a split, by task and split.
  std::vector<std::vector<char>> at_any_micro;
  std::vector<std::vector<const std::vector<ScheduleChoice>*>> schedules;  // likewise
  /// Schedules of splits that differ in where experts are: no rule of theirs asks for it.
  std::map<PlanPoint, std::vector<ScheduleChoice>> all_schedules;
  std::mutex making_schedules;
  std::vector<std::unique_ptr<ClosedFormModel>> usual_paths, least_paths;  // by worker
};

}  // namespace stepcast::planner::internal
