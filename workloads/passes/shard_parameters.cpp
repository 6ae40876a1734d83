#include "workloads/passes/shard_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "workloads/passes/parameter_buckets.h"
#include "workloads/passes/program_editor.h"

namespace stepcast::workloads {
namespace {

/// Rewrites one program.
class ParameterSharding {
 public:
  ParameterSharding(Program& program, ProgramOrder& order, const Job& job,
                    const ParameterHolders& holders)
      : p_(program),
        order_(order),
        edit_(program, order, ProgramEditor::Tables::kAnew),
        buckets_(edit_, job, holders),
        overlaps_(job.parallel.overlap.data && buckets_.exchanges()),
        trains_(job.phase == JobPhase::kTrain) {
    edit_.writer().builder().set_format(holders.compute);
  }

  void run() {
    buckets_.declare();
    edit_.keep_tensors();
    plan();
    const bool gathers_once = buckets_.gathers_first_pass() && !buckets_.gathers_each_pass();
    for (std::uint32_t i = 0; i < now_.size(); ++i) {
      Written& now = now_[i];
      now.any = now.first = now.last = write(i, MicrobatchRole::kAny);
      if (segment(i).kind == SegmentKind::kForward && gathers_once) {
        now.first = write(i, MicrobatchRole::kFirst);
      }
      if (exchanged_in_[i] && overlaps_) {
        now.last = write(i, MicrobatchRole::kLast);
      }
    }
    call();
    edit_.finish(p_, order_);
  }

 private:
  /// What a segment has become, by micro-batch.
  struct Written {
    std::uint32_t any = 0, first = 0, last = 0;
  };
  enum class Step : std::uint8_t { kExchange, kUse, kOpen };  // in this order at one place
  struct Inserted {
    ProgramOrder::Place place;
    Step step = Step::kUse;
    std::int64_t which = 0;  ///< bucket, or unit
    /// Exchanges at one place go in the order in which the backward pass knew the gradients.
    std::uint32_t known = 0;
    [[nodiscard]] auto key() const { return std::tuple(place.op, place.awaits, step, known); }
  };
  /// Of a gradient: op before which it is complete, and before which the backward pass would have
  /// it where another segment makes weight gradients.
  struct Complete {
    std::uint32_t op = 0, known = 0;
    auto operator<=>(const Complete&) const = default;
  };
  static constexpr std::uint32_t kNever = 0;

  [[nodiscard]] const Segment& segment(std::uint32_t i) const {
    return edit_.program().segments[i];
  }
  [[nodiscard]] std::uint32_t end_of(std::uint32_t i) const {
    return segment(i).first_op + segment(i).op_count;
  }

  /// Calls `found` with each op of a segment that adds to a gradient, and its parameter.
  template <class Found>
  void find_writers(std::uint32_t in, const Found& found) const {
    const Program& p = edit_.program();
    for (std::uint32_t i = segment(in).first_op; i < end_of(in); ++i) {
      for (const TensorId t : p.outputs(p.ops[i])) {
        if (parameter_of_[t] >= 0) {
          found(i, static_cast<std::size_t>(parameter_of_[t]));
        }
      }
    }
  }

  void number_gradients() {
    const auto& parameters = edit_.order().parameters;
    parameter_of_.assign(edit_.program().tensors.size(), -1);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].gradient != kNoGradient) {
        parameter_of_[parameters[i].gradient] = static_cast<std::int32_t>(i);
      }
    }
    complete_.resize(parameters.size());
  }

  /// Where the gradients of a chunk's buckets are complete.
  void plan_exchanges(const ProgramOrder::Chunk& chunk) {
    if (!chunk.backward) {
      return;
    }
    find_writers(*chunk.backward, [this](std::uint32_t op, std::size_t parameter) {
      complete_[parameter] = {op + 1, op + 1};
    });
    if (chunk.weights) {
      complete_later(chunk);
    }
    const std::uint32_t in = chunk.weights.value_or(*chunk.backward);
    exchanged_in_[in] = true;
    const DeclaredParameter* const all = edit_.order().parameters.data();
    for (std::size_t b = 0; b < buckets_.buckets().size(); ++b) {
      const Bucket& bucket = buckets_.buckets()[b];
      const auto first = static_cast<std::size_t>(bucket.parameters.front() - all);
      if (!bucket.trained || first < chunk.first_parameter || first >= chunk.end_parameter) {
        continue;
      }
      Complete last;
      for (const DeclaredParameter* p : bucket.parameters) {
        const Complete& c = complete_[static_cast<std::size_t>(p - all)];
        STEPCAST_CHECK(c.known != kNever, "no op adds to a gradient of unit {}", p->unit);
        last = std::max(last, c);
      }
      inserted_[in].push_back(
          {{last.op, 0}, Step::kExchange, static_cast<std::int64_t>(b), last.known});
    }
  }

  /// With a segment of weight gradients all are exchanged there: those that the backward pass made
  /// itself once the products are done that it left before them.
  void complete_later(const ProgramOrder::Chunk& chunk) {
    const std::uint32_t in = *chunk.weights;
    std::vector<ProgramOrder::LeftOver> left;
    for (const ProgramOrder::LeftOver& l : edit_.order().left_over) {
      if (segment(in).first_op <= l.first && l.first < end_of(in)) {
        left.push_back(l);
      }
    }
    const auto after = [&](std::size_t products) {
      return products < left.size() ? left[products].first : end_of(in);
    };
    for (std::size_t p = chunk.first_parameter; p < chunk.end_parameter; ++p) {
      const auto before = std::partition_point(left.begin(), left.end(), [&](const auto& l) {
        return l.instead_of < complete_[p].known;
      });
      complete_[p].op = after(static_cast<std::size_t>(before - left.begin()));
    }
    find_writers(in, [&](std::uint32_t op, std::size_t parameter) {
      const auto next = std::partition_point(left.begin(), left.end(),
                                             [op](const auto& l) { return l.first <= op; });
      complete_[parameter] = {after(static_cast<std::size_t>(next - left.begin())),
                              std::prev(next)->instead_of};
    });
  }

  void plan() {
    const std::size_t segments = edit_.program().segments.size();
    now_.resize(segments);
    exchanged_in_.resize(segments);
    inserted_.resize(segments);
    number_gradients();
    for (const ProgramOrder::Chunk& chunk : edit_.order().chunks) {
      plan_exchanges(chunk);
    }
    for (const ProgramOrder::UnitUse& use : edit_.order().unit_uses) {
      inserted_[use.segment].push_back(
          {use.place, use.gradients ? Step::kOpen : Step::kUse, use.unit, 0});
    }
    for (std::vector<Inserted>& here : inserted_) {
      std::stable_sort(here.begin(), here.end(),
                       [](const Inserted& a, const Inserted& b) { return a.key() < b.key(); });
    }
  }

  std::uint32_t write(std::uint32_t i, MicrobatchRole role) {
    const Segment& s = segment(i);
    std::string name = s.name;
    if (role != MicrobatchRole::kAny) {
      name.insert(name.find('.'), role == MicrobatchRole::kFirst ? "_first" : "_last");
    }
    const std::uint32_t now = edit_.begin_segment(s, std::move(name), role);
    if (s.kind == SegmentKind::kBegin || s.kind == SegmentKind::kFinish) {
      edit_.keep_rest();
      write_end(s.kind);
    } else {
      edit_.writer().set_phase(s.kind == SegmentKind::kForward ? Phase::kForward
                                                               : Phase::kBackward);
      const bool gathers = buckets_.gathers_each_pass() || role == MicrobatchRole::kFirst;
      buckets_.begin_pass(units_of(i), gathers);
      for (const Inserted& at : inserted_[i]) {
        insert(at, role == MicrobatchRole::kLast);
      }
    }
    edit_.end_segment();
    return now;
  }

  [[nodiscard]] std::vector<std::int64_t> units_of(std::uint32_t i) const {
    std::vector<std::int64_t> units;
    for (const Inserted& at : inserted_[i]) {
      if (at.step == Step::kUse) {
        units.push_back(at.which);
      }
    }
    return units;
  }

  /// What comes after all that the builder wrote.
  void write_end(SegmentKind kind) {
    if (!trains_) {
      return;
    }
    if (kind == SegmentKind::kBegin) {
      edit_.writer().set_phase(Phase::kBackward);
      buckets_.zero_gradients();
    } else {
      buckets_.synchronise();
      buckets_.optimize();
    }
  }

  void insert(const Inserted& at, bool last) {
    switch (at.step) {
      case Step::kExchange:
        edit_.keep_to(at.place);
        buckets_.finished(static_cast<std::size_t>(at.which), last);
        break;
      case Step::kUse:
        edit_.keep_to(at.place);
        buckets_.use(at.which);
        break;
      case Step::kOpen:
        if (buckets_.opens_gradients(at.which)) {
          edit_.keep_to(at.place);
          buckets_.open_gradients(at.which);
        }
        break;
    }
  }

  void call() {
    const Program& p = edit_.program();
    for (const Call& call : p.calls) {
      const Written& now = now_[call.segment];
      const bool last = call.microbatch + 1 == p.microbatches;
      edit_.writer().builder().call(call.microbatch == 0 && now.first != now.any ? now.first
                                    : last                                       ? now.last
                                                                                 : now.any,
                                    call.microbatch);
    }
  }

  Program& p_;
  ProgramOrder& order_;
  ProgramEditor edit_;
  ParameterBuckets buckets_;
  bool overlaps_;  ///< exchanges, with the backward pass of the last micro-batch
  bool trains_;
  std::vector<Written> now_;                     ///< by segment, as are the next two
  std::vector<bool> exchanged_in_;               ///< gradients become complete
  std::vector<std::vector<Inserted>> inserted_;  ///< in the order of the ops
  std::vector<std::int32_t> parameter_of_;       ///< by gradient; -1: another tensor
  std::vector<Complete> complete_;               ///< by parameter
};

void run_sharding(GraphDraft& draft, const Job& job) {
  for (std::size_t i = 0; i < draft.orders.size(); ++i) {
    ParameterSharding(draft.graph.programs[i], draft.orders[i], job, draft.holders).run();
  }
}

/// A pass reads a weight in a buffer that units share while the last gather into it was of its own
/// unit. (Narrow copies of weights are made before all passes, as if of the shards.)
std::optional<std::string> verify_sharding(const GraphDraft& draft) {
  for (const Program& p : draft.graph.programs) {
    std::vector<const Tensor*> holds(p.tensors.size(), nullptr);  // by buffer: the shard gathered
    const auto buffer_of = [&p](TensorId id) -> std::optional<TensorId> {
      const std::int32_t of = p.tensors[id].view_of;
      const bool shared =
          of >= 0 && p.tensors[static_cast<std::size_t>(of)].purpose == TensorPurpose::kGathered;
      return shared ? std::optional(static_cast<TensorId>(of)) : std::nullopt;
    };
    for (const Call& call : p.calls) {
      for (const Op& op : p.ops_of(p.segments[call.segment])) {
        for (const TensorId id : p.inputs(op)) {
          const auto buffer = buffer_of(id);
          if (!buffer || p.tensors[id].role != TensorRole::kParameter ||
              p.segments[call.segment].kind == SegmentKind::kBegin) {
            continue;
          }
          const Tensor* shard = holds[*buffer];
          const auto is_it = [id](const Tensor::Source& s) { return s.tensor == id; };
          if (shard == nullptr ||
              std::none_of(shard->sources.begin(), shard->sources.end(), is_it)) {
            return fmt::format("'{}' in segment '{}' reads '{}' before it is gathered", p.name(op),
                               p.segments[call.segment].name, p.tensors[id].name);
          }
        }
        if (op.kind == OpKind::kAllGather) {
          if (const auto buffer = buffer_of(p.outputs(op).front())) {
            holds[*buffer] = &p.tensors[p.inputs(op).front()];
          }
        }
      }
    }
  }
  return std::nullopt;
}

}  // namespace

GraphPass shard_parameters_pass() {
  return {"shard_parameters", "buckets of gradients, their exchange, ZeRO, and the update",
          [](const Job& job) { return job.workload.transformer() != nullptr; }, run_sharding,
          verify_sharding};
}

}  // namespace stepcast::workloads
