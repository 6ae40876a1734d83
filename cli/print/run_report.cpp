#include "cli/print/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "cli/print/human.h"
#include "core/config/config.h"
#include "studies/fit/error_statistics.h"

namespace stepcast::cli {
namespace {

double mean_step(const std::vector<double>& steps) {
  return std::accumulate(steps.begin(), steps.end(), 0.0) / static_cast<double>(steps.size());
}

std::vector<double> seconds_of(const runtime::RunResult& result) {
  std::vector<double> v;
  for (const runtime::StepRecord& s : result.steps) {
    v.push_back(s.time.base());
  }
  return v;
}

/// Kinds that either side has bytes of.
std::vector<TrafficKind> kinds_of(const StepTraffic& counted, const StepTraffic& predicted) {
  std::vector<TrafficKind> kinds;
  for (std::size_t k = 0; k < kTrafficKinds; ++k) {
    const auto kind = static_cast<TrafficKind>(k);
    if (counted.total(kind) + predicted.total(kind) > 0) {
      kinds.push_back(kind);
    }
  }
  return kinds;
}

/// Bytes of one step over all ranks, as counted and as the graph expects them.
void add_traffic(const StepTraffic& counted, const StepTraffic& predicted, Report& report) {
  const auto kinds = kinds_of(counted, predicted);
  report.list("traffic");
  Columns<TrafficKind> columns{{"kind", "sent per step", [](auto& kind) { return name_of(kind); }}};
  for (std::size_t level = 0; level < counted.levels.size(); ++level) {
    for (const auto& [name, traffic] : {std::pair(counted.levels[level], &counted),
                                        std::pair(std::string("predicted"), &predicted)}) {
      columns.emplace_back("bytes", name, [level, of = traffic](const TrafficKind& kind) {
        return Bytes(of->at(kind, level));
      });
    }
  }
  if (!kinds.empty()) {
    report.line();
    report.add(table_of("traffic", "", columns, kinds, kInText));
  }
  for (const TrafficKind kind : kinds) {
    for (std::size_t level = 0; level < counted.levels.size(); ++level) {
      report.item("traffic", {{"kind", name_of(kind)},
                              {"level", counted.levels[level]},
                              {"counted_bytes", counted.at(kind, level)},
                              {"predicted_bytes", predicted.at(kind, level)}});
    }
  }
}

/// Rows of a slower tier in one step over all ranks.
struct TierRow {
  std::string title;
  RowTraffic of;
};

Columns<TierRow> tier_columns() {
  using R = TierRow;
  const auto counted = [](double n) { return Cell{count(n), n}; };
  return {{"", "tier, per step", &R::title, kInText},
          {"lookups", "", [counted](auto& r) { return counted(r.of.lookups); }},
          {"distinct_rows", "distinct rows", [counted](auto& r) { return counted(r.of.touched); }},
          {"fetched_rows", "fetched", [counted](auto& r) { return counted(r.of.fetched); }},
          {"written_rows", "", [](auto& r) { return code(r.of.written); }, kInJson},
          {"", "hit rate",
           [](auto& r) { return percent(r.of.lookups > 0 ? 1 - r.of.fetched / r.of.lookups : 0); },
           kInText},
          {"fetched_bytes", "read", [](auto& r) { return Bytes(r.of.fetched_bytes); }},
          {"written_bytes", "written", [](auto& r) { return Bytes(r.of.written_bytes); }}};
}

/// Adds tiers as counted and as expected of these steps.
void add_tiers(const runtime::RunResult& r, const RunTraffic& expected, Report& report) {
  if (r.tiers.empty()) {
    return;
  }
  const Columns<TierRow> columns = tier_columns();
  const auto json = [&](const TierRow& row) {
    return table_of("", "", columns, std::vector{row}).json().front();
  };
  std::vector<TierRow> rows;
  for (const auto& [tier, use] : r.tiers) {
    const auto at = expected.tiers.find(tier);
    rows.push_back({tier, use.step});
    rows.push_back({"  predicted", at == expected.tiers.end() ? RowTraffic{} : at->second});
    report.item("tiers", {{"tier", tier},
                          {"allocated_bytes", use.allocated.base()},
                          {"counted", json(*(rows.end() - 2))},
                          {"predicted", json(rows.back())}});
  }
  report.line();
  report.add(table_of("tiers", "", columns, rows, kInText));
}

DataTable steps_table(const std::vector<runtime::StepRecord>& steps, Visibility look) {
  using S = runtime::StepRecord;
  return table_of(
      "steps", "",
      Columns<S>{{"step", "", &S::step},
                 {"loss", "", [](auto& s) { return decimal(s.loss, 5); }},
                 {"time_s", "time", &S::time},
                 {"involuntary_switches", "", &S::involuntary_switches, kInJson | kInCsv}},
      steps, look);
}

/// The steps people read: about ten of them, and the last.
std::vector<runtime::StepRecord> some_of(const std::vector<runtime::StepRecord>& steps) {
  std::vector<runtime::StepRecord> some;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (i % std::max<std::size_t>(1, steps.size() / 10) == 0 || i + 1 == steps.size()) {
      some.push_back(steps[i]);
    }
  }
  return some;
}

}  // namespace

Report run_report(const Job& job, const runtime::RunResult& r, const RunTraffic& predicted,
                  OutputFormat format) {
  const std::vector<double> t = seconds_of(r);
  const double median = quantile_of(t, 0.5), p5 = quantile_of(t, 0.05), p95 = quantile_of(t, 0.95);
  Report report(format);
  report.add(steps_table(some_of(r.steps), kInText));
  report.fact("job", [&] { return Json::parse(config::job_to_json(job)); }).fact("ranks", r.ranks);
  report.fact("step_time_s",
              {{"median", median}, {"p5", p5}, {"p95", p95}, {"mean", mean_step(t)}});
  report.line(fmt::format(
      "\n{} on {} ranks: median {} per step (p5 {}, p95 {}), {} steps after {} of warm-up",
      job.workload.name, r.ranks, human(seconds(median)), human(seconds(p5)), human(seconds(p95)),
      r.steps.size(), r.warmup.size()));
  if (job.sync_interval > 1) {
    report.line(fmt::format("mean {} per step: replicas are synchronised every {} steps",
                            human(seconds(mean_step(t))), job.sync_interval));
  }
  report.facts(
      {{"allocated_bytes", r.allocated.base()}, {"peak_resident_bytes", r.peak_resident.base()}});
  report.line(fmt::format("tensors {} on the fullest rank, process {}", human(r.allocated),
                          human(r.peak_resident)));
  if (r.traffic) {
    add_traffic(*r.traffic, predicted.sent, report);
  }
  add_tiers(r, predicted, report);
  if (!r.attention.empty()) {
    report.fact("attention", {{"kernels", r.attention}});
  }
  if (!r.epilogues.kernels.empty()) {
    report.fact("epilogues", {{"kernels", r.epilogues.kernels}, {"reason", r.epilogues.reason}});
  }
  report.add(steps_table(r.steps, kInJson | kInCsv));
  return report;
}

}  // namespace stepcast::cli
