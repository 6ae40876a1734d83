#include "core/graph/program_builder.h"

#include <bit>
#include <utility>

#include "core/error.h"
#include "core/fnv1a.h"
#include "core/graph/op_traits.h"

namespace stepcast {

std::uint64_t parameter_key(std::string_view name) { return fnv1a(name); }

using OpEdit = ProgramBuilder::OpEdit;

OpEdit& OpEdit::in(std::span<const TensorId> ids) {
  STEPCAST_CHECK(op().outputs == 0, "inputs of '{}' after its outputs",
                 builder_.program_.name(op()));
  builder_.program_.operands.insert(builder_.program_.operands.end(), ids.begin(), ids.end());
  op().inputs = static_cast<std::uint16_t>(op().inputs + ids.size());
  return *this;
}

OpEdit& OpEdit::out(std::span<const TensorId> ids) {
  builder_.program_.operands.insert(builder_.program_.operands.end(), ids.begin(), ids.end());
  op().outputs = static_cast<std::uint16_t>(op().outputs + ids.size());
  return *this;
}

OpEdit& OpEdit::on(std::string_view stream) {
  auto& streams = builder_.program_.streams;
  std::size_t i = 0;
  while (i < streams.size() && streams[i] != stream) {
    ++i;
  }
  if (i == streams.size()) {
    streams.emplace_back(stream);
  }
  op().stream = static_cast<std::uint8_t>(i);
  return *this;
}

OpEdit& OpEdit::format(Format f) {
  op().format = f;
  fill_work(op());
  return *this;
}

OpEdit& OpEdit::flags(std::uint8_t f) {
  op().flags |= f;
  fill_work(op());
  return *this;
}

OpEdit& OpEdit::attributes(const OpAttributes& a) {
  STEPCAST_CHECK(a.index() == traits_of(op().kind).attributes.index(),
                 "attributes of another kind for '{}'", name_of(op().kind));
  op().attributes = a;
  fill_work(op());
  return *this;
}

OpEdit& OpEdit::waits(std::int32_t event) {
  builder_.program_.waits.push_back(event);
  ++op().waits;
  return *this;
}

OpEdit& OpEdit::work(Flops flops, Bytes read, Bytes written) {
  op().flops = flops;
  op().bytes_read = read;
  op().bytes_written = written;
  return *this;
}

ProgramBuilder::ProgramBuilder(std::vector<std::string> streams) {
  program_.streams = std::move(streams);
}

ProgramBuilder::ProgramBuilder(Program begun) : program_(std::move(begun)) {
  STEPCAST_CHECK(program_.ops.empty() && program_.segments.empty() && program_.calls.empty(),
                 "a program with {} ops is written already", program_.ops.size());
}

TensorId ProgramBuilder::tensor(Tensor t) {
  STEPCAST_CHECK(t.rows >= 0 && t.columns >= 0, "tensor '{}' is [{}, {}]", t.name, t.rows,
                 t.columns);
  program_.tensors.push_back(std::move(t));
  return static_cast<TensorId>(program_.tensors.size() - 1);
}

std::uint8_t ProgramBuilder::tier(std::string_view name) {
  auto& tiers = program_.tiers;
  auto at = std::find(tiers.begin(), tiers.end(), name);
  if (at == tiers.end()) {
    at = tiers.insert(at, std::string(name));
  }
  return static_cast<std::uint8_t>(at - tiers.begin() + 1);
}

TensorId ProgramBuilder::activation(std::string name, std::int64_t rows, std::int64_t columns,
                                    Format f) {
  return tensor({.name = std::move(name),
                 .role = TensorRole::kActivation,
                 .format = f,
                 .rows = rows,
                 .columns = columns,
                 .per_microbatch = true,
                 .pieces = {}});
}

TensorId ProgramBuilder::buffer(std::string name, std::int64_t rows, std::int64_t columns,
                                Format f) {
  return tensor({.name = std::move(name),
                 .role = TensorRole::kBuffer,
                 .format = f,
                 .rows = rows,
                 .columns = columns,
                 .per_microbatch = false,
                 .pieces = {}});
}

ProgramBuilder::Parameter ProgramBuilder::parameter(const std::string& name, std::int64_t rows,
                                                    std::int64_t columns, Format weight_format,
                                                    Format gradient_format,
                                                    std::vector<ParameterPiece> pieces) {
  const TensorId weight = tensor({.name = name,
                                  .role = TensorRole::kParameter,
                                  .format = weight_format,
                                  .rows = rows,
                                  .columns = columns,
                                  .per_microbatch = false,
                                  .pieces = std::move(pieces)});
  const TensorId gradient = tensor({.name = name + ".gradient",
                                    .role = TensorRole::kGradient,
                                    .format = gradient_format,
                                    .rows = rows,
                                    .columns = columns,
                                    .per_microbatch = false,
                                    .pieces = {}});
  return {weight, gradient};
}

OpEdit ProgramBuilder::op(OpKind kind, std::string_view name,
                          std::initializer_list<std::int64_t> shape) {
  STEPCAST_CHECK(open_, "op '{}' outside a segment", name);
  STEPCAST_CHECK(shape.size() <= 6, "op '{}' has {} shape entries", name, shape.size());
  Op op;
  op.kind = kind;
  op.attributes = traits_of(kind).attributes;
  op.phase = phase_;
  op.format = format_;
  op.layer = layer_;
  op.name = this->name(name);
  op.first_operand = static_cast<std::uint32_t>(program_.operands.size());
  op.first_wait = static_cast<std::uint32_t>(program_.waits.size());
  std::size_t i = 0;
  for (const std::int64_t v : shape) {
    STEPCAST_CHECK(v >= 0, "op '{}' has a negative shape entry {}", name, v);
    op.shape[i++] = v;
  }
  fill_work(op);
  program_.ops.push_back(op);
  return OpEdit(*this);
}

void ProgramBuilder::copy(const Op& op, std::uint32_t name, std::span<const TensorId> in,
                          std::span<const TensorId> out) {
  STEPCAST_CHECK(open_, "op '{}' outside a segment", program_.names.at(name));
  Op& copy = program_.ops.emplace_back(op);
  copy.name = name;
  copy.first_operand = static_cast<std::uint32_t>(program_.operands.size());
  copy.inputs = static_cast<std::uint16_t>(in.size());
  copy.outputs = static_cast<std::uint16_t>(out.size());
  program_.operands.insert(program_.operands.end(), in.begin(), in.end());
  program_.operands.insert(program_.operands.end(), out.begin(), out.end());
}

std::uint32_t& ProgramBuilder::name_slot(std::string_view text) {
  const std::size_t mask = name_slots_.size() - 1;
  std::size_t at = std::hash<std::string_view>()(text) & mask;
  while (name_slots_[at] > 0 && program_.names[name_slots_[at] - 1] != text) {
    at = (at + 1) & mask;
  }
  return name_slots_[at];
}

std::uint32_t ProgramBuilder::name(std::string_view text) {
  const std::size_t names = program_.names.size();
  if (2 * names >= name_slots_.size()) {  // at first those of a program begun
    name_slots_.assign(std::max<std::size_t>(4 * std::bit_ceil(names), 512), 0);
    for (std::uint32_t i = 0; i < names; ++i) {
      std::uint32_t& slot = name_slot(program_.names[i]);
      slot = slot == 0 ? i + 1 : slot;
    }
  }
  std::uint32_t& slot = name_slot(text);
  if (slot == 0) {
    program_.names.emplace_back(text);
    slot = static_cast<std::uint32_t>(names) + 1;
  }
  return slot - 1;
}

std::int32_t ProgramBuilder::embedding_group(EmbeddingGroup g) {
  program_.embeddings.push_back(std::move(g));
  return static_cast<std::int32_t>(program_.embeddings.size() - 1);
}

std::int32_t ProgramBuilder::exchange(Exchange e) {
  program_.exchanges.push_back(std::move(e));
  return static_cast<std::int32_t>(program_.exchanges.size() - 1);
}

std::uint32_t ProgramBuilder::begin_segment(std::string name, SegmentKind kind,
                                            MicrobatchRole microbatches) {
  STEPCAST_CHECK(!open_, "segment '{}' inside another", name);
  open_ = true;
  layer_ = kNoLayer;
  program_.segments.push_back(
      {std::move(name), static_cast<std::uint32_t>(program_.ops.size()), 0, kind, microbatches});
  return static_cast<std::uint32_t>(program_.segments.size() - 1);
}

void ProgramBuilder::end_segment() {
  STEPCAST_CHECK(open_, "no segment is open");
  open_ = false;
  Segment& s = program_.segments.back();
  s.op_count = static_cast<std::uint32_t>(program_.ops.size()) - s.first_op;
}

void ProgramBuilder::call(std::uint32_t segment, std::int32_t microbatch) {
  program_.calls.push_back({segment, microbatch});
}

Program ProgramBuilder::finish() && {
  STEPCAST_CHECK(!open_, "segment '{}' was not closed", program_.segments.back().name);
  std::vector<bool> recorded(static_cast<std::size_t>(program_.events), false);
  for (const Op& op : program_.ops) {
    if (op.record >= 0) {
      recorded.at(static_cast<std::size_t>(op.record)) = true;
    }
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(op.inputs) + op.outputs; ++i) {
      const TensorId id = program_.operands[op.first_operand + i];
      STEPCAST_CHECK(id < program_.tensors.size(), "op '{}' names tensor {}", program_.name(op),
                     id);
    }
  }
  for (const std::int32_t e : program_.waits) {
    STEPCAST_CHECK(recorded.at(static_cast<std::size_t>(e)),
                   "event {} is waited for but never recorded", e);
  }
  for (const Call& c : program_.calls) {
    STEPCAST_CHECK(c.segment < program_.segments.size() && c.microbatch >= 0 &&
                       c.microbatch < program_.microbatches,
                   "call of segment {} for microbatch {}", c.segment, c.microbatch);
  }
  return std::move(program_);
}

}  // namespace stepcast
