#include "studies/predict/sweep.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <random>

#include "core/error.h"
#include "tests/jobs.h"

namespace stepcast::studies {
namespace {

using Strings = std::vector<std::string>;

constexpr const char* kJob = R"({"workload": {"kind": "dlrm", "name": "small",
  "dense_features": 4, "bottom_mlp": [16, 8], "interaction": {"kind": "dot"}, "top_mlp": [16, 1],
  "tables": [{"name": "a", "rows": 1000, "dim": 8, "pooling": 2, "access": {"uniform": true}},
             {"name": "b", "rows": 3000, "dim": 8, "pooling": 1, "access": {"uniform": true}}]},
  "system": "dgx-a100-80gb", "devices": 2, "batch": {"global": 1024}, "embedding": {"plan": "auto"}})";

Job make_job(const Strings& overrides) { return fixtures::loaded(overrides, kJob); }

TEST_CASE("values are split at commas outside brackets and quotes", "[studies][sweep]") {
  CHECK(split_values("1,2,4") == Strings{"1", "2", "4"});
  CHECK(split_values("one") == Strings{"one"});
  CHECK(split_values("[1,2],[3]") == Strings{"[1,2]", "[3]"});
  CHECK(split_values(R"({"a":[1,{"b":2,"c":3}]},x)") == Strings{R"({"a":[1,{"b":2,"c":3}]})", "x"});
  CHECK(split_values(R"("a,b",c)") == Strings{R"("a,b")", "c"});
  CHECK(split_values(R"("a\",[b",c)") == Strings{R"("a\",[b")", "c"});  // escaped quote, bracket
  CHECK_THROWS_WITH(split_values("1,,2"), Catch::Contains("empty value"));
  CHECK_THROWS_WITH(split_values("1,"), Catch::Contains("empty value"));
  CHECK_THROWS_WITH(split_values("[1,2"), Catch::Contains("not closed"));
  CHECK_THROWS_WITH(split_values("1],2"), Catch::Contains("closes nothing"));
  CHECK_THROWS_WITH(split_values("\"a,b"), Catch::Contains("quote is not closed"));
}

TEST_CASE("an axis needs a key, once", "[studies][sweep]") {
  const auto axes = sweep_axes({"devices=1,2", "batch.global=64"});
  REQUIRE(axes.size() == 2);
  CHECK(axes[0].key == "devices");
  CHECK(axes[0].values == Strings{"1", "2"});
  CHECK(axes[1].values == Strings{"64"});
  CHECK(sweep_axes({"a==b"})[0].values == Strings{"=b"});  // the first = separates
  CHECK_THROWS_AS(sweep_axes({"devices"}), InputError);
  CHECK_THROWS_AS(sweep_axes({"=1"}), InputError);
  const std::vector<SweepAxis> last = sweep_axes({"a=1", "b=5", "a=2,3"});  // as in other commands
  REQUIRE(last.size() == 2);
  CHECK(last[1].values == std::vector<std::string>{"2", "3"});
}

TEST_CASE("the cross product is bounded", "[studies][sweep]") {
  const Strings thousand(1000, "1");
  CHECK(sweep_size({{"a", thousand}, {"b", thousand}}) == 1'000'000);
  CHECK(sweep_size({}) == 1);
  CHECK_THROWS_AS(sweep_size({{"a", thousand}, {"b", thousand}, {"c", {"1", "2"}}}), InputError);
}

TEST_CASE("a sweep has one point per combination, last axis fastest, none dropped",
          "[studies][sweep]") {
  // 3 devices do not divide a batch of 1024; tables larger than 85 GB do not fit one device.
  const auto axes = sweep_axes({"devices=1,3,4", "workload.tables[1].rows=3000,9000000000"});
  std::vector<Strings> order;
  std::size_t progress = 0;
  SweepOptions options{.threads = 3,
                       .on_point = [&](const SweepPoint& p) { order.push_back(p.values); },
                       .on_progress = [&](std::size_t done) { progress = done; }};
  const auto points = sweep(axes, make_job, options);
  REQUIRE(points.size() == 6);
  CHECK(order == std::vector<Strings>{{"1", "3000"},
                                      {"1", "9000000000"},
                                      {"3", "3000"},
                                      {"3", "9000000000"},
                                      {"4", "3000"},
                                      {"4", "9000000000"}});
  CHECK(progress == 6);
  CHECK(points[0].status == SweepStatus::kOk);
  CHECK(points[0].reason.empty());
  CHECK(points[0].iteration > Seconds{});
  // samples/s = 1024 / step
  CHECK(points[0].samples_per_second == Approx(1024 / points[0].iteration.base()));
  // 9e9 rows * 8 fp32 = 288 GB on one device of 79.15 GiB.
  CHECK(points[1].status == SweepStatus::kDoesNotFit);
  CHECK(points[1].memory > GB(288));
  CHECK_THAT(points[1].reason, Catch::Contains("the device has 79.2 GiB"));
  for (const std::size_t i : {2U, 3U}) {
    CHECK(points[i].status == SweepStatus::kInvalid);
    CHECK_FALSE(points[i].predicted());
    CHECK_THAT(points[i].reason, Catch::Contains("1024"));
  }
}

TEST_CASE("a sweep searches for a plan of tables where the job asks for one", "[studies][sweep]") {
  const MakeJob zoo = [](const Strings& overrides) {
    return fixtures::zoo_job("mlperf-dlrm-v2", "dgx-h100", overrides);
  };
  const auto searched = sweep(sweep_axes({"devices=8,16,64", "embedding.plan=search"}), zoo, {});
  const auto by_rule = sweep(sweep_axes({"devices=8,16,64"}), zoo, {});
  for (std::size_t i = 0; i < searched.size(); ++i) {
    CHECK(searched[i].plan_searched);
    CHECK_FALSE(searched[i].planned_by_rule);
    CHECK(by_rule[i].planned_by_rule);
    CHECK_FALSE(by_rule[i].plan_searched);
    CHECK(searched[i].iteration <= by_rule[i].iteration * (1 + 1e-9));
  }
  // By the rule fewer devices come out faster: the conclusion of a plan that nobody should take.
  CHECK(searched[2].samples_per_second > searched[1].samples_per_second);
  CHECK(searched[2].iteration < by_rule[2].iteration * 0.7);
  // No plan fits one device without slower memory: the rule's says by how much.
  const auto one = sweep(sweep_axes({"devices=1", "system.tiers=[]"}), zoo, {});
  CHECK(one[0].status == SweepStatus::kDoesNotFit);
  CHECK(one[0].planned_by_rule);
  // The same job, the same plan.
  CHECK(sweep(sweep_axes({"devices=16", "embedding.plan=search"}), zoo, {})[0].iteration ==
        searched[1].iteration);
}

TEST_CASE("a point that overflows a slower tier says so", "[studies][sweep]") {
  // 4,000 rows of 8 fp32 columns and a word of state: 144 kB in a unit of 100 kB.
  const MakeJob spilled = [](const Strings& overrides) {
    Job job = make_job(overrides);
    job.system.tiers = {{"hbm", job.system.device.memory, {}, 1}, {"ddr", Bytes(1e5), GBps(10), 8}};
    EmbeddingPlan plan;
    plan.devices = job.devices;
    for (const EmbeddingTable& t : job.workload.layered()->tables) {
      PlanShard s;
      s.rows = {0, t.rows};
      s.columns = {0, t.dim};
      s.tier = "ddr";
      s.groups = {{0}};
      plan.tables.push_back({t.name, false, {s}});
    }
    job.embedding_plan = plan;
    return job;
  };
  const auto points = sweep(sweep_axes({"devices=2,4"}), spilled, {});
  for (const SweepPoint& p : points) {
    REQUIRE(p.status == SweepStatus::kDoesNotFit);
    CHECK(p.memory < GB(80));  // the device itself has room
    CHECK_THAT(p.reason, Catch::Contains("tier ddr") && !Catch::Contains("the device has"));
  }
}

TEST_CASE("a sweep does not depend on the number of threads", "[studies][sweep][property]") {
  const auto axes =
      sweep_axes({"devices=1,2,3,4,8", "embedding.plan=table_wise,row_wise,nonsense"});
  const auto one = sweep(axes, make_job, {.threads = 1});
  const int threads = GENERATE(2, 5, 64);
  const auto many = sweep(axes, make_job, {.threads = threads});
  REQUIRE(many.size() == one.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    CHECK(many[i].values == one[i].values);
    CHECK(many[i].status == one[i].status);
    CHECK(many[i].iteration == one[i].iteration);
    CHECK(many[i].memory == one[i].memory);
    CHECK(many[i].reason == one[i].reason);
  }
}

TEST_CASE("what breaks at one point is told there and the sweep goes on", "[studies][sweep]") {
  const auto fragile = [](const Strings& overrides) {
    STEPCAST_CHECK(overrides.at(0) != "devices=2", "promise broken");
    return make_job(overrides);
  };
  const auto points = sweep(sweep_axes({"devices=1,2,4"}), fragile, {.threads = 2});
  CHECK(points[0].status == SweepStatus::kOk);
  CHECK(points[1].status == SweepStatus::kFailed);
  CHECK_THAT(points[1].reason, Catch::Contains("promise broken"));
  CHECK(points[2].status == SweepStatus::kOk);
}

SweepPoint point(double step, double memory, double mfu, SweepStatus status = SweepStatus::kOk) {
  SweepPoint p;
  p.status = status;
  p.iteration = Seconds(step);
  p.memory = Bytes(memory);
  p.mfu = mfu;
  return p;
}

TEST_CASE("a front can be taken over a swept number", "[studies][sweep]") {
  const auto axes = sweep_axes({"devices=2,4"});
  std::vector<SweepPoint> points{point(3, 1, 0), point(3, 1, 0)};
  points[0].values = {"2"};
  points[1].values = {"4"};
  mark_pareto(points, axes, {"devices", "iteration_time_s"});
  CHECK(points[0].pareto);
  CHECK_FALSE(points[1].pareto);  // as fast with more devices
  std::vector<SweepPoint> none;
  CHECK_THROWS_WITH(mark_pareto(none, axes, {"speed"}), Catch::Contains("'speed' is no column"));
  CHECK_THROWS_WITH(mark_pareto(none, sweep_axes({"system=x,y"}), {"system"}),
                    Catch::Contains("'x' is not a number"));
}

TEST_CASE("the front agrees with the definition on random points", "[studies][sweep][property]") {
  const int seed = GENERATE(range(0, 20));
  const auto axes =
      GENERATE(Strings{"iteration_time_s"}, Strings{"iteration_time_s", "memory_bytes"},
               Strings{"iteration_time_s", "memory_bytes", "mfu"});
  std::mt19937 engine(static_cast<std::uint32_t>(seed));
  std::uniform_int_distribution<int> value(0, 9);  // coarse: ties are common
  std::vector<SweepPoint> points;
  for (int i = 0; i < 60; ++i) {
    points.push_back(point(value(engine), value(engine), value(engine),
                           i % 8 == 0 ? SweepStatus::kDoesNotFit : SweepStatus::kOk));
  }
  mark_pareto(points, {}, axes);
  for (const SweepPoint& p : points) {
    bool beaten = p.status != SweepStatus::kOk;  // cannot run
    for (const SweepPoint& q : points) {
      const std::array<double, 3> less{(p.iteration - q.iteration).base(),
                                       (p.memory - q.memory).base(), q.mfu - p.mfu};
      const auto end = less.begin() + static_cast<std::ptrdiff_t>(axes.size());
      beaten = beaten || (q.status == SweepStatus::kOk &&
                          std::all_of(less.begin(), end, [](double by) { return by >= 0; }) &&
                          std::any_of(less.begin(), end, [](double by) { return by > 0; }));
    }
    CHECK(p.pareto == !beaten);
  }
}

}  // namespace
}  // namespace stepcast::studies
