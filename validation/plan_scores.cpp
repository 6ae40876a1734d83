#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "core/error.h"
#include "core/statistics.h"
#include "validation/plans.h"

namespace stepcast::validation {
namespace {

/// Medians of the odd rounds and of the even ones.
std::array<double, 2> halves_of(const std::vector<double>& rounds) {
  std::array<std::vector<double>, 2> halves;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    halves[i % 2].push_back(rounds[i]);
  }
  return {middle_of(halves[0]), middle_of(halves[1])};
}

double repeat_noise(const std::vector<double>& rounds) {
  const auto [odd, even] = halves_of(rounds);
  return rounds.size() < 2 ? 1 : std::abs(odd / even - 1);
}

template <typename Get>
std::size_t least(const std::vector<PlanRun>& plans, const Get& get) {
  return static_cast<std::size_t>(
      std::min_element(plans.begin(), plans.end(),
                       [&](const PlanRun& a, const PlanRun& b) { return get(a) < get(b); }) -
      plans.begin());
}

/// A choice of one plan per task; nullopt where the way has none.
using Choose = std::function<std::optional<std::size_t>(const std::vector<PlanRun>&)>;

class Tally {
 public:
  explicit Tally(std::string name) { score_.name = std::move(name); }
  void add(const TaskScore& task, double exact, double tied, double regret, double worst) {
    ++score_.n;
    exact_ += exact;
    agreed_ += task.halves_agree ? exact : 0;
    halves_agree_ += task.halves_agree ? 1 : 0;
    tied_ += tied;
    score_.mean_regret += regret;
    score_.worst_regret = std::max(score_.worst_regret, worst);
  }
  ChoiceScore score() && {
    const auto n = static_cast<double>(score_.n);
    score_.exact = wilson(exact_, n);
    score_.tied = wilson(tied_, n);
    score_.agreed = wilson(agreed_, halves_agree_);
    score_.mean_regret = score_.n > 0 ? score_.mean_regret / n : 0;
    return std::move(score_);
  }

 private:
  ChoiceScore score_;
  double exact_ = 0, tied_ = 0, agreed_ = 0, halves_agree_ = 0;
};

bool tied_with_best(const TaskScore& s, std::size_t plan) {
  return s.measured[plan] <= s.measured[s.best] * (1 + s.close_noise);
}

}  // namespace

TaskScore score_of(const std::vector<PlanRun>& plans, const TaskRules& rules) {
  STEPCAST_CHECK(!plans.empty(), "a task without plans");
  TaskScore s;
  std::vector<double> predicted, noises;
  for (const PlanRun& p : plans) {
    STEPCAST_CHECK(!p.rounds.empty(), "plan '{}' did not run", p.name);
    s.measured.push_back(middle_of(p.rounds));
    predicted.push_back(p.predicted);
    noises.push_back(repeat_noise(p.rounds));
  }
  s.noise = middle_of(noises);
  s.best = static_cast<std::size_t>(std::min_element(s.measured.begin(), s.measured.end()) -
                                    s.measured.begin());
  s.chosen = least(plans, [](const PlanRun& p) { return p.predicted; });
  const double best = s.measured[s.best];
  std::vector<double> close_noises;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    if (s.measured[p] <= best * (1 + rules.close)) {
      s.close.push_back(p);
      close_noises.push_back(noises[p]);
    }
  }
  s.close_noise = middle_of(close_noises);
  s.spread = middle_of(s.measured) / best - 1;
  s.rivals = static_cast<std::size_t>(
                 std::count_if(s.measured.begin(), s.measured.end(),
                               [&](double t) { return t <= best * (1 + rules.near); })) -
             1;
  s.exact = s.chosen == s.best;
  s.tied = tied_with_best(s, s.chosen);
  s.regret = s.measured[s.chosen] / best - 1;
  s.kendall_tau = studies::kendall_tau(predicted, s.measured);
  const auto best_of_half = [&](std::size_t half) {
    return least(plans, [half](const PlanRun& p) { return halves_of(p.rounds)[half]; });
  };
  s.halves_agree = std::all_of(plans.begin(), plans.end(),
                               [](const PlanRun& p) { return p.rounds.size() > 1; }) &&
                   best_of_half(0) == best_of_half(1);
  std::vector<double> errors;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    errors.push_back(plans[p].predicted / s.measured[p] - 1);
  }
  s.common_bias = middle_of(errors);
  for (double& e : errors) {
    e = std::abs(e - s.common_bias);
  }
  s.apart = middle_of(errors);
  if (s.noise > rules.noise) {
    s.skipped = fmt::format("repeats differ by {:.1f} %", s.noise * 100);
  } else if (s.spread < rules.spread) {
    s.skipped = fmt::format("the median plan is only {:.1f} % above the best", s.spread * 100);
  } else if (s.rivals < rules.rivals) {
    s.skipped = fmt::format("{} plans within {:.0f} % of the best", s.rivals, rules.near * 100);
  }
  return s;
}

Share wilson(double hits, double n) {
  if (n <= 0) {
    return {};
  }
  constexpr double z = 1.959963984540054;
  const double p = hits / n;
  const double middle = p + z * z / (2 * n);
  const double half = z * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  const double scale = 1 + z * z / n;
  return {p, std::max(0.0, (middle - half) / scale), std::min(1.0, (middle + half) / scale)};
}

PlanScores scores_of(const std::vector<PlanTask>& tasks) {
  PlanScores all;
  all.tasks = tasks.size();
  const std::pair<const char*, Choose> ways[] = {
      {"stepcast",
       [](const auto& plans) {
         return least(plans, [](const PlanRun& p) { return p.predicted; });
       }},
      {"bytes-only",
       [](const auto& plans) { return least(plans, [](const PlanRun& p) { return p.bytes; }); }},
      {"lookup-greedy", [](const auto& plans) -> std::optional<std::size_t> {
         const auto found = std::find_if(plans.begin(), plans.end(),
                                         [](const PlanRun& p) { return p.lookup_greedy; });
         return found == plans.end()
                    ? std::nullopt
                    : std::optional<std::size_t>(static_cast<std::size_t>(found - plans.begin()));
       }}};
  std::vector<Tally> tallies;
  for (const auto& way : ways) {
    tallies.emplace_back(way.first);
  }
  Tally random("random (expected)");
  Tally measured("measured in half of the rounds");
  std::vector<double> noises;
  std::vector<Row> rows;
  double tau = 0;
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const std::vector<PlanRun>& runs = tasks[t].runs;
    const TaskScore& s = tasks[t].score;
    if (s.skipped) {
      continue;
    }
    ++all.counted;
    all.agreed += s.halves_agree ? 1 : 0;
    tau += s.kendall_tau;
    all.common_bias += s.common_bias;
    all.common_error += std::abs(s.common_bias);
    all.apart += s.apart;
    noises.push_back(s.noise);
    const double best = s.measured[s.best];
    for (std::size_t w = 0; w < tallies.size(); ++w) {
      if (const auto plan = ways[w].second(runs)) {
        const double regret = s.measured[*plan] / best - 1;
        tallies[w].add(s, *plan == s.best, tied_with_best(s, *plan), regret, regret);
      }
    }
    double ties = 0, sum = 0, worst = 0;
    for (std::size_t p = 0; p < s.measured.size(); ++p) {
      ties += tied_with_best(s, p) ? 1 : 0;
      sum += s.measured[p] / best - 1;
      worst = std::max(worst, s.measured[p] / best - 1);
      rows.push_back({fmt::format("{} {}", t, runs[p].name), s.measured[p], runs[p].predicted});
    }
    const auto n = static_cast<double>(s.measured.size());
    random.add(s, 1 / n, ties / n, sum / n, worst);
    if (runs[0].rounds.size() > 1) {
      const auto even = [](const PlanRun& p) { return halves_of(p.rounds)[1]; };
      const PlanRun& chosen =
          runs[least(runs, [](const PlanRun& p) { return halves_of(p.rounds)[0]; })];
      const double regret = even(chosen) / even(runs[least(runs, even)]) - 1;
      measured.add(s, regret == 0 ? 1 : 0, regret <= s.close_noise ? 1 : 0, regret, regret);
    }
  }
  for (Tally& t : tallies) {
    all.choices.push_back(std::move(t).score());
  }
  all.choices.push_back(std::move(random).score());
  all.choices.push_back(std::move(measured).score());
  if (all.counted > 0) {
    const auto counted = static_cast<double>(all.counted);
    all.common_bias /= counted;
    all.common_error /= counted;
    all.apart /= counted;
    all.plans = group_of("plans", rows);
    all.plans.kendall_tau = tau / counted;
    all.plans.repeat_noise = middle_of(noises);
  }
  return all;
}

bool PlanScores::pass() const {
  const ChoiceScore& own = choices.at(0);
  return own.n > 0 && own.exact.value >= 0.90 && own.mean_regret <= 0.02 &&
         own.exact.low > choices.at(1).exact.value;
}

}  // namespace stepcast::validation
