// Commands say the same of the same job, and what they advise comes true when it is tried.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command_line.h"

using namespace stepcast::cli_test;
using nlohmann::json;

namespace {

double step(const json& prediction) { return prediction.at("iteration_time_s"); }

const Words kDense =
    "workload=llama3-70b system=dgx-h100 devices=64 batch.global=128 parallel.tensor=8 "
    "parallel.pipeline=4";

}  // namespace

TEST_CASE("predict, sweep, explain and show tell one step and one ledger", "[cli][agreement]") {
  const Words job = kDense + "parallel.zero=1";
  const json predicted = answer("predict", job);
  const json swept = answer("sweep", kDense, "--set parallel.zero=1,3").at("points");
  CHECK(swept.at(0).at("iteration_time_s") == predicted.at("iteration_time_s"));
  CHECK(swept.at(0).at("memory_bytes") == predicted.at("memory_bytes").at("total"));

  // Sharded weights too run on the framework that is taken where none is named.
  const json sharded = answer("predict", kDense + "parallel.zero=3");
  const json sides = answer("explain", job, "--with parallel.zero=3").at("summary");
  for (const auto& [side, of] : {std::pair{&sides.at(0), &predicted}, {&sides.at(1), &sharded}}) {
    CHECK(side->at("kernels_only_s").get<double>() ==
          Approx(of->at("kernels_only_s").get<double>()));
    CHECK(side->at("step_s").get<double>() == Approx(step(*of)));
  }
  CHECK(swept.at(1).at("iteration_time_s") == sharded.at("iteration_time_s"));

  const json ledger = answer("show", job, "--memory").at("ledger");
  double most = 0;
  for (const json& of_class : ledger) {
    most = std::max(most, of_class.at("total_bytes").get<double>());
  }
  CHECK(most == predicted.at("memory_bytes").at("total").get<double>());
}

TEST_CASE("explain names what a change of the usual stack changes, not its paces",
          "[cli][agreement]") {
  const json changes =
      answer("explain", kDense + "parallel.zero=1", "--with parallel.zero=3").at("changes");
  std::string all;
  for (const json& row : changes) {
    all += row.at("change").get<std::string>() + "\n";
  }
  CHECK_THAT(all, Catch::Contains("parallel.zero: 1 -> 3") && !Catch::Contains("transformer_step"));
}

TEST_CASE("a plan that is shown is predicted as it is shown", "[cli][agreement]") {
  // Expert ranks bring what the framework does with them; tensor ranks without sequence parallelism
  // are not what the framework would do.
  const auto [set, more] = GENERATE(
      std::pair<Words, Words>{"workload=llama3-8b devices=8 batch.global=64 parallel.pipeline=1",
                              {}},
      std::pair<Words, Words>{"workload=llama3-8b devices=16 batch.global=64 parallel.tensor=2 "
                              "parallel.sequence_parallel=false parallel.zero=1",
                              {}},
      std::pair<Words, Words>{"workload=llama3-8b devices=16 batch.global=64 parallel.pipeline=1 "
                              "parallel.context=1",
                              "--for torchtitan"},
      std::pair<Words, Words>{"workload=mixtral-8x7b devices=32 batch.global=128 "
                              "batch.sequence=4096 parallel.tensor=1 parallel.zero=1 "
                              "parallel.pipeline=2",
                              {}});
  const Words job = "system=dgx-h100" + set;
  const json plans = answer("plan", job, more).at("plans");
  double before = 0;
  for (const json& plan : plans) {
    const double shown = plan.at("predicted_step_s");
    CAPTURE(plan.at("set").dump());
    CHECK(shown >= before);
    before = shown;
    const json typed = answer("predict", job + plan.at("set").get<std::vector<std::string>>());
    CHECK(step(typed) == Approx(shown).epsilon(1e-9));
    CHECK(typed.at("memory_bytes").at("total") == plan.at("memory_bytes").at("total"));
  }
}

TEST_CASE("the command of a fix, run as printed, does what it says", "[cli][agreement]") {
  const Words job = GENERATE(
      Words("workload=llama2-13b system=dgx-h100 devices=8 parallel.zero=0"),
      Words("workload=llama3-8b system=dgx-h100 devices=8 parallel.tensor=8 batch.sequence=131072 "
            "batch.global=8 parallel.zero=1"),
      // Ranks for its experts are what it lacks.
      Words("workload=mixtral-8x7b system=dgx-h100 devices=32 batch.global=128 parallel.zero=1 "
            "parallel.tensor=2"),
      Words("workload=deepseek-v3 system=gb200-nvl72 devices=256 batch.global=512 "
            "batch.sequence=8192 parallel.expert=64 parallel.pipeline=4 parallel.zero=1"),
      // No two changes are enough.
      Words("workload=llama3-405b system=dgx-h100 devices=512 batch.global=512 parallel.zero=1"),
      Words("workload=dit-7b system=dgx-b200 devices=64 parallel.tensor=1"));
  const Outcome text = call(with_sets("predict", job, {}));
  CHECK(text.code == 1);
  const std::size_t begin =
      text.out.find("\nfix: stepcast ") + std::string("\nfix: stepcast ").size();
  REQUIRE(begin < text.out.size());
  const json changed =
      answer(words_of(text.out.substr(begin, text.out.find("   (", begin) - begin)));

  const json fixes = answer("predict", job, "--allow-oom").at("fixes");
  REQUIRE_FALSE(fixes.empty());
  CHECK(step(changed) == Approx(fixes.at(0).at("step_s").get<double>()));
  CHECK(changed.at("memory_bytes").at("total") == fixes.at(0).at("memory_bytes"));
  for (const json& fix : fixes) {
    const json taken = answer("predict", job + fix.at("set").get<std::vector<std::string>>());
    CHECK(taken.at("fits").get<bool>());
    CHECK(step(taken) == Approx(fix.at("step_s").get<double>()));
  }
}

TEST_CASE("a fix says anew the options that it changes, however they were typed",
          "[cli][agreement]") {
  for (const char* typed : {"--zero 0", "--zero=0", "--set zero=0", "--set=parallel.zero=0"}) {
    const Outcome text = call(Words("llama3-8b -n64") + typed);
    INFO(text.out << text.err);
    CHECK(text.code == 1);
    CHECK_THAT(text.out, Catch::Contains("\nfix: stepcast llama3-8b -n64 --zero 2   ("));
  }
  CHECK(answer("predict", "workload=llama3-8b", "-n64 --zero 2").at("fits").get<bool>());
}

TEST_CASE("what plan says for predict, run as printed, has the step of plan 1",
          "[cli][agreement]") {
  const Words job = "mixtral-8x7b -n 32 --gbs 128 --seq 4k";
  const Words words = "plan" + job + "--pp 2 --tp 1 --zero 1";
  const std::string text = call(words).out;
  const json best = answer(words).at("plans").at(0);
  const std::string begin = "\nPlan 1 in `predict`: ";
  const std::size_t at = text.find(begin);
  REQUIRE(at != std::string::npos);
  std::string rest;  // to the end of the paragraph: further lines are indented
  for (std::size_t i = at + begin.size(); i < text.size(); ++i) {
    if (text[i] != '\n') {
      rest += text[i];
    } else if (text.compare(i, 3, "\n  ") == 0) {
      i += 2;
      rest += ' ';
    } else {
      break;
    }
  }
  CHECK_THAT(rest, Catch::Contains("--ep "));  // options where keys have one
  const json typed = answer(job + words_of(rest));
  CHECK(step(typed) == Approx(best.at("predicted_step_s").get<double>()));
  CHECK(typed.at("warnings") == best.at("warnings"));
}

TEST_CASE("a chosen plan has one step in predict, sweep and explain", "[cli][agreement]") {
  const Words job = "workload=llama3-8b system=dgx-h100 batch.global=64";
  const json first = answer("predict", job);
  CHECK(first.at("plan_chosen").get<bool>());
  CHECK(first.at("plans_tried").get<int>() <= 50);
  const auto set = first.at("set").get<std::vector<std::string>>();
  const json typed = answer("predict", job + set);
  CHECK_FALSE(typed.at("plan_chosen").get<bool>());
  CHECK(step(typed) == step(first));
  const json swept = answer("sweep", job, "--set devices=8,16").at("points");
  CHECK(swept.at(0).at("iteration_time_s") == first.at("iteration_time_s"));
  CHECK(swept.at(0).at("chosen") == first.at("set"));
  const json sides = answer("explain", job, "--with parallel.zero=3").at("summary");
  CHECK(sides.at(0).at("step_s").get<double>() == Approx(step(first)));
  const json other = answer("predict", job + set + "parallel.zero=3");
  CHECK(sides.at(1).at("step_s").get<double>() == Approx(step(other)));
}

TEST_CASE("the scalar of one measured step takes the prediction there", "[cli][agreement]") {
  const Words job =
      "workload=llama3-8b system=dgx-h100 devices=16 batch.global=64 parallel.zero=1 "
      "parallel.tensor=2";
  const double measured = 4.5;
  const json first = answer("predict", job, "--measured 4.5s");
  CHECK(first.at("measured").at("error").get<double>() == Approx(step(first) / measured - 1));
  const double scale = first.at("measured").at("calibration_scale");
  const json scaled = answer("predict", job + Words{"calibration.scale=" + std::to_string(scale)});
  CHECK(step(scaled) == Approx(measured).epsilon(1e-3));
}

TEST_CASE("no overlap taken away makes a step shorter", "[cli][agreement]") {
  const Words job = kDense + "parallel.zero=1";
  const double all = step(answer("predict", job));
  for (const char* overlap : {"data", "tensor", "tensor_products", "pipeline", "parameters"}) {
    INFO(overlap);
    const auto without =
        answer("predict", job + Words{std::string("parallel.overlap.") + overlap + "=false"});
    CHECK(without.at("framework") == "megatron-core");
    CHECK(step(without) >= all * (1 - 1e-6));
  }
}

TEST_CASE("decoding takes all sequences of a replica at once", "[cli][agreement]") {
  const Words job =
      "workload=llama3-70b system=dgx-h100 devices=16 batch.global=64 phase=decode cached=4096 "
      "parallel.tensor=8";
  const json usual = answer("predict", job);
  CHECK(usual.at("job").at("batch").at("sequence") == 1);
  CHECK(usual.at("job").at("batch").at("micro") == 32);  // of 64 on two replicas
  CHECK(step(usual) < step(answer("predict", job + "batch.micro=1")));
}
