#include "validation/plans.h"

#include <catch2/catch.hpp>
#include <set>

#include "core/config/config.h"
#include "studies/fit/paced_calibration.h"
#include "workloads/build_graph.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/plan_rules.h"

using namespace stepcast;
using namespace stepcast::studies;
using namespace stepcast::validation;

namespace {

System toy() {
  System s = two_rank_nodes(4);
  s.device.name = "toy";
  s.device.memory = GB(4);
  s.device.bandwidth = GBps(5);
  s.device.peak[Format::kFp32] = FlopsPerSecond(5e10);
  s.host.cores = 1;
  s.host.shares_core = true;
  s.host.collectives_hold_core = false;
  return s;
}

/// The time of a message of the two-level fabric 2 x 2: 100 us + 10 ns a byte inside a node, 300 us
/// + 40 ns a byte across.
std::vector<runtime::calibration::LinkSample> pair_samples() {
  std::vector<runtime::calibration::LinkSample> samples;
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::size_t b = a + 1; b < 4; ++b) {
      for (const double bytes : {64.0, 65536.0, 524288.0}) {
        runtime::calibration::LinkSample s;
        s.ranks = {0, 1, 2, 3};
        s.send.assign(16, 0);
        s.send[a * 4 + b] = s.send[b * 4 + a] = bytes;
        const bool near = a / 2 == b / 2;
        s.time.assign(4, seconds(0));
        s.time[a] = s.time[b] =
            near ? seconds(100e-6 + 10e-9 * bytes) : seconds(300e-6 + 40e-9 * bytes);
        samples.push_back(std::move(s));
      }
    }
  }
  return samples;
}

}  // namespace

TEST_CASE("tasks and candidates are a function of the seed, distinct and buildable",
          "[studies][plans]") {
  const System system = toy();
  std::set<std::string> names;
  for (const std::uint64_t seed : {1, 2, 3}) {
    Draw draw(seed), again(seed);
    Job job = draw_plan_task(system, 4, draw);
    const Job same = draw_plan_task(system, 4, again);
    CHECK(config::workload_to_json(job.workload) == config::workload_to_json(same.workload));
    names.insert(config::workload_to_json(job.workload));
    const auto candidates = candidate_plans(job, 7);
    const auto repeated = candidate_plans(job, 7);
    REQUIRE(candidates.size() >= 10);
    REQUIRE(candidates.size() == repeated.size());
    std::set<std::string> plans, kinds;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const std::string text = config::plan_to_json(candidates[i].plan);
      CHECK(text == config::plan_to_json(repeated[i].plan));
      CHECK(plans.insert(text).second);
      workloads::check_embedding_plan(job, candidates[i].plan, candidates[i].name);
      CHECK(bytes_of_plan(job, candidates[i].plan) > 0);
      kinds.insert(kinds_of(candidates[i].plan));
    }
    CHECK(kinds.count("column_wise") == 1);  // never run by calibration
    CHECK(kinds.count("table_row_wise") == 1);
    CHECK(std::any_of(candidates.begin(), candidates.end(),
                      [](const PlanRun& c) { return c.called("lookup_greedy"); }));
  }
  CHECK(names.size() == 3);
}

TEST_CASE("calibration keeps two kinds of sharding unseen", "[studies][plans]") {
  for (std::int64_t i = 0; i < 40; ++i) {
    const Job job = plan_calibration_job(i, 3, 4);
    const std::string kinds = kinds_of(*job.embedding_plan);
    CHECK(kinds.find("column_wise") == std::string::npos);
    CHECK(kinds.find("table_row_wise") == std::string::npos);
  }
}

TEST_CASE("nodes and their links are recovered from messages between pairs", "[studies][plans]") {
  const auto fabric = recovered_fabric(pair_samples(), 4);
  REQUIRE(fabric.size() == 2);
  CHECK(fabric[0].size == 2);
  CHECK(fabric[1].size == 2);
  CHECK(fabric[0].bandwidth / GBps(0.1) == Approx(1));
  CHECK(fabric[1].bandwidth / GBps(0.025) == Approx(1));
  CHECK(fabric[0].latency.base() == Approx(100e-6 + 0.64e-6));
  CHECK(fabric[1].latency.base() == Approx(300e-6 + 2.56e-6));
  auto flat = pair_samples();
  for (auto& s : flat) {
    for (auto& t : s.time) {
      t = t > Seconds{} ? seconds(1e-4 + 1e-8 * *std::max_element(s.send.begin(), s.send.end()))
                        : t;
    }
  }
  CHECK(recovered_fabric(flat, 4).size() == 1);
}
