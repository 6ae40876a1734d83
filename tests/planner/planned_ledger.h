#pragma once
#include <catch2/catch.hpp>

#include "core/graph/memory_use.h"
#include "core/graph/program.h"
#include "planner/embedding/embedding_planner.h"
#include "tests/planner/plain_jobs.h"
#include "workloads/build_graph.h"

namespace stepcast::planner {

/// Plans a job with the least effort and calls `check(line, use, program)` for the device memory of
/// each rank: what the plan's ledger says, and what the graph of that plan allocates.
template <class Check>
void each_device_line(Job job, const Check& check) {
  const models::CostModel model(job.system, job.calibration);
  PlannerOptions options;
  options.search.effort = planner::SearchEffort::kQuick;
  const EmbeddingPlanning found = plan_embeddings(job, model, options);
  const PlannedCandidate* best = found.best();
  if (best == nullptr) {
    return;
  }
  job.embedding_plan = best->plan;
  const ExecutionGraph graph = workloads::build_graph(job);
  for (const LedgerLine& l : best->plan.ledger) {
    const Program& program = graph.program_of(l.rank);
    const MemoryUse use = memory_use(program);
    CAPTURE(l.rank, l.total(), use.total().base());
    if (l.tier == "hbm") {
      check(l, use, program);
    }
  }
}

}  // namespace stepcast::planner
