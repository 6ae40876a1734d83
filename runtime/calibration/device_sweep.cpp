#include "runtime/calibration/device_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>

namespace stepcast::runtime::calibration {
namespace {

constexpr double kIdBytes = 8;

DeviceCase op_case(SweepPart part, OpKind kind, std::array<std::int64_t, 6> shape, Format format,
                   std::uint8_t flags = 0, const OpAttributes& attributes = {}) {
  DeviceCase c;
  c.part = part;
  c.op.kind = kind;
  c.op.shape = shape;
  c.op.format = format;
  c.op.flags = flags;
  c.op.attributes = attributes;
  fill_work(c.op);
  return c;
}

/// The work of an embedding op over one table, as the DLRM builder counts it.
DeviceCase embedding_case(OpKind kind, const EmbeddingCase& shape, Format format) {
  DeviceCase c =
      op_case(SweepPart::kEmbedding, kind, {shape.lookups(), shape.batch, shape.dim}, format);
  const double element = bits_per_element(format) / 8;
  const auto lookups = static_cast<double>(shape.lookups());
  const double row = static_cast<double>(shape.dim) * element;
  const double pooled = static_cast<double>(shape.batch * shape.dim) * 4;
  c.embedding = shape;
  c.op.flops = Flops(lookups * static_cast<double>(shape.dim));
  if (kind == OpKind::kEmbeddingForward) {
    c.op.bytes_read = Bytes(lookups * (row + kIdBytes));
    c.op.bytes_written = Bytes(pooled);
  } else {
    c.op.bytes_read = Bytes(pooled + lookups * (row + kIdBytes));
    c.op.bytes_written = Bytes(lookups * row);
  }
  return c;
}

void add_embeddings(std::vector<DeviceCase>& cases, double memory) {
  for (const std::int64_t rows : {10'000L, 100'000L, 1'000'000L, 10'000'000L, 50'000'000L}) {
    for (const std::int64_t dim : {16L, 32L, 64L, 128L, 256L}) {
      for (const std::int64_t pooling : {1L, 4L, 8L, 32L, 100L}) {
        for (const double zipf : {0.0, 0.6, 0.8, 1.05, 1.2}) {
          for (const std::int64_t batch : {2048L, 16384L, 65536L}) {
            EmbeddingCase shape{
                .rows = rows, .dim = dim, .pooling = pooling, .batch = batch, .zipf = zipf};
            const double bytes = static_cast<double>(rows * (dim + 1)) * 4;
            if (batch * pooling > 2'000'000 || bytes > memory / 2) {
              continue;
            }
            for (const Format format : {Format::kFp32, Format::kBf16}) {
              for (const bool cold : {true, false}) {
                if (!cold && zipf != 0 && zipf != 1.05) {
                  continue;
                }
                DeviceCase c = embedding_case(OpKind::kEmbeddingForward, shape, format);
                c.cold = cold;
                cases.push_back(c);
              }
            }
            for (const OptimizerKind optimizer :
                 {OptimizerKind::kRowwiseAdagrad, OptimizerKind::kSgd}) {
              shape.optimizer = optimizer;
              cases.push_back(embedding_case(OpKind::kEmbeddingBackward, shape, Format::kFp32));
            }
          }
        }
      }
    }
  }
}

void add_gemms(std::vector<DeviceCase>& cases) {
  const std::vector<std::int64_t> sizes{16,   64,   128,  256,  512,   1024, 2048,
                                        3072, 4096, 5120, 8192, 12288, 16384};
  const std::array<std::uint8_t, 3> layouts{0, op_flags::kTransposeB, op_flags::kTransposeA};
  for (const std::int64_t m : sizes) {
    for (const std::int64_t n : sizes) {
      for (const std::int64_t k : sizes) {
        const double flops =
            2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
        for (const std::uint8_t layout : layouts) {
          for (const Format format :
               {Format::kBf16, Format::kFp32, Format::kTf32, Format::kFp16, Format::kFp8}) {
            // Most products of a step are bf16; fp32 has a tenth of its rate.
            const std::int64_t turn = (m + n + k) / 16 % 4;
            if (n < 64 || k < 64 || flops > (format == Format::kFp32 ? 3e11 : 3e12) ||
                (format != Format::kBf16 && turn != 0)) {
              continue;
            }
            DeviceCase c = op_case(SweepPart::kGemm, OpKind::kGemm, {m, n, k, 1}, format, layout);
            if (format == Format::kFp8) {  // operands stand quantised, the result is bf16
              c.op.bytes_written = Bytes(2.0 * static_cast<double>(m * n));
            }
            cases.push_back(c);
            if (format == Format::kBf16 && turn == 1) {
              c.cold = false;
              cases.push_back(c);
            }
          }
        }
      }
    }
  }
}

/// Products of experts, one for each of those a rank holds: few rows each.
void add_expert_gemms(std::vector<DeviceCase>& cases) {
  const std::array<std::uint8_t, 3> layouts{0, op_flags::kTransposeB, op_flags::kTransposeA};
  for (const std::int64_t experts : {2L, 8L, 32L}) {
    for (const std::int64_t rows : {16L, 64L, 256L, 1024L}) {
      for (const auto& [width, hidden] :
           std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
               {512, 1024}, {1408, 2048}, {4096, 4096}}) {
        for (const std::uint8_t layout : layouts) {
          const bool weights = layout == op_flags::kTransposeA;
          cases.push_back(
              op_case(SweepPart::kGemm, OpKind::kGemm,
                      {weights ? hidden : rows, width, weights ? rows : hidden, experts},
                      Format::kBf16, layout));
        }
      }
    }
  }
}

void add_attention(std::vector<DeviceCase>& cases) {
  for (const std::int64_t batch : {1L, 2L, 4L, 8L}) {
    for (const auto& [heads, kv_heads] :
         std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
             {8, 8}, {12, 12}, {16, 16}, {32, 32}, {32, 8}, {64, 8}}) {
      for (const std::int64_t head_dim : {64L, 128L}) {
        for (const std::int64_t length : {256L, 512L, 1024L, 2048L, 4096L, 8192L}) {
          for (const std::uint8_t flags : {op_flags::kCausal, std::uint8_t{0}}) {
            for (const OpKind kind : {OpKind::kAttentionForward, OpKind::kAttentionBackward}) {
              DeviceCase c = op_case(SweepPart::kAttention, kind,
                                     {batch, heads, kv_heads, length, length, head_dim},
                                     Format::kBf16, flags, AttentionAttributes{});
              if (c.op.flops.base() <= 6e12) {
                cases.push_back(c);
                if (batch == 2) {
                  c.cold = false;
                  cases.push_back(c);
                }
              }
            }
          }
        }
      }
    }
  }
}

/// Sequences of one length, of few lengths and of very different ones; as many pairs as a first
/// step draws.
void add_jagged_attention(std::vector<DeviceCase>& cases) {
  for (const LengthLaw& law : {LengthLaw{LengthKind::kFixed, 64},
                               {LengthKind::kFixed, 512},
                               {LengthKind::kUniform, 1, 512},
                               {LengthKind::kGeometric, 64},
                               {LengthKind::kLogNormal, 100, 1.2F}}) {
    for (const auto& [batch, rows] : {std::pair{4L, 1024L}, {16L, 4096L}}) {
      const std::vector<std::int32_t> offsets = draw_offsets(law, rows, 0, 0, batch);
      for (const std::uint8_t flags : {op_flags::kCausal, std::uint8_t{0}}) {
        std::int64_t pairs = 0;
        for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
          const std::int64_t n = offsets[i + 1] - offsets[i];
          pairs += flags != 0 ? n * (n + 1) / 2 : n * n;
        }
        for (const auto& [heads, dim] : {std::pair{4L, 64L}, {16L, 64L}, {8L, 128L}}) {
          for (const OpKind kind :
               {OpKind::kJaggedAttentionForward, OpKind::kJaggedAttentionBackward}) {
            cases.push_back(op_case(SweepPart::kAttention, kind,
                                    {batch, heads, heads, rows, pairs, dim}, Format::kBf16, flags,
                                    JaggedAttributes{law}));
          }
        }
      }
    }
  }
}

void add_op(std::vector<DeviceCase>& cases, OpKind kind, std::array<std::int64_t, 6> shape,
            Format format, const OpAttributes& attributes = {}) {
  for (const bool cold : {true, false}) {
    DeviceCase c = op_case(SweepPart::kMemoryBound, kind, shape, format, 0, attributes);
    c.cold = cold;
    if (c.op.bytes_read.base() + c.op.bytes_written.base() < 4e9) {
      cases.push_back(c);
    }
  }
}

/// Adds what a step does to whole matrices.
void add_matrix_ops(std::vector<DeviceCase>& cases, std::int64_t rows, std::int64_t width,
                    Format format) {
  const auto add = [&](OpKind kind, std::array<std::int64_t, 6> shape,
                       const OpAttributes& attributes = {}) {
    add_op(cases, kind, shape, format, attributes);
  };
  for (const OpKind kind :
       {OpKind::kAdd, OpKind::kCopyColumns, OpKind::kCrossForward, OpKind::kCrossBackward}) {
    add(kind, {rows, width});
  }
  for (const OpKind kind : {OpKind::kBiasActivationForward, OpKind::kBiasActivationBackward}) {
    add(kind, {rows, width}, ActivationAttributes{Activation::kRelu});
  }
  for (const OpKind kind : {OpKind::kActivationForward, OpKind::kActivationBackward}) {
    add(kind, {rows, width}, ActivationAttributes{Activation::kGelu});
    add(kind, {rows, width}, ActivationAttributes{Activation::kSwiGlu});
  }
  for (const OpKind kind : {OpKind::kNormForward, OpKind::kNormBackward}) {
    add(kind, {rows, width}, NormAttributes{Norm::kLayerNorm});
    add(kind, {rows, width}, NormAttributes{Norm::kRmsNorm});
  }
  for (const OpKind kind : {OpKind::kTokenEmbeddingForward, OpKind::kTokenEmbeddingBackward}) {
    add(kind, {rows, width, 50'304});
  }
  if (width >= 1024) {
    add(OpKind::kRopeForward, {rows, width / 64, 64, width});
    add(OpKind::kRopeBackward, {rows, width / 64, 64, width});
  }
}

void add_memory_bound(std::vector<DeviceCase>& cases) {
  const auto add = [&](OpKind kind, std::array<std::int64_t, 6> shape, Format format,
                       const OpAttributes& attributes = {}) {
    add_op(cases, kind, shape, format, attributes);
  };
  // bf16 read, as the transformer builder counts it; two layouts written.
  const auto add_quantising = [&](std::int64_t n) {
    DeviceCase c = op_case(SweepPart::kMemoryBound, OpKind::kCast, {n}, Format::kFp8);
    c.op.bytes_read = c.op.bytes_written = Bytes(2.0 * static_cast<double>(n));
    cases.push_back(c);
  };
  for (const std::int64_t rows : {256L, 1024L, 4096L, 16384L, 65536L}) {
    for (const std::int64_t width : {64L, 256L, 1024L, 2048L, 4096L, 8192L}) {
      for (const Format format : {Format::kBf16, Format::kFp32}) {
        add_matrix_ops(cases, rows, width, format);
      }
      for (const OpKind kind :
           {OpKind::kCrossEntropyMax, OpKind::kCrossEntropySum, OpKind::kCrossEntropyLoss}) {
        add(kind, {std::min<std::int64_t>(rows, 8192), 8 * width}, Format::kFp32);
      }
      for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdam}) {
        add(OpKind::kOptimizer, {rows * width}, Format::kFp32, OptimizerAttributes{kind});
      }
      add(OpKind::kFill, {rows * width}, Format::kFp32);
      add(OpKind::kCast, {rows * width}, Format::kBf16);
      add_quantising(rows * width);
    }
    add(OpKind::kBinaryCrossEntropy, {rows}, Format::kFp32);
    for (const auto& [experts, choices] :
         std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
             {8, 2}, {64, 6}, {128, 1}, {256, 8}}) {
      add(OpKind::kRouteForward, {rows, experts, choices}, Format::kFp32);
      add(OpKind::kRouteBackward, {rows, experts, choices}, Format::kFp32);
    }
    for (const std::int64_t width : {512L, 1024L, 4096L, 7168L}) {  // two copies a row
      for (const OpKind kind : {OpKind::kDispatchForward, OpKind::kCombineBackward}) {
        add(kind, {2 * rows, width}, Format::kBf16);
      }
      for (const OpKind kind : {OpKind::kDispatchBackward, OpKind::kCombineForward}) {
        add(kind, {rows, width, 2 * rows}, Format::kBf16);
      }
    }
    for (const std::int64_t features : {9L, 27L}) {
      for (const std::int64_t dim : {32L, 64L, 128L}) {
        for (const OpKind kind :
             {OpKind::kDotInteractionForward, OpKind::kDotInteractionBackward}) {
          add(kind, {rows, features, dim}, Format::kFp32);
          add(kind, {rows, features, dim}, Format::kBf16);
        }
      }
    }
  }
}

/// Tells whether `shape` begins with the sizes of one of `those`.
template <std::size_t N>
bool among(const Op& op, std::initializer_list<std::array<std::int64_t, N>> those) {
  return std::any_of(those.begin(), those.end(), [&](const auto& sizes) {
    return std::equal(sizes.begin(), sizes.end(), op.shape.begin());
  });
}

}  // namespace

bool is_anchor(const DeviceCase& c) {
  const bool causal = (c.op.flags & op_flags::kCausal) != 0;
  switch (c.part) {
    case SweepPart::kEmbedding:
      return c.cold && c.embedding.rows == 10'000'000 && c.embedding.pooling == 32 &&
             c.embedding.batch == 16384 && (c.embedding.zipf == 0 || c.embedding.zipf == 1.05);
    case SweepPart::kGemm:
      return c.cold && c.op.shape[3] == 1 &&
             among<3>(
                 c.op,
                 {{4096, 4096, 4096}, {8192, 8192, 8192}, {8192, 1024, 4096}, {16384, 512, 1024}});
    case SweepPart::kAttention:
      return c.cold && causal && std::holds_alternative<AttentionAttributes>(c.op.attributes) &&
             among<6>(c.op, {{8, 16, 16, 1024, 1024, 64},
                             {2, 16, 16, 2048, 2048, 128},
                             {1, 32, 32, 4096, 4096, 128},
                             {1, 32, 8, 8192, 8192, 128}});
    default:
      return c.cold && (among<2>(c.op, {{16384, 4096}, {65536, 27}}) ||
                        among<1>(c.op, {{std::int64_t{16384} * 4096}}));
  }
}

std::string_view name_of(SweepPart part) {
  constexpr std::array<std::string_view, 4> kNames{"embedding", "gemm", "attention",
                                                   "memory-bound"};
  return kNames.at(static_cast<std::size_t>(part));
}

double share_of(SweepPart part) {
  constexpr std::array<double, 4> kShares{0.34, 0.26, 0.16, 0.16};
  return kShares.at(static_cast<std::size_t>(part));
}

std::vector<DeviceCase> device_cases(std::uint64_t seed, Bytes memory) {
  std::vector<DeviceCase> cases;
  std::mt19937_64 random(seed);
  const auto shuffle_from = [&](std::size_t first) {  // what stands behind the anchors
    const auto others =
        std::stable_partition(cases.begin() + static_cast<std::ptrdiff_t>(first), cases.end(),
                              [](const DeviceCase& c) { return is_anchor(c); });
    first = static_cast<std::size_t>(others - cases.begin());
    for (std::size_t i = cases.size(); i > first + 1;
         --i) {  // not std::shuffle: the same order everywhere
      std::swap(cases[i - 1], cases[first + random() % (i - first)]);
    }
  };
  std::size_t first = 0;
  add_embeddings(cases, memory.base());
  shuffle_from(first);
  first = cases.size();
  add_gemms(cases);
  add_expert_gemms(cases);
  shuffle_from(first);
  first = cases.size();
  add_attention(cases);
  add_jagged_attention(cases);
  shuffle_from(first);
  first = cases.size();
  add_memory_bound(cases);
  shuffle_from(first);
  return cases;
}

std::string plan_text(const std::vector<DeviceCase>& cases, double seconds) {
  std::string text = fmt::format("plan: {:.0f} s\n", seconds);
  for (std::size_t p = 0; p < static_cast<std::size_t>(SweepPart::kCount); ++p) {
    const auto part = static_cast<SweepPart>(p);
    const auto count = std::count_if(cases.begin(), cases.end(),
                                     [&](const DeviceCase& c) { return c.part == part; });
    text += fmt::format("  {:13} up to {:4.0f} s, as many of {} cases as fit\n", name_of(part),
                        share_of(part) * seconds, count);
  }
  return text + "  facts         copies, launches and one-device collectives, about 15 s\n";
}

std::string text_of(const DeviceCase& c) {
  std::string text =
      fmt::format("{} {}", stepcast::name_of(c.op.kind), stepcast::name_of(c.op.format));
  for (const std::int64_t s : c.op.shape) {
    text += s > 0 ? fmt::format(" {}", s) : "";
  }
  if (c.part == SweepPart::kEmbedding) {
    text += fmt::format(", {} rows, zipf {}", c.embedding.rows, c.embedding.zipf);
  }
  return text + (c.cold ? ", cold" : ", warm");
}

}  // namespace stepcast::runtime::calibration
