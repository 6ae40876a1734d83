// Published single-kernel tables. Units and traps are those of the tables' own descriptions.
#include <fmt/format.h>

#include <array>
#include <optional>

#include "models/measured/internal/schema.h"

namespace stepcast::models {
namespace {

/// What a measured row-wise kernel is in our terms. Where the kernel is another one that reads and
/// writes as much per element, its name is the row's variant.
struct RowWise {
  std::string_view written;
  OpKind kind;
  std::uint8_t variant = 0;
  bool stands_in = false;
};
constexpr auto kPlain = static_cast<std::uint8_t>(Activation::kNone);
constexpr auto kRelu = static_cast<std::uint8_t>(Activation::kRelu);
constexpr auto kGelu = static_cast<std::uint8_t>(Activation::kGelu);
constexpr auto kLayerNorm = static_cast<std::uint8_t>(Norm::kLayerNorm);
constexpr std::array kRowWise{
    RowWise{"add", OpKind::kAdd},
    RowWise{"mul", OpKind::kAdd, 0, true},
    RowWise{"div", OpKind::kAdd, 0, true},
    RowWise{"pow", OpKind::kAdd, 0, true},
    RowWise{"relu", OpKind::kActivationForward, kRelu},
    RowWise{"gelu", OpKind::kActivationForward, kGelu},
    RowWise{"tanh", OpKind::kActivationForward, kPlain, true},
    RowWise{"addu", OpKind::kActivationForward, kPlain, true},
    RowWise{"mulu", OpKind::kActivationForward, kPlain, true},
    RowWise{"divu", OpKind::kActivationForward, kPlain, true},
    RowWise{"powu", OpKind::kActivationForward, kPlain, true},
    RowWise{"ln", OpKind::kNormForward, kLayerNorm},
    RowWise{"layernorm", OpKind::kNormForward, kLayerNorm},
    RowWise{"softmax", OpKind::kCrossEntropyLoss, 0, true},
    RowWise{"copy", OpKind::kCopyColumns},
    RowWise{"cat", OpKind::kCopyColumns},
};

std::optional<RowWise> row_wise(std::string_view written) {
  for (const RowWise& r : kRowWise) {
    if (r.written == written) {
      return r;
    }
  }
  return std::nullopt;
}

Op row_wise_op(const RowWise& of, Format format, std::int64_t rows, std::int64_t width) {
  Op op;
  op.kind = of.kind;
  op.format = format;
  op.variant = of.variant;
  op.shape = {rows, width};
  return op;
}

/// Embedding bags of `tables` equal tables, fp32 or bf16 rows and 64-bit ids; work as the workloads
/// count it: rows read, one id per lookup, one length per bag, pooled rows written; backward also
/// the unique rows read and written back.
Op embedding_op(OpKind kind, std::int64_t tables, std::int64_t bags, std::int64_t pooling,
                std::int64_t dim, Format format, double unique_rows) {
  const auto real = [](std::int64_t v) { return static_cast<double>(v); };
  Op op;
  op.kind = kind;
  op.format = format;
  const std::int64_t lookups = tables * bags * pooling;
  op.shape = {lookups, tables * bags, tables * dim, 1};
  const double element = bits_per_element(format, dim) / 8;
  const double ids = 8 * real(lookups) + 4 * real(tables * bags);
  op.flops = Flops(real(lookups) * real(dim));
  if (kind == OpKind::kEmbeddingForward) {
    op.bytes_read = Bytes(real(lookups) * real(dim) * element + ids);
    op.bytes_written = Bytes(real(tables * bags) * real(dim) * element);
  } else {
    op.bytes_read = Bytes((real(lookups) + unique_rows) * real(dim) * element + ids);
    op.bytes_written = Bytes(unique_rows * real(dim) * element);
  }
  return op;
}

/// Time of a backward kernel that was timed together with its forward: less the forward's, which is
/// the row before it.
Seconds without_forward(TableBuilder& to, const Op& backward, OpKind forward, Seconds both) {
  const auto& rows = to.table().ops;
  for (std::size_t back = 1; back <= 2 && back <= rows.size(); ++back) {
    const auto& row = rows[rows.size() - back];
    const Op& op = to.program().ops[row.op];
    if (op.kind == forward && op.shape == backward.shape && op.format == backward.format &&
        op.flags == backward.flags && row.time < both) {
      return both - row.time;
    }
  }
  throw RowError(
      "forward and backward in one time, and no forward row of this shape before it; keep the rows "
      "in the order they were written");
}

}  // namespace

// C[m,n] = A[m,k] B[k,n], forward layout, cold weights, no launch gap.
void read_gemm(const Row& row, TableBuilder& to) {
  const NamedFormat format = format_in(row.text("gemm_dtype"));
  Op op;
  op.kind = OpKind::kGemm;
  op.format = format.format;
  op.shape = {row.count("m"), row.count("n"), row.count("k"), 1};
  to.op(op, milliseconds(row.positive("latency_ms")), {op.shape[1], op.shape[2]},
        {.variant = format.variant});
}

// Causal prefill: query length = key length = isl.
void read_attention(const Row& row, TableBuilder& to) {
  if (row.count("step", 0) != 0) {
    throw RowError("step is not 0: only prefill rows without cached tokens are used");
  }
  Op op;
  op.kind = OpKind::kAttentionForward;
  op.format = format_in(row.text("attn_dtype")).format;
  op.flags = op_flags::kCausal;
  if (!row.text("window_size").empty() && row.count("window_size", 0) != 0) {
    op.detail = static_cast<std::int32_t>(row.count("window_size", 0));
  }
  const std::int64_t length = row.count("isl");
  op.shape = {row.count("batch_size"),
              row.count("num_heads"),
              row.count("num_key_value_heads"),
              length,
              length,
              row.count("head_dim")};
  to.op(op, milliseconds(row.positive("latency_ms")), {op.shape[1], op.shape[2], op.shape[5]});
}

// fp32 PyTorch kernels over [B, H].
void read_row_wise(const Row& row, TableBuilder& to) {
  const std::string_view name = row.text("op");
  const auto known = row_wise(name);
  if (!known) {
    throw RowError(fmt::format(
        "unknown op \"{}\"; one of add, mul, div, pow, relu, gelu, tanh, ln, softmax, copy, cat "
        "(and addu, mulu, divu, powu with a scalar)",
        name));
  }
  const Op op = row_wise_op(*known, Format::kFp32, row.count("B"), row.count("H"));
  to.op(op, milliseconds(row.positive("latency_ms")), {op.shape[1]},
        {.device = row.text("device"), .variant = known->stands_in ? name : std::string_view{}});
}

// Table-batched embedding kernels, uniform indices, fp32; times in microseconds.
void read_embedding(const Row& row, TableBuilder& to) {
  const bool backward = row.text("kernel_name").find("backward") != std::string_view::npos;
  const std::int64_t bags = row.count("batch_size");
  const std::int64_t rows = row.count("num_embeddings");
  const std::int64_t tables = row.count("num_tables");
  const std::int64_t pooling = row.count("bag_size");
  const std::int64_t dim = row.count("embedding_dim");
  const Seconds time = microseconds(row.positive("kernel_runtime"));
  const Access law = Access::uniform(rows);
  const auto lookups = static_cast<double>(bags * pooling);
  Op op = embedding_op(backward ? OpKind::kEmbeddingBackward : OpKind::kEmbeddingForward, tables,
                       bags, pooling, dim, Format::kFp32,
                       static_cast<double>(tables) * law.unique(lookups).value);
  op.detail = to.embedding_group(tables, rows, dim, static_cast<double>(bags), lookups,
                                 Format::kFp32, OptimizerKind::kSgd, law);
  op.variant = static_cast<std::uint8_t>(OptimizerKind::kSgd);
  const std::string& path = to.table().files.back().path;
  const bool shared = path.find("noshmem") == std::string::npos;
  to.op_with_work(op, time, {rows, dim},
                  {.stack = shared ? "batched embedding, shared memory"
                                   : "batched embedding, no shared memory"});
}

// PyTorch kernels measured by one script on one GPU: one file for all op kinds.
void read_torch_kernel(const Row& row, TableBuilder& to) {
  const std::string_view name = row.text("op");
  const std::string_view pass = row.text("pass");
  const Format format = format_in(row.text("dtype")).format;
  const Seconds time = milliseconds(row.positive("latency_ms"));
  const std::int64_t samples = row.count("n_runs");
  RowTestbed where{.variant = row.text("cache") == "warm" ? "warm" : ""};
  Op op;
  op.format = format;
  if (name.rfind("gemm_", 0) == 0 && name.size() == 7) {
    op.kind = OpKind::kGemm;
    op.flags = static_cast<std::uint8_t>((name[5] == 't' ? op_flags::kTransposeA : 0) |
                                         (name[6] == 't' ? op_flags::kTransposeB : 0));
    op.shape = {row.count("m"), row.count("n"), row.count("k"), 1};
    to.op(op, time, {op.shape[1], op.shape[2]}, where, samples);
  } else if (name == "attention_causal" || name == "attention_full") {
    const bool backward = pass == "forward+backward";
    const std::int64_t length = row.count("seq");
    op.flags = name == "attention_causal" ? op_flags::kCausal : 0;
    op.shape = {row.count("batch"),   row.count("heads"), row.count("kv_heads"), length, length,
                row.count("head_dim")};
    op.kind = backward ? OpKind::kAttentionBackward : OpKind::kAttentionForward;
    to.op(op, backward ? without_forward(to, op, OpKind::kAttentionForward, time) : time,
          {op.shape[1], op.shape[2], op.shape[5]}, where, samples);
  } else if (name == "embedding_bag") {
    if (pass != "forward") {
      throw RowError(fmt::format(
          "{}: PyTorch's gradient of an embedding bag is not the fused backward and optimizer this "
          "op kind means; only forward rows are used",
          pass));
    }
    const std::int64_t bags = row.count("batch");
    const std::int64_t rows = row.count("rows");
    const std::int64_t dim = row.count("dim");
    const std::int64_t pooling = row.count("pooling");
    const double exponent = row.number("zipf");
    const Access law = exponent > 0 ? Access::zipf(rows, exponent) : Access::uniform(rows);
    op = embedding_op(OpKind::kEmbeddingForward, 1, bags, pooling, dim, format, 0);
    op.detail =
        to.embedding_group(1, rows, dim, static_cast<double>(bags),
                           static_cast<double>(bags * pooling), format, OptimizerKind::kSgd, law);
    to.op_with_work(op, time, {rows, dim}, where, samples);
  } else if (const auto known = row_wise(name)) {
    op = row_wise_op(*known, format, row.count("m"), row.count("n") * (name == "cat" ? 2 : 1));
    where.variant = known->stands_in ? name : where.variant;
    if (pass == "forward+backward") {
      const OpKind forward = op.kind;
      if (forward == OpKind::kNormForward) {
        op.kind = OpKind::kNormBackward;
      } else if (forward == OpKind::kActivationForward) {
        op.kind = OpKind::kActivationBackward;
      } else {
        throw RowError(fmt::format("the backward of {} has no op here", name));
      }
      to.op(op, without_forward(to, op, forward, time), {op.shape[1]}, where, samples);
      return;
    }
    to.op(op, time, {op.shape[1]}, where, samples);
  } else {
    throw RowError(fmt::format("op \"{}\" has no op kind here", name));
  }
}

}  // namespace stepcast::models
