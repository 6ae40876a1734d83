#include "validation/published/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "core/config/paces.h"
#include "core/error.h"
#include "core/job/efficiency.h"
#include "models/cost_model.h"
#include "simulator/reports/memory_ledger.h"
#include "studies/fit/error_statistics.h"
#include "studies/predict/context_choice.h"
#include "studies/predict/predict.h"
#include "studies/predict/simulated_step.h"
#include "workloads/build_graph.h"

namespace stepcast::validation {
namespace {

double simulated(const ExecutionGraph& graph, simulator::StepCosts costs, double issue) {
  if (issue > 0) {
    costs.issue = static_cast<std::int64_t>(std::llround(issue * 1e12));
  }
  return to_seconds(simulator::simulate(graph, costs, {}).makespan).base();
}

/// Part of a prediction that does not depend on the measurement: rows with equal settings share it.
PublishedPrediction predict_job(Job job, double host_issue, bool facts) {
  job = studies::settled(std::move(job));
  const ExecutionGraph graph = workloads::build_graph(job);
  const models::CostModel model(job.system, job.calibration);
  const simulator::StepCosts costs = simulator::price(graph, model);
  const Device& device = job.system.device;
  PublishedPrediction p;
  p.in_range = costs.in_range;
  p.kernels = simulated(graph, costs, 0);
  if (host_issue > 0) {
    for (const double scale : PublishedPrediction::kHostScales) {
      p.curve.push_back(simulated(graph, costs, scale * host_issue));
    }
  } else {
    p.curve = {p.kernels};
  }
  if (facts) {
    const models::CostModel plain(job.system, {Calibration::Kind::kNone, 1});
    p.facts = simulated(graph, simulator::price(graph, plain), 0);
  }
  p.flops = workloads::step_flops(job).model.base();
  p.peak = device.peak_of(job.formats.compute).value_or(FlopsPerSecond{}).base();
  p.memory = simulator::fullest_ledger(graph, device).total().base();
  p.capacity = device.memory.base();
  p.over = simulator::memory_overestimate(device);
  p.memory_error = simulator::memory_error_of_runs(device);
  p.format = name_of(job.formats.compute);
  p.plan = name_of(*plan_family(job));
  p.family = name_of(*efficiency_family(job));
  return p;
}

struct Context {
  const config::PublishedNames& names;
  const config::Library& library;
  std::vector<Workload> shapes;
  config::Origins origins;
  bool facts = false;
};

PublishedPrediction predict_row(const PublishedRow& row, const Context& context) {
  PublishedPrediction p;
  try {
    p.skipped = not_modelled(row);
    if (!p.skipped.empty()) {
      return p;
    }
    return predict_job(job_of(row, context.names, context.library, context.shapes),
                       recipe_of(row, context.names).host_issue, context.facts);
  } catch (const InputError& e) {
    p.skipped = e.what();
    return p;
  }
}

/// The key under which a row's job is predicted; rows that cannot become a job stand alone.
std::string key_of(const PublishedRow& row, const Context& context) {
  std::string key;
  try {
    if (row.unusable.empty()) {
      for (const std::string& setting : settings_of(row, {context.names, context.shapes})) {
        key += setting + "\n";
      }
      key += row.sequence_parallel ? "said" : "";
    }
  } catch (const InputError&) {
    key.clear();
  }
  return key.empty() ? row.place : key;
}

const PublishedRow* first_of_same(const std::vector<PublishedRow>& rows, std::size_t at) {
  for (std::size_t i = 0; i < at; ++i) {
    const bool same = rows[i].id == rows[at].id || rows[i].same_configuration(rows[at]);
    if (rows[i].seconds > 0 && rows[i].seconds == rows[at].seconds && same) {
      return &rows[i];
    }
  }
  return nullptr;
}

/// The prediction of a row's job, with what is the row's alone.
PublishedPrediction joined(const PublishedRow& row, PublishedPrediction p, const Context& context) {
  p.row = &row;
  const config::FrameworkRecipe recipe = recipe_of(row, context.names);
  p.source = recipe.source;
  p.framework = recipe.framework != nullptr ? recipe.framework->product : "";
  p.maker = context.origins.maker_of(p.framework);
  p.release = release_of(row, context.names);
  const auto device = device_of(row, context.names);
  p.device = device ? device->device : row.gpu;
  p.generation = context.origins.generation_of(p.device);
  if (!p.skipped.empty()) {
    return p;
  }
  const auto measured = measured_seconds(row, p.flops, p.peak);
  if (!measured) {
    p.skipped = fmt::format("{}: neither a time nor a rate is published", row.place);
    return p;
  }
  const double devices = static_cast<double>(row.devices);
  p.measured = *measured;
  p.device_seconds = p.measured * devices / p.flops;
  p.at_peak = p.peak > 0 ? p.flops / (devices * p.peak) : 0;
  return p;
}

}  // namespace

double PublishedPrediction::seconds(double scalar) const {
  if (!scales_host()) {
    return curve.front() * scalar;
  }
  std::size_t i = 1;
  while (i + 1 < curve.size() && kHostScales[i] < scalar) {
    ++i;
  }
  const double share = (scalar - kHostScales[i - 1]) / (kHostScales[i] - kHostScales[i - 1]);
  return std::max(curve[i - 1] + share * (curve[i] - curve[i - 1]), curve.front() * 0.5);
}

std::vector<PublishedPrediction> predict_published(const std::vector<PublishedRow>& rows,
                                                   const config::PublishedNames& names,
                                                   const config::Library& library,
                                                   const PublishedPredictOptions& options) {
  const Context context{names, library, published_shapes(library), config::load_origins(library),
                        options.facts};
  std::map<std::string, std::size_t> index;
  std::vector<std::size_t> job_of_row;
  std::vector<const PublishedRow*> first;
  for (const PublishedRow& row : rows) {
    const auto [at, fresh] = index.emplace(
        not_modelled(row).empty() ? key_of(row, context) : not_modelled(row), first.size());
    if (fresh) {
      first.push_back(&row);
    }
    job_of_row.push_back(at->second);
  }
  std::vector<PublishedPrediction> jobs(first.size());
  std::atomic<std::size_t> next{0};
  std::mutex reporting;
  const auto work = [&] {
    for (std::size_t i = next++; i < jobs.size(); i = next++) {
      jobs[i] = predict_row(*first[i], context);
      if (options.progress) {
        const std::scoped_lock lock(reporting);
        options.progress(static_cast<double>(i + 1) / static_cast<double>(jobs.size()));
      }
    }
  };
  std::vector<std::future<void>> workers;
  for (int t = 1; t < options.threads; ++t) {
    workers.push_back(std::async(std::launch::async, work));
  }
  work();
  for (std::future<void>& worker : workers) {
    worker.get();
  }
  std::set<std::string> ids;
  for (const PublishedRow& row : rows) {
    ids.insert(row.id);
  }
  std::vector<PublishedPrediction> predictions;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    predictions.push_back(joined(rows[i], jobs[job_of_row[i]], context));
    PublishedPrediction& p = predictions.back();
    const std::string reason = not_modelled(rows[i]);
    const PublishedRow* same = first_of_same(rows, i);
    const bool again = same != nullptr || ids.contains(rows[i].duplicate_of);
    if (!reason.empty()) {
      p.left_out = reason;
      p.skipped = fmt::format("{}: {}", rows[i].place, reason);
    } else if (again) {
      p.left_out = "measurement listed twice";
      p.skipped = fmt::format("{}: lists the measurement of {} again", rows[i].place,
                              same != nullptr ? same->id : rows[i].duplicate_of);
    }
  }
  return predictions;
}

int PublishedPrediction::year() const {
  const std::size_t digits = release.find_first_not_of("0123456789");
  const int number = digits == 0 || release.empty() ? 0 : std::stoi(release.substr(0, digits));
  return number == 0 ? 0 : number < 100 ? 2000 + number : number;
}

Predictions pointers(const std::vector<PublishedPrediction>& of) {
  Predictions all;
  for (const PublishedPrediction& p : of) {
    all.push_back(&p);
  }
  return all;
}

double published_scalar(const Predictions& of) {
  if (of.empty()) {
    return 1;
  }
  if (!of.front()->scales_host()) {
    std::vector<double> ratios;
    for (const PublishedPrediction* p : of) {
      ratios.push_back(std::log(p->measured / p->seconds(1)));
    }
    return std::exp(median_of(std::move(ratios)));
  }
  const auto distance = [&of](double scalar) {
    double sum = 0;
    for (const PublishedPrediction* p : of) {
      sum += std::abs(std::log(p->seconds(scalar) / p->measured));
    }
    return sum;
  };
  double best = 1;
  for (double scalar = 0.25; scalar <= 4; scalar *= 1.02) {
    best = distance(scalar) < distance(best) ? scalar : best;
  }
  return best;
}

}  // namespace stepcast::validation
