#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"

namespace stepcast::workloads {

/// Tables of a plan that are placed alike: "table_wise on one rank each", "row_wise over all 16
/// ranks", "rows 0.. on every rank, then a copy for every 8 ranks, then one copy".
struct PlanPart {
  std::int64_t tables = 0;
  std::string placed;
};

/// The kinds of placement in a plan, most tables first.
std::vector<PlanPart> plan_parts(const EmbeddingPlan& plan);

/// Whether a job has embedding tables whose plan comes from a rule (`auto`, `tiered`, one kind for
/// every table) and not from a file.
bool planned_by_rule(const Job& job);

/// One line for people: "auto: 12 tables data_parallel on every rank, 9 table_wise on one rank
/// each".
std::string plan_line(const Job& job, const EmbeddingPlan& plan);

}  // namespace stepcast::workloads
