#include "workloads/fuse_epilogues.h"

#include <map>
#include <optional>
#include <vector>

#include "core/epilogue.h"

namespace stepcast::workloads {
namespace {

/// Rewrites one program.
class Fusion {
 public:
  explicit Fusion(Program& program) : p_(program), fused_(program.ops.size()) {}

  void run() {
    find();
    mark_masked();
    if (pairs_ > 0) {
      rewrite();
    }
  }

 private:
  using Operands = std::vector<TensorId>;
  /// Of the first of two ops that become one.
  struct Pair {
    Epilogue epilogue = Epilogue::kNone;
    std::optional<TensorId> mask;
  };

  [[nodiscard]] Operands inputs(const Op& op) const {
    const auto ids = p_.inputs(op);
    return {ids.begin(), ids.end()};
  }
  [[nodiscard]] Operands outputs(const Op& op) const {
    const auto ids = p_.outputs(op);
    return {ids.begin(), ids.end()};
  }

  static bool is_product(const Op& op) {
    return op.kind == OpKind::kGemm && op.variant == 0 && op.shape[3] <= 1 &&
           format_info(op.format).block <= 1 && op.format != Format::kFp8 && op.inputs == 2 &&
           op.outputs == 1;
  }
  static bool may_pair(const Op& first, const Op& second) {
    constexpr auto kWhen = op_flags::kNextBatch | op_flags::kEveryInterval;
    return first.stream == second.stream && first.phase == second.phase && first.record < 0 &&
           second.waits == 0 && first.routing < 0 && second.routing < 0 &&
           ((first.flags ^ second.flags) & kWhen) == 0 &&
           (second.flags & op_flags::kHostWaits) == 0;
  }

  /// What two neighbours become; kNone: they stay two. A backward ReLU is decided by mark_masked.
  [[nodiscard]] Epilogue epilogue_of(const Op& first, const Op& second) const {
    if (!may_pair(first, second)) {
      return Epilogue::kNone;
    }
    if (is_product(first)) {
      const TensorId c = outputs(first)[0];
      const Operands in = inputs(second);
      const Operands out = outputs(second);
      const auto activation = static_cast<Activation>(second.variant);
      const bool alike = second.shape[0] == first.shape[0] && second.shape[1] == first.shape[1];
      if (!alike || in.size() != 2 || in[0] != c || out.front() != c ||
          (first.flags & op_flags::kAccumulate) != 0) {
        return Epilogue::kNone;
      }
      if (second.kind == OpKind::kBiasActivationForward && out.size() == 1) {
        return activation == Activation::kNone   ? Epilogue::kBias
               : activation == Activation::kRelu ? Epilogue::kBiasRelu
                                                 : Epilogue::kNone;
      }
      return second.kind == OpKind::kBiasActivationBackward && out.size() == 2 &&
                     activation == Activation::kRelu
                 ? Epilogue::kReluBackward
                 : Epilogue::kNone;
    }
    Op usual = first;  // one that does more, as a dropout, reads more
    fill_work(usual);
    const bool sums = first.kind == OpKind::kBiasActivationBackward &&
                      first.bytes_read <= usual.bytes_read &&
                      static_cast<Activation>(first.variant) == Activation::kNone &&
                      first.outputs == 2 && outputs(first)[0] == inputs(first)[0];
    return sums && is_product(second) && (second.flags & op_flags::kTransposeA) != 0 &&
                   (second.flags & op_flags::kTransposeB) == 0 &&
                   inputs(second)[1] == inputs(first)[0] && second.shape[2] == first.shape[0] &&
                   second.shape[1] == first.shape[1]
               ? Epilogue::kColumnSums
               : Epilogue::kNone;
  }

  void find() {
    for (const Segment& s : p_.segments) {
      for (std::uint32_t i = s.first_op; i + 1 < s.first_op + s.op_count; ++i) {
        const Epilogue e = epilogue_of(p_.ops[i], p_.ops[i + 1]);
        if (e != Epilogue::kNone) {
          fused_[i].epilogue = e;
          ++pairs_;
          ++i;
        }
      }
    }
  }

  /// A backward ReLU reads the mask of its forward; where no product makes one it stays an op.
  void mark_masked() {
    std::map<TensorId, std::vector<std::size_t>> makers;  // a layer may be recomputed
    for (std::size_t i = 0; i < fused_.size(); ++i) {
      if (fused_[i].epilogue == Epilogue::kBiasRelu) {
        makers[outputs(p_.ops[i])[0]].push_back(i);
      }
    }
    for (std::size_t i = 0; i < fused_.size(); ++i) {
      if (fused_[i].epilogue != Epilogue::kReluBackward) {
        continue;
      }
      const TensorId y = inputs(p_.ops[i + 1])[1];
      const auto made = makers.find(y);
      if (made == makers.end() || writers_of(y) != made->second.size()) {
        fused_[i].epilogue = Epilogue::kNone;
        --pairs_;
        continue;
      }
      const TensorId mask = mask_of(y, *made);
      fused_[i].mask = mask;
    }
  }
  /// Products and all else that writes a tensor; the two ops of a pair count once.
  [[nodiscard]] std::size_t writers_of(TensorId id) const {
    std::size_t n = 0;
    for (std::size_t i = 0; i < p_.ops.size(); ++i) {
      for (const TensorId out : p_.outputs(p_.ops[i])) {
        n += out == id ? 1 : 0;
      }
      i += fused_[i].epilogue != Epilogue::kNone ? 1 : 0;
    }
    return n;
  }
  TensorId mask_of(TensorId y, const std::pair<const TensorId, std::vector<std::size_t>>& made) {
    if (const auto known = fused_[made.second.front()].mask) {
      return *known;
    }
    const Tensor& of = p_.tensors[y];
    Tensor mask;
    mask.name = of.name + ".mask";
    mask.role = TensorRole::kActivation;
    mask.format = Format::kInt32;
    mask.rows = of.rows;
    mask.columns = mask_words(of.columns);
    mask.per_microbatch = of.per_microbatch;
    p_.tensors.push_back(std::move(mask));
    const auto id = static_cast<TensorId>(p_.tensors.size() - 1);
    for (const std::size_t i : made.second) {
      fused_[i].epilogue = Epilogue::kBiasReluMask;
      fused_[i].mask = id;
    }
    return id;
  }

  [[nodiscard]] Op one_of(std::size_t i) {
    const Op& first = p_.ops[i];
    const Op& second = p_.ops[i + 1];
    const Pair& pair = fused_[i];
    const bool sums_first = pair.epilogue == Epilogue::kColumnSums;
    const Op& product = sums_first ? second : first;
    const Op& other = sums_first ? first : second;
    Operands in = inputs(product);
    Operands out = outputs(product);
    if (!sums_first) {
      in.push_back(inputs(other)[1]);  // bias, or y
    }
    if (pair.epilogue == Epilogue::kReluBackward) {
      in.push_back(*pair.mask);
    }
    if (pair.epilogue == Epilogue::kBiasReluMask) {
      out.push_back(*pair.mask);
    }
    if (other.kind == OpKind::kBiasActivationBackward) {
      out.push_back(outputs(other)[1]);
    }
    Op op = product;
    op.variant = static_cast<std::uint8_t>(pair.epilogue);
    op.first_wait = first.first_wait;
    op.waits = first.waits;
    op.record = second.record;
    op.first_operand = static_cast<std::uint32_t>(p_.operands.size());
    op.inputs = static_cast<std::uint16_t>(in.size());
    op.outputs = static_cast<std::uint16_t>(out.size());
    p_.operands.insert(p_.operands.end(), in.begin(), in.end());
    p_.operands.insert(p_.operands.end(), out.begin(), out.end());
    Op plain = product;  // the product's own work may have been set by its builder
    Op with = op;
    fill_work(plain);
    fill_work(with);
    op.flops = product.flops + (with.flops - plain.flops);
    op.bytes_read = product.bytes_read + (with.bytes_read - plain.bytes_read);
    op.bytes_written = product.bytes_written + (with.bytes_written - plain.bytes_written);
    return op;
  }

  void rewrite() {
    std::vector<Op> ops;
    ops.reserve(p_.ops.size() - pairs_);
    std::vector<std::uint32_t> place(p_.ops.size() + 1);  // of an old op among the new ones
    for (std::size_t i = 0; i < p_.ops.size(); ++i) {
      place[i] = static_cast<std::uint32_t>(ops.size());
      if (fused_[i].epilogue == Epilogue::kNone) {
        ops.push_back(p_.ops[i]);
        continue;
      }
      ops.push_back(one_of(i));
      place[++i] = static_cast<std::uint32_t>(ops.size() - 1);
    }
    place.back() = static_cast<std::uint32_t>(ops.size());
    for (Segment& s : p_.segments) {
      const std::uint32_t end = place[s.first_op + s.op_count];
      s.first_op = place[s.first_op];
      s.op_count = end - s.first_op;
    }
    p_.ops = std::move(ops);
  }

  Program& p_;
  std::vector<Pair> fused_;
  std::size_t pairs_ = 0;
};

}  // namespace

void fuse_epilogues(ExecutionGraph& graph) {
  for (Program& program : graph.programs) {
    Fusion(program).run();
  }
}

}  // namespace stepcast::workloads
