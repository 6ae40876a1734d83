#include "studies/plan_parallel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "models/cost_model.h"
#include "planner/parallel/parallel_for.h"
#include "studies/simulated_step.h"

namespace stepcast::studies {
namespace {

constexpr std::size_t kMostSimulated = 48;
/// At least so many where the order of the closed form is rough.
constexpr std::size_t kRoughSimulated = 8;
/// Simulated at once: the best of them may put the rest out of reach.
constexpr std::size_t kRound = 8;

std::string fixed_text(const FixedPlan& fixed) {
  std::string text;
  const auto add = [&text](const char* key, const auto& value) {
    if (value) {
      text += fmt::format("{}{}={}", text.empty() ? "" : ", ", key, *value);
    }
  };
  add("tensor", fixed.tensor);
  add("context", fixed.context);
  add("expert", fixed.expert);
  add("pipeline", fixed.pipeline);
  add("data", fixed.data);
  add("virtual_stages", fixed.virtual_stages);
  add("micro", fixed.micro);
  add("sequence_parallel", fixed.sequence_parallel);
  add("zero", fixed.zero);
  if (fixed.schedule) {
    text += std::string(text.empty() ? "" : ", ") + "schedule";
  }
  if (fixed.recompute) {
    text += std::string(text.empty() ? "" : ", ") + "recompute";
  }
  return text;
}

class Planning {
 public:
  Planning(const PlanRequest& request, const ParallelPlanOptions& options)
      : request_(request), options_(options), model_(request.job.system, request.job.calibration) {}

  ParallelPlanReport run() {
    begin_ = now();
    const double begin = begin_;
    report_.job = request_.job;
    report_.capacity = request_.job.system.device.memory.base();
    const planner::ParallelSearchResult found = search(request_.job.devices);
    if (found.counts.space == 0) {
      const std::string fixed = fixed_text(request_.fixed);
      throw InputError(
          "parallel",
          fmt::format(
              "no legal plan of {} on {} devices with a global batch of {}{}; fix fewer keys, "
              "or change devices or batch.global",
              request_.job.workload.name, request_.job.devices, request_.job.batch.global,
              fixed.empty() ? ""
                            : fmt::format(" where {} {} fixed", fixed,
                                          fixed.find(',') == std::string::npos ? "is" : "are")));
    }
    report_.counts = found.counts;
    report_.cut = found.cut;
    report_.least_bytes = found.least_bytes;
    report_.front = found.front;
    report_.search_seconds = now() - begin;
    if (options_.fewer_devices) {
      add_fewer_devices();
      report_.fewer_devices_seconds = now() - begin - report_.search_seconds;
    }
    const double searched = now();
    if (!found.best.empty() && options_.shard == 0) {
      report_.lower_bound = found.best.front().seconds;
      simulate(found.best);
    }
    report_.simulation_seconds = now() - searched;
    return std::move(report_);
  }

 private:
  [[nodiscard]] double now() const { return options_.clock ? options_.clock() : 0; }
  [[nodiscard]] bool late() const {
    return options_.time_limit && now() - begin_ > *options_.time_limit;
  }

  planner::ParallelSearchResult search(std::int64_t devices) {
    PlanRequest request = request_;
    request.job.devices = devices;
    planner::ParallelSearchOptions o;
    o.keep = std::max(kMostSimulated, options_.top + 1) + 1;
    o.capacity = report_.capacity;
    o.reserve = reserve_of(request.job.system.device).base();
    o.threads = options_.threads;
    o.shard = options_.shard;
    o.shards = options_.shards;
    if (options_.time_limit) {
      o.time_limit = std::max(0.0, *options_.time_limit - (now() - begin_));
    }
    o.clock = options_.clock;
    o.on_progress = options_.on_progress;
    planner::ParallelSearchResult found = planner::search_parallel(request, model_, o);
    return options_.gather ? planner::merged(options_.gather(found), o.keep) : found;
  }

  /// Plans on fewer devices join the front where they need less memory than any that is faster;
  /// they always need fewer devices.
  void add_fewer_devices() {
    for (std::int64_t devices = request_.job.devices; devices % 2 == 0 && !late();) {
      devices /= 2;
      const planner::ParallelSearchResult found = search(devices);
      if (found.best.empty()) {
        return;
      }
      report_.front.insert(report_.front.end(), found.front.begin(), found.front.end());
    }
    const auto dominated = [this](const planner::ParallelCandidate& c) {
      return std::any_of(
          report_.front.begin(), report_.front.end(), [&c](const planner::ParallelCandidate& o) {
            const auto d = o.point.devices();
            return d < c.point.devices() && o.seconds <= c.seconds && o.bytes <= c.bytes;
          });
    };
    std::vector<planner::ParallelCandidate> front;
    std::copy_if(report_.front.begin(), report_.front.end(), std::back_inserter(front),
                 [&](const planner::ParallelCandidate& c) { return !dominated(c); });
    report_.front = std::move(front);
  }

  struct Simulated {
    double seconds = std::numeric_limits<double>::infinity();  ///< for want of time
    std::size_t candidate = 0;
    std::optional<StepPrediction> prediction;  ///< of those likely to be shown
  };

  Simulated simulated(const planner::ParallelCandidate& c, std::size_t candidate) const {
    const Job job = planner::applied(request_.job, c.point);
    if (candidate < options_.top) {
      StepPrediction prediction = predict(job);
      const double seconds = prediction.iteration.base();
      return {seconds, candidate, std::move(prediction)};
    }
    const SimulatedStep step = simulate_step(workloads::build_graph(job), model_);
    return {to_seconds(step.result.makespan).base(), candidate, std::nullopt};
  }

  /// In the order of the closed form, until the next one is too far behind to matter. A round takes
  /// all that the last of the best so far leaves in reach.
  void simulate(const std::vector<planner::ParallelCandidate>& best) {
    std::vector<Simulated> steps;
    const std::size_t most = std::min(best.size(), std::max(kMostSimulated, options_.top));
    const bool rough = report_.counts.rough > 0;
    std::size_t reach = std::min(most, std::max(options_.top, rough ? kRoughSimulated : 0));
    while (steps.size() < reach && (steps.empty() || !late())) {
      const std::size_t from = steps.size();
      steps.resize(reach);
      planner::parallel_for(reach - from, options_.threads, [&](std::size_t, std::size_t i) {
        if (from + i == 0 || !late()) {
          steps[from + i] = simulated(best[from + i], from + i);
        }
      });
      std::vector<double> sorted;
      std::transform(steps.begin(), steps.end(), std::back_inserter(sorted),
                     [](const Simulated& s) { return s.seconds; });
      std::sort(sorted.begin(), sorted.end());
      const double last = sorted[std::min(options_.top, sorted.size()) - 1];
      while (reach < most && reach < steps.size() + kRound &&
             best[reach].seconds * (1 - kClosedFormError) <= last) {
        ++reach;
      }
      report_.proven = reach == best.size() || best[reach].seconds * (1 - kClosedFormError) > last;
    }
    const std::size_t asked = steps.size();
    std::erase_if(steps, [](const Simulated& s) { return std::isinf(s.seconds); });
    report_.cut = report_.cut || steps.size() < asked || late();
    report_.simulated = steps.size();
    report_.others_at_least = steps.size() < best.size() ? best[steps.size()].seconds : 0;
    report_.rough =
        report_.counts.rough -
        std::count_if(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(steps.size()),
                      [](const planner::ParallelCandidate& c) { return c.rough; });
    report_.proven = report_.proven && report_.rough == 0 && !report_.cut;
    if (late()) {  // the rest of the report of the others would take a simulation each
      std::erase_if(steps, [](const Simulated& s) { return !s.prediction; });
    }
    std::sort(steps.begin(), steps.end(), [](const Simulated& a, const Simulated& b) {
      return std::pair(a.seconds, a.candidate) < std::pair(b.seconds, b.candidate);
    });
    steps.resize(std::min(steps.size(), options_.top));
    report_.plans.resize(steps.size());
    planner::parallel_for(steps.size(), options_.threads, [&](std::size_t, std::size_t i) {
      const planner::ParallelCandidate& c = best[steps[i].candidate];
      RankedParallelPlan& plan = report_.plans[i];
      plan.job = planner::applied(request_.job, c.point);
      plan.point = c.point;
      plan.closed_form = c.seconds;
      plan.bytes = c.bytes;
      plan.prediction = steps[i].prediction ? std::move(*steps[i].prediction) : predict(plan.job);
    });
    report_.lower_bound =
        std::min(report_.lower_bound, report_.plans.front().prediction.iteration.base());
  }

  const PlanRequest& request_;
  const ParallelPlanOptions& options_;
  models::CostModel model_;
  double begin_ = 0;
  ParallelPlanReport report_;
};

}  // namespace

ParallelPlanReport plan_parallel(const PlanRequest& request, const ParallelPlanOptions& options) {
  return Planning(request, options).run();
}

}  // namespace stepcast::studies
