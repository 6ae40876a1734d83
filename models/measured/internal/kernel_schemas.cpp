// Published single-kernel tables. Units and traps are those of the tables' own descriptions.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "core/graph/op_traits.h"
#include "models/measured/internal/schema.h"

namespace stepcast::models {
namespace {

/// What a measured row-wise kernel is in our terms. Where the kernel is another one that reads and
/// writes as much per element, its name is the row's variant.
struct RowWise {
  std::string_view written;
  OpKind kind;
  OpAttributes attributes{};
  bool stands_in = false;
};
constexpr ActivationAttributes kPlain{Activation::kNone};
constexpr ActivationAttributes kRelu{Activation::kRelu};
constexpr ActivationAttributes kGelu{Activation::kGelu};
constexpr NormAttributes kLayerNorm{Norm::kLayerNorm};
constexpr std::array kRowWise{
    RowWise{"add", OpKind::kAdd},
    RowWise{"mul", OpKind::kAdd, {}, true},
    RowWise{"div", OpKind::kAdd, {}, true},
    RowWise{"pow", OpKind::kAdd, {}, true},
    RowWise{"relu", OpKind::kActivationForward, kRelu},
    RowWise{"gelu", OpKind::kActivationForward, kGelu},
    RowWise{"tanh", OpKind::kActivationForward, kPlain, true},
    RowWise{"addu", OpKind::kActivationForward, kPlain, true},
    RowWise{"mulu", OpKind::kActivationForward, kPlain, true},
    RowWise{"divu", OpKind::kActivationForward, kPlain, true},
    RowWise{"powu", OpKind::kActivationForward, kPlain, true},
    RowWise{"ln", OpKind::kNormForward, kLayerNorm},
    RowWise{"layernorm", OpKind::kNormForward, kLayerNorm},
    RowWise{"softmax", OpKind::kCrossEntropyLoss, {}, true},
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
  op.attributes = of.attributes;
  op.shape = {rows, width};
  return op;
}

/// Embedding bags of `tables` equal tables, fp32 or bf16 rows and 64-bit ids; work as the workloads
/// count it: rows read, one id per lookup, one length per bag, pooled rows written; backward also
/// the unique rows read and written back.
Op embedding_op(OpKind kind, std::int64_t tables, std::int64_t bags, std::int64_t pooling,
                std::int64_t dim, Format format, double unique_rows, std::int32_t group) {
  const auto real = [](std::int64_t v) { return static_cast<double>(v); };
  Op op;
  op.kind = kind;
  op.format = format;
  const std::int64_t lookups = tables * bags * pooling;
  op.shape = {lookups, tables * bags, tables * dim};
  op.attributes = EmbeddingAttributes{.group = group, .order = 1};
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

bool narrow(Format format) { return bits_per_element(format, 1024) < 16; }

/// C[m,n] = A[m,k] B[k,n], `batch` of them; C of narrow products is written in bf16.
Op product(Format format, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch) {
  Op op;
  op.kind = OpKind::kGemm;
  op.format = format;
  op.shape = {m, n, k, batch};
  fill_work(op);
  if (narrow(format)) {
    op.bytes_written = format_bytes(Format::kBf16, m * batch, n);
  }
  return op;
}

/// Experts of two matrices with a squared ReLU in these tables; all others are gated.
bool two_matrices(std::int64_t hidden, std::int64_t ffn) {
  constexpr std::array<std::pair<std::int64_t, std::int64_t>, 5> kOf{
      {{2688, 1856}, {2048, 5120}, {1024, 2688}, {4096, 2688}, {8192, 5120}}};
  return std::find(kOf.begin(), kOf.end(), std::pair(hidden, ffn)) != kOf.end();
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

// C[m,n] = A[m,k] B[k,n], forward layout, cold weights, no launch gap. Narrow products read and
// write bf16: the cast of A is in their times, with the search of its largest value where one scale
// serves the tensor (fp8); C is written wide.
void read_gemm(const Row& row, TableBuilder& to) {
  const NamedFormat format = format_in(row.text("gemm_dtype"));
  const Op op = product(format.format, row.count("m"), row.count("n"), row.count("k"), 1);
  to.op_with_work(op, milliseconds(row.positive("latency_ms")), {op.shape[1], op.shape[2]},
                  {.variant = format.variant});
  if (narrow(format.format)) {
    const bool one_scale = format_info(format.format).block == 1 && format.variant.empty();
    to.quantises(op.shape[0], op.shape[2], one_scale, bits_per_element(format.format, 1024) / 8);
  }
}

// Per-tensor quantisation of [m, k] from bf16 to fp8, in two files: the cast with a given scale,
// and what the search of the largest value adds.
void read_quantisation(const Row& row, TableBuilder& to) {
  const Format format = format_in(row.text("quant_dtype")).format;
  const std::string& path = to.table().files.back().path;
  const bool search = path.find("computescale") != std::string::npos;
  const std::int64_t m = row.count("m");
  const std::int64_t k = row.count("k");
  const Seconds time = milliseconds(row.positive("latency_ms"));
  to.quantisation(m, k, search, time);
  Op op;
  op.kind = OpKind::kCast;
  op.format = format;
  op.shape = {m * k};
  const auto n = static_cast<double>(m * k);
  op.flops = Flops(2 * n);
  op.bytes_read = Bytes(2 * n);
  op.bytes_written = Bytes(search ? 0 : n * bits_per_element(format, 1024) / 8);
  to.op_with_work(op, time, {k}, {.variant = search ? "search of the maximum" : ""});
}

// Causal prefill: query length = key length = isl.
void read_attention(const Row& row, TableBuilder& to) {
  if (row.count("step", 0) != 0) {
    throw RowError("step is not 0: only prefill rows without cached tokens are used");
  }
  // Another kernel, timed without the rotation and the write to the cache.
  const bool bare = row.text("kernel_source").ends_with("flashinfer");
  Op op;
  op.kind = OpKind::kAttentionForward;
  op.format = format_in(row.text("attn_dtype")).format;
  op.flags = op_flags::kCausal;
  if (!row.text("window_size").empty() && row.count("window_size", 0) != 0) {
    op.attributes =
        AttentionAttributes{.window = static_cast<std::int32_t>(row.count("window_size", 0))};
  }
  const std::int64_t length = row.count("isl");
  op.shape = {row.count("batch_size"),
              row.count("num_heads"),
              row.count("num_key_value_heads"),
              length,
              length,
              row.count("head_dim")};
  to.op(op, milliseconds(row.positive("latency_ms")), {op.shape[1], op.shape[2], op.shape[5]},
        {.variant = bare ? "without rotation and cache" : ""});
}

// Prefill of multi-head latent attention with keys and values projected up: queries and keys of
// 192, values of 128; the op's width is their mean, as the transformers here count it.
void read_latent_attention(const Row& row, TableBuilder& to) {
  constexpr std::int64_t kWidth = (192 + 128) / 2;
  if (!row.text("gemm_type").empty()) {
    throw RowError("gemm_type: a layer with its projections, not attention alone");
  }
  if (row.count("step", 0) != 0) {
    throw RowError("step is not 0: only prefill rows without cached tokens are used");
  }
  Op op;
  op.kind = OpKind::kAttentionForward;
  op.format = format_in(row.text("mla_dtype")).format;
  op.flags = op_flags::kCausal;
  const std::int64_t heads = row.count("num_heads");
  const std::int64_t length = row.count("isl");
  op.shape = {row.count("batch_size"), heads, heads, length, length, kWidth};
  const bool same = format_in(row.text("kv_cache_dtype")).format == op.format;
  to.op(op, milliseconds(row.positive("latency_ms")), {heads, heads, kWidth},
        {.variant = same ? "" : "narrow cache"});
}

// One rank of a layer of experts: the choice, the permutation, both grouped products, the
// activation and the weighted sum. Tokens are those of the whole group.
void read_experts(const Row& row, TableBuilder& to) {
  const NamedFormat format = format_in(row.text("moe_dtype"));
  const std::int64_t tokens = row.count("num_tokens");
  const std::int64_t hidden = row.count("hidden_size");
  const std::int64_t ffn = row.count("inter_size");
  const std::int64_t chosen = row.count("topk");
  const std::int64_t experts = row.count("num_experts");
  const std::int64_t split = row.text("moe_tp_size").empty() ? 1 : row.count("moe_tp_size");
  const std::int64_t ranks = row.count("moe_ep_size");
  const std::string_view kernel = row.text("kernel_source");
  if (ranks > 1 && (kernel.find("triton") != std::string_view::npos ||
                    kernel.find("flatten") != std::string_view::npos)) {
    throw RowError(
        "this kernel computes the tokens of other ranks too; use rows with moe_ep_size 1");
  }
  // Assignments of the rank and the experts that have any, spread evenly.
  const std::int64_t assigned = std::max<std::int64_t>(1, tokens * chosen / ranks);
  const std::int64_t local = std::max<std::int64_t>(1, experts / ranks);
  const std::int64_t active = std::min(local, assigned);
  const std::int64_t rows = (assigned + active - 1) / active;
  const std::int64_t width = std::max<std::int64_t>(1, ffn / split);
  const bool gated = !two_matrices(hidden, ffn);
  const auto grouped = [&](std::int64_t n, std::int64_t k) {
    Op op = product(format.format, rows, n, k, active);
    op.routing = 0;
    op.flops = op.flops * (static_cast<double>(assigned) / static_cast<double>(rows * active));
    return op;
  };
  const auto row_wise = [](OpKind kind, Format of, std::array<std::int64_t, 6> shape,
                           const OpAttributes& attributes = {}) {
    Op op;
    op.kind = kind;
    op.format = of;
    op.shape = shape;
    op.attributes = attributes;
    fill_work(op);
    return op;
  };
  const std::array<Op, 6> layer{
      grouped((gated ? 2 : 1) * width, hidden),
      grouped(hidden, width),
      row_wise(OpKind::kRouteForward, Format::kFp32, {tokens, experts, chosen}),
      row_wise(OpKind::kDispatchForward, Format::kBf16, {assigned, hidden}),
      row_wise(OpKind::kActivationForward, Format::kBf16, {assigned, width},
               ActivationAttributes{Activation::kSwiGlu}),
      row_wise(OpKind::kCombineForward, Format::kBf16, {tokens, hidden, assigned})};
  std::string variant(format.variant);
  const auto add = [&variant](std::string_view what) {
    variant += (variant.empty() ? "" : ", ") + std::string(what);
  };
  if (!kernel.ends_with("moe_torch_flow_cutlass") && !kernel.empty()) {
    add(kernel);
  }
  if (row.text("distribution") != "balanced") {
    add(row.text("distribution"));
  }
  to.ops_with_work(layer, milliseconds(row.positive("latency_ms")), {hidden, ffn, experts, chosen},
                   {.variant = variant});
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
  const Op op = embedding_op(backward ? OpKind::kEmbeddingBackward : OpKind::kEmbeddingForward,
                             tables, bags, pooling, dim, Format::kFp32,
                             static_cast<double>(tables) * law.unique(lookups).value,
                             to.embedding_group(tables, rows, dim, static_cast<double>(bags),
                                                lookups, Format::kFp32, OptimizerKind::kSgd, law));
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
    op = embedding_op(
        OpKind::kEmbeddingForward, 1, bags, pooling, dim, format, 0,
        to.embedding_group(1, rows, dim, static_cast<double>(bags),
                           static_cast<double>(bags * pooling), format, OptimizerKind::kSgd, law));
    to.op_with_work(op, time, {rows, dim}, where, samples);
  } else if (const auto known = row_wise(name)) {
    op = row_wise_op(*known, format, row.count("m"), row.count("n") * (name == "cat" ? 2 : 1));
    where.variant = known->stands_in ? name : where.variant;
    if (pass == "forward+backward") {
      const OpKind forward = op.kind;
      op.kind = traits_of(forward).backward;
      if (op.kind == OpKind::kCount) {
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
