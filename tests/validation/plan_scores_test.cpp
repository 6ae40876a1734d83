#include "validation/plans.h"

#include "tests/validation/suites.h"

using namespace stepcast::studies;
using namespace stepcast::validation;
using stepcast::validation::testing::figure;

namespace {

PlanRun run(const std::string& name, double predicted, std::vector<double> rounds,
            double bytes = 0) {
  PlanRun r;
  r.name = name;
  r.predicted = predicted;
  r.bytes = bytes;
  r.rounds = std::move(rounds);
  return r;
}

/// Six plans at 100, 101, 105, 108, 130 and 150; every round 0.5 % above or below in turn.
std::vector<PlanRun> task(const std::vector<double>& predicted) {
  const double times[] = {100, 101, 105, 108, 130, 150};
  std::vector<PlanRun> plans;
  for (std::size_t i = 0; i < 6; ++i) {
    const double t = times[i];
    plans.push_back(run(std::to_string(i), predicted[i],
                        {t * 1.005, t * 0.995, t * 1.005, t * 0.995}, static_cast<double>(6 - i)));
  }
  return plans;
}

PlanTask scored(const std::vector<PlanRun>& runs, const TaskRules& rules) {
  PlanTask task;
  task.runs = runs;
  task.score = score_of(runs, rules);
  return task;
}

}  // namespace

TEST_CASE("Wilson's interval by hand", "[studies][plans]") {
  // 9 of 10, z^2 = 3.8415: (0.9 + 0.19207 -+ 1.96 sqrt(0.009 + 0.0096037)) / 1.38415
  //   = (1.09207 -+ 0.26733) / 1.38415
  const Share s = wilson(9, 10);
  CHECK(s.value == Approx(0.9));
  CHECK(s.low == Approx(0.5958).epsilon(1e-3));
  CHECK(s.high == Approx(0.9821).epsilon(1e-3));
  // 10 of 10: low = 1 / (1 + z^2 / 10) = 1 / 1.38415
  CHECK(wilson(10, 10).low == Approx(0.72246).epsilon(1e-4));
  CHECK(wilson(10, 10).high == Approx(1));
  CHECK(wilson(0, 0).low == 0);
  CHECK(wilson(0, 0).high == 1);
}

TEST_CASE("a task's figures follow from its rounds", "[studies][plans]") {
  TaskRules rules;
  rules.spread = 0.05;
  const TaskScore s = score_of(task({9, 10, 11, 12, 13, 14}), rules);
  CHECK_FALSE(s.skipped);
  CHECK(s.noise == Approx(1.005 / 0.995 - 1));  // odd rounds against even ones
  CHECK(s.best == 0);
  CHECK(s.measured[4] == Approx(130));
  CHECK(s.spread == Approx(0.065));  // between 105 and 108
  CHECK(s.rivals == 3);              // 101, 105, 108
  CHECK(s.exact);
  CHECK(s.tied);
  CHECK(s.regret == Approx(0));
  CHECK(s.kendall_tau == Approx(1));
  CHECK(s.halves_agree);
  // Errors 9/100, 10/101, 11/105, 12/108, 13/130, 14/150, less one: in the middle 10/101 and
  // 13/130.
  CHECK(s.common_bias == Approx((10.0 / 101 + 13.0 / 130) / 2 - 1));
}

TEST_CASE("a plan that repeats cannot tell from the best is a tie, not exact", "[studies][plans]") {
  // Repeats differ by 1.005 %; 101 is 1 % above 100, 105 is 5 %.
  const TaskScore tie = score_of(task({10, 9, 11, 12, 13, 14}));
  CHECK_FALSE(tie.exact);
  CHECK(tie.tied);
  CHECK(tie.regret == Approx(0.01));
  const TaskScore wrong = score_of(task({10, 11, 9, 12, 13, 14}));
  CHECK_FALSE(wrong.exact);
  CHECK_FALSE(wrong.tied);
  CHECK(wrong.regret == Approx(0.05));
}

TEST_CASE("ties are judged by the noise of the plans close to the best", "[studies][plans]") {
  auto plans = task({10, 9, 11, 12, 13, 14});
  plans[0].rounds = {99.9, 100.1, 99.9, 100.1};
  plans[1].rounds = {100.9, 101.1, 100.9, 101.1};
  const TaskScore s = score_of(plans);  // 105 and more are not within 3 % of the best
  CHECK(s.close == std::vector<std::size_t>{0, 1});
  CHECK(s.noise == Approx(1.005 / 0.995 - 1));  // of all six
  CHECK(s.close_noise == Approx((0.2 / 100.1 + 0.2 / 101.1) / 2));
  CHECK_FALSE(s.tied);  // 1 % above the best, where longer measurement tells 0.2 % apart
}

TEST_CASE("tasks that say nothing do not count, with the reason", "[studies][plans]") {
  TaskRules strict;
  strict.noise = 0.005;
  CHECK(score_of(task({1, 2, 3, 4, 5, 6}), strict).skipped == "repeats differ by 1.0 %");
  TaskRules wide;
  wide.spread = 0.07;  // the median of 100 .. 150 is 106.5
  CHECK(score_of(task({1, 2, 3, 4, 5, 6}), wide).skipped ==
        "the median plan is only 6.5 % above the best");
  TaskRules close;
  close.spread = 0;
  close.rivals = 4;
  CHECK(score_of(task({1, 2, 3, 4, 5, 6}), close).skipped == "3 plans within 10 % of the best");
}

TEST_CASE("what half of the rounds choose is judged by the other half", "[studies][plans]") {
  TaskRules rules;
  rules.spread = 0.05;
  auto plans = task({9, 10, 11, 12, 13, 14});
  plans[0].rounds = {102, 99, 102, 99};  // odd rounds: 101 is below it; even ones: it is best
  plans[1].rounds = {101, 101, 101, 101};
  const std::vector<PlanTask> tasks{scored(plans, rules)};
  const std::vector<ChoiceScore> all = choices_of(tasks);
  const ChoiceScore& half = all.back();
  CHECK(half.n == 1);
  CHECK(half.exact.value == 0);
  CHECK(half.mean_regret == Approx(101.0 / 99 - 1));
  CHECK(figure(plans_suite(tasks).groups[0].more, "halves_agree") == 0);
  CHECK(half.agreed.high == 1);  // no task says anything
}

TEST_CASE("choices are compared on the tasks that count", "[studies][plans]") {
  TaskRules rules;
  rules.spread = 0.05;
  std::vector<std::vector<PlanRun>> runs{
      task({9, 10, 11, 12, 13, 14}), task({10, 9, 11, 12, 13, 14}), task({10, 11, 9, 12, 13, 14}),
      task({9, 10, 11, 12, 13, 14})};
  runs[0][4].also = {"lookup_greedy"};  // 130: 30 % regret
  for (PlanRun& p : runs[3]) {
    p.rounds = {100, 150, 100, 150};  // noisy: does not count
  }
  std::vector<PlanTask> tasks;
  for (const auto& of : runs) {
    tasks.push_back(scored(of, rules));
  }
  const std::vector<ChoiceScore> all = choices_of(tasks);
  const Suite suite = plans_suite(tasks);
  CHECK(figure(suite.groups[0].more, "tasks") == 4);
  CHECK(figure(suite.groups[0].more, "counted") == 3);
  const ChoiceScore& own = all[0];
  CHECK(own.n == 3);
  CHECK(own.exact.value == Approx(1.0 / 3));
  CHECK(own.tied.value == Approx(2.0 / 3));
  CHECK(own.mean_regret == Approx(0.06 / 3));
  CHECK(own.worst_regret == Approx(0.05));
  const ChoiceScore& bytes = all[1];  // least bytes: the slowest plan
  CHECK(bytes.exact.value == 0);
  CHECK(bytes.mean_regret == Approx(0.5));
  CHECK(all[2].n == 1);
  CHECK(all[2].mean_regret == Approx(0.3));
  const ChoiceScore& random = all[3];
  CHECK(random.exact.value == Approx(1.0 / 6));
  CHECK(random.tied.value == Approx(2.0 / 6));
  CHECK(random.mean_regret == Approx((0.01 + 0.05 + 0.08 + 0.3 + 0.5) / 6));
  // Odd rounds are 1 % longer for all plans alike: they choose what the even ones find best.
  const ChoiceScore& half = all[4];
  CHECK(half.n == 3);
  CHECK(half.exact.value == 1);
  CHECK(half.mean_regret == 0);
  CHECK(suite.groups[0].errors.n == 18);
  CHECK(suite.tables[0].rows.size() == 4);
  CHECK_FALSE(suite.pass);
}
