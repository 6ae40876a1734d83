#include "core/graph/program.h"
#include "published_traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "core/error.h"
#include "core/graph/link_traffic.h"
#include "core/graph/step_traffic.h"
#include "core/input/csv.h"
#include "planner/embedding/ledger.h"
#include "studies/plan/plan.h"
#include "studies/plan/plan_comparison.h"
#include "workloads/build_graph.h"
#include "workloads/embedding_plan/plan.h"

namespace stepcast::validation {
namespace {

constexpr std::int64_t kRowColumns = 128;

/// A number >= 0, or "inf".
double number(const CsvTable& table, std::string_view column) {
  const std::string field = table.text(column);
  if (field == "inf") {
    return std::numeric_limits<double>::infinity();
  }
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || !(value >= 0)) {
    throw InputError(table.place(),
                     fmt::format("{}: found '{}', expected a number >= 0", column, field));
  }
  return value;
}

std::int64_t samples_in_name(const std::string& file, const std::string& place) {
  const auto at = file.find("_bs");
  std::int64_t samples = 0;
  if (at != std::string::npos) {
    std::from_chars(file.data() + at + 3, file.data() + file.size(), samples);
  }
  if (samples < 1) {
    throw InputError(place, fmt::format("file: found '{}', expected a name that says the samples "
                                        "of the batch, such as ..._bs65536.pt",
                                        file));
  }
  return samples;
}

/// Rows of a bin: those of the file, between `fewest` and what its accesses allow.
template <typename Fewest>
Access law_of(const ReuseHistogram& histogram, Fewest fewest) {
  std::vector<ReuseBin> kept;
  double rows = 0;
  for (ReuseBin b : histogram.bins) {
    if (b.accesses <= 0) {
      continue;
    }
    const double most = b.accesses / (b.reuse_low + 1);
    b.unique_rows = std::max(1.0, std::min(std::max(b.unique_rows, fewest(b)), most));
    rows += b.unique_rows;
    kept.push_back(b);
  }
  return Access::histogram(static_cast<std::int64_t>(rows) + 1, kept, histogram.lookups);
}

/// Bytes that leave machines in a step, all ranks together: of exchanges, and of summing copies.
struct BetweenMachines {
  double exchanged = 0, synchronised = 0;
};
BetweenMachines between_machines(const Job& job, const EmbeddingPlan& plan) {
  Job with = job;
  with.embedding_plan = plan;
  const LinkLevels levels(job.system);
  const StepTraffic traffic = expected_traffic(workloads::build_graph(with), levels);
  BetweenMachines sum;
  for (std::size_t level = 0; level < levels.count(); ++level) {
    if (levels.units()[level] > job.system.host.devices) {
      sum.exchanged += traffic.exchanged(level);
      sum.synchronised += traffic.at(TrafficKind::kReplicaSync, level);
    }
  }
  return sum;
}

double fullest(const std::vector<LedgerLine>& ledger) {
  double most = 0;
  for (const LedgerLine& line : ledger) {
    most = std::max(most, line.tier == "hbm" ? line.total() : 0);
  }
  return most;
}

Job job_of(const ReuseHistogram& histogram, std::int64_t nodes, bool dedup,
           const config::Library& library) {
  const Access law = histogram.law();
  Job job = config::load_job(
      config::text_source(
          fmt::format(
              R"({{"stepcast": 1, "system": "dgx-h100", "devices": {}, "batch": {{"global": {}}},
"workload": {{"kind": "dlrm", "name": "{}", "dense_features": 13, "bottom_mlp": [512, {}],
 "interaction": {{"kind": "dot"}}, "top_mlp": [512, 1],
 "tables": [{{"name": "all", "rows": {}, "dim": {}, "pooling": {:.6f}, "mode": "sequence"}}]}},
"formats": {{"compute": "fp16", "gradient": "fp16", "embedding": "fp16",
 "all_to_all_forward": "fp16", "all_to_all_backward": "fp16"}},
"optimizer": {{"dense": "sgd", "embedding": "rowwise_adagrad"}},
"embedding": {{"plan": "row_wise", "dedup": "{}"}}}})",
              nodes * 8, histogram.samples, histogram.file, kRowColumns, law.rows(), kRowColumns,
              histogram.lookups / static_cast<double>(histogram.samples), dedup ? "ikjt" : "off"),
          histogram.file),
      {}, library);
  std::get<LayeredWorkload>(job.workload.model).tables.front().access =
      std::make_shared<Access>(law);
  return job;
}

}  // namespace

Access ReuseHistogram::law() const {
  return law_of(*this, [](const ReuseBin& b) {
    return std::isinf(b.reuse_high) ? 1 : std::ceil(b.accesses / b.reuse_high);
  });
}

Access ReuseHistogram::law_as_published() const {
  return law_of(
      *this, [](const ReuseBin& b) { return b.reuse_high <= 2 ? b.accesses / b.reuse_high : 1.0; });
}

std::vector<ReuseHistogram> read_reuse_histograms(const std::filesystem::path& file) {
  CsvTable table(file, "data/dlrm/dlrm_datasets/locality_parsed.csv");
  std::vector<ReuseHistogram> all;
  std::map<std::string, std::size_t> index;
  while (table.next()) {
    const std::string name = table.text("file");
    const double lookups = number(table, "n_indices");
    const auto [at, fresh] = index.try_emplace(name, all.size());
    if (fresh) {
      all.push_back({name, samples_in_name(name, table.place()), lookups, {}});
    }
    ReuseHistogram& h = all[at->second];
    const ReuseBin bin{number(table, "bin_lo"), number(table, "bin_hi"),
                       number(table, "frac_unique_rows") * number(table, "n_unique_rows"),
                       number(table, "frac_accesses") * lookups};
    if (!(bin.reuse_high > bin.reuse_low)) {
      throw InputError(table.place(), fmt::format("bin_hi: found {}, expected more than bin_lo, {}",
                                                  bin.reuse_high, bin.reuse_low));
    }
    h.bins.push_back(bin);
  }
  if (all.empty()) {
    throw InputError(file.string(), "has no rows; expected bins of at least one recording");
  }
  return all;
}

std::vector<PublishedCut> compare_traffic_cuts(const std::filesystem::path& table,
                                               const std::vector<ReuseHistogram>& histograms) {
  CsvTable rows(table, "data/dlrm/flexshard_breakeven_on_meta_histograms.csv");
  std::vector<PublishedCut> all;
  while (rows.next()) {
    PublishedCut cut;
    cut.place = rows.place();
    cut.file = rows.text("file");
    const auto of = std::find_if(histograms.begin(), histograms.end(),
                                 [&](const ReuseHistogram& h) { return h.file == cut.file; });
    if (of == histograms.end()) {
      throw InputError(cut.place, fmt::format("file: '{}' is not among the histograms", cut.file));
    }
    cut.question = {number(rows, "nodes"), number(rows, "gpus_per_node"),
                    number(rows, "sync_every_k"), Bytes(kRowColumns * 2.0)};
    cut.saved = number(rows, "acc_cov_N_plus_R");
    cut.net = number(rows, "inter_node_traffic_cut");
    cut.ours = planner::traffic_cut(of->law_as_published(), of->lookups, cut.question);
    all.push_back(std::move(cut));
  }
  return all;
}

EqualMemoryCut cut_at_equal_memory(const ReuseHistogram& histogram, std::int64_t nodes, bool dedup,
                                   const config::Library& library) {
  Job job = job_of(histogram, nodes, dedup, library);
  const EmbeddingPlan flat = workloads::resolved_embedding_plan(job);
  EqualMemoryCut cut{
      .file = histogram.file, .nodes = nodes, .devices = job.devices, .dedup = dedup};
  const BetweenMachines before = between_machines(job, flat);
  cut.flat_step =
      studies::simulated_step(job, models::CostModel(job.system, job.calibration), flat);
  cut.flat_bytes = fullest(planner::ledger_of(job, flat));
  job.system.device.memory = Bytes(cut.flat_bytes);
  job.embedding_plan.reset();
  studies::PlanOptions options;
  options.top = 1;
  const studies::PlanReport report = studies::plan(job, options);
  if (report.plans.empty()) {
    throw InputError(histogram.file,
                     fmt::format("no plan fits in {:.0f} bytes a device", cut.flat_bytes));
  }
  const EmbeddingPlan& best = report.plans.front().plan;
  const BetweenMachines after = between_machines(job, best);
  cut.step = best.predicted_step;
  cut.bytes = fullest(best.ledger);
  cut.saved = 1 - after.exchanged / before.exchanged;
  cut.sync = after.synchronised / before.exchanged;
  for (const PlanShard& s : best.tables.front().shards) {
    const auto rows = static_cast<double>(s.rows[1] - s.rows[0]);
    if (s.split == Split::kReplicate) {
      cut.rows_everywhere += rows;
    } else if (s.groups.size() > 1) {
      cut.rows_unit += rows;
    }
  }
  return cut;
}

}  // namespace stepcast::validation
