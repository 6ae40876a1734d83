// Fits of everything that rows of recorded steps can tell.
#include <algorithm>
#include <map>

#include "studies/fit/error_statistics.h"
#include "studies/fit/fit_few.h"
#include "studies/fit_rows.h"
#include "studies/run/core_speed.h"

namespace stepcast::studies {
namespace {

void append(std::vector<double>& to, const std::vector<double>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

/// The third of the jobs with the shortest steps: there the host's part matters, and nothing large
/// has pushed its code and data out of the caches between two ops.
std::vector<const FitRows::HostOfJob*> jobs_of_short_steps(const FitRows& rows) {
  std::vector<const FitRows::HostOfJob*> jobs;
  for (const FitRows::HostOfJob& h : rows.hosts) {
    jobs.push_back(&h);
  }
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const auto* a, const auto* b) { return a->step_seconds < b->step_seconds; });
  jobs.resize((jobs.size() + 2) / 3);
  return jobs;
}

FittedModels fit_host_of(const FitRows& rows, const models::FitOptions& options) {
  models::MeasuredHost medians;
  std::map<std::string, std::vector<double>> all;
  for (const FitRows::HostOfJob* job : jobs_of_short_steps(rows)) {
    append(medians.issue, job->medians.issue);
    append(medians.dispatch, job->medians.dispatch);
    append(medians.step, job->medians.step);
    append(all["issue"], job->all.issue);
    append(all["dispatch"], job->all.dispatch);
    append(all["step"], job->all.step);
  }
  FittedModels models = models::fit_host(medians, options);
  FittedModel& host = models.at("host");
  for (const auto& [name, samples] : all) {
    if (!samples.empty()) {
      host.constants[name + "_p5"] = quantile_of(samples, 0.05);
      host.constants[name + "_p50"] = quantile_of(samples, 0.5);
      host.constants[name + "_p95"] = quantile_of(samples, 0.95);
    }
  }
  return models;
}

}  // namespace

void set_measured_rates(System& system, const FitRows& rows) {
  double flops = 1e9;
  std::vector<double> rates;
  for (const models::MeasuredOp& m : rows.ops) {
    if (m.op->kind == OpKind::kGemm) {
      flops = std::max(flops, m.op->flops.base() / m.time.base());
    } else if (class_of(m.op->kind) == OpClass::kMemoryBound &&
               (m.op->bytes_read + m.op->bytes_written).base() > 4e6) {
      rates.push_back((m.op->bytes_read + m.op->bytes_written).base() / m.time.base());
    }
  }
  system.device.peak[Format::kFp32] = FlopsPerSecond(flops);
  system.device.bandwidth = BytesPerSecond(rates.empty() ? 5e9 : median_of(rates));
  set_measured_links(system, rows);
}

void set_measured_links(System& system, const FitRows& rows) {
  std::vector<double> links;
  double latency = 1e-3;
  for (const models::MeasuredCollective& c : rows.collectives) {
    if (c.bytes > 1e6 && c.group.size > 1) {
      links.push_back(c.bytes / c.time.base());
    }
    latency = c.group.size > 1 ? std::min(latency, c.time.base()) : latency;
  }
  if (links.empty()) {
    double best = 0;
    for (const models::MeasuredCollective& c : rows.collectives) {
      best = c.group.size > 1 ? std::max(best, c.bytes / c.time.base()) : best;
    }
    if (best > 0) {
      links.push_back(best);
    }
  }
  if (!links.empty()) {
    system.fabric[0].bandwidth = BytesPerSecond(median_of(links));
  }
  system.fabric[0].latency = seconds(latency);
}

void fit_steps(System& system, const FitRows& rows, const models::FitOptions& given) {
  models::FitOptions options = given;
  if (system.host.shares_core) {
    // Rows of a few jobs stand close together in size. What they leave open is as in the other
    // kinds, and as on any core: an e-fold of a constant counts as much as one row missed by 0.3.
    options.pooled = true;
    options.pull = 0.3;
    options.fewest_places = models::kMinimumRows;
  }
  system.device.fitted = models::fit_kernels(system.device, rows.ops, options);
  system.fitted = models::fit_collectives(
      system, rows.collectives, system.host.shares_core ? "collective.knee" : "collective.fabric",
      options);
  fit_few(system, rows, options);
  system.device.fitted.merge(fit_host_of(rows, options));
  if (!rows.core_probes.empty()) {
    system.device.fitted[kCoreProbeModel] = core_probe_model(rows.core_probes, options.source);
  }
  system.device.fitted["baseline"] = fit_linear_baseline(rows.steps, options.source);
}

}  // namespace stepcast::studies
