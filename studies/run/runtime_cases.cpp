#include "studies/run/runtime_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/access/access.h"
#include "core/split_mix.h"

namespace stepcast::studies {
namespace {

/// Ranges of a DLRM by what it is meant to be bound by.
struct DlrmRanges {
  double batch_low, batch_high;
  double width_low, width_high;
  double pooling_low, pooling_high;
  double rows_high;
  std::int64_t tables_low, tables_high;
};

DlrmRanges dlrm_ranges(Bound bound, CaseSize size) {
  if (size == CaseSize::kDevice) {
    switch (bound) {
      case Bound::kHost:
        return {64, 512, 32, 128, 1, 4, 1e5, 12, 40};
      case Bound::kEmbedding:
        return {4096, 32768, 64, 256, 8, 64, 1e7, 4, 26};
      case Bound::kMatrix:
        return {2048, 16384, 1024, 4096, 1, 6, 1e6, 4, 12};
      case Bound::kCommunication:
        return {512, 4096, 512, 2048, 1, 6, 1e6, 4, 24};
    }
  }
  switch (bound) {
    case Bound::kHost:
      return {16, 64, 16, 48, 1, 4, 1e5, 12, 40};
    case Bound::kEmbedding:
      return {512, 4096, 32, 128, 8, 64, 1e7, 4, 40};
    case Bound::kMatrix:
      return {256, 2048, 256, 1024, 1, 6, 1e6, 4, 12};
    case Bound::kCommunication:
      return {32, 256, 512, 1536, 1, 6, 1e6, 4, 24};
  }
  return {};
}

/// Bytes of all tables with row-wise or element-wise optimizer state.
double table_bytes(const LayeredWorkload& dlrm, OptimizerKind optimizer) {
  double total = 0;
  for (const EmbeddingTable& t : dlrm.tables) {
    const double state = optimizer == OptimizerKind::kAdam ? 2.0 * static_cast<double>(t.dim)
                         : optimizer == OptimizerKind::kRowwiseAdagrad ? 1
                                                                       : 0;
    total += static_cast<double>(t.rows) * (static_cast<double>(t.dim) + state) * 4;
  }
  return total;
}

/// Scales the largest tables down until everything fits 2 GB.
void fit_memory(LayeredWorkload& dlrm, OptimizerKind optimizer) {
  while (table_bytes(dlrm, optimizer) > 2e9) {
    auto largest = std::max_element(dlrm.tables.begin(), dlrm.tables.end(),
                                    [](const EmbeddingTable& a, const EmbeddingTable& b) {
                                      return a.rows * a.dim < b.rows * b.dim;
                                    });
    largest->rows = std::max<std::int64_t>(1000, largest->rows / 2);
  }
}

std::int64_t rounded(double v, std::int64_t multiple) {
  return std::max<std::int64_t>(multiple,
                                std::llround(v / static_cast<double>(multiple)) * multiple);
}

LayeredWorkload draw_dlrm(Bound bound, const DlrmRanges& range, std::int64_t ranks, bool sequences,
                          Draw& draw, OptimizerKind optimizer) {
  LayeredWorkload dlrm;
  dlrm.dense_features = draw.integer(4, 64);
  const std::int64_t dims[] = {16, 32, 64, 128};
  const std::int64_t dim = draw.one_of(dims);
  dlrm.interaction.kind = static_cast<InteractionKind>(draw.integer(0, 2));
  if (dlrm.interaction.kind == InteractionKind::kDcnV2) {
    dlrm.interaction.layers = draw.integer(1, 3);
    dlrm.interaction.rank = rounded(draw.log_uniform(8, bound == Bound::kMatrix ? 256 : 64), 8);
  }
  const auto width = [&] {
    return rounded(draw.log_uniform(range.width_low, range.width_high), 8);
  };
  for (std::int64_t i = draw.integer(1, 3); i > 0; --i) {
    dlrm.bottom_mlp.push_back(width());
  }
  dlrm.bottom_mlp.push_back(dim);
  for (std::int64_t i = draw.integer(1, 3); i > 0; --i) {
    dlrm.top_mlp.push_back(width());
  }
  dlrm.top_mlp.push_back(1);
  const std::int64_t tables = draw.integer(range.tables_low, range.tables_high);
  const double exponent = draw.uniform(0, 1.2);
  const bool equal_dims = dlrm.interaction.kind == InteractionKind::kDot;
  for (std::int64_t t = 0; t < tables; ++t) {
    EmbeddingTable table;
    table.name = fmt::format("t{}", t);
    table.rows = draw.log_integer(1e3, range.rows_high);
    table.dim = equal_dims ? dim : rounded(draw.log_uniform(8, 128), 2 * ranks);
    table.pooling = static_cast<double>(draw.log_integer(range.pooling_low, range.pooling_high));
    table.mode = sequences                 ? PoolingMode::kSequence
                 : draw.integer(0, 3) == 0 ? PoolingMode::kMean
                                           : PoolingMode::kSum;
    dlrm.tables.push_back(std::move(table));
  }
  fit_memory(dlrm, optimizer);
  for (EmbeddingTable& table : dlrm.tables) {
    const double a = std::clamp(exponent + draw.uniform(-0.2, 0.2), 0.0, 1.2);
    table.access = std::make_shared<Access>(
        a < 0.05 ? Access::uniform(table.rows) : Access::zipf(table.rows, a, draw.bits() >> 1));
  }
  return dlrm;
}

TransformerWorkload draw_transformer(Bound bound, std::int64_t ranks, Draw& draw) {
  TransformerWorkload t;
  const bool small = bound == Bound::kHost;
  const bool wide = bound == Bound::kMatrix || bound == Bound::kCommunication;
  t.head_dim = small ? 16 : 32 * draw.integer(1, 2);
  t.heads = ranks * draw.integer(1, small ? 2 : wide ? 5 : 3);
  t.hidden = t.heads * t.head_dim;
  t.kv_heads = draw.integer(0, 1) == 0 ? t.heads : ranks;
  if (t.heads % t.kv_heads != 0) {
    t.kv_heads = t.heads;
  }
  const bool llama = draw.integer(0, 1) == 0;
  t.activation = llama ? Activation::kSwiGlu : Activation::kGelu;
  t.ffn_hidden = llama ? rounded(static_cast<double>(t.hidden) * 8 / 3, 16 * ranks) : 4 * t.hidden;
  t.layers = ranks * draw.integer(1, small ? 4 : 2);
  t.vocabulary =
      rounded(draw.log_uniform(256, bound == Bound::kCommunication ? 16384 : 4096), 64 * ranks);
  t.tied_embeddings = draw.integer(0, 3) == 0;
  return t;
}

/// The host draws every lookup of a batch.
void limit_lookups(Job& job, std::int64_t ranks) {
  double per_sample = 0;
  for (const EmbeddingTable& t : job.workload.layered()->tables) {
    per_sample += t.pooling;
  }
  const double most = 1.5e6 * static_cast<double>(ranks) / per_sample;
  if (static_cast<double>(job.batch.global) > most) {
    job.batch.global =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(most) / (8 * ranks)) * 8 * ranks;
  }
}

/// For a GPU: heads as its tensor cores want them.
TransformerWorkload draw_device_transformer(Bound bound, std::int64_t ranks, Draw& draw) {
  TransformerWorkload t;
  const bool small = bound == Bound::kHost;
  t.head_dim = small ? 64 : 64 * draw.integer(1, 2);
  t.heads = rounded(static_cast<double>(small ? draw.integer(1, 4) : draw.integer(6, 16)), ranks);
  t.hidden = t.heads * t.head_dim;
  const bool grouped = draw.integer(0, 1) == 0 && t.heads % (4 * ranks) == 0;
  t.kv_heads = grouped ? t.heads / 4 : t.heads;
  const bool llama = draw.integer(0, 1) == 0;
  t.activation = llama ? Activation::kSwiGlu : Activation::kGelu;
  t.ffn_hidden = llama ? rounded(static_cast<double>(t.hidden) * 8 / 3, 64 * ranks) : 4 * t.hidden;
  t.layers = ranks * draw.integer(1, small ? 6 : 3);
  t.vocabulary = rounded(draw.log_uniform(2048, small ? 8192 : 32768), 64 * ranks);
  t.tied_embeddings = draw.integer(0, 3) == 0;
  return t;
}

void split_transformer(Job& job, Bound bound, std::int64_t ranks, Draw& draw, CaseSize size) {
  // Pipelines wait more than they talk; data and tensor ranks talk.
  const std::int64_t choice =
      bound == Bound::kCommunication ? draw.integer(0, 1) : draw.integer(0, 2);
  Parallel& p = job.parallel;
  p.data = choice == 0 ? ranks : 1;
  p.tensor = choice == 1 ? ranks : 1;
  p.pipeline = choice == 2 ? ranks : 1;
  p.sequence_parallel = p.tensor > 1 && draw.integer(0, 1) == 0;
  p.zero = p.data > 1 ? static_cast<int>(draw.integer(0, 1)) : 0;
  p.schedule = draw.integer(0, 1) == 0 ? ScheduleKind::kGpipe : ScheduleKind::kOneFOneB;
  p.recompute.kind = draw.integer(0, 3) == 0 ? RecomputeKind::kFull : RecomputeKind::kNone;
  const std::int64_t microbatches = p.pipeline > 1 ? draw.integer(2, 6) : draw.integer(1, 2);
  const bool few_tokens = bound == Bound::kCommunication && p.data > 1;
  job.batch.micro = bound == Bound::kMatrix ? draw.integer(1, 4) : 1;
  const bool short_ones = bound == Bound::kHost || few_tokens;
  if (size == CaseSize::kDevice) {
    job.batch.sequence =
        rounded(short_ones ? draw.log_uniform(64, 256) : draw.log_uniform(256, 2048), 64 * ranks);
  } else {
    job.batch.sequence =
        rounded(short_ones ? draw.log_uniform(16, 48) : draw.log_uniform(64, 384), 8 * ranks);
  }
  job.batch.global = job.batch.micro * p.data * (few_tokens ? 1 : microbatches);
  job.workload.default_batch = job.batch;
}

MixtureOfExperts draw_experts(const TransformerWorkload& t, std::int64_t ranks, Draw& draw) {
  MixtureOfExperts moe;
  const std::int64_t each[] = {2, 4, 8};
  moe.experts = ranks * draw.one_of(each);
  moe.per_token = draw.integer(1, 2);
  moe.shared = draw.integer(0, 1);
  moe.ffn_hidden = rounded(static_cast<double>(t.hidden) * draw.log_uniform(0.5, 2), 16 * ranks);
  moe.first_dense_layers = draw.integer(0, 1);
  moe.capacity_factor = draw.integer(0, 3) == 0 ? 1.25 : 0;
  if (draw.integer(0, 1) == 0) {
    moe.routing = std::make_shared<const Access>(
        Access::zipf(moe.experts, draw.uniform(0.2, 1.0), draw.bits() >> 1));
  }
  return moe;
}

/// Without a pipeline; experts over the data ranks, or whole on each.
void split_experts(Job& job, std::int64_t ranks, Draw& draw, CaseSize size) {
  Parallel& p = job.parallel;
  const bool tensor = draw.integer(0, 3) == 0;
  p.tensor = tensor ? ranks : 1;
  p.data = tensor ? 1 : ranks;
  p.expert = !tensor && draw.integer(0, 2) > 0 ? ranks : 1;
  p.recompute.kind = draw.integer(0, 3) == 0 ? RecomputeKind::kFull : RecomputeKind::kNone;
  job.batch.micro = draw.integer(1, 2);
  job.batch.sequence = rounded(
      size == CaseSize::kDevice ? draw.log_uniform(256, 2048) : draw.log_uniform(64, 512), 64);
  job.batch.global = job.batch.micro * p.data * draw.integer(1, 2);
  job.workload.default_batch = job.batch;
}

}  // namespace

std::string_view name_of(CaseKind kind) {
  switch (kind) {
    case CaseKind::kDlrm:
      return "dlrm";
    case CaseKind::kTransformer:
      return "transformer";
    case CaseKind::kExperts:
      return "experts";
  }
  return "unknown";
}

std::string_view name_of(Bound bound) {
  switch (bound) {
    case Bound::kHost:
      return "host";
    case Bound::kEmbedding:
      return "embedding";
    case Bound::kMatrix:
      return "matrix";
    case Bound::kCommunication:
      return "communication";
  }
  return "unknown";
}

std::uint64_t Draw::bits() { return next_split_mix(state_); }

double Draw::uniform(double low, double high) {
  return low + (high - low) * (unit_interval(bits()));
}

std::int64_t Draw::integer(std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
}

double Draw::log_uniform(double low, double high) {
  return std::exp(uniform(std::log(low), std::log(high)));
}
std::int64_t Draw::log_integer(double low, double high) {
  return std::llround(log_uniform(low, high));
}

Job draw_case(CaseKind kind, Bound bound, const System& system, std::int64_t ranks, Draw& draw,
              CaseSize size) {
  Job job;
  job.system = system;
  job.devices = ranks;
  job.formats = {Format::kFp32, Format::kFp32, Format::kFp32, Format::kFp32, Format::kFp32};
  if (size == CaseSize::kDevice) {
    constexpr Format kFormats[] = {Format::kBf16, Format::kBf16, Format::kTf32, Format::kFp32};
    job.formats.compute = kFormats[draw.integer(0, 3)];
    job.flash_attention = job.formats.compute == Format::kBf16;  // cuDNN has it in 16 bits
  }
  if (kind != CaseKind::kDlrm) {
    TransformerWorkload model = size == CaseSize::kDevice
                                    ? draw_device_transformer(bound, ranks, draw)
                                    : draw_transformer(bound, ranks, draw);
    if (kind == CaseKind::kExperts) {
      model.moe = draw_experts(model, ranks, draw);
    }
    job.workload.model = std::move(model);
    job.dense_optimizer = draw.integer(0, 1) == 0 ? OptimizerKind::kAdam : OptimizerKind::kSgd;
    if (kind == CaseKind::kExperts) {
      split_experts(job, ranks, draw, size);
    } else {
      split_transformer(job, bound, ranks, draw, size);
    }
  } else {
    job.dense_optimizer = OptimizerKind::kSgd;
    const std::int64_t optimizer = draw.integer(0, 5);
    job.embedding_optimizer = optimizer == 0   ? OptimizerKind::kAdam
                              : optimizer == 1 ? OptimizerKind::kSgd
                                               : OptimizerKind::kRowwiseAdagrad;
    const bool sequences = draw.integer(0, 5) == 0;
    const DlrmRanges range = dlrm_ranges(bound, size);
    job.workload.model = draw_dlrm(bound, range, ranks, sequences, draw, job.embedding_optimizer);
    job.batch.global = rounded(draw.log_uniform(range.batch_low, range.batch_high), 8 * ranks);
    if (size == CaseSize::kDevice) {
      limit_lookups(job, ranks);
    }
    job.parallel.data = ranks;
    // Data-parallel tables exchange dense gradients of every row: only sensible for small tables.
    double rows = 0;
    for (const EmbeddingTable& t : job.workload.layered()->tables) {
      rows += static_cast<double>(t.rows * t.dim);
    }
    const std::int64_t shardings = !sequences && rows < 2e6 ? 4 : 3;
    job.embedding_choice =
        std::string(name_of(static_cast<ShardingKind>(draw.integer(0, shardings))));
  }
  job.workload.name = describe(job);
  return job;
}

std::string describe(const Job& job) {
  if (const LayeredWorkload* d = job.workload.layered()) {
    constexpr std::string_view kInteractions[] = {"dot", "cat", "dcnv2"};
    const bool sequence = !d->tables.empty() && d->tables[0].mode == PoolingMode::kSequence;
    return fmt::format("dlrm {} tables{} {} {} batch {}", d->tables.size(),
                       sequence ? " sequence" : "",
                       kInteractions[static_cast<std::size_t>(d->interaction.kind)],
                       job.embedding_choice, job.batch.global);
  }
  const TransformerWorkload& t = *job.workload.transformer();
  const Parallel& p = job.parallel;
  std::string experts;
  if (t.moe) {
    experts = fmt::format(" {} of {} experts{} e{}", t.moe->per_token, t.moe->experts,
                          t.moe->routing ? " skewed" : "", p.expert);
  }
  return fmt::format("{} {}x{}{} seq {} t{}{} p{} d{} z{} batch {}x{}",
                     t.llama_style() ? "llama" : "gpt", t.layers, t.hidden, experts,
                     job.batch.sequence, p.tensor, p.sequence_parallel ? "s" : "", p.pipeline,
                     p.data, p.zero, job.batch.global, job.batch.micro);
}

}  // namespace stepcast::studies
