#include "workloads/passes/shard_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
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
  ParameterSharding(Program& program, DependencyInfo& order, const Job& job,
                    const ParameterHolders& holders)
      : p_(program),
        order_(order),
        edit_(program, order, ProgramEditor::Tables::kAnew),
        buckets_(edit_, job, holders),
        overlaps_(job.parallel.overlap.data && buckets_.exchanges()),
        gathers_once_(buckets_.gathers_first_pass() && !buckets_.gathers_each_pass()),
        trains_(job.phase == JobPhase::kTrain) {
    edit_.writer().builder().set_format(holders.compute);
  }

  void run() {
    buckets_.declare();
    edit_.keep_tensors();
    plan();
    for (std::uint32_t i = 0; i < now_.size(); ++i) {
      Written& now = now_[i];
      now.any = now.first = now.last = write(i, MicrobatchRole::kAny);
      if (segment(i).kind == SegmentKind::kForward && gathers_once_) {
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
  /// Segment after the pass, by micro-batch.
  struct Written {
    std::uint32_t any = 0, first = 0, last = 0;
  };
  enum class Step : std::uint8_t { kExchange, kUse, kOpen };  // in this order at one place
  struct Inserted {
    DependencyInfo::Place place;
    Step step = Step::kUse;
    std::int64_t which = 0;  ///< bucket, or unit
    /// Exchanges at one place go in the order in which the backward pass knew the gradients.
    std::uint32_t known = 0;
    [[nodiscard]] auto key() const { return std::tuple(place.op, place.awaits, step, known); }
  };
  /// For a gradient: op before which it is complete, and before which the backward pass would have
  /// it where another segment makes weight gradients.
  struct Complete {
    std::uint32_t op = 0, known = 0;
    auto operator<=>(const Complete&) const = default;
  };
  static constexpr std::uint32_t kNever = 0;
  /// An op before all passes that reads weights of a unit which the first pass gathers: it makes
  /// narrow copies of them, and does so there.
  struct Moved {
    std::uint32_t op = 0;
    std::int64_t unit = 0;
  };

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

  /// Finds the ops after which the gradients of a chunk's buckets are complete.
  void plan_exchanges(const DependencyInfo::Chunk& chunk) {
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
  void complete_later(const DependencyInfo::Chunk& chunk) {
    const std::uint32_t in = *chunk.weights;
    std::vector<DependencyInfo::LeftOver> left;
    for (const DependencyInfo::LeftOver& l : edit_.order().left_over) {
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

  void plan_moves() {
    std::unordered_map<TensorId, std::int64_t> units;  // by weight
    for (const Bucket& bucket : buckets_.buckets()) {
      for (const DeclaredParameter* p : bucket.parameters) {
        if (gathers_once_ && buckets_.gathers_first_pass(bucket)) {
          units.emplace(p->weight, p->unit);
        }
      }
    }
    Program& p = edit_.program();
    for (const Segment& s : p.segments) {
      for (std::uint32_t i = s.first_op;
           s.kind == SegmentKind::kBegin && i < s.first_op + s.op_count; ++i) {
        for (const TensorId id : p.inputs(p.ops[i])) {
          if (const auto unit = units.find(id); unit != units.end()) {
            moved_.push_back({i, unit->second});
            p.ops[i].phase = Phase::kForward;
            break;
          }
        }
      }
    }
  }

  void plan() {
    const std::size_t segments = edit_.program().segments.size();
    now_.resize(segments);
    exchanged_in_.resize(segments);
    inserted_.resize(segments);
    number_gradients();
    for (const DependencyInfo::Chunk& chunk : edit_.order().chunks) {
      plan_exchanges(chunk);
    }
    plan_moves();
    for (const DependencyInfo::UnitUse& use : edit_.order().unit_uses) {
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
      for (std::size_t m = 0; s.kind == SegmentKind::kBegin && m < moved_.size(); ++m) {
        edit_.keep_to({moved_[m].op, 0});
        edit_.leave_out();
      }
      edit_.keep_rest();
      write_end(s.kind);
    } else {
      edit_.writer().set_phase(s.kind == SegmentKind::kForward ? Phase::kForward
                                                               : Phase::kBackward);
      const bool gathers = buckets_.gathers_each_pass() || role == MicrobatchRole::kFirst;
      buckets_.begin_pass(units_of(i), gathers);
      for (const Inserted& at : inserted_[i]) {
        insert(at, role);
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

  /// Writes what comes after all that the builder wrote.
  void write_end(SegmentKind kind) {
    if (!trains_) {
      return;
    }
    if (kind == SegmentKind::kBegin) {
      gather_ahead();
      edit_.writer().set_phase(Phase::kBackward);
      buckets_.zero_gradients();
    } else {
      buckets_.synchronise();
      buckets_.optimize();
    }
  }

  void gather_ahead() {
    edit_.writer().set_phase(Phase::kForward);
    for (const DependencyInfo::Chunk& chunk : edit_.order().chunks) {
      for (const std::int64_t unit : units_of(*chunk.forward)) {
        buckets_.gather_ahead(unit);
      }
    }
  }

  void insert(const Inserted& at, MicrobatchRole role) {
    switch (at.step) {
      case Step::kExchange:
        edit_.keep_to(at.place);
        edit_.writer().builder().set_layer(
            buckets_.buckets()[static_cast<std::size_t>(at.which)].unit);
        buckets_.finished(static_cast<std::size_t>(at.which), role == MicrobatchRole::kLast);
        break;
      case Step::kUse:
        edit_.keep_to(at.place);
        buckets_.use(at.which);
        for (const Moved& m : moved_) {
          if (role == MicrobatchRole::kFirst && m.unit == at.which) {
            edit_.bring(m.op);
          }
        }
        break;
      case Step::kOpen:
        if (buckets_.opens_gradients(at.which)) {
          edit_.keep_to(at.place);
          edit_.writer().builder().set_layer(at.which);
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
  DependencyInfo& order_;
  ProgramEditor edit_;
  ParameterBuckets buckets_;
  bool overlaps_;      ///< exchanges, with the backward pass of the last micro-batch
  bool gathers_once_;  ///< weights, before the first forward pass
  bool trains_;
  std::vector<Written> now_;                     ///< by segment, as are the next two
  std::vector<bool> exchanged_in_;               ///< gradients become complete
  std::vector<std::vector<Inserted>> inserted_;  ///< in the order of the ops
  std::vector<std::int32_t> parameter_of_;       ///< by gradient; -1: another tensor
  std::vector<Complete> complete_;               ///< by parameter
  std::vector<Moved> moved_;                     ///< in their order
};

void run_sharding(GraphUnderConstruction& draft, const Job& job) {
  for (std::size_t i = 0; i < draft.orders.size(); ++i) {
    ParameterSharding(draft.graph.programs[i], draft.orders[i], job, draft.holders).run();
  }
}

/// A step of one rank that holds all parameters of its place in the model.
void run_whole(GraphUnderConstruction& draft, const Job& job) {
  Job alone = job;
  alone.parallel.zero = 0;
  alone.parallel.overlap.data = alone.parallel.overlap.parameters = false;
  draft.holders.data = draft.holders.experts = {};
  run_sharding(draft, alone);
}

/// Which ops of a program read weights that are not there yet.
class GatherVerifier {
 public:
  explicit GatherVerifier(const Program& program)
      : p_(program),
        holds_(program.tensors.size(), nullptr),
        read_(program.tensors.size(), kUnread) {}

  std::optional<std::string> fault() {
    for (const Call& call : p_.calls) {
      for (const Op& op : p_.ops_of(p_.segments[call.segment])) {
        if (const auto found = fault_of(op)) {
          return fmt::format("'{}' in segment '{}' reads '{}' before it is gathered",
                             p_.name(*found->first), p_.segments[call.segment].name,
                             p_.tensors[found->second].name);
        }
      }
    }
    return std::nullopt;
  }

 private:
  using Read = std::pair<const Op*, TensorId>;
  static constexpr Read kUnread{nullptr, 0};

  [[nodiscard]] TensorId memory_of(TensorId id) const {
    const std::int32_t of = p_.tensors[id].view_of;
    return of >= 0 ? static_cast<TensorId>(of) : id;
  }

  /// In memory that units share a weight is there from the gather of its unit to the next gather;
  /// in memory of its own, after the only gather of a step that comes before its update.
  std::optional<Read> fault_of(const Op& op) {
    for (const TensorId id : p_.inputs(op)) {
      const TensorId memory = memory_of(id);
      if (p_.tensors[id].role != TensorRole::kParameter || op.kind == OpKind::kAllGather) {
        continue;
      }
      if (p_.tensors[memory].purpose != TensorPurpose::kGathered) {
        read_[memory] = {&op, id};
        continue;
      }
      const Tensor* shard = holds_[memory];
      const auto is_it = [id](const Tensor::Source& s) { return s.tensor == id; };
      if (shard == nullptr || std::none_of(shard->sources.begin(), shard->sources.end(), is_it)) {
        return Read{&op, id};
      }
    }
    for (std::size_t i = 0; op.kind == OpKind::kAllGather && i < op.outputs; ++i) {
      const TensorId memory = memory_of(p_.outputs(op)[i]);
      holds_[memory] = &p_.tensors[p_.inputs(op)[i]];
      if (op.phase != Phase::kOptimizer && read_[memory] != kUnread) {
        return read_[memory];
      }
    }
    return std::nullopt;
  }

  const Program& p_;
  std::vector<const Tensor*> holds_;  ///< by buffer that units share: the shard gathered last
  std::vector<Read> read_;            ///< by other memory: the latest op that read weights in it
};

std::optional<std::string> verify_sharding(const GraphUnderConstruction& draft) {
  for (const Program& p : draft.graph.programs) {
    if (auto fault = GatherVerifier(p).fault()) {
      return fault;
    }
  }
  return std::nullopt;
}

}  // namespace

GraphPass shard_parameters_pass() {
  return {"shard_parameters",
          "buckets of gradients, their exchange, ZeRO, and the update",
          [](const Job& job) { return job.workload.transformer() != nullptr; },
          run_sharding,
          verify_sharding,
          run_whole};
}

}  // namespace stepcast::workloads
