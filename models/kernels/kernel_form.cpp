#include "models/kernels/kernel_form.h"

#include <limits>

#include "core/error.h"
#include "core/graph/op_traits.h"
#include "core/graph/program.h"
#include "models/kernels/internal/forms.h"

namespace stepcast::models {
namespace {

double elements_of(const Op& op) {
  double product = 1;
  for (const std::int8_t axis : traits_of(op.kind).main) {
    product *= axis < 0 ? 1
                        : static_cast<double>(
                              std::max<std::int64_t>(op.shape[static_cast<std::size_t>(axis)], 1));
  }
  return product;
}

Epilogue epilogue_of(const Op& op) { return op.as<GemmAttributes>().epilogue; }

/// Walks back through the ops of the step, wrapping around once, from one executed instance of
/// `op`.
class ReuseWalk {
 public:
  ReuseWalk(const Program& program, std::uint32_t position)
      : program_(program),
        own_((program.ops[position].bytes_read + program.ops[position].bytes_written).base()) {
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
          other.format == op.format && epilogue_of(other) == epilogue_of(op)) {
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

double idle_ops_of(const Program& program, std::uint32_t position) {
  ReuseWalk walk(program, position);
  return walk.found() ? walk.ops_since_like(program.ops[position]) : 0;
}

std::vector<OperandUse> operand_uses(const Program& program, std::uint32_t position, double bytes) {
  const Op& op = program.ops[position];
  const std::size_t count = op.inputs + op.outputs;
  if (count == 0 || program.operands.size() < op.first_operand + count) {
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
  ReuseWalk walk(program, position);
  if (walk.found()) {
    walk.fill(uses, ids);
  }
  return uses;
}

/// Bytes the ops of one step move, lookups apart. A program without streams is a table of measured
/// rows, not a step: there each row's segment holds what its own step streamed.
double streamed_bytes(const Program& program, std::optional<std::uint32_t> position) {
  std::vector<double> of_segment;
  for (const Segment& segment : program.segments) {
    const bool own = position && *position >= segment.first_op &&
                     *position < segment.first_op + segment.op_count;
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

/// Libraries write fused attention for heads of 64, 128 and 256; other widths (160: latent
/// attention, 192 of queries and keys beside 128 of values) have kernels, and constants, of their
/// own.
std::string width_of_its_own(const Op& op) {
  const bool fused =
      (op.kind == OpKind::kAttentionForward || op.kind == OpKind::kAttentionBackward) &&
      (op.flags & op_flags::kUnfused) == 0;
  const std::int64_t width = fused ? op.shape[5] : 0;
  return (width & (width - 1)) != 0 ? "." + std::to_string(width) : std::string();
}

std::vector<std::unique_ptr<KernelForm>> make_forms() {
  std::vector<std::unique_ptr<KernelForm>> forms;
  for (FormMaker* make :
       {gemm_tile_wave, attention_tiles, scan_roofline, embedding_shared_cache, memory_rowwise,
        memory_roofline,  // covers every kind
        routing_draw, gemm_shape_rate, dot_interaction_parts, attention_parts,
        embedding_forward_levels, embedding_backward_levels, memory_levels}) {
    forms.push_back(make());
  }
  return forms;
}

}  // namespace

OpFacts::OpFacts(const Op& of_op)
    : op(&of_op), bytes((of_op.bytes_read + of_op.bytes_written).base()) {
  rows = static_cast<double>(std::max<std::int64_t>(of_op.shape[0], 1));
  elements = elements_of(of_op);
  operands = {{bytes, bytes}};
}

OpFacts::OpFacts(const Program& of_program, const Op& of_op, const TrafficOf& traffic)
    : OpFacts(of_op) {
  program = &of_program;
  const std::optional<std::uint32_t> position = of_program.index_of(of_op);
  group = looks_up(of_op.kind) ? of_program.group_of(of_op) : nullptr;
  if (group != nullptr) {
    for (const EmbeddingShard& s : group->shards) {
      shards.push_back(traffic(s, s.format.value_or(group->format)));
    }
    streamed = streamed_bytes(of_program, position);
    operands = {{0, streamed + bytes}};
  } else if (position) {
    operands = operand_uses(of_program, *position, bytes);
  }
  if (position && of_op.kind == OpKind::kGemm) {
    idle_ops = idle_ops_of(of_program, *position);
  }
}

const std::vector<std::unique_ptr<KernelForm>>& builtin_kernel_forms() {
  static const auto forms = make_forms();
  return forms;
}

const KernelForm& form_for(const Op& op, bool on_core) {
  const KernelForm* chosen = nullptr;
  for (const auto& form : builtin_kernel_forms()) {
    if (form->covers(op)) {
      if (form->on_core() == on_core) {
        return *form;
      }
      chosen = chosen == nullptr ? form.get() : chosen;
    }
  }
  STEPCAST_CHECK(chosen != nullptr, "no kernel form covers {}", name_of(op.kind));
  return *chosen;
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
  const OpTraits& traits = traits_of(op.kind);
  const std::string kind(traits.name);
  const std::string group(name_of(traits.op_class));
  std::vector<std::string> keys;
  if (traits.fitted_by != nullptr) {
    keys.push_back(kind + "." + std::string(traits.fitted_by(op)));
  } else {
    if (op.routing >= 0 && !traits.fitted_routed.empty()) {
      const std::string routed(traits.fitted_routed);
      add_formats(keys, routed, op, own_rate);
      keys.push_back(routed);
    }
    if (const std::string width = width_of_its_own(op); !width.empty()) {
      add_formats(keys, kind + width, op, own_rate);
    }
    add_formats(keys, kind, op, own_rate);
  }
  keys.push_back(kind);
  if (!traits.fitted_as.empty()) {
    const std::string like(traits.fitted_as);
    add_formats(keys, like, op, own_rate);
    keys.push_back(like);
  }
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
