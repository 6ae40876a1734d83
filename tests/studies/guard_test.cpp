// A guard must neither sleep nor cry wolf. Repeat recordings are drawn here: whole steps of the
// recordings in traces/recorded, with the noise between runs that repeats of them showed; every
// alarm is counted.
#include "studies/guard/guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <iostream>
#include <random>

#include "core/config/baseline.h"
#include "core/error.h"
#include "core/statistics.h"
#include "traces/native/native_trace.h"

using namespace stepcast;
using studies::GuardSamples;

namespace {

GuardSamples recorded(const std::string& name) {
  return studies::samples_of(traces::measured_run(
      traces::read_native(std::string(STEPCAST_SOURCE_DIR) + "/traces/recorded/" + name)));
}

/// Noise of one run beside another of the same program, as shares.
struct Noise {
  double common = 0.03;  ///< clock rate, neighbours: all ops alike
  double op = 0.005;     ///< placement of one op's memory in one process
};

/// Width by which draws of few values are smeared, of their logarithms: 0.9 spread n^(-1/5)
/// (B. W. Silverman, Density Estimation, 1986, section 3.4). Eight steps drawn as they are would
/// give medians that jump from one to the next.
double bandwidth_of(const std::vector<double>& values) {
  std::vector<double> logs;
  for (const double v : values) {
    logs.push_back(std::log(std::max(v, 1e-9)));
  }
  const double spread = (quantile_of(logs, 0.84) - quantile_of(logs, 0.16)) / 2;
  return 0.9 * spread * std::pow(static_cast<double>(values.size()), -0.2);
}

/// One recording of `steps` steps, drawn from those of `source`.
GuardSamples repeat(const GuardSamples& source, std::size_t steps, const Noise& noise,
                    std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  GuardSamples run{.ranks = source.ranks, .ops = source.ops, .step = {}, .host = {}, .exposed = {}};
  const double common = std::exp(noise.common * normal(random));
  std::vector<double> of_op, smear;
  for (const GuardSamples::Op& op : source.ops) {
    smear.push_back(bandwidth_of(op.seconds));
  }
  for (GuardSamples::Op& op : run.ops) {
    op.seconds.clear(), op.launches.clear(), op.bytes.clear();
    of_op.push_back(common * std::exp(noise.op * normal(random)));
  }
  for (std::size_t s = 0; s < steps; ++s) {
    const std::size_t drawn = random() % source.step.size();
    for (std::size_t o = 0; o < run.ops.size(); ++o) {
      run.ops[o].seconds.push_back(source.ops[o].seconds[drawn] * of_op[o] *
                                   std::exp(smear[o] * normal(random)));
      run.ops[o].launches.push_back(source.ops[o].launches[drawn]);
      run.ops[o].bytes.push_back(source.ops[o].bytes[drawn]);
    }
    run.step.push_back(source.step[drawn] * common);
    run.host.push_back(source.host[drawn] * common);
    run.exposed.push_back(source.exposed[drawn] * common);
  }
  return run;
}

std::vector<GuardSamples> repeats(std::size_t runs, const GuardSamples& source, std::size_t steps,
                                  const Noise& noise, std::mt19937_64& random) {
  std::vector<GuardSamples> all;
  for (std::size_t r = 0; r < runs; ++r) {
    all.push_back(repeat(source, steps, noise, random));
  }
  return all;
}

/// One op takes `factor` times as long; the step is longer by as much.
void slow_down(GuardSamples& run, const std::string& name, Phase phase, double factor) {
  for (GuardSamples::Op& op : run.ops) {
    if (op.name == name && op.phase == phase) {
      for (std::size_t s = 0; s < op.seconds.size(); ++s) {
        run.step[s] += op.seconds[s] * (factor - 1);
        op.seconds[s] *= factor;
      }
    }
  }
}

studies::GuardResult judged(const Baseline& before, const std::vector<GuardSamples>& runs) {
  return studies::guard(before, studies::make_baseline(runs, before.version, &before));
}

bool regressed(const studies::GuardResult& result) {
  return result.verdict() == studies::GuardResult::Verdict::kRegressed;
}

bool same_op(const studies::GuardedTime& t, const BaselineOp& op) {
  return t.name == op.name && t.kind == name_of(op.kind) && t.phase == name_of(op.phase);
}

/// Ops alike, with steps that scatter by `spread`.
GuardSamples alike(std::size_t ops, std::size_t steps, double spread, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  GuardSamples run;
  run.ranks = 1;
  run.step.assign(steps, 0);
  run.host.assign(steps, 0);
  run.exposed.assign(steps, 0);
  for (std::size_t o = 0; o < ops; ++o) {
    GuardSamples::Op op;
    op.name = fmt::format("op{}", o);
    op.kind = OpKind::kGemm;
    op.kernel = KernelKind::kGemm;
    for (std::size_t s = 0; s < steps; ++s) {
      op.seconds.push_back(1e-3 * std::exp(spread * normal(random)));
      op.launches.push_back(1);
      op.bytes.push_back(0);
      run.step[s] += op.seconds.back();
    }
    run.ops.push_back(std::move(op));
  }
  return run;
}

}  // namespace

TEST_CASE("the guard finds every 5 % slowdown and takes repeats for repeats", "[studies][guard]") {
  // Four ranks shared two cores when they were recorded: their steps scatter so much that it takes
  // more of them, and that some ops stay out of reach, as the guard says itself. Those are counted
  // apart.
  struct Set {
    const char* name;
    std::size_t steps;
    int rounds;
  };
  constexpr Set kSets[] = {
      {"dlrm-2", 250, 20}, {"dlrm-4", 2000, 8}, {"gpt-2", 250, 20}, {"gpt-4", 1000, 12}};
  constexpr std::size_t kRuns = 10, kNew = 3;
  constexpr int kRepeats = 10;
  std::mt19937_64 random(20261121);
  int compared = 0, alarms = 0, mutations = 0, caught = 0, first = 0;
  for (const auto& [name, steps, rounds] : kSets) {
    const GuardSamples source = recorded(name);
    int here = 0, found = 0, out_of_reach = 0;
    for (int round = 0; round < rounds; ++round) {
      const Baseline before =
          studies::make_baseline(repeats(kRuns, source, steps, {}, random), "test");
      for (int i = 0; i < kRepeats; ++i) {
        ++compared;
        alarms += regressed(judged(before, repeats(kNew, source, steps, {}, random))) ? 1 : 0;
      }
      const std::vector<GuardSamples> now = repeats(kNew, source, steps, {}, random);
      const studies::GuardResult quiet = judged(before, now);
      for (const BaselineOp& op : before.ops) {
        if (op.small) {
          continue;
        }
        if (source.ranks > 2 &&
            std::any_of(quiet.times.begin(), quiet.times.end(),
                        [&op](const auto& t) { return same_op(t, op) && t.detects > 0.05; })) {
          ++out_of_reach;
          continue;
        }
        std::vector<GuardSamples> slower = now;
        for (GuardSamples& run : slower) {
          slow_down(run, op.name, op.phase, 1.05);
        }
        const studies::GuardResult result = judged(before, slower);
        ++here;
        for (const studies::GuardedTime& t : result.times) {
          found += same_op(t, op) && t.regressed ? 1 : 0;
        }
        first += result.times.front().regressed && same_op(result.times.front(), op) ? 1 : 0;
      }
    }
    std::cout << fmt::format(
        "guard: {}, runs of {} steps: {} of {} slowdowns by 5 % caught, {} said to be out of "
        "reach\n",
        name, steps, found, here, out_of_reach);
    CHECK(out_of_reach <= here / 2);
    CHECK(found >= 0.95 * here);
    mutations += here;
    caught += found;
  }
  std::cout << fmt::format(
      "guard: {} of {} caught ({:.1f} %), {} ranked first; {} alarms in {} repeats ({:.2f} %)\n",
      caught, mutations, 100.0 * caught / mutations, first, alarms, compared,
      100.0 * alarms / compared);
  CHECK(compared == 60 * kRepeats);
  CHECK(mutations > 1000);
  CHECK(first >= 0.95 * mutations);
  CHECK(alarms <= 0.01 * compared);
}

TEST_CASE("the slowdown that a guard promises to see is seen", "[studies][guard]") {
  std::mt19937_64 random(7);
  std::cout << "guard: 20 ops, 10 runs against 3; smallest slowdown seen in 95 % of cases\n";
  double before_that = 0;
  for (const double spread : {0.01, 0.03, 0.1, 0.3}) {
    const auto runs = [&](std::size_t n) {
      std::vector<GuardSamples> all;
      for (std::size_t r = 0; r < n; ++r) {
        all.push_back(alike(20, 100, spread, random));
      }
      return all;
    };
    double promised = 0;
    int seen = 0, alarms = 0;
    constexpr int kRounds = 60;
    for (int i = 0; i < kRounds; ++i) {
      const Baseline before = studies::make_baseline(runs(10), "test");
      std::vector<GuardSamples> now = runs(3);
      const studies::GuardResult quiet = judged(before, now);
      alarms += regressed(quiet) ? 1 : 0;
      double detects = 0;
      for (const studies::GuardedTime& t : quiet.times) {
        detects = t.name == "op3" ? t.detects : detects;
      }
      promised += detects / kRounds;
      for (GuardSamples& run : now) {
        slow_down(run, "op3", Phase::kForward, 1 + detects);
      }
      const studies::GuardResult slow = judged(before, now);
      seen += slow.times.front().regressed && slow.times.front().name == "op3" ? 1 : 0;
    }
    std::cout << fmt::format("guard:   steps scatter by {:4.1f} %: {:4.1f} %; seen {} of {}\n",
                             100 * spread, 100 * promised, seen, kRounds);
    CHECK(seen >= 54);  // 57 expected, standard deviation 1.7
    CHECK(alarms <= 1);
    CHECK(promised > before_that);
    before_that = promised;
  }
}

TEST_CASE("structure is guarded apart from time", "[studies][guard]") {
  const GuardSamples source = recorded("dlrm-2");
  std::mt19937_64 random(3);
  const Baseline before = studies::make_baseline(repeats(5, source, 40, {}, random), "test");
  const auto changes = [&](auto&& change) {
    std::vector<GuardSamples> now{repeat(source, 40, {}, random)};
    change(now.front());
    const studies::GuardResult result = judged(before, now);
    std::vector<std::string> what;
    for (const studies::StructureChange& s : result.structure) {
      what.push_back(s.what + " " + s.name);
    }
    CHECK(regressed(result) == !what.empty());
    return what;
  };
  using Names = std::vector<std::string>;
  CHECK(changes([](GuardSamples&) {}).empty());
  const std::string op = source.ops.front().name;
  CHECK(changes([](GuardSamples& r) { r.ops.erase(r.ops.begin()); }) == Names{"op is gone " + op});
  CHECK(changes([](GuardSamples& r) {
          r.ops.push_back(r.ops.front());
          r.ops.back().name = "fresh";
          for (double& s : r.ops.back().seconds) {
            s = 1e-9;
          }
        }) == Names{"new op fresh"});
  CHECK(changes([](GuardSamples& r) {
          for (double& n : r.ops.front().launches) {
            n += 1;
          }
        }) == Names{"launches " + op});
  CHECK(changes([](GuardSamples& r) {
          for (GuardSamples::Op& o : r.ops) {
            for (double& b : o.bytes) {
              b *= o.kind == OpKind::kAllReduce ? 2 : 1;
            }
          }
        }) == Names{"collective bytes bucket.0.all_reduce"});
  CHECK(changes([](GuardSamples& r) { r.ranks = 4; }) == Names{"ranks "});
}

TEST_CASE("where structure only warns, kinds of kernels are still judged", "[studies][guard]") {
  const GuardSamples source = recorded("dlrm-2");
  std::mt19937_64 random(8);
  const Noise quiet{.common = 0.002, .op = 0.002};
  const Baseline before = studies::make_baseline(repeats(8, source, 60, quiet, random), "test");
  std::vector<GuardSamples> now = repeats(3, source, 60, quiet, random);
  for (GuardSamples& run : now) {
    for (GuardSamples::Op& op : run.ops) {
      op.name += op.kernel == KernelKind::kGemm ? " tuned anew" : "";
    }
  }
  const auto judged_anew = [&] {
    return studies::guard(before, studies::make_baseline(now, before.version, &before),
                          {.structure_warns = true});
  };
  CHECK(regressed(judged(before, now)));
  const studies::GuardResult renamed = judged_anew();
  CHECK_FALSE(renamed.structure.empty());
  CHECK_FALSE(regressed(renamed));
  CHECK_FALSE(renamed.stale.empty());
  for (GuardSamples& run : now) {
    for (GuardSamples::Op& op : run.ops) {
      for (double& s : op.seconds) {
        s *= op.kernel == KernelKind::kGemm ? 1.3 : 1;
      }
    }
  }
  const studies::GuardResult slower = judged_anew();
  CHECK(regressed(slower));
  CHECK(std::any_of(slower.times.begin(), slower.times.end(), [](const auto& t) {
    return t.kind == "group" && t.name == "all gemm ops" && t.regressed;
  }));
}

TEST_CASE("a run of another structure is reported, whatever runs stand beside it",
          "[studies][guard]") {
  const GuardSamples source = recorded("dlrm-2");
  std::mt19937_64 random(4);
  const Baseline before = studies::make_baseline(repeats(5, source, 40, {}, random), "test");
  const GuardSamples good = repeat(source, 40, {}, random);
  GuardSamples pooled = repeat(source, 40, {}, random);
  for (GuardSamples::Op& op : pooled.ops) {
    for (double& b : op.bytes) {
      b *= op.kind == OpKind::kAllReduce ? 2 : 1;
    }
  }
  const auto structure = [&](const std::vector<GuardSamples>& runs,
                             const std::vector<std::string>& names) {
    const studies::GuardResult result = studies::guard(before, runs, names, before.version);
    CHECK(regressed(result) == !result.structure.empty());
    std::vector<std::string> lines;
    for (const studies::StructureChange& s : result.structure) {
      lines.push_back(s.what + " " + s.name + ": " + s.runs);
    }
    return lines;
  };
  using Lines = std::vector<std::string>;
  const std::string bytes = "collective bytes bucket.0.all_reduce: ";
  CHECK(structure({good, good}, {"a", "b"}).empty());
  CHECK(structure({good, pooled}, {"a", "b"}) == Lines{bytes + "b"});
  CHECK(structure({pooled, good}, {"b", "a"}) == Lines{bytes + "b"});
  CHECK(structure({pooled, pooled}, {"b", "c"}) == Lines{bytes});
  CHECK(structure({pooled}, {"b"}) == Lines{bytes});
  GuardSamples lacking = good;
  const std::string first = lacking.ops.front().name;
  lacking.ops.erase(lacking.ops.begin());
  CHECK(structure({lacking, good}, {"b", "a"}) == Lines{"op is gone " + first + ": b"});
  // Another number of ranks explains every other difference.
  GuardSamples alone = good;
  alone.ranks = 1;
  alone.ops.resize(2);
  const studies::GuardResult ranks =
      studies::guard(before, std::vector{alone}, std::vector<std::string>{"b"}, before.version);
  REQUIRE(ranks.structure.size() == 1);
  CHECK(ranks.structure[0].what == "ranks");
  CHECK(ranks.times.empty());
  CHECK(regressed(ranks));
}

TEST_CASE("what slows everything is the step's regression, not an op's", "[studies][guard]") {
  std::mt19937_64 random(5);
  const GuardSamples source = recorded("gpt-2");
  const Noise quiet{.common = 0.002, .op = 0.002};
  const Baseline before = studies::make_baseline(repeats(8, source, 60, quiet, random), "test");
  std::vector<GuardSamples> now = repeats(2, source, 60, quiet, random);
  for (GuardSamples& run : now) {
    for (GuardSamples::Op& op : run.ops) {
      for (double& s : op.seconds) {
        s *= 1.2;
      }
    }
    for (double& s : run.step) {
      s *= 1.2;
    }
  }
  const studies::GuardResult result = judged(before, now);
  CHECK(result.common_change == Approx(0.2).margin(0.02));
  CHECK(regressed(result));
  for (const studies::GuardedTime& t : result.times) {
    CAPTURE(t.name);
    const bool of_step = t.name == "step" || t.name == "mean step" ||
                         t.name == "95th percentile of steps";
    CHECK(t.regressed ==
          (of_step || t.name == "all ops together" || t.name == "device time of all ops"));
  }
}

TEST_CASE("one recording is a baseline of blocks; a single step is none for times",
          "[studies][guard]") {
  const std::vector<GuardSamples> run{recorded("gpt-2")};
  const Baseline before = studies::make_baseline(run, "test");
  CHECK(before.blocks);
  CHECK(before.steps == std::vector<std::int64_t>{2, 2, 2, 2});
  CHECK_FALSE(regressed(judged(before, run)));
  std::vector<GuardSamples> slow = run;
  const BaselineOp& longest = before.ops.front();
  slow_down(slow.front(), longest.name, longest.phase, 2);
  CHECK(same_op(judged(before, slow).times.front(), longest));
  CHECK(regressed(judged(before, slow)));

  std::vector<GuardSamples> alone = run;
  for (auto* v : {&alone.front().step, &alone.front().host, &alone.front().exposed}) {
    v->resize(1);
  }
  for (GuardSamples::Op& op : alone.front().ops) {
    op.seconds.resize(1), op.launches.resize(1), op.bytes.resize(1);
  }
  const Baseline point = studies::make_baseline(alone, "test");
  CHECK_FALSE(judged(point, slow).judged_times);
  CHECK(judged(point, slow).verdict() == studies::GuardResult::Verdict::kCannotJudge);
  const auto by_tolerance = studies::guard(point, studies::make_baseline(slow, "test", &point),
                                           {.tolerance = 0.5, .without_spread = true});
  CHECK(by_tolerance.times.front().regressed);
}

TEST_CASE("a baseline file says what the baseline is", "[studies][guard]") {
  const std::vector<GuardSamples> run{recorded("dlrm-4")};
  const Baseline made = studies::make_baseline(run, "test 1");
  const std::string text = config::baseline_to_json(made);
  const Baseline read = config::read_baseline(config::text_source(text, "b.json"));
  CHECK(config::baseline_to_json(read) == text);
  CHECK(read.ops.size() == made.ops.size());
  CHECK(read.version == "test 1");
  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string t = text;
    t.replace(t.find(from), from.size(), to);
    return config::read_baseline(config::text_source(t, "b.json"));
  };
  CHECK_THROWS_WITH(broken("\"baseline\"", "\"plan\""), Catch::Contains("b.json: kind"));
  CHECK_THROWS_WITH(broken("\"all_to_all_v\"", "\"all_to_nobody\""), Catch::Contains("kind"));
  CHECK_THROWS_WITH(broken("\"blocks\"", "\"bloks\""), Catch::Contains("did you mean"));
  CHECK_THROWS_WITH(broken("[2, 2, 2, 2]", "[2, 2, 2]"), Catch::Contains("one per run, 3"));
  CHECK_THROWS_AS(studies::make_baseline({}, "x"), InputError);
  CHECK_THROWS_AS(
      studies::make_baseline(std::vector<GuardSamples>{run.front(), recorded("dlrm-2")}, "x"),
      InputError);
}
