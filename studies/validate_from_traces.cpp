#include "studies/validate_from_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "core/config/config.h"
#include "core/error.h"
#include "models/collective_form.h"
#include "models/kernel_form.h"
#include "studies/calibrate.h"
#include "studies/linear_baseline.h"
#include "studies/predict.h"
#include "studies/recorded_run.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

/// An op as `spread_of` sees it.
struct OpPoint {
  double log_flops = 0, log_bytes = 0;
  double share = 0;  ///< of its job
};
using JobPoints = std::map<std::string, std::vector<OpPoint>>;  // by model key

/// By rule of thumb: how long a core takes, to a factor of some.
double rough_seconds(const Op& op) {
  return 1e-6 + op.flops.base() / 5e10 + (op.bytes_read + op.bytes_written).base() / 5e9;
}

JobPoints points_of(const ExecutionGraph& graph) {
  JobPoints points;
  double whole = 0;
  for (const Program& program : graph.programs) {
    for (const Call& call : program.calls) {
      for (const Op& op : program.ops_of(program.segments[call.segment])) {
        const std::string key = is_collective(op.kind)
                                    ? models::collective_keys(op.kind, op.format).front()
                                    : models::fitted_keys(op).front();
        const OpPoint point{std::log1p(op.flops.base()),
                            std::log1p((op.bytes_read + op.bytes_written).base()),
                            rough_seconds(op)};
        whole += point.share;
        points[key].push_back(point);
      }
    }
  }
  for (auto& [key, of_key] : points) {
    for (OpPoint& p : of_key) {
      p.share /= whole;
    }
  }
  return points;
}

/// For every op of `job` in order: distance to the nearest op of its key in `other`, weighted.
std::vector<double> distances(const JobPoints& job, const JobPoints& other) {
  constexpr double kNeverSeen = 8;
  std::vector<double> out;
  for (const auto& [key, points] : job) {
    const auto seen = other.find(key);
    for (const OpPoint& p : points) {
      double nearest = kNeverSeen;
      if (seen != other.end()) {
        for (const OpPoint& q : seen->second) {
          nearest = std::min(
              nearest, std::abs(p.log_flops - q.log_flops) + std::abs(p.log_bytes - q.log_bytes));
        }
      }
      out.push_back(nearest * p.share);
    }
  }
  return out;
}

/// Draws jobs of one family with all bounds in turn, none shorter than 0.2 ms or longer than 0.4 s
/// a step by rule of thumb.
std::vector<RuntimeCase> draw_jobs(CaseKind kind, std::size_t count, const System& system,
                                   std::int64_t ranks, Draw& draw,
                                   std::vector<ExecutionGraph>& graphs) {
  const std::size_t bounds = 4;
  std::vector<RuntimeCase> cases;
  for (std::size_t turn = 0; cases.size() < count; ++turn) {
    auto bound = static_cast<Bound>(turn % bounds);
    if (kind == CaseKind::kTransformer && bound == Bound::kEmbedding) {
      continue;  // transformers never are
    }
    for (int tries = 0; tries < 60; ++tries) {
      RuntimeCase c;
      c.kind = kind;
      c.bound = bound;
      try {
        c.job = draw_case(kind, bound, system, ranks, draw);
        ExecutionGraph graph = workloads::build_graph(c.job);
        const StepSample work = step_sample(graph, Seconds{});
        const double guess = 5e-5 + work.flops / 5e10 + work.bytes / 5e9;
        if (guess < 2e-4 || guess > 0.4) {
          continue;
        }
        c.predicted = guess;  // until there is a prediction
        graphs.push_back(std::move(graph));
        cases.push_back(std::move(c));
        break;
      } catch (const InputError&) {
        continue;  // does not split over these ranks
      }
    }
  }
  return cases;
}

void trace_job(const RuntimeCase& c, const ExecutionGraph& graph,
               const std::filesystem::path& folder, const FromTracesOptions& options,
               runtime::MpiSession& session) {
  runtime::RunOptions run;
  run.warmup = std::clamp<std::int64_t>(std::llround(0.05 / c.predicted), 4, 20);
  run.steps = std::clamp<std::int64_t>(std::llround(0.5 / c.predicted), 15, 60);
  run.seed = options.seed;
  run.real_time = true;
  run_traced(c.job, graph, run, session, folder, config::job_to_json(c.job), options.producer);
}

}  // namespace

std::vector<std::size_t> spread_of(const std::vector<ExecutionGraph>& jobs, std::size_t wanted) {
  const std::size_t n = jobs.size();
  STEPCAST_CHECK(wanted >= 1 && wanted <= n, "{} of {} jobs", wanted, n);
  std::vector<JobPoints> points;
  for (const ExecutionGraph& graph : jobs) {
    points.push_back(points_of(graph));
  }
  std::vector<std::vector<std::vector<double>>> far(n);  // [job][chosen][op]
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      far[i].push_back(distances(points[i], points[j]));
    }
  }
  // One more at a time, each time the one that helps most, then exchanges while any helps.
  const auto cost = [&](const std::vector<std::size_t>& chosen) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t op = 0; op < far[i][0].size(); ++op) {
        double nearest = std::numeric_limits<double>::infinity();
        for (const std::size_t j : chosen) {
          nearest = std::min(nearest, far[i][j][op]);
        }
        sum += nearest;
      }
    }
    return sum;
  };
  std::vector<std::size_t> chosen;
  double least = std::numeric_limits<double>::infinity();
  const auto try_at = [&](std::size_t position) {
    bool better = false;
    std::vector<std::size_t> next = chosen;
    for (std::size_t j = 0; j < n; ++j) {
      if (std::find(chosen.begin(), chosen.end(), j) != chosen.end()) {
        continue;
      }
      next[position] = j;
      const double c = cost(next);
      if (c < least) {
        least = c;
        chosen[position] = j;
        better = true;
      }
    }
    return better;
  };
  while (chosen.size() < wanted) {
    chosen.push_back(n);
    least = std::numeric_limits<double>::infinity();
    try_at(chosen.size() - 1);
  }
  for (bool better = true; better;) {
    better = false;
    for (std::size_t position = 0; position < wanted; ++position) {
      better = try_at(position) || better;
    }
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

FromTracesResult validate_from_traces(const FromTracesOptions& options,
                                      runtime::MpiSession& session) {
  FromTracesResult result;
  const System machine = local_machine(session);
  Draw draw(options.seed * 0x9e3779b97f4a7c15ULL + 0x7ace);
  const double jobs = static_cast<double>(2 * (options.traces + options.cases));
  double done = 0;
  const auto progress = [&](const std::string& what) {
    if (session.rank() == 0 && options.progress) {
      options.progress(done++ / jobs, what);
    }
  };
  std::vector<double> told;
  for (const CaseKind kind : {CaseKind::kDlrm, CaseKind::kTransformer}) {
    FromTracesFamily family;
    family.kind = kind;
    std::vector<ExecutionGraph> graphs;
    std::vector<RuntimeCase> drawn =
        draw_jobs(kind, options.traces + options.cases, machine, session.size(), draw, graphs);
    const std::vector<std::size_t> chosen = spread_of(graphs, options.traces);
    std::vector<std::filesystem::path> folders;
    for (const std::size_t i : chosen) {
      const RuntimeCase& c = drawn[i];
      progress("tracing " + c.job.workload.name);
      folders.push_back(options.folder /
                        fmt::format("{}-{}", kind == CaseKind::kDlrm ? "dlrm" : "transformer", i));
      family.traced.push_back(c.job.workload.name);
      trace_job(c, graphs[i], folders.back(), options, session);
    }
    if (session.rank() == 0) {
      family.fit = fit_traces(
          folders, {.device = "local-cpu-core", .system = "local-cpu", .library = options.library});
    }
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      if (std::find(chosen.begin(), chosen.end(), i) != chosen.end()) {
        continue;
      }
      RuntimeCase& c = drawn[i];
      c.predicted = c.linear = 0;
      if (session.rank() == 0) {
        c.job.system = family.fit.system;
        const StepPrediction p = predict(c.job, graphs[i]);
        c.predicted = p.iteration.base();
        c.in_range = p.in_calibrated_range;
        c.linear = linear_baseline(family.fit.system.device.fitted.at("baseline"),
                                   step_sample(graphs[i], seconds(1)))
                       .base();
      }
      told.push_back(c.predicted);
      result.cases.push_back(std::move(c));
    }
    result.families.push_back(std::move(family));
  }
  if (session.rank() == 0 && options.predicted) {
    options.predicted(result.cases);
  }
  told = session.maximum(told);  // how often a case runs follows from its prediction
  ValidateRuntimeOptions run;
  run.seed = options.seed;
  for (std::size_t i = 0; i < result.cases.size(); ++i) {
    RuntimeCase& c = result.cases[i];
    c.predicted = told[i];
    progress(c.job.workload.name);
    measure_case(c, run, session);
  }
  return result;
}

}  // namespace stepcast::studies
