#include "studies/plan/internal/step_estimate.h"

#include "studies/predict/simulated_step.h"
#include "workloads/build_graph.h"

namespace stepcast::studies::internal {
namespace {

constexpr std::int64_t kLeastRound = 4;
constexpr std::int64_t kRounds = 3;  // of the longer simulation; the other has one less

}  // namespace

std::optional<double> estimated_step(const Job& job, const models::CostModel& model) {
  const std::int64_t microbatches = job.microbatches();
  const std::int64_t stages = job.parallel.pipeline;
  const std::int64_t round = (kLeastRound + stages - 1) / stages * stages;
  if (microbatches < 2 * (2 * kRounds - 1) * round || model.straggler().log_sigma > 0) {
    return std::nullopt;
  }
  const auto seconds = [&](std::int64_t rounds) {
    Job fewer = job;
    fewer.batch.global = job.parallel.data * job.batch.micro * rounds * round;
    const ExecutionGraph graph = workloads::build_graph(fewer);
    return to_seconds(simulate_step(graph, model).result.makespan).base();
  };
  const double longer = seconds(kRounds);
  const double added = longer - seconds(kRounds - 1);
  return longer +
         added * static_cast<double>(microbatches - kRounds * round) / static_cast<double>(round);
}

}  // namespace stepcast::studies::internal
