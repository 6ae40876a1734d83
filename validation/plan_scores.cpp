#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

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

namespace {

/// A choice in one task: shares of right ones, its loss.
struct Outcome {
  double exact = 0, tied = 0, regret = 0, worst = 0;
  bool agree = false;  ///< both halves know the best plan
};

ChoiceScore score_of(const char* name, const std::vector<Outcome>& all) {
  ChoiceScore s{.name = name, .n = all.size()};
  Outcome sum;
  double agreed = 0;
  double agree = 0;
  for (const Outcome& o : all) {
    sum.exact += o.exact;
    sum.tied += o.tied;
    sum.regret += o.regret;
    s.worst_regret = std::max(s.worst_regret, o.worst);
    agreed += o.agree ? o.exact : 0;
    agree += o.agree ? 1 : 0;
  }
  const auto n = static_cast<double>(s.n);
  s.exact = wilson(sum.exact, n);
  s.tied = wilson(sum.tied, n);
  s.agreed = wilson(agreed, agree);
  s.mean_regret = sum.regret / std::max(1.0, n);
  return s;
}

/// Plan `of` in a task; none where the way has none.
Outcome outcome(const TaskScore& s, std::size_t plan) {
  const double regret = s.measured[plan] / s.measured[s.best] - 1;
  return {plan == s.best ? 1.0 : 0, tied_with_best(s, plan) ? 1.0 : 0, regret, regret,
          s.halves_agree};
}

Outcome expected_at_random(const TaskScore& s) {
  Outcome mean{.agree = s.halves_agree};
  const auto n = static_cast<double>(s.measured.size());
  for (std::size_t p = 0; p < s.measured.size(); ++p) {
    const Outcome one = outcome(s, p);
    mean.tied += one.tied;
    mean.regret += one.regret;
    mean.worst = std::max(mean.worst, one.worst);
  }
  mean.exact = 1 / n;
  mean.tied /= n;
  mean.regret /= n;
  return mean;
}

/// Best of the odd rounds, judged by the even ones.
Outcome measured_in_half(const PlanTask& task) {
  const auto even = [](const PlanRun& p) { return halves_of(p.rounds)[1]; };
  const std::size_t chosen =
      least(task.runs, [](const PlanRun& p) { return halves_of(p.rounds)[0]; });
  const double regret = even(task.runs[chosen]) / even(task.runs[least(task.runs, even)]) - 1;
  return {regret == 0 ? 1.0 : 0, regret <= task.score.close_noise ? 1.0 : 0, regret, regret,
          task.score.halves_agree};
}

Figure share_of(std::string key, std::string title, double value) {
  return {std::move(key), std::move(title), value};
}
std::vector<Figure> figures_of(const ChoiceScore& c) {
  std::vector<Figure> figures{{"name", "choice by", c.name, Figure::As::kText},
                              {"n", "", static_cast<double>(c.n), Figure::As::kCount}};
  for (const auto& [key, title, share, minor] :
       {std::tuple{"exact_top_1", "exact top-1", c.exact, false},
        {"exact_where_halves_agree", "where halves agree", c.agreed, true},
        {"top_1_with_ties", "with ties", c.tied, true}}) {
    figures.push_back(share_of(std::string(key) + "/value", title, share.value));
    for (const auto& [end, word, limit] :
         {std::tuple{"/low", "from", share.low}, {"/high", "to", share.high}}) {
      figures.push_back(share_of(key + std::string(end), word, limit));
      figures.back().minor = minor;
    }
  }
  figures.push_back(share_of("mean_regret", "mean regret", c.mean_regret));
  figures.push_back(share_of("worst_regret", "worst regret", c.worst_regret));
  return figures;
}

std::vector<Figure> figures_of(std::size_t number, const PlanTask& task) {
  using As = Figure::As;
  const TaskScore& s = task.score;
  const std::string verdict = s.skipped ? "does not count: " + *s.skipped
                              : s.exact ? "right"
                              : s.tied  ? "tie"
                                        : "wrong";
  return {{"id", "task", static_cast<double>(number), As::kCount},
          {"job", "", task.job.workload.name, As::kText},
          {"chosen", "", task.runs[s.chosen].name, As::kText},
          {"best", "", task.runs[s.best].name, As::kText},
          {"exact", "", s.exact ? 1.0 : 0, As::kYes, true},
          {"tied", "", s.tied ? 1.0 : 0, As::kYes, true},
          {"halves_agree", "", s.halves_agree ? 1.0 : 0, As::kYes, true},
          {"common_bias", "", s.common_bias, As::kShare, true},
          {"regret", "", s.regret},
          {"kendall_tau", "tau", s.kendall_tau, As::kFactor, true},
          {"repeat_noise", "noise", s.noise},
          {"close_noise", "", s.close_noise, As::kShare, true},
          {"spread", "", s.spread, As::kShare, true},
          {"rivals", "", static_cast<double>(s.rivals), As::kCount, true},
          {"verdict", "", verdict, As::kText}};
}

}  // namespace

std::vector<ChoiceScore> choices_of(const std::vector<PlanTask>& tasks) {
  std::vector<Outcome> own, bytes, lookups, random, measured;
  for (const PlanTask& task : tasks) {
    const TaskScore& s = task.score;
    if (s.skipped || s.measured.empty()) {
      continue;
    }
    own.push_back(outcome(s, s.chosen));
    bytes.push_back(outcome(s, least(task.runs, [](const PlanRun& p) { return p.bytes; })));
    const auto greedy = std::find_if(task.runs.begin(), task.runs.end(),
                                     [](const PlanRun& p) { return p.called("lookup_greedy"); });
    if (greedy != task.runs.end()) {
      lookups.push_back(outcome(s, static_cast<std::size_t>(greedy - task.runs.begin())));
    }
    random.push_back(expected_at_random(s));
    if (task.runs[0].rounds.size() > 1) {
      measured.push_back(measured_in_half(task));
    }
  }
  return {score_of("stepcast", own), score_of("bytes-only", bytes),
          score_of("lookup-greedy", lookups), score_of("random (expected)", random),
          score_of("measured in half of the rounds", measured)};
}

Suite plans_suite(const std::vector<PlanTask>& tasks) {
  Suite suite{.name = "plans",
              .bound =
                  "exact top-1 >= 0.90 (strict), mean regret <= 0.02, interval above "
                  "bytes-only",
              .tables = {{"tasks", "tasks"}, {"choices", "choices"}}};
  std::vector<double> noises;
  double tau = 0, agreed = 0, common_bias = 0, common_error = 0, apart = 0;
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const PlanTask& task = tasks[t];
    const TaskScore& s = task.score;
    const bool ran = !s.measured.empty();
    for (std::size_t p = 0; p < task.runs.size(); ++p) {
      const PlanRun& run = task.runs[p];
      suite.rows.push_back(
          {.id = fmt::format("{} {}", t, run.name),
           .measured = ran ? s.measured[p] : 0,
           .predicted = run.predicted,
           .skipped = ran ? s.skipped : "did not run",
           .more = {{"kinds", "", kinds_of(run.plan), Figure::As::kText},
                    {"bytes", "", run.bytes, Figure::As::kCount},
                    {"rounds", "", fmt::format("{:.6g}", fmt::join(run.rounds, " ")),
                     Figure::As::kText, true}}});
    }
    if (ran) {
      suite.tables[0].rows.push_back({figures_of(t, task)});
    }
    if (ran && !s.skipped) {
      tau += s.kendall_tau;
      agreed += s.halves_agree ? 1 : 0;
      common_bias += s.common_bias;
      common_error += std::abs(s.common_bias);
      apart += s.apart;
      noises.push_back(s.noise);
    }
  }
  const std::vector<ChoiceScore> choices = choices_of(tasks);
  for (const ChoiceScore& c : choices) {
    suite.tables[1].rows.push_back({figures_of(c)});
  }
  const ChoiceScore& own = choices.front();
  Group plans = group_of("plans", suite.rows);
  const double n = std::max(1.0, static_cast<double>(noises.size()));
  plans.kendall_tau = tau / n;
  plans.regret = own.mean_regret;
  plans.repeat_noise = middle_of(noises);
  plans.more = {{"tasks", "tasks", static_cast<double>(tasks.size()), Figure::As::kCount},
                {"counted", "that count", static_cast<double>(noises.size()), Figure::As::kCount},
                {"halves_agree", "halves agree", agreed, Figure::As::kCount},
                {"common_bias", "bias common to a task", common_bias / n, Figure::As::kSigned},
                share_of("common_error", "its size", common_error / n),
                share_of("apart", "plans apart from it", apart / n)};
  suite.groups.push_back(std::move(plans));
  suite.pass = own.n > 0 && own.exact.value >= 0.90 && own.mean_regret <= 0.02 &&
               own.exact.low > choices[1].exact.value;
  suite.notes = {
      "a tie: measured above the best by no more than the repeat noise of the plans close to it"};
  return suite;
}

}  // namespace stepcast::validation
