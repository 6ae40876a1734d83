#include "studies/predict/training_run.h"

#include <algorithm>
#include <cmath>

#include "core/access/access.h"
#include "core/config/config.h"
#include "core/error.h"
#include "core/graph/optimizer_state.h"
#include "core/job/job_rules.h"
#include "core/job/tier_units.h"

namespace stepcast::studies {
namespace {

BytesPerSecond tier_bandwidth(const Job& job, const Tier& tier) {
  return tier.bandwidth * static_cast<double>(units_of(job.devices, tier.shared_by));
}

BytesPerSecond available(const Job& job, const Flow& flow) {
  if (flow.bandwidth > BytesPerSecond{}) {
    return flow.bandwidth;
  }
  for (const Tier& t : job.system.tiers) {
    if (t.name == flow.via) {
      return tier_bandwidth(job, t);
    }
  }
  for (const FabricLevel& l : job.system.fabric) {
    if (l.name == flow.via) {
      return l.bandwidth * (static_cast<double>(job.devices) / std::max(1.0, l.oversubscription));
    }
  }
  STEPCAST_FAIL("flow {} goes over {}, which the system does not have", flow.name, flow.via);
}

BytesPerSecond host_bandwidth(const Job& job) {
  for (const Tier& t : job.system.tiers) {
    if (t.name == "ddr") {
      return tier_bandwidth(job, t);
    }
  }
  STEPCAST_FAIL("system {} has no tier ddr", job.system.name);
}

Bytes row_bytes(const Job& job, const EmbeddingTable& table, const Flow& flow, bool state) {
  const Bytes weights = flow.bits > 0 ? quantised_row_bytes(static_cast<int>(flow.bits), table.dim)
                                      : format_bytes(job.row_format(table), 1, table.dim);
  return weights + Bytes(state ? state_row_bytes(job.embedding_optimizer, table.dim) : 0);
}

struct EmbeddingBytes {
  Bytes moved;
  double modified = 1;
};

EmbeddingBytes embedding_bytes(const Job& job, const LayeredWorkload& model, const Flow& flow,
                               Seconds step) {
  const bool diff = flow.what == Flow::What::kEmbeddingDiff;
  const double samples = flow.every / step * static_cast<double>(job.batch.global);
  EmbeddingBytes sum;
  double rows = 0, changed = 0;
  for (const EmbeddingTable& table : model.tables) {
    const auto all = static_cast<double>(table.rows);
    const double sent =
        diff ? std::min(all, table.access->unique(samples * table.pooling).value) : all;
    sum.moved += row_bytes(job, table, flow, flow.what != Flow::What::kParameters) * sent;
    rows += all;
    changed += sent;
  }
  sum.modified = rows > 0 ? changed / rows : 1;
  return sum;
}

/// Parameters that are not rows of embedding tables.
double dense_parameters(const Job& job) {
  double n = config::parameter_count(job.workload);
  if (const LayeredWorkload* model = job.workload.layered()) {
    for (const EmbeddingTable& t : model->tables) {
      n -= static_cast<double>(t.rows) * static_cast<double>(t.dim);
    }
  }
  return n;
}

void fill_moved(const Job& job, const Flow& flow, Seconds step, FlowCost& cost) {
  if (flow.what == Flow::What::kAmount) {
    cost.moved = flow.amount;
    return;
  }
  // Formats as the graphs hold them: weights in the compute format; the optimizer of a transformer,
  // or one that updates all dense parameters at once, works on a full copy where that is shorter,
  // others on the weights themselves.
  const double bits = bits_per_element(job.formats.compute);
  Bytes each(bits / 8);
  if (flow.what != Flow::What::kParameters) {
    const bool copies =
        job.workload.transformer() != nullptr || job.system.framework.fused_optimizer;
    const auto copy = copies ? master_copy(job.formats, job.formats.compute) : std::nullopt;
    const int states = optimizer_states(dense_rule(job.dense_optimizer));
    each += Bytes(
        (states * bits_per_element(job.formats.moments) + (copy ? bits_per_element(*copy) : 0)) /
        8);
  }
  cost.moved = each * dense_parameters(job);
  if (const LayeredWorkload* model = job.workload.layered()) {
    const EmbeddingBytes tables = embedding_bytes(job, *model, flow, step);
    cost.moved += tables.moved;
    cost.modified = tables.modified;
  }
}

/// The flow that saves the state most often: a run goes on from there.
std::size_t checkpoint_of(const Job& job) {
  std::size_t best = job.flows.size();
  for (std::size_t i = 0; i < job.flows.size(); ++i) {
    const bool saves = job.flows[i].what == Flow::What::kState;
    if (saves && (best == job.flows.size() || job.flows[i].every < job.flows[best].every)) {
      best = i;
    }
  }
  if (best == job.flows.size()) {
    throw InputError("--mtbf",
                     "what a failure loses follows from the checkpoints, and the job has none; add "
                     "one: --set 'flows=[{\"name\": \"checkpoint\", \"every\": \"30 min\", "
                     "\"bytes\": \"state\", \"via\": \"storage\", \"bandwidth\": \"200 GB/s\", "
                     "\"stall\": \"host_copy\"}]'");
  }
  return best;
}

void add_failures(const Job& job, const std::vector<FlowCost>& flows, const RunTerms& terms,
                  TrainingRun& run) {
  const std::size_t checkpoint = checkpoint_of(job);
  const FlowCost& cost = flows.at(checkpoint);
  run.checkpoint_every = job.flows[checkpoint].every;
  run.between_failures = terms.device_mtbf / static_cast<double>(job.devices);
  const Seconds arrives =
      job.flows[checkpoint].stall == Flow::Stall::kFull ? Seconds{} : cost.moved / cost.available;
  run.lost_each = run.checkpoint_every / 2 + arrives + terms.restart;
  const double share = run.lost_each / run.between_failures;
  if (share >= 1) {
    throw InputError(
        "--mtbf",
        fmt::format("{} devices fail every {:.3g} min on average, and a failure loses "
                    "{:.3g} min: no work gets done; save more often, or use fewer devices",
                    job.devices, run.between_failures / seconds(60), run.lost_each / seconds(60)));
  }
  const Seconds undisturbed = run.time;
  run.time = undisturbed / (1 - share);
  run.lost = run.time - undisturbed;
  run.failures = run.time / run.between_failures;
  run.checkpoint_arrives = cost.moved / cost.available;
  run.best_checkpoint_every =
      Seconds(std::sqrt(2 * cost.stall.base() * run.between_failures.base()));
  if (run.best_checkpoint_every > Seconds{}) {
    run.best_checkpoint_every = std::max(run.best_checkpoint_every, run.checkpoint_arrives);
  }
}

}  // namespace

std::vector<FlowCost> flow_costs(const Job& job, Seconds step) {
  std::vector<FlowCost> costs;
  for (const Flow& flow : job.flows) {
    FlowCost cost;
    cost.name = flow.name;
    fill_moved(job, flow, step, cost);
    cost.available = available(job, flow);
    cost.needed = cost.moved / flow.every;
    if (flow.stall != Flow::Stall::kNone) {
      cost.stall =
          cost.moved / (flow.stall == Flow::Stall::kFull ? cost.available : host_bandwidth(job));
    }
    cost.slowdown = cost.stall / flow.every;
    costs.push_back(std::move(cost));
  }
  return costs;
}

TrainingRun training_run(const StepPrediction& step, const std::vector<FlowCost>& flows,
                         const RunLength& length, const RunTerms& terms) {
  const Job& job = step.job;
  double per_step = 1;
  double amount = length.steps;
  if (length.tokens > 0) {
    if (job.workload.transformer() == nullptr) {
      throw InputError("--tokens", "a " + job.workload.name +
                                       " trains on samples, not tokens; use --samples or --steps");
    }
    per_step = static_cast<double>(job.batch.global) * static_cast<double>(job.batch.sequence);
    amount = length.tokens;
  } else if (length.samples > 0) {
    per_step = static_cast<double>(job.batch.global);
    amount = length.samples;
  }
  TrainingRun run;
  run.steps = std::ceil(amount / per_step);
  double slowdown = 1;
  for (const FlowCost& flow : flows) {
    slowdown += flow.slowdown;
  }
  run.time = step.iteration * (run.steps * slowdown);
  run.stall = step.iteration * (run.steps * (slowdown - 1));
  if (terms.device_mtbf > Seconds{}) {
    add_failures(job, flows, terms, run);
  }
  run.device_hours = run.time / seconds(3600) * static_cast<double>(job.devices);
  run.megawatt_hours = run.device_hours * job.system.device.watts * 1e-6;
  run.cost = run.device_hours * terms.price;
  return run;
}

}  // namespace stepcast::studies
