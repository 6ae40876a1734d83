// Properties that hold of every training job of a transformer, over jobs drawn at random
// (drawn_jobs.h): faster hardware, overlaps and fused features never cost time, narrower formats
// and adapters only what their own kernels do, more sharding saves memory and not time, and the
// parts of a prediction agree. Each holds of the step as `predict` prints it and at the hardware's
// pace. A failure prints both jobs as commands.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <map>

#include "core/error.h"
#include "models/cost_model.h"
#include "studies/predict/predict.h"
#include "tests/studies/drawn_jobs.h"

namespace stepcast::studies {
namespace {

using planner::testing::Draw;
using testing::command_of;
using testing::DrawnJob;
using Settings = std::vector<std::string>;

/// Share by which better hardware may be slower, and what saves work: of rounding, and of transfers
/// that meet in another order.
constexpr double kHardware = 0.002, kSoftware = 0.005;
/// The same where overlapped transfers meet those that passes wait for: each takes a fair share of
/// a link, where one after the other finds it free, and a faster one takes its share in less time.
constexpr double kOfSharedLinks = 0.1;

/// Time that a change may cost: of nothing; of products with their casts; of products and transfers
/// in smaller parts; of adapters' own kernels and transfers; of gradients and weights that share
/// links with passes. What the host issues is paid, too.
enum class Cost : std::uint8_t { kNone, kCasts, kParts, kAdapters, kSharedLinks };

/// A change that makes no step slower.
struct Change {
  std::string name;
  Settings both, before, after;
  double tolerance = kSoftware;
  Cost cost = Cost::kNone;
};

Settings operator+(Settings a, const Settings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

template <class Quantity>
std::string setting(const std::string& key, Quantity value, double factor, const char* unit) {
  return fmt::format("{}={} {}", key, value.base() * factor, unit);
}

/// Levels of the fabric that ranks of an axis send over, as bits.
std::uint32_t levels_of(const Job& job, Axis axis) {
  const Mesh mesh = job.parallel.mesh();
  const std::int64_t stride = mesh.stride(axis);
  const std::int64_t span = stride * mesh.extent(axis);
  std::uint32_t levels = 0;
  std::int64_t inside = 1;
  for (std::size_t i = 0; i < job.system.fabric.size() && mesh.extent(axis) > 1; ++i) {
    const std::int64_t unit = job.system.devices_in_level(i);
    levels |= stride < unit && span > inside ? 1U << i : 0U;
    inside = unit;
  }
  return levels;
}

/// Whether transfers of two kinds use the same level. Parameters are held alike over context ranks,
/// and with shards inside a level sent over two ways.
bool shares_links(const Job& job) {
  const Parallel& p = job.parallel;
  std::uint32_t used = 0;
  bool shared = p.expert > 1 || p.context > 1 || !p.zero_level.empty();
  for (const Axis axis : {Axis::kTensor, Axis::kContext, Axis::kPipeline, Axis::kData}) {
    const std::uint32_t levels = levels_of(job, axis);
    shared = shared || (used & levels) != 0;
    used |= levels;
  }
  return shared;
}

bool overlaps_any(const Overlap& o) {
  return o.data || o.tensor || o.pipeline || o.parameters || o.expert;
}

/// Twice a bandwidth or a peak, half a latency.
std::vector<Change> hardware_changes(const Job& job) {
  std::vector<Change> all;
  const auto add = [&all](const std::string& name, const std::string& after) {
    all.push_back({name, {}, {}, {after}, kHardware, Cost::kNone});
  };
  const System& s = job.system;
  const bool shared = overlaps_any(job.parallel.overlap) && shares_links(job);
  for (std::size_t i = 0; i < s.fabric.size(); ++i) {
    const std::string level = fmt::format("system.fabric[{}].", i);
    add("bandwidth of a level", setting(level + "bandwidth", s.fabric[i].bandwidth, 2, "B/s"));
    add("latency of a level", setting(level + "latency", s.fabric[i].latency, 0.5, "s"));
  }
  add("device memory", setting("system.device.bandwidth", s.device.bandwidth, 2, "B/s"));
  add("launch", setting("system.device.launch", s.device.launch, 0.5, "s"));
  for (const auto& [format, peak] : s.device.peak) {
    add("peak", setting(fmt::format("system.device.peak.{}", name_of(format)), peak, 2, "FLOP/s"));
  }
  for (Change& change : all) {
    change.tolerance = shared ? kOfSharedLinks : kHardware;
  }
  return all;
}

/// Overlaps and fused features, switched on.
std::vector<Change> software_changes(const Job& job) {
  std::vector<Change> all;
  const auto add = [&all](const std::string& name, Settings both, const std::string& before,
                          const std::string& after) {
    all.push_back({name, std::move(both), {before}, {after}, kSoftware, Cost::kNone});
  };
  const auto add_flag = [&add](const std::string& key, Settings both = {}) {
    add(key, std::move(both), key + "=false", key + "=true");
  };
  const std::string overlap = "parallel.overlap.";
  add_flag(overlap + "data", {overlap + "parameters=false"});
  add_flag(overlap + "parameters", {overlap + "data=true"});
  add_flag(overlap + "pipeline");
  add_flag(overlap + "tensor", {overlap + "tensor_products=false"});
  if (job.workload.transformer()->moe) {
    add_flag(overlap + "expert");
    add("experts beside a micro-batch", {}, overlap + "expert=true", overlap + "expert=batch");
  }
  for (Change& change : all) {
    // Transfers take multiprocessors of some devices.
    const bool slows = models::CostModel(job.system, job.calibration).compute_slowdown() > 1;
    change.tolerance = shares_links(job) ? kOfSharedLinks : slows ? 2 * kSoftware : kSoftware;
    const bool of_parameters =
        change.name == overlap + "data" || change.name == overlap + "parameters";
    change.cost = of_parameters && shares_links(job) ? Cost::kSharedLinks : Cost::kNone;
  }
  if (!job.system.framework.blocking_launches) {  // parts are more ops
    add_flag(overlap + "tensor_products", {overlap + "tensor=true"});
    all.back().cost = Cost::kParts;  // each part reads the weights
  }
  add_flag("system.framework_traits.fused_quantise");
  const std::string chunks = fmt::format(R"(, "chunks": {}}})", job.loss.chunks);
  for (const char* kind : {"copied", "compiled", "eager"}) {
    add("fused loss", {}, fmt::format(R"(loss={{"kind": "{}")", kind) + chunks,
        R"(loss={"kind": "fused")" + chunks);
  }
  add("fused epilogues", {}, "epilogues=separate", "epilogues=fused");
  add("graphs of layers", {}, "graphs=none", "graphs=layer");
  add("graph of the step", {}, "graphs=layer", "graphs=full");
  add("narrow gradients", {}, "formats.gradient=fp32", "formats.gradient=bf16");
  if (job.workload.transformer()->moe) {
    add_flag("parallel.fused_permutation");
    add_flag("parallel.fused_experts");
  }
  return all;
}

/// Fewer bits, fewer weights to train, smaller parts: what is saved against what it takes.
std::vector<Change> costly_changes(const Job& job) {
  std::vector<Change> all;
  for (const char* format : {"fp8", "mxfp8", "nvfp4"}) {
    if (job.system.device.peak.contains(*format_named(format))) {
      all.push_back({"narrow products",
                     {},
                     {"formats.compute=bf16"},
                     {fmt::format("formats.compute={}", format)},
                     kSoftware,
                     Cost::kCasts});
    }
  }
  if (!job.lora) {
    all.push_back({"adapters", {}, {}, {R"(lora={"rank": 16})"}, kSoftware, Cost::kAdapters});
  }
  if (job.workload.transformer()->moe && job.parallel.expert > 1 &&
      !job.system.framework.blocking_launches) {  // which hide nothing
    all.push_back({"exchange in parts",
                   {"parallel.overlap.expert=true"},
                   {"parallel.expert_chunks=1"},
                   {"parallel.expert_chunks=2"},
                   kSoftware,
                   Cost::kParts});
  }
  all.push_back({"no recomputation",
                 {},
                 {"parallel.recompute=full"},
                 {"parallel.recompute=none"},
                 kSoftware,
                 Cost::kNone});
  return all;
}

/// The parts of a prediction that properties ask for.
struct Outcome {
  double expected = 0, hardware = 0;
  double kept = 0;  ///< bytes, but for what is gathered while it is at work
  double casts = 0, products = 0, transfers = 0, host = 0;  ///< seconds of a rank
  double adapters = 0;                                      ///< their kernels
  double exchanges = 0;                                     ///< of gradients and weights
  double exposed = 0;                                       ///< transfers that nothing hides
  double stages = 1;
  double fill = 1;  ///< of a pipeline: micro-batches and stages that follow them over the former
};

Outcome outcome_of(const StepPrediction& p) {
  Outcome o{p.iteration.base(), p.hardware.base(),
            (p.ledger.total() - p.ledger.gather_buffers).base()};
  const double pace = p.hardware / p.iteration;
  const auto take = [&o, pace](const TimeSplit& split, const std::vector<OpRow>& kinds,
                               const std::vector<OpRow>& ops) {  // stages differ in their layers
    o.host = std::max(o.host, split.host.base() * pace);
    o.exposed = std::max(o.exposed, split.exposed_communication.base() * pace);
    double casts = 0, products = 0, transfers = 0, adapters = 0, exchanges = 0;
    for (const OpRow& row : ops) {
      const bool transfer = row.model.starts_with("collective.");
      adapters += row.name.starts_with("lora.") && !transfer ? row.time.base() : 0;
      const bool exchange = row.name.starts_with("gradients.") || row.name.starts_with("weights.");
      exchanges += exchange && transfer ? row.time.base() : 0;
    }
    for (const OpRow& row : kinds) {
      casts += row.kind == "cast" ? row.time.base() : 0;
      products += row.kind == "gemm" || row.kind == "grouped_gemm" ? row.time.base() : 0;
      transfers += row.model.starts_with("collective.") ? row.time.base() : 0;
    }
    o.casts = std::max(o.casts, casts);
    o.products = std::max(o.products, products);
    o.transfers = std::max(o.transfers, transfers);
    o.adapters = std::max(o.adapters, adapters);
    o.exchanges = std::max(o.exchanges, exchanges);
  };
  take(p.split, p.by_kind, p.by_name);
  if (p.busiest) {
    take(p.busiest->split, p.busiest->by_kind, p.busiest->by_name);
  }
  const Parallel& parallel = p.job.parallel;
  const auto microbatches = static_cast<double>(p.job.microbatches() * parallel.virtual_stages);
  o.stages = static_cast<double>(parallel.pipeline);
  o.fill = 1 + (o.stages - 1) / microbatches;
  return o;
}

/// Seconds of a step that the change takes by itself.
double paid(const Outcome& before, const Outcome& after, Cost cost) {
  const auto more = [&](double Outcome::*of) { return after.*of - before.*of; };
  const double host = std::max(0.0, more(&Outcome::host));
  switch (cost) {
    case Cost::kNone:
      return 0;
    case Cost::kCasts:  // stages cast their weights in their first pass, one after the other;
                        // shorter products hide less of the transfers beside them
      return after.fill * (std::max(0.0, more(&Outcome::casts) + more(&Outcome::products)) + host) +
             (after.stages - 1) * std::max(0.0, more(&Outcome::casts)) +
             std::max(0.0, more(&Outcome::exposed));
    case Cost::kParts:
      return after.fill * (std::max(0.0, more(&Outcome::products)) +
                           std::max(0.0, more(&Outcome::transfers)) + host);
    case Cost::kSharedLinks:  // each slows the first or last pass of its stage, one after the other
      return (before.stages - 1) * before.exchanges;
    case Cost::kAdapters:
      return after.fill * (after.adapters + std::max(0.0, more(&Outcome::transfers)) + host);
  }
  return 0;
}

/// A drawn job and the jobs near it.
class Neighbourhood {
 public:
  explicit Neighbourhood(DrawnJob job) : job_(std::move(job)) {}

  /// Null where the settings give no legal job.
  const Outcome* at(const Settings& more) {
    const Settings all = job_.settings + more;
    const auto [at, made] = outcomes_.try_emplace(fmt::format("{}", fmt::join(all, "\n")));
    if (made) {
      try {
        at->second = outcome_of(predict(testing::loaded(all)));
      } catch (const InputError&) {
      }
    }
    return at->second ? &*at->second : nullptr;
  }

  /// Whether it could be asked.
  bool hold(const Change& c) {
    const Outcome* before = at(c.both + c.before);
    const Outcome* after = before != nullptr ? at(c.both + c.after) : nullptr;
    if (after == nullptr) {
      return false;
    }
    const auto slower = [&](double Outcome::*step) {
      const double factor = step == &Outcome::expected ? after->expected / after->hardware : 1;
      const double cost = paid(*before, *after, c.cost) * factor;
      return (after->*step - cost) / before->*step - 1;
    };
    const double as_printed = slower(&Outcome::expected), simulated = slower(&Outcome::hardware);
    INFO(c.name << ": " << 100 * as_printed << " % slower as printed, " << 100 * simulated
                << " % at the hardware's pace");
    INFO("before: " << command_of(job_.settings + c.both + c.before));
    INFO("after: " << command_of(job_.settings + c.both + c.after));
    CHECK(std::max(as_printed, simulated) <= c.tolerance);
    return true;
  }

  /// More sharding on one framework, all parameters gathered under compute: what is kept never
  /// grows, and zero z + 1 is no faster than the faster of those below that send as much (1 and 2),
  /// but for 2, which exchanges layers where 1 exchanges buckets, by 3 %. An embedding that both
  /// ends of a pipeline hold is summed over them whole with 1 and 2, by shards with 3. Chunks have
  /// eight layers and more.
  bool hold_zero() {
    const Job& job = job_.job;
    const bool named = std::any_of(job_.settings.begin(), job_.settings.end(),
                                   [](const std::string& s) { return s.starts_with("stack="); });
    const Settings hidden{
        named ? "parallel.overlap.data=true" : "stack=megatron-core", "parallel.overlap.data=true",
        "parallel.overlap.parameters=true",
        fmt::format("workload.layers={}", std::max(job.workload.transformer()->layers,
                                                   8 * job.parallel.stages().count()))};
    const auto of = [&](int z) { return hidden + Settings{fmt::format("parallel.zero={}", z)}; };
    bool asked = false;
    for (int z = 1; z <= 3; ++z) {
      const Outcome* below = at(of(z - 1));
      const Outcome* more = below != nullptr ? at(of(z)) : nullptr;
      if (more == nullptr) {
        continue;
      }
      asked = true;
      INFO("zero " << z << ": " << command_of(job_.settings + of(z)));
      CHECK(more->kept <= below->kept * (1 + 1e-3));
      const bool ends_share =
          job.parallel.pipeline > 1 && job.workload.transformer()->tied_embeddings;
      if (z == 1 || (z == 3 && ends_share)) {
        continue;
      }
      std::vector<const Outcome*> others{below};
      if (z == 3) {
        others.push_back(at(of(1)));
      }
      // 2 and 3 exchange whole layers.
      for (const char* elements : {"40000000", "250000000", "400000000", "2000000000"}) {
        others.push_back(
            at(of(z - 1) + Settings{std::string("parallel.bucket_elements=") + elements}));
      }
      for (double Outcome::*step : {&Outcome::expected, &Outcome::hardware}) {
        double fastest = below->*step;
        for (const Outcome* other : others) {
          fastest = other != nullptr ? std::min(fastest, other->*step) : fastest;
        }
        INFO((step == &Outcome::expected ? "as printed" : "at the hardware's pace"));
        CHECK(more->*step >= fastest * (1 - (z == 2 ? 0.03 : 2 * kSoftware)));
      }
    }
    return asked;
  }

  [[nodiscard]] const DrawnJob& job() const { return job_; }

 private:
  DrawnJob job_;
  std::map<std::string, std::optional<Outcome>> outcomes_;
};

/// Holds a prediction to what it says of itself.
void hold_parts(const DrawnJob& drawn) {
  const StepPrediction p = predict(drawn.job);
  const Job& job = drawn.job;
  INFO(command_of(drawn.settings));
  const TimeSplit& s = p.split;
  const double parts = (s.compute + s.exposed_communication + s.bubble + s.host + s.other).base();
  CHECK(parts == Approx(p.iteration.base()).epsilon(1e-9));
  double ledger = 0;
  for (const auto& line : p.ledger.lines()) {
    ledger += line.second.base();
  }
  CHECK(ledger == Approx(p.ledger.total().base()).epsilon(1e-9));
  CHECK(p.mfu <= p.hfu * (1 + 1e-12));
  CHECK(p.hfu - (p.mfu - p.mfu_causal) <= 1);  // causal kernels skip half of the scores
  CHECK(p.mfu_causal <= p.mfu * (1 + 1e-12));
  if (p.interval) {
    CHECK(p.interval->p5 <= p.iteration);
    CHECK(p.iteration <= p.interval->p95);
  }
  if (!job.sequence_lengths) {
    CHECK(p.tokens_per_second * p.iteration.base() ==
          Approx(static_cast<double>(job.batch.global * job.batch.sequence)).epsilon(1e-9));
  }
  // No device multiplies faster than its peak, and optimizer states are read and written.
  const double rate = job.system.device.peak_of(job.formats.compute)->base();
  CHECK(p.hardware.base() >=
        p.flops.model_causal.base() / (static_cast<double>(job.devices) * rate));
  CHECK(p.hardware.base() >= 2 * p.ledger.optimizer.base() / job.system.device.bandwidth.base());
  const StepPrediction again = predict(testing::loaded(drawn.settings));
  CHECK(again.iteration == p.iteration);
  CHECK(again.ledger.total() == p.ledger.total());
}

/// Times each property was asked.
using Asked = std::map<std::string, int>;

/// Draws the job of a seed and holds it to `of_each` properties of each sort, or to all.
void hold_job(unsigned seed, bool small, std::size_t of_each, Asked& asked) {
  Draw draw(seed);
  std::optional<DrawnJob> drawn = testing::drawn_job(draw, small);
  REQUIRE(drawn.has_value());
  CAPTURE(seed);
  hold_parts(*drawn);
  Neighbourhood near(std::move(*drawn));
  for (auto* sort : {hardware_changes, software_changes, costly_changes}) {
    std::vector<Change> changes = sort(near.job().job);
    for (std::size_t i = 0; i < of_each && !changes.empty(); ++i) {
      const auto one = changes.begin() + static_cast<std::ptrdiff_t>(draw.below(changes.size()));
      asked[one->name] += near.hold(*one) ? 1 : 0;
      changes.erase(one);
    }
  }
  if (!small || draw.one_in(4)) {
    asked["zero"] += near.hold_zero() ? 1 : 0;
  }
}

}  // namespace

TEST_CASE("steps of random jobs follow hardware, overlaps, formats and sharding",
          "[studies][predict][property]") {
  Asked asked;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    hold_job(seed, true, 1, asked);
  }
  CHECK(asked.size() >= 15);
}

TEST_CASE("steps of a thousand random jobs follow hardware, overlaps, formats and sharding",
          "[.long][studies][predict][property]") {
  const unsigned first = GENERATE(range(1001U, 2001U, 25U));
  DYNAMIC_SECTION("jobs from " << first << " on") {
    Asked asked;
    for (unsigned seed = first; seed < first + 25; ++seed) {
      hold_job(seed, false, 100, asked);
    }
    // Those that any job can be asked.
    for (const char* name : {"bandwidth of a level", "latency of a level", "device memory", "peak",
                             "fused loss", "fused epilogues", "graphs of layers",
                             "graph of the step", "narrow gradients", "no recomputation", "zero"}) {
      INFO(name);
      CHECK(asked[name] > 0);
    }
  }
}

}  // namespace stepcast::studies
