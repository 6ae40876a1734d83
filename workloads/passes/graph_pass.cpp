#include "workloads/passes/graph_pass.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "core/error.h"
#include "workloads/passes/fuse_epilogues.h"
#include "workloads/passes/hide_exchanges.h"
#include "workloads/passes/offload_activations.h"
#include "workloads/passes/recompute.h"
#include "workloads/passes/shard_parameters.h"
#include "workloads/passes/streams.h"

namespace stepcast::workloads {

std::span<const GraphPass> graph_passes() {
  static const std::array<GraphPass, 6> kPasses{
      shard_parameters_pass(), recompute_pass(), offload_activations_pass(), hide_exchanges_pass(),
      streams_pass(), fuse_epilogues_pass()};
  return kPasses;
}

std::vector<PassRun> run_passes(GraphUnderConstruction& draft, const Job& job,
                                const PassOptions& options) {
  using Clock = std::chrono::steady_clock;
  std::vector<PassRun> runs;
  for (const GraphPass& pass : graph_passes()) {
    const bool off =
        std::find(options.off.begin(), options.off.end(), pass.name) != options.off.end();
    if (off && options.replace && pass.applies(job) && pass.without != nullptr) {
      pass.without(draft, job);
    }
    if (off || !pass.applies(job)) {
      continue;
    }
    const Clock::time_point begin = Clock::now();
    pass.run(draft, job);
    runs.push_back(
        {pass.name, Seconds(std::chrono::duration<double>(Clock::now() - begin).count())});
    if (options.verify) {
      const std::optional<std::string> fault = pass.verify(draft);
      STEPCAST_CHECK(!fault, "pass '{}': {}", pass.name, fault.value_or(""));
    }
  }
  return runs;
}

}  // namespace stepcast::workloads
