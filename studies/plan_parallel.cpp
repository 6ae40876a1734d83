#include "studies/plan_parallel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "models/cost_model.h"
#include "planner/parallel/fast_path.h"
#include "planner/parallel/parallel_for.h"
#include "studies/simulated_step.h"

namespace stepcast::studies {
namespace {

/// In the order of the closed form, and again of those that may be faster than their closed form.
constexpr std::size_t kMostSimulated = 48;
/// Of the former, where that order is rough.
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
    if (!found.best.empty()) {
      report_.lower_bound = found.best.front().seconds;
      simulate_and_prove(found);
    }
    report_.simulation_seconds = now() - searched;
    return std::move(report_);
  }

 private:
  [[nodiscard]] double now() const { return options_.clock ? options_.clock() : 0; }
  [[nodiscard]] bool late() const {
    return options_.time_limit && now() - begin_ > *options_.time_limit;
  }

  planner::ParallelSearchResult search(std::int64_t devices, std::optional<double> below = {}) {
    PlanRequest request = request_;
    request.job.devices = devices;
    planner::ParallelSearchOptions o;
    o.keep = std::max(kMostSimulated, options_.top + 1) + 1;
    if (below) {
      o.keep += kMostSimulated;  // some of them were simulated
      o.below = *below / (1 - kLeastTimeError);
    }
    o.capacity = report_.capacity;
    o.reserve = reserve_of(request.job.system.device).base();
    o.threads = options_.threads;
    o.shard = options_.shard;
    o.shards = options_.shards;
    if (options_.time_limit) {
      o.time_limit = std::max(0.0, *options_.time_limit - (now() - begin_));
    }
    o.clock = options_.clock;
    o.on_progress = below ? nullptr : options_.on_progress;
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
    std::size_t turn = 0;
    planner::ParallelCandidate candidate;
    std::optional<StepPrediction> prediction;  ///< of those likely to be shown
  };

  Simulated simulated(const planner::ParallelCandidate& c, std::size_t turn) const {
    const Job job = planner::applied(request_.job, c.point);
    if (turn < options_.top) {
      StepPrediction prediction = predict(job);
      const double seconds = prediction.iteration.base();
      return {seconds, turn, c, std::move(prediction)};
    }
    const SimulatedStep step = simulate_step(workloads::build_graph(job), model_);
    return {to_seconds(step.result.makespan).base(), turn, c, std::nullopt};
  }

  /// Simulates `list` in its order, in rounds, until the next one cannot be among the plans to show
  /// or `most` are done.
  void simulate(const std::vector<planner::ParallelCandidate>& list, std::size_t most) {
    std::size_t done = 0;
    std::size_t reach = std::min(steps_.empty() ? options_.top : kRound, most);
    most = std::min(most, list.size());
    reach = std::min(reach, most);
    while (done < reach && (steps_.empty() || !late())) {
      const std::size_t from = steps_.size();
      steps_.resize(from + reach - done);
      planner::parallel_for(reach - done, options_.threads, [&](std::size_t, std::size_t i) {
        if (from + i == 0 || !late()) {
          steps_[from + i] = simulated(list[done + i], from + i);
        }
      });
      done = reach;
      while (reach < most && reach < done + kRound && in_reach(list[reach])) {
        ++reach;
      }
    }
    std::erase_if(steps_, [](const Simulated& s) { return std::isinf(s.seconds); });
  }

  /// Seconds of the last plan to show, of those simulated.
  [[nodiscard]] double last_shown() const {
    std::vector<double> sorted;
    std::transform(steps_.begin(), steps_.end(), std::back_inserter(sorted),
                   [](const Simulated& s) { return s.seconds; });
    std::sort(sorted.begin(), sorted.end());
    return sorted[std::min(options_.top, sorted.size()) - 1];
  }
  /// Can a plan be among those to show, that takes at least so long?
  [[nodiscard]] bool in_reach(const planner::ParallelCandidate& c) const {
    return c.seconds * (1 - kLeastTimeError) <= last_shown();
  }
  [[nodiscard]] bool was_simulated(const planner::ParallelCandidate& c) const {
    return std::any_of(steps_.begin(), steps_.end(),
                       [&c](const Simulated& s) { return s.candidate.point == c.point; });
  }

  /// The fastest in closed form, then every plan that its least time does not put behind them.
  void simulate_and_prove(const planner::ParallelSearchResult& found) {
    const bool rough = report_.counts.rough > 0;
    if (options_.shard == 0) {
      simulate(found.best, std::max(rough ? kRoughSimulated : kMostSimulated, options_.top));
    }
    report_.cut = report_.cut || late();
    // Where the closed form bounds the simulator it has said it all, if the next one is too slow.
    const std::size_t done = steps_.size();
    const bool known_behind = options_.shard == 0 && !rough && !report_.cut &&
                              (done == found.best.size() || !in_reach(found.best[done]));
    const double shown = shared(known_behind || report_.cut ? 0
                                : options_.shard == 0       ? last_shown()
                                                            : 0);
    planner::ParallelSearchResult below;
    if (shown > 0) {
      below = search(request_.job.devices, shown);
      report_.cut = report_.cut || below.cut;
    }
    if (options_.shard != 0) {
      return;
    }
    if (rough && !below.best.empty()) {
      report_.lower_bound = std::min(report_.lower_bound, below.best.front().seconds);
    }
    std::vector<planner::ParallelCandidate> rest;
    std::copy_if(below.best.begin(), below.best.end(), std::back_inserter(rest),
                 [this](const planner::ParallelCandidate& c) { return !was_simulated(c); });
    const auto known = static_cast<std::int64_t>(below.best.size() - rest.size());
    if (!rest.empty()) {
      simulate(rest, kMostSimulated);
    }
    report_.cut = report_.cut || late();
    report_.unproven =
        below.counts.evaluated - known -
        std::count_if(rest.begin(), rest.end(), [this](const planner::ParallelCandidate& c) {
          return was_simulated(c) || !in_reach(c);
        });
    report_.simulated = steps_.size();
    report_.proven = report_.unproven == 0 && !report_.cut;
    report_.others_at_least = last_shown() / (1 - kLeastTimeError);
    for (const planner::ParallelCandidate& c : rest) {
      if (!was_simulated(c)) {
        report_.others_at_least = std::min(report_.others_at_least, c.seconds);
        break;
      }
    }
    rank();
  }

  /// One number for all processes: that of the first.
  [[nodiscard]] double shared(double seconds) const {
    if (!options_.gather) {
      return seconds;
    }
    planner::ParallelSearchResult own;
    own.best.push_back({{}, seconds});
    return options_.gather(own).front().best.front().seconds;
  }

  void rank() {
    if (late()) {  // the rest of the report of the others would take a simulation each
      std::erase_if(steps_, [](const Simulated& s) { return !s.prediction; });
    }
    std::sort(steps_.begin(), steps_.end(), [](const Simulated& a, const Simulated& b) {
      return std::pair(a.seconds, a.turn) < std::pair(b.seconds, b.turn);
    });
    steps_.resize(std::min(steps_.size(), options_.top));
    report_.plans.resize(steps_.size());
    planner::parallel_for(steps_.size(), options_.threads, [&](std::size_t, std::size_t i) {
      const planner::ParallelCandidate& c = steps_[i].candidate;
      RankedParallelPlan& plan = report_.plans[i];
      plan.job = planner::applied(request_.job, c.point);
      plan.point = c.point;
      plan.closed_form = planner::FastPath(request_.job, model_).forecast(c.point).seconds;
      plan.bytes = c.bytes;
      plan.prediction = steps_[i].prediction ? std::move(*steps_[i].prediction) : predict(plan.job);
    });
    report_.lower_bound =
        std::min(report_.lower_bound, report_.plans.front().prediction.iteration.base());
  }

  const PlanRequest& request_;
  const ParallelPlanOptions& options_;
  models::CostModel model_;
  double begin_ = 0;
  std::vector<Simulated> steps_;
  ParallelPlanReport report_;
};

}  // namespace

ParallelPlanReport plan_parallel(const PlanRequest& request, const ParallelPlanOptions& options) {
  return Planning(request, options).run();
}

}  // namespace stepcast::studies
