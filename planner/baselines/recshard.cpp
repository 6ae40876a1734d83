#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "planner/baselines/methods.h"
#include "planner/baselines/milp.h"
#include "planner/baselines/table_wise.h"
#include "planner/embedding/capacity.h"
#include "planner/embedding/shard_bytes.h"

#include "core/numbers.h"

namespace stepcast::planner {
namespace {

constexpr double kSeconds = 20;
constexpr std::size_t kSteps = 10;         // of the inverse access curve, where rows are split
constexpr double kRemapBytes = 4;          // per row
constexpr std::size_t kLargest = 40 * 16;  // table x device binaries worth trying

/// Rows that take `share` of the lookups.
double rows_for(const Access& access, double share) {
  double low = 0;
  double high = real(access.rows());
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (access.cdf(middle).value < share ? low : high) = middle;
  }
  return high;
}

}  // namespace

/// One device per table, its hottest rows in HBM and the others in host memory; the slowest
/// device's lookup time is least: pct_j = share of a table's accesses served from HBM, rows by the
/// inverse of its access curve, piecewise linear. No network term (its limit). RecShard, ASPLOS'22,
/// arXiv 2201.10095.
BaselinePlan recshard_plan(const Job& job, const models::CostModel&, std::uint64_t) {
  const DlrmWorkload& w = *job.workload.dlrm();
  const auto devices = static_cast<std::size_t>(job.devices);
  if (w.tables.size() * devices > kLargest) {
    return {std::nullopt, "left out: the mixed-integer program is too large"};
  }
  const Tier* host = nullptr;
  for (const Tier& t : job.system.tiers) {
    host = t.name == "ddr" ? &t : host;
  }
  const auto hbm = static_cast<double>(capacities_of(job, false).front().capacity.front());
  const double hbm_rate = std::max(job.system.device.bandwidth.base(), 1.0);
  const double sharers = host != nullptr ? real(std::max<std::int64_t>(1, host->shared_by)) : 1;
  const double host_rate = host != nullptr ? host->bandwidth.base() / sharers : hbm_rate / 100;
  const double host_bytes = host != nullptr ? host->capacity.base() / sharers : 0;

  Milp m;
  const std::size_t slowest = m.variable({1, 0, 1e9, false});
  std::vector<std::vector<std::size_t>> on(w.tables.size());
  std::vector<Milp::Row> time(devices, {{{slowest, -1}}, '<', 0});
  std::vector<Milp::Row> fast(devices, {{}, '<', hbm * 1e-6});
  std::vector<Milp::Row> slow(devices, {{}, '<', host_bytes * 1e-6});
  std::vector<std::vector<std::vector<std::size_t>>> steps(w.tables.size());
  for (std::size_t t = 0; t < w.tables.size(); ++t) {
    const EmbeddingTable& table = w.tables[t];
    const Access access = table.access ? *table.access : Access::uniform(table.rows);
    const double row = format_bytes(job.row_format(table), 1, table.dim).base();
    const double state = state_row_bytes(job.embedding_optimizer, table.dim);
    const double buffers =
        held_bytes(job, table, {EmbeddingRoute::kExchange, 0, table.dim}).total() +
        kRemapBytes * real(table.rows);
    const double bytes = real(job.batch.global) * table.pooling * row;
    Milp::Row one{{}, '=', 1};
    steps[t].resize(devices);
    for (std::size_t d = 0; d < devices; ++d) {
      const std::size_t here = m.variable({0, 0, 1, true});
      on[t].push_back(here);
      one.terms.emplace_back(here, 1);
      time[d].terms.emplace_back(here, bytes / host_rate * 1e3);
      slow[d].terms.emplace_back(here, real(table.rows) * (row + state) * 1e-6);
      fast[d].terms.emplace_back(here, buffers * 1e-6);
      // Segments of the access curve, hottest first: convex, so they fill in order by themselves.
      double rows_before = 0;
      for (std::size_t s = 0; s < kSteps; ++s) {
        const double upto = s + 1 == kSteps
                                ? real(table.rows)
                                : rows_for(access, real(static_cast<std::int64_t>(s + 1)) / kSteps);
        const double rows = std::max(0.0, upto - rows_before);
        rows_before = std::max(rows_before, upto);
        const std::size_t part = m.variable({0, 0, 1, false});
        steps[t][d].push_back(part);
        m.rows.push_back({{{part, 1}, {here, -1}}, '<', 0});
        time[d].terms.emplace_back(part, bytes / kSteps * (1 / hbm_rate - 1 / host_rate) * 1e3);
        fast[d].terms.emplace_back(part, rows * (row + state) * 1e-6);
        slow[d].terms.emplace_back(part, -rows * (row + state) * 1e-6);
      }
    }
    m.rows.push_back(std::move(one));
  }
  for (std::size_t d = 0; d < devices; ++d) {
    m.rows.push_back(std::move(time[d]));
    m.rows.push_back(std::move(fast[d]));
    m.rows.push_back(std::move(slow[d]));
  }
  const auto solution = solve_with_cbc(m, kSeconds);
  if (!solution) {
    return {std::nullopt, has_cbc() ? "cbc found no plan" : "needs cbc (coinor-cbc)"};
  }
  EmbeddingPlan plan = empty_plan(job);
  bool split = false;
  for (std::size_t t = 0; t < w.tables.size(); ++t) {
    const EmbeddingTable& table = w.tables[t];
    for (std::size_t d = 0; d < devices; ++d) {
      if (solution->values[on[t][d]] < 0.5) {
        continue;
      }
      double share = 0;
      for (const std::size_t part : steps[t][d]) {
        share += solution->values[part] / kSteps;
      }
      const Access access = table.access ? *table.access : Access::uniform(table.rows);
      const auto rows = share >= 1 - 1e-6
                            ? table.rows
                            : static_cast<std::int64_t>(std::floor(rows_for(access, share)));
      const auto rank = static_cast<std::int64_t>(d);
      PlanShard whole = shard_on(table, ShardingKind::kTableWise, rank, 1, {0, table.dim});
      if (rows > 0) {
        plan.tables[t].shards.push_back(whole);
        plan.tables[t].shards.back().rows = {0, rows};
      }
      if (rows < table.rows) {
        split = true;
        plan.tables[t].frequency_order = true;
        whole.rows = {rows, table.rows};
        whole.tier = "ddr";
        plan.tables[t].shards.push_back(whole);
      }
    }
  }
  return {std::move(plan), fmt::format("slowest lookup {:.3f} ms{}{}", solution->objective,
                                       solution->optimal ? "" : ", not proven",
                                       split ? ", rows in host memory" : "")};
}

}  // namespace stepcast::planner
