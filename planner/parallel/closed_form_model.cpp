#include "planner/parallel/closed_form_model.h"

#include <algorithm>

#include "simulator/reports/framework_memory.h"

namespace stepcast::planner {
namespace {

/// Share of a stage's time from which on issuing makes the device wait for the host here and there.
constexpr double kHostShare = 0.75;

/// A chunk's layers: those whose values are kept, and those that are recomputed.
struct Recomputed {
  LayerCounts kept, again;
  bool operator==(const Recomputed&) const = default;
};

/// The first `again` layers of a chunk are recomputed.
Recomputed recomputed_layers(const PipelineLayout& layout, std::size_t at, std::int32_t again) {
  const LayerCounts first = layout.first(at, again);
  return {layout.kinds[at] - first, first};
}

double mixed(const Line& kept, const Line& recomputed, const Recomputed& n) {
  return kept.at(n.kept) + recomputed.of(n.again);
}

/// By how much a pass may fall below the sum over its layers, where they are of several kinds:
/// compute of one kind may hide the transfers of a layer of another.
double hidden_between(const Line& exposed, const Line& again, Recomputed n) {
  return (n.kept += n.again).mixed() ? std::max({exposed.most(), again.most(), 0.0}) : 0;
}

/// Cost that the states of a chunk add to the step.
struct ChunkStates {
  double exchange = 0, after_ends = 0, update = 0, begin = 0, ops = 0;
  bool meets_ends = false;
  double late = 0;  ///< of the exchange alone, which updates may overlap with: at least
};

/// The least of an exchange whose transfers take so long, of a chunk whose last backward pass is
/// `last`: what that cannot hide, once it falls behind with so many layers that it goes on alike.
double exposed(const Line& transfers, const Line& last, const PipelineLayout& layout,
               std::size_t at) {
  const std::int32_t layers = layout.layers[at];
  const auto behind = [&](std::int32_t n) {
    const LayerCounts first = layout.first(at, n);
    return transfers.at(first) - last.at(first);
  };
  const auto settled = std::min(layers, static_cast<std::int32_t>(LayerCostProbe::kSettled));
  return behind(settled) > 0 ? std::max(behind(layers), 0.0) : 0;
}

/// Seconds of a message by the crossing it takes; none for -1.
double of_message(const std::vector<double>& seconds, std::int32_t crossing) {
  return crossing < 0 ? 0 : seconds[static_cast<std::size_t>(crossing)];
}

Line PassCosts::*last_pass(ScheduleKind schedule) {
  return splits_weights(schedule) ? &PassCosts::weights : &PassCosts::backward;
}

/// Those of one chunk after another, with such passes; most are like the one before.
class ChunkStatesOf {
 public:
  ChunkStatesOf(const ByRole<StateCosts>& states, const PipelineLayout& layout,
                const Passes& passes, Line PassCosts::*last)
      : states_(states), layout_(layout), passes_(passes), last_(last) {}
  const ChunkStates& at(std::size_t chunk) {
    const auto role = static_cast<std::size_t>(layout_.role[chunk]);
    const LayerCounts& layers = layout_.kinds[chunk];
    if (role != role_ || layers != layers_) {
      const StateCosts& c = states_[role];
      const double late =
          c.meets_ends ? 0 : exposed(c.transfers, passes_.role[role].*last_, layout_, chunk);
      now_ = {c.exchange.at(layers),
              c.after_ends.at(layers),
              c.update.at(layers),
              c.begin.at(layers) + c.first.at(layers),
              c.ops.at(layers),
              c.meets_ends,
              late};
      role_ = role;
      layers_ = layers;
    }
    return now_;
  }

 private:
  const ByRole<StateCosts>& states_;
  const PipelineLayout& layout_;
  const Passes& passes_;
  Line PassCosts::*last_;
  std::size_t role_ = kChunkRoles;
  LayerCounts layers_;
  ChunkStates now_;
};

}  // namespace

StageMessageTimes message_times_of(const LayerCostProbe& reduced, const Passes& passes,
                                   const PlanPoint& point) {
  StageMessageTimes message_times;
  for (std::int32_t s = 0; point.pipeline > 1 && s < point.pipeline; ++s) {
    const LayerCostProbe::Hop forward = reduced.hop(passes.forward_message, point, s);
    const bool used = s + 1 < point.pipeline || point.virtual_stages > 1;
    message_times.levels |= used ? forward.levels : 0U;
    message_times.forward.push_back(forward.seconds);
    message_times.backward.push_back(reduced.hop(passes.backward_message, point, s).seconds);
  }
  return message_times;
}

ClosedFormModel::ClosedFormModel(const Job& job, const models::CostModel& model, CostBasis clock)
    : job_(job), model_(model), reduced_(job, model, clock), clock_(clock) {
  issue_ = model.host().issue.base();
  step_ = model.host().step.base();
  fragmentation_ =
      simulator::framework_memory(model.system().device, {}, Bytes(1)).fragmentation.base();
}

ClosedFormModel::ClosedFormModel(const ClosedFormModel& other, CostBasis clock)
    : job_(other.job_),
      model_(other.model_),
      reduced_(other.reduced_, clock),
      clock_(clock),
      issue_(other.issue_),
      step_(other.step_),
      fragmentation_(other.fragmentation_) {}

bool ClosedFormModel::applies() {
  time();
  const Overlap& overlap = job_.parallel.overlap;
  if (model_.host().shares_core || model_.rest_matters()) {
    return false;
  }
  if ((point_.devices() > 1 && model_.straggler().log_sigma > 0) ||
      (point_.pipeline > 1 && overlap.pipeline) ||
      (point_.expert > 1 && point_.tensor > 1 && overlap.expert) ||
      (reduced_.has_copies(point_) && (overlap.data || (overlap.tensor && point_.tensor > 1)))) {
    return false;
  }
  for (std::int32_t stage = 0; stage < passes_.stages; ++stage) {
    double busy = 0;
    for (std::int32_t c = 0; c < passes_.chunks; ++c) {
      const std::size_t at = passes_.at(stage, c);
      busy += passes_.forward[at] + passes_.backward[at] + passes_.weights_at(at);
    }
    if (pass_ops_[static_cast<std::size_t>(stage)] * issue_ > kHostShare * busy) {
      return false;
    }
  }
  return point_.pipeline == 1 || message_share_ <= 0.01 ||
         (!shares_levels_ && message_share_ <= 0.05);
}

bool ClosedFormModel::bounds_simulator() {
  const Overlap& overlap = job_.parallel.overlap;
  const bool overlaps =
      (point_.tensor > 1 && overlap.tensor) || (reduced_.has_copies(point_) && overlap.data) ||
      (point_.expert > 1 && overlap.expert) || (point_.pipeline > 1 && overlap.pipeline);
  return !overlaps || applies();
}

void ClosedFormModel::set_passes(const PlanPoint& point, const PipelineLayout& layout,
                                 const Passes& kept, const Passes& recomputed,
                                 const StageMessageTimes& message_times) {
  point_ = point;
  layout_ = &layout;
  passes_.stages = layout.stages;
  passes_.chunks = layout.chunks;
  passes_.microbatches = job_.batch.global / (std::int64_t{point.data} * point.micro);
  const std::size_t all = layout.layers.size();
  recomputed_.resize(all);
  for (std::int32_t s = 0; s < layout.stages; ++s) {
    std::int32_t left = point.recompute == RecomputeKind::kFirstLayers ? point.recompute_layers : 0;
    for (std::int32_t c = 0; c < layout.chunks; ++c) {
      const std::size_t at = passes_.at(s, c);
      recomputed_[at] = std::min(left, layout.layers[at]);
      left -= recomputed_[at];
    }
  }
  // In a V both passes run in both directions, the backward ones over a communicator of their own.
  const bool v = layout.chunks > 1 && traits_of(point.schedule).placement == ChunkPlacement::kV;
  const std::vector<std::size_t> ranks{static_cast<std::size_t>(point.pipeline)};
  more_buffers_ =
      v && !job_.parallel.overlap.pipeline
          ? simulator::framework_memory(model_.system().device, ranks, {}).communicators.base()
          : 0;
  kept_ = &kept;
  again_ = &recomputed;
  message_times_ = &message_times;
  timed_ = false;
  counted_ = false;
  ends_.clear();
}

bool ClosedFormModel::trades_memory_for_time() const {
  const auto no_more = [](double a, double b) { return a <= b * (1 + 1e-9); };
  for (std::size_t role = 0; role < kChunkRoles; ++role) {
    const PassCosts& k = kept_->role[role];
    const PassCosts& a = again_->role[role];
    for (std::size_t kind = 0; kind < kMostBlockKinds; ++kind) {
      const auto of = [kind](const Line& line) { return line.layer[kind]; };
      const double saved = of(k.kept) - of(a.kept);
      // The pass at work is one of those in flight.
      if (saved < 0 || !no_more(of(a.backward_only), of(k.backward_only) + saved) ||
          !no_more(of(a.forward_only), of(k.forward_only) + saved) ||
          !no_more(of(k.forward), of(a.forward)) || !no_more(of(k.backward), of(a.backward))) {
        return false;
      }
    }
  }
  return true;
}

/// Most points of a search do not fit: times are made when they are asked for.
void ClosedFormModel::time() {
  if (timed_) {
    return;
  }
  pass_times(*kept_, *again_, *message_times_);
  share_of_messages(*kept_, *message_times_);
  pipeline_bound(point_.schedule, passes_, bound_ends_);
  timed_ = true;
}

void ClosedFormModel::pass_times(const Passes& kept, const Passes& recomputed,
                                 const StageMessageTimes& message_times) {
  const std::size_t all = layout_->layers.size();
  passes_.forward.resize(all);
  passes_.backward.resize(all);
  const bool splits = splits_weights(point_.schedule);
  passes_.weights.resize(splits ? all : 0);
  pass_ops_.assign(static_cast<std::size_t>(layout_->stages), 0.0);
  const bool least = clock_ == CostBasis::kLowerBound;
  overlapped_.assign(least ? static_cast<std::size_t>(layout_->stages) : 0, 0.0);
  std::size_t stage = 0;
  struct {
    Recomputed layers;
    double forward = 0, backward = 0, weights = 0, ops = 0, overlapped = 0;
  } chunk;  // most are like the one before
  for (std::size_t at = 0; at < all; ++at) {
    const auto role = static_cast<std::size_t>(layout_->role[at]);
    const Recomputed n = recomputed_layers(*layout_, at, recomputed_[at]);
    if (at == 0 || layout_->role[at] != layout_->role[at - 1] || n != chunk.layers) {
      const PassCosts& a = kept.role[role];
      const PassCosts& b = recomputed.role[role];
      chunk.layers = n;
      // Groups of some stages may straddle a unit of the fabric: a line through two of them may run
      // below nothing at few layers.
      chunk.forward = std::max(
          mixed(a.forward, b.forward, n) - hidden_between(a.forward_exposed, b.forward_exposed, n),
          0.0);
      chunk.backward = std::max(mixed(a.backward, b.backward, n) -
                                    hidden_between(a.backward_exposed, b.backward_exposed, n),
                                0.0);
      chunk.ops = mixed(a.forward_ops, b.forward_ops, n) + mixed(a.backward_ops, b.backward_ops, n);
      if (least) {
        chunk.overlapped = mixed(a.overlapped, b.overlapped, n);
      }
      if (splits) {
        chunk.weights = std::max(mixed(a.weights, b.weights, n), 0.0);
        chunk.ops += mixed(a.weights_ops, b.weights_ops, n);
      }
    }
    passes_.forward[at] =
        chunk.forward + of_message(message_times.forward, layout_->arrives_over[at]);
    // A gradient comes from the next virtual stage over the link its activation went out on.
    passes_.backward[at] =
        chunk.backward + of_message(message_times.backward, layout_->returns_over[at]);
    pass_ops_[stage] += chunk.ops;
    if (least) {
      overlapped_[stage] += chunk.overlapped;
    }
    if (splits) {
      passes_.weights[at] = chunk.weights;
    }
    if (++stage == static_cast<std::size_t>(layout_->stages)) {
      stage = 0;
    }
  }
}

void ClosedFormModel::share_of_messages(const Passes& kept,
                                        const StageMessageTimes& message_times) {
  message_share_ = 0;
  shares_levels_ = (kept.levels & message_times.levels) != 0;
  const auto stages = static_cast<std::size_t>(layout_->stages);
  const std::size_t all = layout_->layers.size();
  for (std::size_t s = 0; s < stages && stages > 1; ++s) {
    double messages = 0;
    double busy = 0;
    for (std::size_t at = s; at < all; at += stages) {
      messages += of_message(message_times.forward, layout_->arrives_over[at]) +
                  of_message(message_times.backward, layout_->returns_over[at]);
      busy += passes_.forward[at] + passes_.backward[at] + passes_.weights_at(at);
    }
    message_share_ = std::max(message_share_, messages / busy);
  }
}

void ClosedFormModel::activations() {
  if (counted_) {
    return;
  }
  counted_ = true;
  const Passes& kept = *kept_;
  const Passes& recomputed = *again_;
  activations_.clear();
  const auto chunks = static_cast<std::size_t>(layout_->chunks);
  const bool splits = splits_weights(point_.schedule);
  const bool v = layout_->chunks > 1 && traits_of(point_.schedule).placement == ChunkPlacement::kV;
  keeps_.resize((splits ? 3 : 1) * chunks + (v ? 1 : 0));
  if (v) {
    const Op& message = kept.forward_message;
    const bool part = job_.system.framework.scatter_gather && !point_.sequence_parallel;
    keeps_.back() = static_cast<double>(message.shape[0]) * (part ? point_.tensor : 1) *
                    bits_per_element(message.format) / 8;
  }
  during_.resize((splits ? 3 : 2) * chunks);
  for (const std::int32_t s : layout_->fullest) {
    Activations most{s, 0, 0};
    for (std::size_t c = 0; c < chunks; ++c) {
      const std::size_t at = passes_.at(s, static_cast<std::int32_t>(c));
      const auto role = static_cast<std::size_t>(layout_->role[at]);
      const PassCosts& a = kept.role[role];
      const PassCosts& b = recomputed.role[role];
      const Recomputed n = recomputed_layers(*layout_, at, recomputed_[at]);
      double* const keeps = &keeps_[(splits ? 3 : 1) * c];
      double* const during = &during_[(splits ? 3 : 2) * c];
      keeps[0] = mixed(a.kept, b.kept, n);
      during[0] = mixed(a.backward_only, b.backward_only, n);
      during[1] = mixed(a.forward_only, b.forward_only, n);
      const PassCosts& wider = recomputed_[at] > 0 ? b : a;
      most.temporaries =
          std::max(most.temporaries, wider.temporaries[layout_->kinds[at].present()]);
      if (splits) {
        keeps[1] = mixed(a.kept_to_weights, b.kept_to_weights, n);
        keeps[2] = mixed(a.gradients_kept, b.gradients_kept, n);
        during[2] = mixed(a.weights_only, b.weights_only, n);
      }
    }
    if (chunks == 1 && !splits) {
      const std::int64_t most_in_flight =
          std::min(passes_.microbatches, warm_up_passes(point_.schedule, passes_, s) + 1);
      most.bytes =
          static_cast<double>(most_in_flight) * keeps_[0] + std::max(during_[0], during_[1]);
    } else {
      const InFlight::Most& known = in_flight_.most(point_.schedule, layout_->stages,
                                                    layout_->chunks, passes_.microbatches, s);
      most.bytes = known.bytes(keeps_, during_, at_moment_);
    }
    activations_.push_back(most);
  }
}

/// Each stage exchanges and updates after its own last backward pass; first and last meet in
/// between where they share embeddings.
double ClosedFormModel::end_of(const ByRole<StateCosts>& states,
                               const std::vector<double>& ends_at) const {
  const auto stages = static_cast<std::size_t>(layout_->stages);
  double begin = 0;
  double end = 0;
  struct End {
    double meeting = 0, rest = 0;
    bool meets = false;
  };
  End ends[2];
  double meeting = 0;
  ChunkStatesOf of_chunk(states, *layout_, *again_, last_pass(point_.schedule));
  for (std::size_t s = 0; s < stages; ++s) {
    double exchange = 0;
    double after = 0;
    double update = 0;
    double own_begin = 0;
    double late = 0;
    bool meets = false;
    for (std::size_t at = s; at < layout_->layers.size(); at += stages) {
      const ChunkStates& c = of_chunk.at(at);
      (meets ? after : exchange) += c.exchange;
      after += c.after_ends;
      update += c.update;
      own_begin += c.begin;
      late += c.late;
      meets = meets || c.meets_ends;
    }
    begin = s == 0 ? own_begin : begin;
    end = std::max(end, ends_at[s] + late);
    const double reached = ends_at[s] + exchange;
    if (meets) {
      meeting = std::max(meeting, reached);
      ends[s == 0 ? 0 : 1] = {reached, after + update, true};
    } else {
      end = std::max(end, reached + after + update);
    }
  }
  for (const End& e : ends) {
    end = e.meets ? std::max(end, meeting + e.rest) : end;
  }
  return step_ + begin + end;
}

/// When the host threads have issued everything, if that takes longer than the work.
double ClosedFormModel::host_end(const ByRole<StateCosts>& states) const {
  double most = 0;
  const auto stages = static_cast<std::size_t>(layout_->stages);
  ChunkStatesOf of_chunk(states, *layout_, *again_, last_pass(point_.schedule));
  for (std::size_t s = 0; s < stages; ++s) {
    double ops = pass_ops_[s] * static_cast<double>(passes_.microbatches);
    for (std::size_t at = s; at < layout_->layers.size(); at += stages) {
      ops += of_chunk.at(at).ops;
    }
    most = std::max(most, ops);
  }
  return step_ + most * issue_;
}

double ClosedFormModel::bytes(const ByRole<StateCosts>& states) {
  activations();
  return bytes_of(states, true);
}
double ClosedFormModel::lasting_bytes(const ByRole<StateCosts>& states) {
  activations();
  return bytes_of(states, false);
}

double ClosedFormModel::bytes_of(const ByRole<StateCosts>& states, bool with_temporaries) const {
  double most = 0;
  const auto stages = static_cast<std::size_t>(layout_->stages);
  for (const Activations& a : activations_) {
    double bytes = more_buffers_;
    double buffers = 0;
    double temporaries = a.temporaries;
    LayerCounts of_stage;
    for (auto at = static_cast<std::size_t>(a.stage); at < layout_->layers.size(); at += stages) {
      of_stage += layout_->kinds[at];
    }
    for (auto at = static_cast<std::size_t>(a.stage); at < layout_->layers.size(); at += stages) {
      const StateCosts& c = states[static_cast<std::size_t>(layout_->role[at])];
      const LayerCounts& layers = layout_->kinds[at];
      bytes += c.parameters.at(layers) + c.gradients.at(layers) + c.optimizer.at(layers);
      bytes += c.buffers.of(layers);
      // Chunks share the rest, with communicators of all kinds of layers of the stage. One without
      // layers shares what those have that have some.
      const StateCosts& shared = layers.all() > 0 || layout_->chunks == 1 ? c
                                 : at == 0 ? states[static_cast<std::size_t>(ChunkRole::kFirst)]
                                           : states[static_cast<std::size_t>(ChunkRole::kLast)];
      buffers = std::max(buffers, shared.shared_buffers(of_stage));
      temporaries = std::max(temporaries, c.temporaries.at(layers));
    }
    const double activations = a.bytes + (with_temporaries ? temporaries : 0);
    most = std::max(most, bytes + buffers + activations * (1 + fragmentation_));
  }
  return most;
}

double ClosedFormModel::bound() {
  time();
  return step_ + *std::max_element(bound_ends_.begin(), bound_ends_.end());
}

double ClosedFormModel::bound(const ByRole<StateCosts>& states) {
  time();
  return seconds_of(states, bound_ends_);
}

double ClosedFormModel::seconds_of(const ByRole<StateCosts>& states,
                                   const std::vector<double>& ends) const {
  double seconds = std::max(end_of(states, ends), host_end(states));
  for (const double overlapped : overlapped_) {  // the last backward pass may have other transfers
    seconds = std::max(seconds, step_ + static_cast<double>(passes_.microbatches - 1) * overlapped);
  }
  return seconds;
}

double ClosedFormModel::step(const ByRole<StateCosts>& states) {
  time();
  if (ends_.empty()) {
    walk_.ends(point_.schedule, passes_, ends_);
  }
  return seconds_of(states, ends_);
}

StepForecast ClosedFormModel::forecast(const PlanPoint& point) {
  const PipelineLayout layout =
      layout_of(*job_.workload.transformer(), point.pipeline, point.virtual_stages,
                pipeline_split(job_, point), traits_of(point.schedule).placement);
  const bool mixture = point.recompute == RecomputeKind::kFirstLayers;
  PlanPoint key = point;
  key.recompute = mixture ? RecomputeKind::kNone : point.recompute;
  const Passes kept = reduced_.passes(key);
  key.recompute = RecomputeKind::kFull;
  const Passes again = mixture ? reduced_.passes(key) : kept;
  const StageMessageTimes message_times = message_times_of(reduced_, kept, point);
  set_passes(point, layout, kept, again, message_times);
  const ByRole<StateCosts> states = reduced_.states(point);
  return {step(states), bytes(states)};
}

}  // namespace stepcast::planner
