#include "planner/embedding_prices.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/program_builder.h"

namespace stepcast::planner {
namespace {

const EmbeddingTable& table_of(const Job& job, std::size_t t) {
  return job.workload.dlrm()->tables[t];
}

}  // namespace

EmbeddingPrices::~EmbeddingPrices() = default;

EmbeddingPrices::EmbeddingPrices(const Job& job, const models::CostModel& model)
    : job_(job), model_(model), curves_(job.workload.dlrm()->tables.size()) {
  ProgramBuilder b;
  const std::int32_t group = b.embedding_group(
      {.shards = {}, .format = job.formats.embedding, .optimizer = job.embedding_optimizer});
  b.begin_segment("step");
  for (const OpKind kind :
       {OpKind::kEmbeddingForward, OpKind::kEmbeddingBackward, OpKind::kEmbeddingGradient}) {
    b.op(kind, std::string(name_of(kind)), {0, 0, 0})
        .format(job.formats.embedding)
        .variant(static_cast<std::uint8_t>(job.embedding_optimizer))
        .detail(group)
        .work(Flops{}, Bytes{}, Bytes{});
  }
  b.end_segment();
  b.call(0);
  program_ = std::move(b).finish();
  const auto kernel = [&](std::size_t op) {
    return Kernel{&program_.ops[op], model.kernel(program_, program_.ops[op]).time.base()};
  };
  forward_ = kernel(0);
  backward_ = kernel(1);
  gradient_ = kernel(2);
}

const EmbeddingPrices::Curve& EmbeddingPrices::curve(std::size_t t) const {
  if (curves_[t]) {
    return *curves_[t];
  }
  const EmbeddingTable& table = table_of(job_, t);
  const double lookups = static_cast<double>(job_.batch.global) * table.pooling;
  LawKey key{-1, table.rows, 0, lookups, nullptr};
  if (table.access) {
    const AccessKind kind = table.access->kind();
    const bool by_value =
        kind == AccessKind::kUniform || (kind == AccessKind::kZipf && !table.remapped);
    key = {static_cast<int>(kind), table.rows, table.access->exponent(), lookups,
           by_value ? nullptr : table.access.get()};
  }
  auto& known = by_law_[key];
  if (!known) {
    auto made = std::make_shared<Curve>();
    // From what as many steps look up as caches may span, down. Above one step most tables are
    // touched whole.
    made->lookups = lookups * std::exp2(models::ShardTraffic::kSteps);
    const Access law = table.access ? *table.access : Access::uniform(table.rows);
    const double rows = static_cast<double>(table.rows);
    double distinct = 0;
    for (std::size_t i = 0; i <= models::ShardTraffic::kSteps; ++i) {
      distinct = distinct < rows * (1 - 1e-6)
                     ? law.unique(lookups * std::exp2(static_cast<double>(i))).value
                     : rows;
      made->unique.insert(made->unique.begin(), distinct);
    }
    const double halvings = static_cast<double>(models::ShardTraffic::kWindows) +
                            std::ceil(std::log2(static_cast<double>(job_.devices)));
    double n = lookups / 2;
    for (double i = 1; i < halvings && n > 0.5; ++i, n /= 2) {
      made->unique.push_back(law.unique(n).value);
    }
    known = std::move(made);
  }
  curves_[t] = known;
  return *known;
}

double EmbeddingPrices::unique(std::size_t t, double lookups) const {
  const Curve& c = curve(t);
  if (lookups <= 0 || c.unique.empty()) {
    return 0;
  }
  const double at = std::log2(c.lookups / lookups);
  if (at <= 0) {
    return c.unique.front();
  }
  const auto i = static_cast<std::size_t>(at);
  if (i + 1 >= c.unique.size()) {
    return std::min(lookups, c.unique.back());
  }
  const double share = at - static_cast<double>(i);
  return share < 1e-9 ? c.unique[i] : c.unique[i] * std::pow(c.unique[i + 1] / c.unique[i], share);
}

double EmbeddingPrices::price(const Kernel& kernel, const Lookups& l) const {
  const EmbeddingTable& table = table_of(job_, l.table);
  EmbeddingShard shard;
  shard.dim = l.dim;
  shard.sequence = l.unpooled;
  models::ShardTraffic traffic;
  traffic.shard = &shard;
  const double whole = l.samples * table.pooling;
  traffic.lookups = whole * l.share;
  traffic.bags = l.samples * static_cast<double>(table.feature_count());
  traffic.row_bytes = format_bytes(job_.row_format(table), 1, l.dim).base();
  traffic.rows = static_cast<double>(table.rows) * l.share;
  for (std::size_t i = 0; i < models::ShardTraffic::kWindows; ++i) {
    const double window =
        std::exp2(static_cast<double>(i) - static_cast<double>(models::ShardTraffic::kWindows - 1));
    traffic.unique[i] =
        std::min(unique(l.table, whole * window) * l.share, std::max(1.0, traffic.rows));
  }
  for (std::size_t i = 0; i < models::ShardTraffic::kSteps; ++i) {
    traffic.over[i] =
        std::min(unique(l.table, whole * std::exp2(static_cast<double>(i + 1))) * l.share,
                 std::max(1.0, traffic.rows));
  }
  models::OpFacts facts(program_, *kernel.op);
  facts.shards.assign(1, traffic);
  return std::max(0.0, model_.kernel(facts).time.base() - kernel.start);
}

double EmbeddingPrices::forward(const Lookups& l) const { return price(forward_, l); }
double EmbeddingPrices::backward(const Lookups& l) const { return price(backward_, l); }
double EmbeddingPrices::gradient(const Lookups& l) const { return price(gradient_, l); }

LinearPrice EmbeddingPrices::link(OpKind kind, Format format, std::int64_t members,
                                  std::int64_t step, double bytes) const {
  if (members <= 1) {
    return {};
  }
  std::vector<std::int32_t> ranks;
  for (std::int64_t i = 0; i < members; ++i) {
    ranks.push_back(static_cast<std::int32_t>(i * step));
  }
  const models::GroupShape shape = models::group_shape(model_.system(), ranks, job_.devices);
  const double element = bits_per_element(format, 1024) / 8;
  const auto time = [&](double size) {
    Op op;
    op.kind = kind;
    op.format = format;
    op.shape[0] = std::llround(std::max(1.0, size / element));
    return model_.collective(op, shape).time.base();
  };
  const double size = std::max(bytes, 4096.0);
  const double at = time(size);
  const double below = time(size / 2);
  LinearPrice p;
  p.per_byte = std::max(0.0, at - below) / (size / 2);
  p.start = std::max(0.0, at - p.per_byte * size);
  return p;
}

LinearPrice EmbeddingPrices::memory_bound(OpKind kind, double bytes) const {
  const Program none;
  const auto time = [&](double size) {
    Op op;
    op.kind = kind;
    op.format = Format::kInt64;
    op.shape[0] = std::llround(std::max(1.0, size / 8));
    op.shape[1] = op.shape[2] = 1;
    op.bytes_read = op.bytes_written = Bytes(size / 2);
    return model_.kernel(none, op).time.base();
  };
  const double size = std::max(bytes, 4096.0);
  LinearPrice p;
  p.per_byte = std::max(0.0, time(size) - time(size / 2)) / (size / 2);
  p.start = std::max(0.0, time(size) - p.per_byte * size);
  return p;
}

LinearPrice EmbeddingPrices::dense_update(double elements) const {
  const Program none;
  const auto time = [&](double n) {
    double sum = 0;
    for (const OpKind kind : {OpKind::kOptimizer, OpKind::kFill}) {
      Op op;
      op.kind = kind;
      op.format = job_.formats.gradient;
      op.variant = kind == OpKind::kOptimizer ? static_cast<std::uint8_t>(job_.embedding_optimizer)
                                              : std::uint8_t{0};
      op.shape[0] = std::llround(std::max(1.0, n));
      fill_work(op);
      sum += model_.kernel(none, op).time.base();
    }
    return sum;
  };
  const double size = std::max(elements, 1024.0);
  LinearPrice p;
  p.per_byte = std::max(0.0, time(size) - time(size / 2)) / (size / 2);
  p.start = std::max(0.0, time(size) - p.per_byte * size);
  return p;
}

}  // namespace stepcast::planner
