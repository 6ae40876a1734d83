#include "validation/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "core/config/config.h"
#include "core/error.h"
#include "models/collectives/collective_form.h"
#include "models/kernels/kernel_form.h"
#include "studies/fit/calibrate.h"
#include "studies/fit/fit_traces.h"
#include "studies/fit/linear_baseline.h"
#include "studies/predict/predict.h"
#include "studies/run/recorded_run.h"
#include "workloads/build_graph.h"

namespace stepcast::validation {
namespace {

/// An op as `traces_for` sees it.
struct OpPoint {
  std::vector<double> at;  ///< coordinates of its model, reuse distance; of a collective the bytes
  double share = 0;        ///< of its job
};
using JobPoints = std::map<std::string, std::vector<OpPoint>>;  // by model key

/// By rule of thumb: how long a core takes, to a factor of some.
double rough_seconds(const Op& op) {
  return 1e-6 + op.flops.base() / 5e10 + (op.bytes_read + op.bytes_written).base() / 5e9;
}

double rough_step(const ExecutionGraph& graph) {
  const studies::StepSample work = studies::step_sample(graph, Seconds{});
  return 5e-5 + work.flops / 5e10 + work.bytes / 5e9;
}

JobPoints points_of(const ExecutionGraph& graph) {
  JobPoints points;
  std::map<const Op*, std::vector<double>> at;
  double whole = 0;
  for (const Program& program : graph.programs) {
    for (const Call& call : program.calls) {
      for (const Op& op : program.ops_of(program.segments[call.segment])) {
        const std::string key = is_collective(op.kind)
                                    ? models::collective_keys(op.kind, op.format).front()
                                    : models::fitted_keys(op).front();
        OpPoint point;
        point.share = rough_seconds(op);
        if (is_collective(op.kind)) {
          point.at = {std::log1p((op.bytes_read + op.bytes_written).base())};
        } else {
          auto known = at.find(&op);
          if (known == at.end()) {
            const models::OpFacts facts(program, op);
            known = at.emplace(&op, models::form_for(op, true).coordinates(facts)).first;
            double distance = 1;
            for (const models::OperandUse& use : facts.operands) {
              distance = std::max(distance, use.distance);
            }
            known->second.push_back(std::log(distance));
          }
          point.at = known->second;
        }
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

/// Adds for every op of `job` in order: distance to the nearest op of its key in `other`, weighted.
void add_distances(const JobPoints& job, const JobPoints& other, std::vector<double>& to) {
  constexpr double kNeverSeen = 8;
  const std::vector<OpPoint> none;
  for (const auto& [key, points] : job) {
    const auto at = other.find(key);
    const std::vector<OpPoint>& seen = at != other.end() ? at->second : none;
    for (const OpPoint& p : points) {
      double nearest = kNeverSeen;
      for (const OpPoint& q : seen) {
        nearest = std::min(
            nearest, std::inner_product(p.at.begin(), p.at.end(), q.at.begin(), 0.0, std::plus<>(),
                                        [](double x, double y) { return std::abs(x - y); }));
      }
      to.push_back(nearest * p.share);
    }
  }
}

/// Draws jobs of one family with all bounds in turn, none shorter than 0.2 ms or longer than 0.4 s
/// a step by rule of thumb, which stands in for the prediction at first.
RuntimeCases draw_jobs(studies::CaseKind kind, std::size_t count, const System& system,
                       std::int64_t ranks, studies::Draw& draw,
                       std::vector<ExecutionGraph>& graphs) {
  const std::size_t bounds = 4;
  RuntimeCases cases;
  for (std::size_t turn = 0; cases.size() < count; ++turn) {
    if (turn > 8 * (count + bounds)) {
      throw InputError("--ranks", fmt::format("{}: hardly any drawn job splits over them", ranks));
    }
    const auto bound = static_cast<studies::Bound>(turn % bounds);
    if (kind == studies::CaseKind::kTransformer && bound == studies::Bound::kEmbedding) {
      continue;  // transformers never are
    }
    for (int tries = 0; tries < 60; ++tries) {
      RuntimeCase c;
      c.kind = kind;
      c.bound = bound;
      try {
        c.job = studies::draw_case(kind, bound, system, ranks, draw);
        ExecutionGraph graph = workloads::build_graph(c.job);
        const double guess = rough_step(graph);
        if (guess < 2e-4 || guess > 0.4) {
          continue;
        }
        c.predicted = guess;
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
               const std::filesystem::path& folder, const ValidateRuntimeOptions& options,
               runtime::MpiSession& session) {
  runtime::RunOptions run;
  run.warmup = std::clamp<std::int64_t>(std::llround(0.05 / c.predicted), 4, 20);
  run.steps = std::clamp<std::int64_t>(std::llround(0.5 / c.predicted), 15, 60);
  run.seed = options.seed;
  run.real_time = true;
  studies::run_traced(
      c.job, graph, run, session,
      {.folder = folder, .job = config::job_to_json(c.job), .producer = options.producer});
}

}  // namespace

std::vector<std::size_t> traces_for(const std::vector<ExecutionGraph>& jobs,
                                    const std::vector<ExecutionGraph>& candidates,
                                    std::size_t wanted) {
  const std::size_t n = candidates.size();
  STEPCAST_CHECK(wanted >= 1 && wanted <= n, "{} of {} candidates", wanted, n);
  std::vector<JobPoints> wanted_points;
  for (const ExecutionGraph& graph : jobs) {
    wanted_points.push_back(points_of(graph));
  }
  std::vector<std::vector<double>> unseen(n);  // by candidate, of each op of all jobs
  for (std::size_t i = 0; i < n; ++i) {
    const JobPoints candidate = points_of(candidates[i]);
    for (const JobPoints& job : wanted_points) {
      add_distances(job, candidate, unseen[i]);
    }
  }
  const auto cost = [&](const std::vector<std::size_t>& chosen) {
    double sum = 0;
    for (std::size_t op = 0; op < unseen.front().size(); ++op) {
      double nearest = std::numeric_limits<double>::infinity();
      for (const std::size_t i : chosen) {
        nearest = std::min(nearest, unseen[i][op]);
      }
      sum += nearest;
    }
    return sum;
  };
  // One from each range of step lengths: the middle one first, then exchanges while any leaves less
  // unseen.
  std::vector<std::size_t> by_length(n);
  std::iota(by_length.begin(), by_length.end(), std::size_t{0});
  std::stable_sort(by_length.begin(), by_length.end(), [&](std::size_t a, std::size_t b) {
    return rough_step(candidates[a]) < rough_step(candidates[b]);
  });
  std::vector<std::size_t> chosen;
  for (std::size_t range = 0; range < wanted; ++range) {
    chosen.push_back(by_length[(2 * range + 1) * n / (2 * wanted)]);
  }
  double least = cost(chosen);
  for (bool better = true; better;) {
    better = false;
    for (std::size_t range = 0; range < wanted; ++range) {
      for (std::size_t at = range * n / wanted; at < (range + 1) * n / wanted; ++at) {
        std::vector<std::size_t> next = chosen;
        next[range] = by_length[at];
        if (const double c = cost(next); c < least) {
          least = c;
          chosen = next;
          better = true;
        }
      }
    }
  }
  return chosen;
}

FromTraces validate_from_traces(const ValidateRuntimeOptions& options,
                                runtime::MpiSession& session) {
  FromTraces result;
  const System machine = studies::local_machine(session);
  studies::Draw draw(studies::Draw(options.seed).bits() ^ 0x7ace);
  std::vector<double> told;
  for (const studies::CaseKind kind : {studies::CaseKind::kDlrm, studies::CaseKind::kTransformer}) {
    std::vector<ExecutionGraph> graphs, candidate_graphs;
    RuntimeCases drawn = draw_jobs(kind, options.cases, machine, session.size(), draw, graphs);
    const RuntimeCases candidates =
        draw_jobs(kind, options.candidates, machine, session.size(), draw, candidate_graphs);
    std::vector<std::filesystem::path> folders;
    std::vector<std::string> traced;
    for (const std::size_t i : traces_for(graphs, candidate_graphs, options.traced)) {
      const RuntimeCase& c = candidates[i];
      if (session.rank() == 0 && options.progress) {
        options.progress(0, "tracing " + c.job.workload.name);
      }
      folders.push_back(options.traces / fmt::format("{}-{}", name_of(kind), i));
      traced.push_back(c.job.workload.name);
      trace_job(c, candidate_graphs[i], folders.back(), options, session);
    }
    result.fitted.push_back(
        fmt::format("{} fitted on traces of: {}", name_of(kind), fmt::join(traced, "; ")));
    System fitted;
    session.rank_zero_does([&] {
      fitted = studies::fit_traces(
                   folders,
                   {.device = "local-cpu-core", .system = "local-cpu", .library = options.library})
                   .system;
    });
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      RuntimeCase& c = drawn[i];
      c.predicted = c.linear = 0;
      if (session.rank() == 0) {
        Job job = c.job;  // runs as drawn: its ranks must agree on the system, and this one is ours
        job.system = fitted;
        const studies::StepPrediction p = studies::predict(job, graphs[i]);
        c.predicted = p.iteration.base();
        c.in_range = p.all_in_range;
        c.linear = studies::linear_baseline(fitted.device.fitted.at("baseline"),
                                            studies::step_sample(graphs[i], seconds(1)))
                       .base();
      }
      told.push_back(c.predicted);
      result.cases.push_back(std::move(c));
    }
  }
  told = session.maximum(told);  // how often a case runs follows from its prediction
  for (std::size_t i = 0; i < told.size(); ++i) {
    result.cases[i].predicted = told[i];
  }
  measure_cases(result.cases, options, session, [&] { return from_traces_suite(result); });
  return result;
}

Suite from_traces_suite(const FromTraces& result) {
  Suite suite{
      .name = "runtime from traces", .bound = "mean <= 0.10", .pass = true, .notes = result.fitted};
  for (const studies::CaseKind kind : {studies::CaseKind::kDlrm, studies::CaseKind::kTransformer}) {
    const RuntimeCases cases = where(result.cases, [&](const auto& c) { return c.kind == kind; });
    for (const RuntimeCase& c : cases) {
      suite.rows.push_back(row_of(c, c.job.workload.name));
    }
    Group& group = suite.groups.emplace_back(
        group_of_cases(std::string(name_of(kind)), cases,
                       "linear regression on FLOPs and bytes of the same traces"));
    group.hold_to({.mean = 0.10});
    group.bound = suite.bound;
    suite.pass = suite.pass && group.pass;
  }
  return suite;
}

}  // namespace stepcast::validation
