#include "workloads/passes/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "core/error.h"
#include "workloads/passes/program_editor.h"
#include "workloads/passes/remove_tensors.h"
#include "workloads/passes/saved_activations.h"

namespace stepcast::workloads {
namespace {

using PartName = DependencyInfo::PartName;
using Part = DependencyInfo::Part;

bool names_module(const RecomputeModules& modules, LayerPart part) {
  switch (part) {
    case LayerPart::kLayer:
      return false;
    case LayerPart::kAttentionCore:
      return modules.attention_core;
    case LayerPart::kFirstNorm:
    case LayerPart::kSecondNorm:
      return modules.norms;
    case LayerPart::kFeedForward:
      return modules.feed_forward;
    case LayerPart::kExpertActivation:
      return modules.expert_activation;
    case LayerPart::kLatentUp:
      return modules.latent_up;
  }
  return false;
}

/// These discard their output, though the next op reads it; others what stays inside.
bool discards_output(LayerPart part) {
  return part == LayerPart::kFirstNorm || part == LayerPart::kSecondNorm ||
         part == LayerPart::kExpertActivation || part == LayerPart::kLatentUp;
}

/// Rewrites one program.
class Recomputation {
 public:
  Recomputation(Program& program, DependencyInfo& order, const Job& job)
      : p_(program),
        order_(order),
        recompute_(job.parallel.recompute),
        per_op_(recompute_.kind == RecomputeKind::kSelective &&
                job.system.framework.selective_per_op) {}

  void run() {
    choose();
    if (parts_.empty()) {
      return;
    }
    find_readers();
    for (auto& [name, instances] : parts_) {
      plan(name, instances);
    }
    begin_late();
    rewrite();
    share_temporaries();
  }

 private:
  struct Again {
    std::vector<CopiedOp> ops;
    const Part* part = nullptr;
  };

  [[nodiscard]] bool chosen(const PartName& name, std::size_t index_in_stage) const {
    switch (recompute_.kind) {
      case RecomputeKind::kNone:
        return false;
      case RecomputeKind::kFull:
        return name.part == LayerPart::kLayer;
      case RecomputeKind::kFirstLayers:
        return name.part == LayerPart::kLayer &&
               static_cast<std::int64_t>(index_in_stage) < recompute_.layers;
      case RecomputeKind::kSelective:
        return per_op_ ? name.part == LayerPart::kLayer
                       : names_module(recompute_.modules, name.part);
    }
    return false;
  }

  /// The parts that are recomputed, each as often as it stands in a forward segment; those inside
  /// another go with it.
  void choose() {
    std::map<std::int64_t, std::size_t> layers;  // in the order of the stage
    for (const Part& part : order_.parts) {
      const std::size_t index = layers.try_emplace(part.name.layer, layers.size()).first->second;
      if (chosen(part.name, index)) {
        parts_[part.name].push_back(&part);
      }
    }
    std::set<PartName> inside;
    for (const auto& [name, instances] : parts_) {
      const Part& inner = *instances.front();
      for (const auto& [other, others] : parts_) {
        const Part& outer = *others.front();
        if (other.layer == name.layer && other != name && outer.begin.op <= inner.begin.op &&
            inner.end <= outer.end) {
          inside.insert(name);
        }
      }
    }
    for (const PartName& name : inside) {
      parts_.erase(name);
    }
    for (const DependencyInfo::Need& need : order_.needs) {
      if (parts_.contains(need.name)) {
        needs_[need.name].push_back(need.place.op);
      }
    }
  }

  void find_readers() {
    readers_.resize(p_.tensors.size());
    for (const Segment& s : p_.segments) {
      for (std::uint32_t i = s.first_op; i < s.first_op + s.op_count; ++i) {
        for (const TensorId t : p_.inputs(p_.ops[i])) {
          if (order_.values.contains(t)) {
            readers_[t].push_back({i, &s});
          }
        }
      }
    }
  }

  /// The ops of a part that are recomputed, and which values become temporaries.
  void plan(const PartName& name, const std::vector<const Part*>& instances) {
    const Part& part = *instances.front();
    if (!needs_.contains(name)) {
      return;
    }
    Again& again = recomputed_[name];
    again.part = &part;
    std::set<TensorId> kept;
    if (per_op_) {
      SavedActivations products(p_, order_, instances);
      again.ops = products.rest();
      kept = products.kept();
    } else {
      for (std::uint32_t i = part.begin.op; i < part.end; ++i) {
        again.ops.push_back(copied(p_, i));
      }
    }
    for (std::uint32_t i = part.begin.op; i < part.end; ++i) {
      auto out = p_.outputs(p_.ops[i]);
      out = discards_output(name.part) ? out.first(1) : out;
      for (const TensorId t : out) {
        if (order_.values.contains(t) && !kept.contains(t) &&
            (discards_output(name.part) || stays_inside(t, name, instances))) {
          (read_later(t) ? late_ : temporaries_).insert(t);
        }
      }
    }
    replace_result(part, again.ops);
  }

  /// True if a value is read by no op of the forward pass outside the part, and by none of the
  /// backward pass before the part is recomputed.
  [[nodiscard]] bool stays_inside(TensorId value, const PartName& name,
                                  const std::vector<const Part*>& instances) const {
    const std::vector<std::uint32_t>& needs = needs_.at(name);
    return std::all_of(readers_[value].begin(), readers_[value].end(), [&](const Reader& r) {
      if (r.segment->kind == SegmentKind::kWeights) {
        return true;
      }
      if (r.segment->kind == SegmentKind::kForward) {
        return std::any_of(instances.begin(), instances.end(), [&](const Part* part) {
          return part->begin.op <= r.op && r.op < part->end;
        });
      }
      return std::any_of(needs.begin(), needs.end(), [&](std::uint32_t need) {
        return r.segment->first_op <= need && need <= r.op;
      });
    });
  }

  /// True if a weight gradient reads the value that the backward pass leaves for later.
  [[nodiscard]] bool read_later(TensorId value) const {
    return std::any_of(readers_[value].begin(), readers_[value].end(),
                       [](const Reader& r) { return r.segment->kind == SegmentKind::kWeights; });
  }

  /// Begins values of late weight gradients in the backward pass; temporaries hold them in forward.
  void begin_late() {
    if (late_.empty()) {
      return;
    }
    std::map<TensorId, TensorId> in_forward;
    for (const TensorId t : late_) {
      in_forward.emplace(t, temporary(order_.values.at(t), t));
    }
    for (const Segment& s : p_.segments) {
      for (std::uint32_t i = s.first_op;
           s.kind == SegmentKind::kForward && i < s.first_op + s.op_count; ++i) {
        TensorId* const first = p_.operands.data() + p_.ops[i].first_operand;
        for (TensorId* id = first; id < first + p_.ops[i].inputs + p_.ops[i].outputs; ++id) {
          const auto at = in_forward.find(*id);
          *id = at == in_forward.end() ? *id : at->second;
        }
      }
    }
  }

  /// The residual stream that a part ends on is there already: another goes to a temporary.
  void replace_result(const Part& part, std::vector<CopiedOp>& ops) {
    std::set<TensorId> results;
    for (std::uint32_t i = part.begin.op; i < part.end; ++i) {
      for (const TensorId t : p_.outputs(p_.ops[i])) {
        if (t < declared_ && p_.tensors[t].per_microbatch && !order_.values.contains(t)) {
          results.insert(t);
        }
      }
    }
    for (const TensorId result : results) {
      if (std::none_of(ops.begin(), ops.end(), [result](const CopiedOp& op) {
            return std::find(op.out.begin(), op.out.end(), result) != op.out.end();
          })) {
        continue;
      }
      const TensorId other = temporary("output", result);
      for (CopiedOp& op : ops) {
        std::replace(op.in.begin(), op.in.end(), result, other);
        std::replace(op.out.begin(), op.out.end(), result, other);
      }
    }
  }

  static std::string temporary_name(const std::string& what) { return "recomputed." + what; }
  /// One that all layers use, like a tensor there is. Named by id: the tensors move when one is
  /// added.
  TensorId temporary(const std::string& what, TensorId model) {
    const std::string name = temporary_name(what);
    const auto [at, fresh] =
        order_.workspaces.try_emplace(name, static_cast<TensorId>(p_.tensors.size()));
    if (fresh) {
      p_.tensors.push_back({.name = name,
                            .role = TensorRole::kActivation,
                            .format = p_.tensors[model].format,
                            .rows = p_.tensors[model].rows,
                            .columns = p_.tensors[model].columns,
                            .pieces = {}});
    }
    const Tensor& like = p_.tensors[model];
    const Tensor& t = p_.tensors[at->second];
    STEPCAST_CHECK(t.rows == like.rows && t.columns == like.columns,
                   "temporary '{}' is {} x {}, not {} x {}", name, t.rows, t.columns, like.rows,
                   like.columns);
    return at->second;
  }

  void rewrite() {
    const std::vector<DependencyInfo::Need> needs = std::exchange(order_.needs, {});
    order_.products.clear();
    ProgramEditor edit(p_, order_, ProgramEditor::Tables::kSaved);
    auto need = needs.begin();
    for (const Segment& s : edit.program().segments) {
      edit.begin_segment(s, s.name, s.microbatches);
      for (; need != needs.end() && need->place.op < s.first_op + s.op_count; ++need) {
        const auto again = recomputed_.find(need->name);
        if (again != recomputed_.end()) {
          edit.keep_to(need->place);
          insert(again->second, edit);
        }
      }
      edit.end_segment();
    }
    STEPCAST_CHECK(need == needs.end(), "a part is needed after the last op");
    for (const Call& call : edit.program().calls) {
      edit.writer().builder().call(call.segment, call.microbatch);
    }
    edit.finish(p_, order_);
  }

  /// The first op awaits what is awaited at its place; transfers have names of their own.
  static void insert(const Again& again, ProgramEditor& edit) {
    const DependencyInfo& order = edit.order();
    OpWriter& w = edit.writer();
    std::map<AsyncHandle, AsyncHandle> renamed{{kHostSynchronises, kHostSynchronises}};
    for (const CopiedOp& copy : again.ops) {
      DependencyInfo::OfOp of = order.ops[copy.from];
      const auto stated = order.awaits_of(of);
      const std::uint32_t before = copy.from == again.part->begin.op ? again.part->begin.awaits : 0;
      for (const AsyncHandle t : stated.subspan(before)) {
        const auto at = renamed.find(t);
        w.await(at == renamed.end() ? kNoTransfer : at->second);
      }
      const auto after = renamed.find(of.after);
      of.after = after == renamed.end() ? kNoTransfer : after->second;
      if (of.transfers) {
        const AsyncHandle fresh = w.name_transfer(of.channel, false);
        renamed[of.transfer] = fresh;
        of.transfer = fresh;
      }
      Op op = copy.op;
      op.phase = Phase::kRecompute;
      w.copy(op, of, op.name, copy.in, copy.out);
    }
  }

  /// Layers use the same temporaries, one after the other.
  void share_temporaries() {
    std::vector<bool> gone(p_.tensors.size(), false);
    TensorId before = 0;  // that are gone
    std::vector<TensorId> now(p_.tensors.size());
    std::iota(now.begin(), now.end(), TensorId{0});
    for (const TensorId t : temporaries_) {
      const std::string& what = order_.values.at(t);
      const auto [at, fresh] = order_.workspaces.try_emplace(temporary_name(what), t);
      if (fresh) {
        p_.tensors[t].name = temporary_name(what);
        p_.tensors[t].per_microbatch = false;
        order_.remade.insert(t - before);  // without those before it
      } else {
        now[t] = temporary(what, t);
        gone[t] = true;
        ++before;
      }
    }
    for (TensorId& id : p_.operands) {
      id = now[id];
    }
    remove_tensors(p_, gone);
    order_.workspaces.clear();  // they number the tensors as they were, and so do the values
    order_.values.clear();
  }

  struct Reader {
    std::uint32_t op = 0;
    const Segment* segment = nullptr;
  };

  Program& p_;
  DependencyInfo& order_;
  const Recompute& recompute_;
  bool per_op_;
  std::map<PartName, std::vector<const Part*>> parts_;    ///< that are recomputed
  std::map<PartName, std::vector<std::uint32_t>> needs_;  ///< ops before which they are
  std::map<PartName, Again> recomputed_;
  std::vector<std::vector<Reader>> readers_;        ///< of values, by tensor
  std::set<TensorId> temporaries_;                  ///< values that are not kept
  std::set<TensorId> late_;                         ///< values kept from the backward pass on
  const std::size_t declared_ = p_.tensors.size();  ///< tensors of the builder
};

void run_recompute(GraphUnderConstruction& draft, const Job& job) {
  for (std::size_t i = 0; i < draft.orders.size(); ++i) {
    Recomputation(draft.graph.programs[i], draft.orders[i], job).run();
  }
}

/// Recomputed ops come in a segment before an op that reads it, but for one that works in
/// place.
std::optional<std::string> verify_recompute(const GraphUnderConstruction& draft) {
  for (std::size_t i = 0; i < draft.orders.size(); ++i) {
    const Program& p = draft.graph.programs[i];
    const std::set<TensorId>& remade = draft.orders[i].remade;
    for (const Segment& s : p.segments) {
      std::set<TensorId> made;
      for (const Op& op : p.ops_of(s)) {
        const auto out = p.outputs(op);
        made.insert(out.begin(), out.end());
        for (const TensorId t : p.inputs(op)) {
          if (remade.contains(t) && !made.contains(t)) {
            return fmt::format("'{}' in segment '{}' reads '{}' before it is made", p.name(op),
                               s.name, p.tensors[t].name);
          }
        }
      }
    }
  }
  return std::nullopt;
}

}  // namespace

GraphPass recompute_pass() {
  return {"recompute", "values of layers are recomputed in the backward pass, not kept",
          [](const Job& job) {
            return job.workload.transformer() != nullptr &&
                   job.parallel.recompute.kind != RecomputeKind::kNone;
          },
          run_recompute, verify_recompute};
}

}  // namespace stepcast::workloads
