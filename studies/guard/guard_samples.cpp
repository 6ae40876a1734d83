#include <algorithm>
#include <map>
#include <tuple>

#include "core/graph/op_traits.h"
#include "studies/guard/guard.h"
#include "studies/traces/step_views.h"

namespace stepcast::studies {
namespace {

using Key = std::tuple<std::string, OpKind, Phase>;

/// One op in one step.
struct Tally {
  std::map<std::int32_t, double> seconds;  ///< by rank
  double launches = 0, bytes = 0;
  KernelKind kernel = KernelKind::kOther;
};

std::map<Key, Tally> tally_of(const StepView& view, const traces::MeasuredStep& step) {
  std::map<Key, Tally> tallies;
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    const auto rank = static_cast<std::int32_t>(r);
    const Program& program = step.graph->program_of(rank);
    for (const OpSpan& s : view.ranks[r].launched) {
      const Op& op = program.ops[s.ref.op];
      Tally& t = tallies[{program.name(op), op.kind, op.phase}];
      t.seconds[rank] += static_cast<double>(step.ranks[r].duration[s.ref.op]) * 1e-12;
      t.launches += 1;
      t.kernel = kernel_kind_of(op);
      t.bytes += is_collective(op.kind) ? s.bytes : 0;
    }
  }
  return tallies;
}

/// A collective that ends together takes what it takes on the rank that waited least.
double seconds_of(const Tally& tally, OpKind kind) {
  double sum = 0, least = tally.seconds.begin()->second;
  for (const auto& [rank, s] : tally.seconds) {
    sum += s;
    least = std::min(least, s);
  }
  return ends_together(kind) ? least : sum / static_cast<double>(tally.seconds.size());
}

/// Host time of a rank between its calls, in seconds.
double issuing(const traces::MeasuredStep& step, std::int32_t rank) {
  const Program& program = step.graph->program_of(rank);
  const std::vector<std::int64_t>& issue = step.ranks[static_cast<std::size_t>(rank)].issue;
  std::int64_t sum = 0;
  for (const Call& call : program.calls) {
    const Segment& segment = program.segments[call.segment];
    for (std::size_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      sum += issue[o];
    }
  }
  return static_cast<double>(sum) * 1e-12;
}

}  // namespace

GuardSamples samples_of(const traces::MeasuredRun& run) {
  GuardSamples samples;
  samples.ranks = run.steps.front().graph->ranks();
  std::map<Key, GuardSamples::Op> ops;
  const std::vector<StepView> views = step_views(run);
  for (std::size_t s = 0; s < views.size(); ++s) {
    const traces::MeasuredStep& step = run.chain() != nullptr ? *run.chain() : run.steps[s];
    samples.step.push_back(static_cast<double>(views[s].wall) * 1e-12);
    for (const auto& [key, tally] : tally_of(views[s], step)) {
      GuardSamples::Op& op = ops[key];
      if (op.seconds.empty()) {
        std::tie(op.name, op.kind, op.phase) = key;
        op.kernel = tally.kernel;
        for (auto* v : {&op.seconds, &op.launches, &op.bytes}) {
          v->assign(views.size(), 0);
        }
      }
      op.seconds[s] = seconds_of(tally, op.kind);
      op.launches[s] = tally.launches;
      op.bytes[s] = tally.bytes;
    }
    double host = 0, exposed = 0;
    for (std::size_t r = 0; r < step.ranks.size(); ++r) {
      host += views[s].ranks[r].issuing ? views[s].ranks[r].issuing->base()
                                        : issuing(step, static_cast<std::int32_t>(r));
      exposed += to_seconds(parts_of(views[s], r).exposed_communication).base();
    }
    samples.host.push_back(host / static_cast<double>(step.ranks.size()));
    samples.exposed.push_back(exposed / static_cast<double>(step.ranks.size()));
  }
  for (auto& [key, op] : ops) {
    samples.ops.push_back(std::move(op));
  }
  return samples;
}

}  // namespace stepcast::studies
