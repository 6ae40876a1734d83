#include "workloads/passes/fuse_epilogues.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "core/graph/epilogue.h"
#include "workloads/passes/memory_overlap.h"
#include "workloads/passes/remove_tensors.h"

namespace stepcast::workloads {
namespace {

bool contains(std::span<const TensorId> ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// Rewrites one program.
class Fusion {
 public:
  explicit Fusion(Program& program)
      : p_(program), pair_of_(program.ops.size(), -1), viewed_(program.tensors.size()) {
    for (const Tensor& t : p_.tensors) {
      if (t.is_view()) {
        viewed_[static_cast<std::size_t>(t.view_of)] = true;
      }
    }
  }

  /// Whether any ops became one.
  bool run() {
    find();
    mark_masked();
    keep_gelu_inputs();
    if (std::none_of(pairs_.begin(), pairs_.end(), fuses)) {
      return false;
    }
    rewrite();
    remove_unused();
    return true;
  }

 private:
  /// Two ops that become one.
  struct Pair {
    std::size_t first = 0, second = 0;
    Epilogue epilogue = Epilogue::kNone;  ///< kNone: they stay two
    std::size_t at = 0;                   ///< whose place the one takes
    std::optional<TensorId> aux{};        ///< the mask, or the input of a GELU, if either is used
  };
  static bool fuses(const Pair& pair) { return pair.epilogue != Epilogue::kNone; }
  static bool is_gelu_forward(const Pair& pair) {
    return pair.epilogue == Epilogue::kGelu || pair.epilogue == Epilogue::kBiasGelu;
  }
  static bool is_gelu_backward(const Pair& pair) { return reads_gelu_input(pair.epilogue); }

  [[nodiscard]] std::span<const TensorId> inputs(const Op& op) const { return p_.inputs(op); }
  [[nodiscard]] std::span<const TensorId> outputs(const Op& op) const { return p_.outputs(op); }

  /// With a bias already, or as it was built.
  static bool is_product(const Op& op) {
    const Epilogue epilogue = op.as<GemmAttributes>().epilogue;
    return op.kind == OpKind::kGemm && op.shape[3] <= 1 && format_info(op.format).block <= 1 &&
           op.format != Format::kFp8 && op.outputs == 1 &&
           ((epilogue == Epilogue::kNone && op.inputs == 2) ||
            (epilogue == Epilogue::kBias && op.inputs == 3));
  }
  static bool is_plain_product(const Op& op) {
    return is_product(op) && op.as<GemmAttributes>().epilogue == Epilogue::kNone;
  }
  static bool may_pair(const Op& first, const Op& second) {
    constexpr auto kWhen = op_flags::kNextBatch | op_flags::kEveryInterval;
    return first.stream == second.stream && first.phase == second.phase && first.record < 0 &&
           second.waits == 0 && first.routing < 0 && second.routing < 0 &&
           ((first.flags ^ second.flags) & kWhen) == 0 &&
           (second.flags & op_flags::kHostWaits) == 0;
  }
  static Activation activation_of(const Op& op) { return op.as<ActivationAttributes>().activation; }

  /// Epilogue that a product and an op over its result become.
  [[nodiscard]] Epilogue after_product(const Op& first, const Op& second) const {
    const TensorId c = outputs(first)[0];
    const auto in = inputs(second);
    const auto out = outputs(second);
    const bool alike = second.shape[0] == first.shape[0] && second.shape[1] == first.shape[1];
    if (!alike || in.empty() || in[0] != c || (first.flags & op_flags::kAccumulate) != 0) {
      return Epilogue::kNone;
    }
    const Activation activation = activation_of(second);
    const bool plain = is_plain_product(first);
    const bool relu = activation == Activation::kRelu;
    const bool gelu = activation == Activation::kGelu && replaces(c, out[0]);
    if (second.kind == OpKind::kBiasActivationForward && plain && in.size() == 2 &&
        out.size() == 1 && out[0] == c) {
      return activation == Activation::kNone ? Epilogue::kBias
             : relu                          ? Epilogue::kBiasRelu
                                             : Epilogue::kNone;
    }
    if (second.kind == OpKind::kBiasActivationBackward && plain && relu && in.size() == 2 &&
        out.size() == 2 && out[0] == c) {
      return Epilogue::kReluBackward;
    }
    if (second.kind == OpKind::kActivationForward && gelu && in.size() <= (plain ? 2U : 1U)) {
      return plain && in.size() == 1 ? Epilogue::kGelu : Epilogue::kBiasGelu;
    }
    if (second.kind == OpKind::kActivationBackward && gelu && plain) {
      return out.size() == 2 ? Epilogue::kGeluBackwardSums : Epilogue::kGeluBackward;
    }
    return Epilogue::kNone;
  }
  /// Whether a product may write `y` in the place of its result `c`.
  [[nodiscard]] bool replaces(TensorId c, TensorId y) const {
    return c != y && p_.tensors[c].format == p_.tensors[y].format && !p_.tensors[c].is_view() &&
           !viewed_[c];
  }

  /// Epilogue that two neighbours become; kNone: they stay two. A backward ReLU is decided by
  /// mark_masked, GELUs by keep_gelu_inputs.
  [[nodiscard]] Epilogue epilogue_of(const Op& first, const Op& second) const {
    if (!may_pair(first, second)) {
      return Epilogue::kNone;
    }
    if (is_product(first)) {
      return after_product(first, second);
    }
    if (first.kind != OpKind::kBiasActivationBackward) {
      return Epilogue::kNone;
    }
    Op usual = first;  // one that does more, as a dropout, reads more
    fill_work(usual);
    const bool sums = first.bytes_read <= usual.bytes_read &&
                      activation_of(first) == Activation::kNone && first.outputs == 2 &&
                      outputs(first)[0] == inputs(first)[0];
    return sums && is_plain_product(second) && (second.flags & op_flags::kTransposeA) != 0 &&
                   (second.flags & op_flags::kTransposeB) == 0 &&
                   inputs(second)[1] == inputs(first)[0] && second.shape[2] == first.shape[0] &&
                   second.shape[1] == first.shape[1]
               ? Epilogue::kColumnSums
               : Epilogue::kNone;
  }

  void find() {
    for (const Segment& s : p_.segments) {
      for (std::size_t second = s.first_op + 1; second < s.first_op + s.op_count; ++second) {
        const std::size_t before = second - 1;
        const Epilogue e =
            pair_of_[before] >= 0 ? Epilogue::kNone : epilogue_of(p_.ops[before], p_.ops[second]);
        if (e != Epilogue::kNone) {
          add({before, second, e, before});
        } else if (p_.ops[second].kind == OpKind::kActivationBackward) {
          find_product(s, second);
        }
      }
    }
    // Outputs of a GELU's product that it no longer writes must not be read.
    for (Pair& pair : pairs_) {
      const bool gelu_backward = is_gelu_backward(pair);
      if (gelu_backward && !is_last_use(pair.second, outputs(p_.ops[pair.first])[0])) {
        drop(pair);
      }
    }
  }
  void add(Pair pair) {
    pair_of_[pair.first] = pair_of_[pair.second] = static_cast<std::ptrdiff_t>(pairs_.size());
    pairs_.push_back(pair);
  }
  static void drop(Pair& pair) { pair.epilogue = Epilogue::kNone; }

  /// The product that made the gradient a backward activation reads: one of the two moves to the
  /// other where that changes nothing for the ops between.
  void find_product(const Segment& s, std::size_t second) {
    const TensorId gradient = inputs(p_.ops[second])[0];
    for (std::size_t first = second; first-- > s.first_op;) {
      if (!contains(inputs(p_.ops[first]), gradient) &&
          !contains(outputs(p_.ops[first]), gradient)) {
        continue;
      }
      const Epilogue e = pair_of_[first] < 0 && is_product(p_.ops[first])
                             ? epilogue_of(p_.ops[first], p_.ops[second])
                             : Epilogue::kNone;
      if (e != Epilogue::kNone && moves_later(first, second)) {
        add({first, second, e, second});
      } else if (e != Epilogue::kNone && moves_earlier(first, second)) {
        add({first, second, e, first});
      }
      return;
    }
  }
  /// True if what others learn by an event that an op between records stays true.
  [[nodiscard]] bool moves_later(std::size_t first, std::size_t second) const {
    const Op& moved = p_.ops[first];
    return moved.waits == 0 && between(first, second, [&](const Op& op) {
             return (op.record < 0 || op.stream != moved.stream) && independent(p_, moved, op);
           });
  }
  /// The same for what the ops between wait for.
  [[nodiscard]] bool moves_earlier(std::size_t first, std::size_t second) const {
    const Op& moved = p_.ops[second];
    return moved.record < 0 && between(first, second, [&](const Op& op) {
             return (op.waits == 0 || op.stream != moved.stream) && independent(p_, moved, op);
           });
  }
  template <class Holds>
  [[nodiscard]] bool between(std::size_t first, std::size_t second, const Holds& holds) const {
    return std::all_of(p_.ops.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                       p_.ops.begin() + static_cast<std::ptrdiff_t>(second), holds);
  }
  /// Whether what stands in a tensor is not read after an op of a segment.
  [[nodiscard]] bool is_last_use(std::size_t op, TensorId id) const {
    for (const Segment& s : p_.segments) {
      const bool here = op >= s.first_op && op < s.first_op + s.op_count;
      if (!here && !p_.tensors[id].per_microbatch) {
        continue;  // temporaries do not outlive a segment
      }
      for (std::size_t i = here ? op + 1 : s.first_op; i < s.first_op + s.op_count; ++i) {
        const bool adds = (p_.ops[i].flags & op_flags::kAccumulate) != 0;
        const bool writes = contains(outputs(p_.ops[i]), id);
        if (contains(inputs(p_.ops[i]), id) || (writes && adds)) {
          return false;
        }
        if (writes) {
          break;
        }
      }
    }
    return true;
  }

  /// A backward ReLU reads the mask of its forward; where no product makes one it stays an op.
  void mark_masked() {
    std::map<TensorId, std::vector<Pair*>> makers;  // a layer may be recomputed
    for (Pair& pair : pairs_) {
      if (pair.epilogue == Epilogue::kBiasRelu) {
        makers[outputs(p_.ops[pair.first])[0]].push_back(&pair);
      }
    }
    for (Pair& pair : pairs_) {
      if (pair.epilogue != Epilogue::kReluBackward) {
        continue;
      }
      const TensorId y = inputs(p_.ops[pair.second])[1];
      const auto made = makers.find(y);
      if (made == makers.end() || has_other_writer(y, made->second)) {
        drop(pair);
        continue;
      }
      pair.aux = mask_of(y, made->second);
    }
  }
  [[nodiscard]] bool has_other_writer(TensorId id, const std::vector<Pair*>& pairs) const {
    return has_other(pairs, [&](const Op& op) { return contains(outputs(op), id); });
  }
  [[nodiscard]] bool has_other_reader(TensorId id, const std::vector<Pair*>& pairs) const {
    return has_other(pairs, [&](const Op& op) { return contains(inputs(op), id); });
  }
  /// Whether an op that is in none of the pairs is so.
  template <class Is>
  [[nodiscard]] bool has_other(const std::vector<Pair*>& pairs, const Is& is) const {
    for (std::size_t i = 0; i < p_.ops.size(); ++i) {
      const Pair* of = pair_of_[i] < 0 ? nullptr : &pairs_[static_cast<std::size_t>(pair_of_[i])];
      if (is(p_.ops[i]) && std::find(pairs.begin(), pairs.end(), of) == pairs.end()) {
        return true;
      }
    }
    return false;
  }
  TensorId mask_of(TensorId y, const std::vector<Pair*>& makers) {
    if (const auto known = makers.front()->aux) {
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
    for (Pair* pair : makers) {
      pair->epilogue = Epilogue::kBiasReluMask;
      pair->aux = id;
    }
    return id;
  }

  /// Unfused, a GELU's input may stand without its bias, and without the gaps between rows that
  /// cuBLASLt wants: then all that writes or reads it must be fused, or nothing is.
  void keep_gelu_inputs() {
    struct Uses {
      std::vector<Pair*> forward, all;
    };
    std::map<TensorId, Uses> uses;
    for (Pair& pair : pairs_) {
      if (is_gelu_forward(pair)) {
        Uses& of = uses[outputs(p_.ops[pair.first])[0]];
        of.forward.push_back(&pair);
        of.all.push_back(&pair);
      } else if (is_gelu_backward(pair)) {
        uses[inputs(p_.ops[pair.second])[1]].all.push_back(&pair);
      }
    }
    for (auto& [input, of] : uses) {
      Tensor& tensor = p_.tensors[input];
      const auto with_bias = std::count_if(of.all.begin(), of.all.end(),
                                           [this](const Pair* pair) { return adds_bias(*pair); });
      const bool as_it_was = with_bias == 0 && gelu_input_columns(tensor.columns) == tensor.columns;
      const bool alike = with_bias == 0 || with_bias == std::ssize(of.all);
      const bool others_read = has_other_reader(input, of.all);
      if (!as_it_was && (others_read || !alike || tensor.is_view() || viewed_[input] ||
                         has_other_writer(input, of.forward))) {
        std::for_each(of.all.begin(), of.all.end(), [](Pair* pair) { drop(*pair); });
        continue;
      }
      if (of.all.size() == of.forward.size() && !others_read) {
        continue;  // no backward: nothing is kept
      }
      tensor.columns = gelu_input_columns(tensor.columns);
      for (Pair* pair : of.all) {
        pair->aux = input;
        pair->epilogue = pair->epilogue == Epilogue::kGelu       ? Epilogue::kGeluInput
                         : pair->epilogue == Epilogue::kBiasGelu ? Epilogue::kBiasGeluInput
                                                                 : pair->epilogue;
      }
    }
  }
  /// For a pair with a GELU: whether the activation adds the bias.
  [[nodiscard]] bool adds_bias(const Pair& pair) const {
    return p_.ops[pair.second].inputs > (is_gelu_backward(pair) ? 2 : 1);
  }

  [[nodiscard]] Op one_of(const Pair& pair) {
    const Op& first = p_.ops[pair.first];
    const Op& second = p_.ops[pair.second];
    const bool sums_first = pair.epilogue == Epilogue::kColumnSums;
    const Op& product = sums_first ? second : first;
    const Op& other = sums_first ? first : second;
    std::vector<TensorId> in(inputs(product).begin(), inputs(product).end());
    std::vector<TensorId> out(outputs(product).begin(), outputs(product).end());
    if (!sums_first && !reads_gelu_input(pair.epilogue) && other.inputs > 1) {
      in.push_back(inputs(other)[1]);  // bias, or y
    }
    if (pair.aux) {
      const bool made = pair.epilogue == Epilogue::kBiasReluMask || keeps_gelu_input(pair.epilogue);
      (made ? out : in).push_back(*pair.aux);
    }
    if (!sums_first) {
      out[0] = outputs(other)[0];
    }
    if (sums_columns(pair.epilogue)) {
      out.push_back(outputs(other)[1]);
    }
    Op op = product;
    auto attributes = product.as<GemmAttributes>();
    attributes.epilogue = pair.epilogue;
    op.attributes = attributes;
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
    ops.reserve(p_.ops.size());
    std::vector<std::uint32_t> place(p_.ops.size() + 1);  // of an old op among the new ones
    for (std::size_t i = 0; i < p_.ops.size(); ++i) {
      place[i] = static_cast<std::uint32_t>(ops.size());
      const Pair* pair = pair_of_[i] < 0 ? nullptr : &pairs_[static_cast<std::size_t>(pair_of_[i])];
      if (pair == nullptr || !fuses(*pair)) {
        ops.push_back(p_.ops[i]);
      } else if (pair->at == i) {
        ops.push_back(one_of(*pair));
      }
    }
    place.back() = static_cast<std::uint32_t>(ops.size());
    for (Segment& s : p_.segments) {
      const std::uint32_t end = place[s.first_op + s.op_count];
      s.first_op = place[s.first_op];
      s.op_count = end - s.first_op;
    }
    for (const Pair& pair : pairs_) {
      if (fuses(pair) && pair.epilogue != Epilogue::kColumnSums) {
        replaced_.insert(outputs(p_.ops[pair.first])[0]);
      }
    }
    p_.ops = std::move(ops);
  }

  /// Results of products that nothing names any more take no memory.
  void remove_unused() {
    for (const Op& op : p_.ops) {
      for (const auto ids : {inputs(op), outputs(op)}) {
        for (const TensorId id : ids) {
          replaced_.erase(id);
        }
      }
    }
    if (replaced_.empty()) {
      return;
    }
    std::vector<bool> gone(p_.tensors.size(), false);
    for (const TensorId id : replaced_) {
      gone[id] = true;
    }
    remove_tensors(p_, gone);
  }

  Program& p_;
  std::vector<Pair> pairs_;
  std::vector<std::ptrdiff_t> pair_of_;  ///< of an op, by place; -1: none
  std::vector<bool> viewed_;             ///< tensors that others are views of
  std::set<TensorId> replaced_;          ///< results of products that other ops replace
};

}  // namespace

void fuse_epilogues(ExecutionGraph& graph) {
  for (Program& program : graph.programs) {
    while (Fusion(program).run()) {  // a product with its bias may take in an activation
    }
  }
}

namespace {

/// Each op with an epilogue is a product that has the operands of it, and an op that reads a mask
/// or the input of a GELU reads what another makes.
std::optional<std::string> verify_epilogues(const GraphUnderConstruction& draft) {
  for (const Program& p : draft.graph.programs) {
    std::set<TensorId> made;
    for (const Op& op : p.ops) {
      const auto out = p.outputs(op);
      made.insert(out.begin(), out.end());
    }
    for (const Op& op : p.ops) {
      const Epilogue epilogue = op.as<GemmAttributes>().epilogue;
      if (op.kind != OpKind::kGemm || epilogue == Epilogue::kNone) {
        continue;
      }
      const bool reads = epilogue == Epilogue::kReluBackward || reads_gelu_input(epilogue);
      if (reads && (op.inputs < 3 || !made.contains(p.inputs(op).back()))) {
        return fmt::format("'{}' reads a mask or an input that no op makes", p.name(op));
      }
      if (sums_columns(epilogue) && op.outputs < 2) {
        return fmt::format("'{}' sums columns into nothing", p.name(op));
      }
    }
  }
  return std::nullopt;
}

}  // namespace

GraphPass fuse_epilogues_pass() {
  return {"fuse_epilogues", "biases and activations computed by the adjacent products",
          [](const Job& job) { return job.fused_epilogues; },
          [](GraphUnderConstruction& draft, const Job&) { fuse_epilogues(draft.graph); },
          verify_epilogues};
}

}  // namespace stepcast::workloads
