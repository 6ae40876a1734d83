#include "planner/embedding/embedding_prices.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/graph/program_builder.h"
#include "core/job/layers.h"
#include "core/portable.h"
#include "core/split_mix.h"
#include "planner/embedding/internal/hot_rows.h"
#include "planner/embedding/placement.h"
#include "workloads/build_graph.h"

namespace stepcast::planner {
namespace {

/// Bytes or elements: no rank moves more in a step, and less costs no less than that.
constexpr double kMost = 4e12, kLeast = 1024;

const EmbeddingTable& table_of(const Job& job, std::size_t t) {
  return job.workload.layered()->tables[t];
}

template <typename Time>
LinearPrice line_near(const Time& time, double size) {
  const double at = time(size);
  LinearPrice line;
  line.per_byte = std::max(0.0, at - time(size / 2)) / (size / 2);
  line.start = std::max(0.0, at - line.per_byte * size);
  return line;
}

/// The highest line at `size` that is nowhere above `time`, seen at sizes that double from the
/// least there may be to the largest, or to one that takes longer than `longest`: a side of their
/// lower convex hull. Through the origin where it would start below nothing.
template <typename Time>
LinearPrice line_below(const Time& time, double size, double longest) {
  struct Point {
    double x = 0, y = 0;
  };
  std::vector<Point> hull;
  const auto slope = [](const Point& a, const Point& b) { return (b.y - a.y) / (b.x - a.x); };
  double ratio = std::numeric_limits<double>::infinity();
  for (double x = std::min(size, kLeast); x <= std::max(size * 256, kMost); x *= 2) {
    const Point next{x, time(x)};
    ratio = std::min(ratio, next.y / next.x);
    while (hull.size() > 1 &&
           slope(hull[hull.size() - 2], hull.back()) >= slope(hull.back(), next)) {
      hull.pop_back();
    }
    hull.push_back(next);
    if (next.y > longest && hull.size() > 1) {
      break;
    }
  }
  std::size_t right = 1;
  while (right + 1 < hull.size() && hull[right].x < size) {
    ++right;
  }
  LinearPrice line;
  line.per_byte = std::max(0.0, slope(hull[right - 1], hull[right]));
  line.start = hull[right].y - line.per_byte * hull[right].x;
  return line.start >= 0 ? line : LinearPrice{0, ratio};
}

template <typename Time>
LinearPrice line_of(const LineOf& line, const Time& time, double size) {
  return line.fit == LineFit::kNear ? line_near(time, size) : line_below(time, size, line.longest);
}

}  // namespace

EmbeddingPrices::~EmbeddingPrices() = default;

EmbeddingPrices::EmbeddingPrices(const Job& job, const models::CostModel& model)
    : job_(job),
      model_(model),
      curves_(job.workload.layered()->tables.size()),
      hottest_(job.workload.layered()->tables.size()) {
  ProgramBuilder b;
  const std::int32_t group = b.embedding_group(
      {.shards = {}, .format = job.formats.embedding, .optimizer = job.embedding_optimizer});
  b.begin_segment("step");
  for (const OpKind kind :
       {OpKind::kEmbeddingForward, OpKind::kEmbeddingBackward, OpKind::kEmbeddingGradient}) {
    b.op(kind, std::string(name_of(kind)), {0, 0, 0})
        .format(job.formats.embedding)
        .attributes(EmbeddingAttributes{.group = group, .optimizer = job.embedding_optimizer})
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

const std::vector<workloads::HotRow>& EmbeddingPrices::hottest(std::size_t t) const {
  if (hottest_[t].empty()) {
    hottest_[t] = workloads::hottest_rows(table_of(job_, t).access.get());
    if (hottest_.size() > kManyTables && t != last_hottest_) {
      hottest_[last_hottest_] = {};  // all of them would take more memory than the search
    }
    last_hottest_ = t;
  }
  return hottest_[t];
}

const internal::HotRows& EmbeddingPrices::hot_rows(std::size_t t, std::int64_t members,
                                                   std::optional<Split> split,
                                                   std::int64_t blocks) const {
  auto& known = hot_rows_[{t, members, split, blocks}];
  if (!known) {
    known = std::make_shared<const internal::HotRows>(
        internal::hot_rows(table_of(job_, t), hottest(t), members, split, blocks));
  }
  return *known;
}

const std::vector<TierCut>& EmbeddingPrices::tier_cuts(
    std::size_t table, const std::vector<std::int64_t>& groups, bool dedup,
    const std::function<std::vector<TierCut>()>& make) const {
  const auto [at, fresh] = tier_cuts_.try_emplace({table, groups, dedup});
  if (fresh) {
    at->second = make();
  }
  return at->second;
}

bool EmbeddingPrices::Asked::operator==(const Asked& o) const {
  return op == o.op && lookups.table == o.lookups.table && lookups.samples == o.lookups.samples &&
         lookups.share == o.lookups.share && lookups.dim == o.lookups.dim &&
         lookups.unpooled == o.lookups.unpooled;
}

std::size_t EmbeddingPrices::AskedHash::operator()(const Asked& a) const {
  const Lookups& l = a.lookups;
  std::uint64_t hash = static_cast<std::uint64_t>(a.op->kind) * 2 + (l.unpooled ? 1 : 0);
  for (const std::uint64_t part : {static_cast<std::uint64_t>(l.table), bit_pattern(l.samples),
                                   bit_pattern(l.share), static_cast<std::uint64_t>(l.dim)}) {
    hash = split_mix(hash ^ part);
  }
  return hash;
}

double EmbeddingPrices::price(const Kernel& kernel, const Lookups& l, LineFit fit) const {
  const Price p = priced(kernel, l);
  const double longer = std::max(p.cache, p.memory);
  if (fit == LineFit::kNear || longer <= 0) {
    return p.time;
  }
  return p.time * (limited_by_cache(kernel) ? p.cache : p.memory) / longer;
}

bool EmbeddingPrices::limited_by_cache(const Kernel& kernel) const {
  const auto [it, fresh] = limited_by_cache_.try_emplace(kernel.op, false);
  if (fresh) {
    const double local = static_cast<double>(job_.batch.global / job_.devices);
    double cache = 0;
    double memory = 0;
    for (std::size_t t = 0; t < job_.workload.layered()->tables.size(); ++t) {
      const Price p = priced(kernel, {t, local, 1, table_of(job_, t).dim, false});
      cache += p.cache;
      memory += p.memory;
    }
    it->second = cache > memory;
  }
  return it->second;
}

EmbeddingPrices::Price EmbeddingPrices::priced(const Kernel& kernel, const Lookups& l) const {
  if (l.law != nullptr) {
    return asked_of_model(kernel, l);
  }
  const auto [it, fresh] = priced_.try_emplace({kernel.op, l});
  if (fresh) {
    it->second = asked_of_model(kernel, l);
  }
  return it->second;
}

EmbeddingPrices::Price EmbeddingPrices::asked_of_model(const Kernel& kernel,
                                                       const Lookups& l) const {
  const EmbeddingTable& table = table_of(job_, l.table);
  EmbeddingShard shard;
  shard.dim = l.dim;
  shard.sequence = l.unpooled;
  models::ShardTraffic traffic;
  traffic.shard = &shard;
  const double whole = l.samples * table.pooling * l.mass;
  const auto distinct = [&](double lookups) {
    return l.law != nullptr ? l.law->unique(lookups).value : unique(l.table, lookups);
  };
  traffic.lookups = whole * l.share;
  traffic.bags = l.samples * static_cast<double>(table.feature_count());
  traffic.row_bytes = format_bytes(job_.row_format(table), 1, l.dim).base();
  traffic.rows = static_cast<double>(l.law != nullptr ? l.law->rows() : table.rows) * l.share;
  for (std::size_t i = 0; i < models::ShardTraffic::kWindows; ++i) {
    const double window =
        std::exp2(static_cast<double>(i) - static_cast<double>(models::ShardTraffic::kWindows - 1));
    traffic.unique[i] = std::min(distinct(whole * window) * l.share, std::max(1.0, traffic.rows));
  }
  for (std::size_t i = 0; i < models::ShardTraffic::kSteps; ++i) {
    traffic.over[i] = std::min(distinct(whole * std::exp2(static_cast<double>(i + 1))) * l.share,
                               std::max(1.0, traffic.rows));
  }
  models::OpFacts facts(program_, *kernel.op);
  facts.shards.assign(1, traffic);
  const models::Prediction p = model_.kernel(facts);
  return {std::max(0.0, p.time.base() - kernel.start), p.compute.base(), p.memory.base()};
}

double EmbeddingPrices::forward(const Lookups& l, LineFit fit) const {
  return price(forward_, l, fit);
}
double EmbeddingPrices::backward(const Lookups& l, LineFit fit) const {
  return price(backward_, l, fit);
}
double EmbeddingPrices::gradient(const Lookups& l, LineFit fit) const {
  return price(gradient_, l, fit);
}

LinearPrice EmbeddingPrices::link(OpKind kind, Format format, std::int64_t members,
                                  std::int64_t step, double bytes, const LineOf& line) const {
  if (members <= 1) {
    return {};
  }
  std::vector<std::int32_t> ranks;
  for (std::int64_t i = 0; i < members; ++i) {
    ranks.push_back(static_cast<std::int32_t>(i * step));
  }
  GroupShape shape = group_shape(model_.system(), ranks, job_.devices);
  if (line.fit == LineFit::kBelow && kind == OpKind::kAllToAllV) {
    shape.channels = shape.members;  // what is sent may lie in the fullest units
  }
  const double element = bits_per_element(format, 1024) / 8;
  const auto time = [&](double size) {
    Op op;
    op.kind = kind;
    op.format = format;
    op.shape[0] = std::llround(std::max(1.0, size / element));
    return model_.collective(op, shape).time.base();
  };
  return line_of(line, time, std::max(bytes, 4096.0));
}

LinearPrice EmbeddingPrices::memory_bound(OpKind kind, double bytes, const LineOf& line) const {
  const auto time = [&](double size) {
    Op op;
    op.kind = kind;
    op.format = Format::kInt64;
    op.shape[0] = std::llround(std::max(1.0, size / 8));
    op.shape[1] = op.shape[2] = 1;
    op.bytes_read = op.bytes_written = Bytes(size / 2);
    return model_.kernel(op).time.base();
  };
  return line_of(line, time, std::max(bytes, 4096.0));
}

LinearPrice EmbeddingPrices::per_element(Op op, double elements, const LineOf& line) const {
  op.format = job_.formats.gradient;
  const auto time = [&](double n) {
    op.shape[0] = std::llround(std::max(1.0, n));
    fill_work(op);
    return model_.kernel(op).time.base();
  };
  return line_of(line, time, std::max(elements, 1024.0));
}

LinearPrice EmbeddingPrices::dense_update(double elements, std::int64_t width,
                                          const LineOf& line) const {
  Op op;
  op.kind = OpKind::kOptimizer;
  op.shape[1] = width;
  op.attributes = OptimizerAttributes{job_.embedding_optimizer};
  return per_element(op, elements, line);
}

LinearPrice EmbeddingPrices::zeroing(double elements, const LineOf& line) const {
  Op op;
  op.kind = OpKind::kFill;
  return per_element(op, elements, line);
}

const EmbeddingPrices::DenseStep& EmbeddingPrices::dense_step() const {
  if (dense_) {
    return *dense_;
  }
  // Any plan has the same dense half, on any number of devices with as many samples each; even
  // row-wise tables give all ranks one program. Towers are one for each machine, and items are
  // scored by all ranks.
  Job job = job_;
  const LayerList list = layers_of(*job.workload.layered(), job.parallel.tensor);
  const bool scores = std::any_of(list.layers.begin(), list.layers.end(),
                                  [&](const Layer& l) { return scored_items(list, l) > 0; });
  if (!job.sptt && !scores && job.devices > 2) {
    job.devices = job.parallel.data = 2;
    job.batch.global = job_.batch.global / job_.devices * job.devices;
  }
  job.embedding_plan.reset();
  job.embedding_choice = "row_wise";
  job.parallel.overlap = {.output_all_to_all = true};  // rows are exchanged as early as they can be
  job.parallel.dlrm_pipeline = DlrmPipeline::kNone;
  job.system.framework.arranged_rows = 0;  // rows with a copy on every rank are not arranged
  // Features are made of rows as an exchange or as the kernels of this rank write them.
  for (Format* wire : {&job.formats.all_to_all_forward, &job.formats.all_to_all_backward}) {
    if (bits_per_element(job.formats.compute, 1024) < bits_per_element(*wire, 1024)) {
      *wire = job.formats.compute;
    }
  }
  for (EmbeddingTable& table : std::get<LayeredWorkload>(job.workload.model).tables) {
    table.access = nullptr;
  }
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& program = graph.program_of(0);
  const GroupShape everyone = [&] {
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(job_.devices));
    std::iota(ranks.begin(), ranks.end(), 0);
    return group_shape(model_.system(), ranks, job_.devices);
  }();
  DenseStep& dense = dense_.emplace();
  bool exchanging = false;  // rows of the tables, or their gradients
  for (const Call& call : program.calls) {
    const Segment& segment = program.segments[call.segment];
    for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      const Op& op = program.ops[o];
      if (op.kind == OpKind::kAllReduce) {
        dense.all_reduce += model_.collective(op, everyone).time.base();
      }
      const bool sparse = op.phase == Phase::kInput || class_of(op.kind) == OpClass::kEmbedding;
      const bool rows =
          is_collective(op.kind) && op.kind != OpKind::kAllReduce && op.phase != Phase::kInput;
      const bool waits = !is_collective(op.kind) && op.waits > 0;
      exchanging = rows || (exchanging && !waits);
      if (!sparse && !is_collective(op.kind)) {
        const double time = model_.kernel(program, op).time.base();
        dense.compute += time;
        dense.before_tables += exchanging ? time : 0;
        dense.optimizer += op.phase == Phase::kOptimizer ? time : 0;
      }
    }
  }
  return dense;
}

}  // namespace stepcast::planner
