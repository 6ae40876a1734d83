// Published histograms of lookups, the traffic that copies of their hot rows save, and plans that
// take it at the memory of flat sharding.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/access/access.h"
#include "core/config/config.h"
#include "core/graph/link_traffic.h"
#include "core/graph/program.h"
#include "core/graph/step_traffic.h"
#include "core/input/csv.h"
#include "planner/embedding/ledger.h"
#include "planner/embedding/traffic_cut.h"
#include "studies/plan/plan.h"
#include "studies/plan/plan_comparison.h"
#include "workloads/build_graph.h"
#include "workloads/embedding_plan/plan.h"

namespace stepcast::validation {
namespace {

constexpr std::int64_t kRowColumns = 128;

/// How often the rows of one recorded batch were looked up, all tables together
/// (facebookresearch/dlrm_datasets, shares rounded to three decimals).
struct ReuseHistogram {
  std::int64_t samples = 0;
  double lookups = 0, rows = 0;
  std::vector<ReuseBin> bins;
};

double number(const CsvTable& table, std::string_view column) {
  return std::stod(table.text(column));
}

std::map<std::string, ReuseHistogram> read_histograms(const std::filesystem::path& file) {
  CsvTable table(file, "data/dlrm/dlrm_datasets/locality_parsed.csv");
  std::map<std::string, ReuseHistogram> all;
  while (table.next()) {
    const std::string name = table.text("file");  // "..._bs65536..."
    ReuseHistogram& h = all[name];
    h.samples = std::stoll(name.substr(name.find("_bs") + 3));
    h.lookups = number(table, "n_indices");
    h.rows = number(table, "n_unique_rows");
    h.bins.push_back({number(table, "bin_lo"), number(table, "bin_hi"),
                      number(table, "frac_unique_rows") * h.rows,
                      number(table, "frac_accesses") * h.lookups});
  }
  return all;
}

/// Rounding leaves some bins fewer rows than their accesses need: they get the fewest possible, or
/// stand for one row, which is what the published table of cuts took.
Access law_of(const ReuseHistogram& histogram, bool as_published) {
  std::vector<ReuseBin> kept;
  double rows = 0;
  for (ReuseBin b : histogram.bins) {
    if (b.accesses <= 0) {
      continue;
    }
    const double all = b.accesses / b.reuse_high;
    const double fewest = as_published               ? (b.reuse_high <= 2 ? all : 1.0)
                          : std::isinf(b.reuse_high) ? 1.0
                                                     : std::ceil(all);
    const double most = b.accesses / (b.reuse_low + 1);
    b.unique_rows = std::max(1.0, std::min(std::max(b.unique_rows, fewest), most));
    rows += b.unique_rows;
    kept.push_back(b);
  }
  return Access::histogram(static_cast<std::int64_t>(rows) + 1, kept, histogram.lookups);
}

/// Bytes of a step, all ranks together: exchanges that leave machines, and sums of copies; the
/// planner's ledger adds the fullest rank's.
struct StepBytes {
  double exchanged = 0, synchronised = 0, fullest = 0;
};
StepBytes bytes_of(Job job, const EmbeddingPlan& plan) {
  StepBytes sum;
  for (const LedgerLine& line : planner::ledger_of(job, plan)) {
    sum.fullest = std::max(sum.fullest, line.tier == "hbm" ? line.total() : 0);
  }
  job.embedding_plan = plan;
  const LinkLevels levels(job.system);
  const StepTraffic traffic = expected_traffic(workloads::build_graph(job), levels);
  for (std::size_t level = 0; level < levels.count(); ++level) {
    if (levels.units()[level] > job.system.host.devices) {
      sum.exchanged += traffic.exchanged(level);
      sum.synchronised += traffic.at(TrafficKind::kReplicaSync, level);
    }
  }
  return sum;
}

/// The histogram as one unpooled table of 128 fp16 columns on `nodes` machines of the zoo's
/// dgx-h100, row-wise Adagrad, sharded by row.
Job job_of(const ReuseHistogram& histogram, std::int64_t nodes) {
  const Access law = law_of(histogram, false);
  Job job = config::load_job(
      config::text_source(
          fmt::format(
              R"({{"stepcast": 1, "system": "dgx-h100", "devices": {}, "batch": {{"global": {}}},
"workload": {{"kind": "dlrm", "name": "published", "dense_features": 13, "bottom_mlp": [512, {}],
 "interaction": {{"kind": "dot"}}, "top_mlp": [512, 1],
 "tables": [{{"name": "all", "rows": {}, "dim": {}, "pooling": {:.6f}, "mode": "sequence"}}]}},
"formats": {{"compute": "fp16", "gradient": "fp16", "embedding": "fp16",
 "all_to_all_forward": "fp16", "all_to_all_backward": "fp16"}},
"optimizer": {{"dense": "sgd", "embedding": "rowwise_adagrad"}},
"embedding": {{"plan": "row_wise", "dedup": "off"}}}})",
              nodes * 8, histogram.samples, kRowColumns, law.rows(), kRowColumns,
              histogram.lookups / static_cast<double>(histogram.samples)),
          "published"),
      {}, {STEPCAST_SOURCE_DIR});
  std::get<LayeredWorkload>(job.workload.model).tables.front().access =
      std::make_shared<Access>(law);
  return job;
}

TEST_CASE(
    "published traffic cuts follow from published histograms; plans take them at equal memory",
    "[studies][traffic][data]") {
  const std::filesystem::path folder = std::filesystem::path(STEPCAST_SHARED_DATA) / "dlrm";
  const auto published = folder / "flexshard_breakeven_on_meta_histograms.csv";
  if (!std::filesystem::exists(published)) {
    WARN("skipped: no histograms under " << folder);
    return;
  }
  const auto histograms = read_histograms(folder / "dlrm_datasets" / "locality_parsed.csv");
  CHECK(histograms.size() == 33);
  for (const auto& [name, h] : histograms) {  // a law returns its own totals
    CAPTURE(name);
    const Access law = law_of(h, false);
    CHECK(law.unique(law.sample_lookups()).value == Approx(h.rows).epsilon(0.02));
  }
  CsvTable table(published, "data/dlrm/flexshard_breakeven_on_meta_histograms.csv");
  int cuts = 0;
  for (; table.next(); ++cuts) {
    CAPTURE(table.place());
    const ReuseHistogram& h = histograms.at(table.text("file"));
    const planner::TrafficCut cut =
        planner::traffic_cut(law_of(h, true), h.lookups,
                             {number(table, "nodes"), number(table, "gpus_per_node"),
                              number(table, "sync_every_k"), Bytes(kRowColumns * 2.0)});
    CHECK(cut.saved == Approx(number(table, "acc_cov_N_plus_R")).margin(0.005));
    CHECK(cut.net() == Approx(number(table, "inter_node_traffic_cut")).margin(0.005));
  }
  CHECK(cuts == 24);

  Job job = job_of(histograms.at("fbgemm_t788_bs131072_0.pt"), 8);
  const EmbeddingPlan flat = workloads::resolved_embedding_plan(job);
  const double flat_step =
      studies::simulated_step(job, models::CostModel(job.system, job.calibration), flat);
  const StepBytes before = bytes_of(job, flat);
  job.system.device.memory = Bytes(before.fullest);
  job.embedding_plan.reset();
  studies::PlanOptions options;
  options.top = 1;
  const studies::PlanReport report = studies::plan(job, options);
  REQUIRE_FALSE(report.plans.empty());
  const EmbeddingPlan& best = report.plans.front().plan;
  const StepBytes after = bytes_of(job, best);
  CHECK(after.fullest <= before.fullest);
  CHECK(best.predicted_step < flat_step / 2);
  // The rule of bytes alone gives 84.4 % and 70.2 % here; a plan for time may not pass it by far.
  const double net = 1 - (after.exchanged + after.synchronised) / before.exchanged;
  CHECK(net > 0.6);
  CHECK(net < 0.702 + 0.005);
}

}  // namespace
}  // namespace stepcast::validation
