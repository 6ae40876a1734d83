#include "workloads/passes/offload_activations.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "core/graph/op_traits.h"
#include "core/job/tier_units.h"
#include "workloads/passes/program_editor.h"

namespace stepcast::workloads {
namespace {

using Part = DependencyInfo::Part;

/// Rewrites one program.
class ActivationOffload {
 public:
  ActivationOffload(Program& program, DependencyInfo& order) : p_(program), order_(order) {}

  void run() {
    find_uses();
    choose();
    if (!layers_.empty()) {
      rewrite();
      move_out();
    }
  }

 private:
  static constexpr std::int64_t kNone = -1;
  /// Place of a tensor among the forward passes.
  struct Use {
    std::int64_t layer = kNone;  ///< of the last forward op that names it
    std::int64_t pass = kNone;   ///< first layer of the segment
    bool stays = false;
    bool read_back = false;
  };
  struct Layer {
    std::vector<TensorId> values, buffers;
    Bytes bytes;
  };

  [[nodiscard]] bool candidate(TensorId id) const {
    const Tensor& t = p_.tensors[id];
    return t.per_microbatch && !t.is_view() && t.role == TensorRole::kActivation && t.tier == 0;
  }

  static std::vector<const Part*> layers_in(const Segment& s, const DependencyInfo& order) {
    std::vector<const Part*> parts;
    for (const Part& part : order.parts) {
      if (part.name.part == LayerPart::kLayer && s.first_op <= part.begin.op &&
          part.begin.op < s.first_op + s.op_count) {
        parts.push_back(&part);
      }
    }
    return parts;
  }

  void find_uses() {
    uses_.resize(p_.tensors.size());
    for (const Segment& s : p_.segments) {
      const std::vector<const Part*> parts = layers_in(s, order_);
      const std::int64_t pass = parts.empty() ? kNone : parts.front()->name.layer;
      std::size_t part = 0;
      for (std::uint32_t i = s.first_op; i < s.first_op + s.op_count; ++i) {
        part += part < parts.size() && i >= parts[part]->end ? 1 : 0;
        const bool inside = part < parts.size() && i >= parts[part]->begin.op;
        const Op& op = p_.ops[i];
        const TensorId* const first = p_.operands.data() + op.first_operand;
        for (const TensorId* id = first; id != first + op.inputs + op.outputs; ++id) {
          note(uses_[*id], s.kind, inside ? parts[part]->name.layer : kNone, pass);
        }
      }
    }
  }

  static void note(Use& use, SegmentKind kind, std::int64_t layer, std::int64_t pass) {
    if (kind == SegmentKind::kForward) {
      use.stays = use.stays || (use.pass != kNone && use.pass != pass);
      use.pass = pass;
      use.layer = layer;
    } else {
      use.read_back = use.read_back || kind == SegmentKind::kBackward;
      use.stays = use.stays || kind != SegmentKind::kBackward;
    }
  }

  /// Chooses the values that leave, and the buffers that hold them while they are on the device.
  void choose() {
    for (TensorId id = 0; id < uses_.size(); ++id) {
      const Use& use = uses_[id];
      if (use.read_back && !use.stays && use.layer != kNone && candidate(id)) {
        layers_[use.layer].values.push_back(id);
      }
    }
    std::map<std::tuple<std::size_t, std::int64_t, std::int64_t, Format, int>, TensorId> buffers;
    buffer_of_.assign(uses_.size(), kKept);
    std::size_t set = 0;
    for (auto& [number, layer] : layers_) {
      std::map<std::tuple<std::int64_t, std::int64_t, Format>, int> alike;
      for (const TensorId id : layer.values) {
        const Tensor like = p_.tensors[id];
        const int which = alike[{like.rows, like.columns, like.format}]++;
        const auto [at, fresh] = buffers.try_emplace(
            {set % 2, like.rows, like.columns, like.format, which}, p_.tensors.size());
        if (fresh) {
          p_.tensors.push_back({.name = fmt::format("offloaded.{}", buffers.size()),
                                .role = TensorRole::kActivation,
                                .format = like.format,
                                .rows = like.rows,
                                .columns = like.columns,
                                .pieces = {}});
        }
        layer.buffers.push_back(buffer_of_[id] = at->second);
        layer.bytes += like.bytes();
      }
      ++set;
    }
  }

  void rewrite() {
    ProgramEditor edit(p_, order_, ProgramEditor::Tables::kSaved);
    for (const Segment& s : edit.program().segments) {
      edit.begin_segment(s, s.name, s.microbatches);
      if (s.kind == SegmentKind::kForward) {
        edit.writer().set_phase(Phase::kForward);
        store(s, edit);
      } else if (s.kind == SegmentKind::kBackward) {
        edit.writer().set_phase(Phase::kBackward);
        load(s, edit);
      }
      edit.end_segment();
    }
    for (const Call& call : edit.program().calls) {
      edit.writer().builder().call(call.segment, call.microbatch);
    }
    edit.finish(p_, order_);
  }

  void store(const Segment& s, ProgramEditor& edit) const {
    std::vector<AsyncHandle> stored;
    for (const Part* part : layers_in(s, edit.order())) {
      const auto layer = layers_.find(part->name.layer);
      if (layer == layers_.end()) {
        continue;
      }
      if (stored.size() >= 2) {
        edit.keep_to(part->begin);
        edit.writer().await(stored[stored.size() - 2]);
      }
      edit.keep_to({part->end, 0});
      const Layer& l = layer->second;
      stored.push_back(edit.writer().host_move(OpKind::kTierWriteBack, "activations.store", l.bytes,
                                               l.buffers, l.values));
    }
  }

  void load(const Segment& s, ProgramEditor& edit) const {
    struct Needed {
      std::uint32_t op;
      const Layer* layer;
    };
    std::vector<Needed> needed;  // in the order of the pass
    std::map<std::int64_t, bool> seen;
    const Program& was = edit.program();
    for (std::uint32_t i = s.first_op; i < s.first_op + s.op_count; ++i) {
      for (const TensorId id : was.inputs(was.ops[i])) {
        const std::int64_t layer = buffer_of(id) == kKept ? kNone : uses_[id].layer;
        if (layer != kNone && !seen[layer]) {
          seen[layer] = true;
          needed.push_back({i, &layers_.at(layer)});
        }
      }
    }
    const auto fetch = [&](std::size_t which, std::uint32_t op) {
      edit.keep_to({op, 0});
      const Layer* l = which < needed.size() ? needed[which].layer : nullptr;
      return l == nullptr ? kNoTransfer
                          : edit.writer().host_move(OpKind::kTierFetch, "activations.load",
                                                    l->bytes, l->values, l->buffers);
    };
    AsyncHandle loaded = fetch(0, s.first_op);
    for (std::size_t i = 0; i < needed.size(); ++i) {
      const AsyncHandle next = fetch(i + 1, needed[i].op);
      edit.writer().await(loaded);
      loaded = next;
    }
  }

  [[nodiscard]] TensorId buffer_of(TensorId id) const {
    return id < buffer_of_.size() ? buffer_of_[id] : kKept;
  }

  /// All ops but the transfers work on the buffers.
  void move_out() {
    for (const Op& op : p_.ops) {
      TensorId* const first = p_.operands.data() + op.first_operand;
      for (TensorId* id = first; id != first + op.inputs + op.outputs; ++id) {
        if (buffer_of(*id) != kKept && !moves_between_tiers(op.kind)) {
          *id = buffer_of(*id);
        }
      }
    }
    const auto host = std::find(p_.tiers.begin(), p_.tiers.end(), kHostTier);
    for (TensorId id = 0; id < buffer_of_.size(); ++id) {
      if (buffer_of_[id] != kKept) {
        p_.tensors[id].tier = static_cast<std::uint8_t>(host - p_.tiers.begin() + 1);
      }
    }
  }

  static constexpr TensorId kKept = static_cast<TensorId>(-1);

  Program& p_;
  DependencyInfo& order_;
  std::vector<Use> uses_;  ///< by tensor
  std::map<std::int64_t, Layer> layers_;
  std::vector<TensorId> buffer_of_;  ///< by tensor
};

void run_offload(GraphUnderConstruction& draft, const Job&) {
  for (std::size_t i = 0; i < draft.orders.size(); ++i) {
    ActivationOffload(draft.graph.programs[i], draft.orders[i]).run();
  }
}

/// Only transfers name what the host keeps of micro-batches.
std::optional<std::string> verify_offload(const GraphUnderConstruction& draft) {
  for (const Program& p : draft.graph.programs) {
    for (const Op& op : p.ops) {
      const auto away = [&](TensorId id) {
        return p.tensors[id].per_microbatch && p.tensors[id].tier > 0;
      };
      const auto in = p.inputs(op);
      const auto out = p.outputs(op);
      if (!moves_between_tiers(op.kind) &&
          (std::any_of(in.begin(), in.end(), away) || std::any_of(out.begin(), out.end(), away))) {
        return fmt::format("'{}' works on values that the host keeps", p.name(op));
      }
    }
  }
  return std::nullopt;
}

}  // namespace

GraphPass offload_activations_pass() {
  return {"offload_activations", "values of layers wait for the backward pass in the host's memory",
          [](const Job& job) { return job.offload.activations; }, run_offload, verify_offload};
}

}  // namespace stepcast::workloads
