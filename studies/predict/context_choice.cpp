#include "studies/predict/context_choice.h"

#include <vector>

#include "core/job_split.h"
#include "models/cost_model.h"
#include "studies/predict/simulated_step.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {

Job settled(Job job) {
  const Parallel& p = job.parallel;
  if (job.workload.transformer() == nullptr || p.context == 1 ||
      p.context_algorithm != ContextAlgorithm::kAuto) {
    return job;
  }
  const std::vector<ContextAlgorithm> legal = context_algorithms(job);
  ContextAlgorithm chosen = legal.front();
  if (legal.size() == 1) {
    job.parallel.context_algorithm = chosen;
    return job;
  }
  const models::CostModel model(job.system, job.calibration);
  SimTime shortest{};
  for (const ContextAlgorithm algorithm : legal) {
    job.parallel.context_algorithm = algorithm;
    const SimTime step = simulate_step(workloads::build_graph(job), model).result.makespan;
    if (algorithm == legal.front() || step < shortest) {
      shortest = step;
      chosen = algorithm;
    }
  }
  job.parallel.context_algorithm = chosen;
  return job;
}

}  // namespace stepcast::studies
