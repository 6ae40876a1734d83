#include "models/kernels/kernel_form.h"

#include <algorithm>
#include <limits>

#include "models/kernels/attention.h"
#include "models/kernels/embedding.h"
#include "models/kernels/gemm.h"
#include "models/kernels/memory_bound.h"
#include "models/kernels/routing.h"

namespace stepcast::models {
namespace {

double product_of(const Op& op, std::initializer_list<std::size_t> axes) {
  double product = 1;
  for (const std::size_t i : axes) {
    product *= static_cast<double>(std::max<std::int64_t>(op.shape[i], 1));
  }
  return product;
}

double elements_of(const Op& op) {
  switch (op.kind) {
    case OpKind::kGemm:
      return product_of(op, {0, 1, 3});
    case OpKind::kAttentionForward:
    case OpKind::kAttentionBackward:
      return product_of(op, {0, 1, 3, 5});
    case OpKind::kDotInteractionForward:
    case OpKind::kDotInteractionBackward:
    case OpKind::kRopeForward:
    case OpKind::kRopeBackward:
      return product_of(op, {0, 1, 2});
    case OpKind::kIndexPack:
    case OpKind::kIndexUnpack:
      return product_of(op, {0});
    case OpKind::kEmbeddingForward:
    case OpKind::kEmbeddingBackward:
    case OpKind::kEmbeddingGradient:
    case OpKind::kTierFetch:
    case OpKind::kTierWriteBack:
    case OpKind::kSequencePoolForward:
    case OpKind::kSequencePoolBackward:
      return product_of(op, {0});
    case OpKind::kFill:
    case OpKind::kCast:
    case OpKind::kOptimizer:
    case OpKind::kLoadBatch:
      return product_of(op, {0});
    default:
      return product_of(op, {0, 1});
  }
}

/// Walks back through the ops of the step, wrapping around once, from one executed instance of
/// `op`.
class ReuseWalk {
 public:
  ReuseWalk(const Program& program, const Op& op)
      : program_(program), own_((op.bytes_read + op.bytes_written).base()) {
    const auto position = static_cast<std::uint32_t>(&op - program.ops.data());
    for (std::size_t c = program.calls.size();
         c-- > 0;) {  // the last call of its segment: steady state
      const Segment& segment = program.segments[program.calls[c].segment];
      if (position >= segment.first_op && position < segment.first_op + segment.op_count) {
        call_ = first_call_ = c;
        op_ = first_op_ = position;
        found_ = true;
        return;
      }
    }
  }

  [[nodiscard]] bool found() const { return found_; }

  /// Executed ops between the last one that runs the same code on the same shape and this one; a
  /// whole step where there is no other.
  [[nodiscard]] double ops_since_like(const Op& op) {
    double between = 0;
    while (step_back()) {
      const Op& other = program_.ops[op_];
      if (other.kind == op.kind && other.shape == op.shape && other.flags == op.flags &&
          other.format == op.format && other.variant == op.variant) {
        return between;
      }
      ++between;
    }
    return between;
  }

  /// Distances of the operands of the op; a tensor the step never touches elsewhere was touched one
  /// step ago.
  void fill(std::vector<OperandUse>& uses, std::span<const TensorId> ids) {
    const std::int32_t microbatch = program_.calls[call_].microbatch;
    double moved = own_;
    std::size_t open = ids.size();
    std::vector<bool> done(ids.size(), false);
    while (open > 0 && step_back()) {
      const Op& other = program_.ops[op_];
      const bool same = program_.calls[call_].microbatch == microbatch;
      const TensorId* begin = program_.operands.data() + other.first_operand;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const TensorId* found = std::find(begin, begin + other.inputs + other.outputs, ids[i]);
        if (!done[i] && found != begin + other.inputs + other.outputs &&
            (same || !program_.tensors[ids[i]].per_microbatch)) {
          uses[i].distance = moved;
          uses[i].sent = is_collective(other.kind) && found < begin + other.inputs &&
                         std::find(begin + other.inputs, begin + other.inputs + other.outputs,
                                   ids[i]) == begin + other.inputs + other.outputs;
          done[i] = true;
          --open;
        }
      }
      moved += (other.bytes_read + other.bytes_written).base();
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      uses[i].distance = done[i] ? uses[i].distance : moved;
    }
  }

 private:
  bool step_back() {
    if (++steps_ > kLimit) {
      return false;
    }
    if (op_ > program_.segments[program_.calls[call_].segment].first_op) {
      --op_;
    } else {
      do {
        call_ = call_ == 0 ? program_.calls.size() - 1 : call_ - 1;
      } while (program_.segments[program_.calls[call_].segment].op_count == 0);
      const Segment& segment = program_.segments[program_.calls[call_].segment];
      op_ = segment.first_op + segment.op_count - 1;
    }
    return !(call_ == first_call_ && op_ == first_op_);
  }

  static constexpr int kLimit = 4096;  // ops; longer reuse is from memory anyway
  const Program& program_;
  double own_;
  std::size_t call_ = 0, first_call_ = 0;
  std::uint32_t op_ = 0, first_op_ = 0;
  int steps_ = 0;
  bool found_ = false;
};

bool stands_in(const Program& program, const Op& op) {
  return !program.ops.empty() && &op >= program.ops.data() &&
         &op < program.ops.data() + program.ops.size();
}

double idle_ops_of(const Program& program, const Op& op) {
  if (!stands_in(program, op)) {
    return 0;
  }
  ReuseWalk walk(program, op);
  return walk.found() ? walk.ops_since_like(op) : 0;
}

std::vector<OperandUse> operand_uses(const Program& program, const Op& op, double bytes) {
  const std::size_t count = op.inputs + op.outputs;
  if (!stands_in(program, op) || count == 0 || program.operands.size() < op.first_operand + count) {
    return {{bytes, bytes}};
  }
  const std::span<const TensorId> ids(program.operands.data() + op.first_operand, count);
  std::vector<OperandUse> uses(count);
  double total = 0;
  for (std::size_t i = 0; i < count; ++i) {
    uses[i] = {program.tensors[ids[i]].bytes().base(), bytes};
    total += uses[i].bytes;
  }
  for (OperandUse& use : uses) {  // the op's own account of its traffic counts; operands share it
    use.bytes *= total > 0 ? bytes / total : 0;
  }
  ReuseWalk walk(program, op);
  if (walk.found()) {
    walk.fill(uses, ids);
  }
  return uses;
}

bool looks_up(OpKind kind) {
  return kind == OpKind::kEmbeddingForward || kind == OpKind::kEmbeddingBackward ||
         kind == OpKind::kEmbeddingGradient;
}

/// Bytes the ops of one step move, lookups apart. A program without streams is a table of measured
/// rows, not a step: there each row's segment holds what its own step streamed.
double streamed_bytes(const Program& program, const Op& op) {
  const auto position = static_cast<std::size_t>(&op - program.ops.data());
  std::vector<double> of_segment;
  for (const Segment& segment : program.segments) {
    const bool own = position >= segment.first_op && position < segment.first_op + segment.op_count;
    of_segment.push_back(0);
    if (program.streams.empty() && !own) {
      continue;
    }
    for (const Op& other : program.ops_of(segment)) {
      of_segment.back() +=
          looks_up(other.kind) ? 0 : (other.bytes_read + other.bytes_written).base();
    }
  }
  double total = 0;
  for (const Call& call : program.calls) {
    total += of_segment[call.segment];
  }
  return total;
}

/// Products in a block format: where the device has a rate for it, as those of the measured format
/// of like width; elsewhere blocks are widened first.
void add_formats(std::vector<std::string>& keys, const std::string& kind, const Op& op,
                 bool own_rate) {
  keys.push_back(kind + "." + std::string(name_of(op.format)));
  const FormatInfo& info = format_info(op.format);
  if (op.kind == OpKind::kGemm && info.block > 1) {
    const Format like = !own_rate                ? Format::kBf16
                        : info.element_bits <= 4 ? Format::kNvfp4
                                                 : Format::kFp8;
    if (like != op.format) {
      keys.push_back(kind + "." + std::string(name_of(like)));
    }
  }
}

std::vector<std::unique_ptr<KernelForm>> make_forms() {
  std::vector<std::unique_ptr<KernelForm>> forms;
  forms.push_back(std::make_unique<GemmTileWave>());
  forms.push_back(std::make_unique<AttentionTiles>());
  forms.push_back(std::make_unique<EmbeddingSharedCache>());
  forms.push_back(std::make_unique<MemoryRowwise>());
  forms.push_back(std::make_unique<MemoryRoofline>());  // covers every kind
  forms.push_back(std::make_unique<RoutingDraw>());
  forms.push_back(std::make_unique<GemmShapeRate>());
  forms.push_back(std::make_unique<DotInteractionParts>());
  forms.push_back(std::make_unique<AttentionParts>());
  forms.push_back(std::make_unique<EmbeddingForwardLevels>());
  forms.push_back(std::make_unique<EmbeddingBackwardLevels>());
  forms.push_back(std::make_unique<MemoryLevels>());
  return forms;
}

}  // namespace

OpFacts::OpFacts(const Program& of_program, const Op& of_op) : program(&of_program), op(&of_op) {
  rows = static_cast<double>(std::max<std::int64_t>(of_op.shape[0], 1));
  elements = elements_of(of_op);
  bytes = (of_op.bytes_read + of_op.bytes_written).base();
  if (looks_up(of_op.kind) && of_op.detail >= 0 &&
      static_cast<std::size_t>(of_op.detail) < of_program.embeddings.size()) {
    const EmbeddingGroup& group = of_program.embeddings[static_cast<std::size_t>(of_op.detail)];
    for (const EmbeddingShard& s : group.shards) {
      shards.push_back(shard_traffic(s, s.format.value_or(group.format)));
    }
    streamed = streamed_bytes(of_program, of_op);
    operands = {{0, streamed + bytes}};
  } else {
    operands = operand_uses(of_program, of_op, bytes);
  }
  if (of_op.kind == OpKind::kGemm) {
    idle_ops = idle_ops_of(of_program, of_op);
  }
}

const std::vector<std::unique_ptr<KernelForm>>& builtin_kernel_forms() {
  static const auto forms = make_forms();
  return forms;
}

const KernelForm* kernel_form_named(std::string_view name) {
  for (const auto& form : builtin_kernel_forms()) {
    if (form->name() == name) {
      return form.get();
    }
  }
  return nullptr;
}

std::vector<std::string> fitted_keys(const Op& op, bool own_rate) {
  const std::string kind(name_of(op.kind));
  const std::string group(name_of(class_of(op.kind)));
  std::vector<std::string> keys;
  switch (op.kind) {
    case OpKind::kOptimizer:
      keys.push_back(kind + "." + std::string(name_of(static_cast<OptimizerKind>(op.variant))));
      break;
    case OpKind::kBiasActivationForward:
    case OpKind::kBiasActivationBackward:
    case OpKind::kActivationForward:
    case OpKind::kActivationBackward:
      keys.push_back(kind + "." + std::string(name_of(static_cast<Activation>(op.variant))));
      break;
    case OpKind::kNormForward:
    case OpKind::kNormBackward:
      keys.push_back(
          kind + (static_cast<Norm>(op.variant) == Norm::kRmsNorm ? ".rms_norm" : ".layer_norm"));
      break;
    default:
      if (op.kind == OpKind::kGemm && op.routing >= 0) {
        add_formats(keys, "grouped_gemm", op, own_rate);
        keys.emplace_back("grouped_gemm");
      }
      add_formats(keys, kind, op, own_rate);
      break;
  }
  keys.push_back(kind);
  if (group != kind) {
    keys.push_back(group);
  }
  return keys;
}

std::vector<double> constants_of(const KernelForm& form, const Device& device,
                                 const FittedModel* model) {
  std::vector<double> values;
  for (const Constant& c : form.constants(device)) {
    double value = c.ideal;
    if (model != nullptr) {
      if (const auto it = model->constants.find(std::string(c.name));
          it != model->constants.end()) {
        value = it->second;
      }
    }
    values.push_back(value);
  }
  return values;
}

Prediction bounded_by(Seconds compute, Seconds memory, Seconds overhead) {
  Prediction p;
  p.compute = compute;
  p.memory = memory;
  p.overhead = overhead;
  p.time = overhead + std::max(compute, memory);
  p.bound = overhead > compute && overhead > memory ? "latency"
            : compute >= memory                     ? "compute"
                                                    : "memory";
  return p;
}

double peak_rate(const Device& device, Format format) {
  const auto peak = device.peak_of(format);
  return peak ? peak->base() : std::numeric_limits<double>::infinity();
}

}  // namespace stepcast::models
