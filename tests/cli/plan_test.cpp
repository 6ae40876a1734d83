// stepcast plan on a transformer, as a user calls it: text, JSON, csv, files, rejection.
#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

/// A space of some 70,000 plans: a fraction of a second. Nothing overlaps, so that it is proven.
Words plan(const Words& more, const std::string& devices = "8") {
  return with_sets("plan",
                   {"workload=megatron-8.3b", "system=dgx-a100-80gb", "batch.global=16",
                    "batch.sequence=1024", "stack=none", "devices=" + devices},
                   more);
}

}  // namespace

TEST_CASE("plan says what the job keeps out of the search", "[cli][plan]") {
  const Words set = "--set parallel.tensor=4 --set parallel.zero=1";
  CHECK_THAT(call(plan(set)).out, Contains("as the job says: tensor=4, zero=1\n"));
  CHECK(answer(plan(set)).at("held") == "tensor=4, zero=1");
}

TEST_CASE("plan --format json is one document with the fields that were promised", "[cli][plan]") {
  const json j = answer(plan("--top 3"));
  REQUIRE(j.at("plans").size() == 3);
  double before = 0;
  for (const json& p : j.at("plans")) {
    CHECK(p.at("kind") == "parallel");
    CHECK(p.at("memory_bytes").at("total").get<double>() > 0);
    const double step = p.at("predicted_step_s");
    CHECK(step >= before);
    CHECK(step >= p.at("lower_bound_s").get<double>());
    before = step;
    const json& split = p.at("job").at("parallel");
    CHECK(split.value("tensor", 1) * split.value("pipeline", 1) * split.value("data", 1) == 8);
  }
  const json& search = j.at("search");
  // Fates of all points add up to the space.
  CHECK(search.at("space").get<std::int64_t>() ==
        search.at("evaluations").get<std::int64_t>() + search.at("bounded").get<std::int64_t>() +
            search.at("weights_too_large").get<std::int64_t>() +
            search.at("memory_too_large").get<std::int64_t>());
  CHECK(search.at("seconds").get<double>() > 0);
  CHECK(j.at("bound").at("simulated") >= 3);
  // Nothing runs beside compute, so the closed form proves what it leaves out.
  CHECK(j.at("bound").at("unproven") == 0);
  CHECK(j.at("bound").at("proven") == true);
  for (const json& a : j.at("front")) {
    for (const json& b : j.at("front")) {
      CHECK_FALSE((a.at("step_s") < b.at("step_s") && a.at("memory_bytes") < b.at("memory_bytes") &&
                   a.at("devices") < b.at("devices")));
    }
  }
}

TEST_CASE("plan for a framework finds what it can run, with memory to spare", "[cli][plan]") {
  const Outcome text = succeeded(plan("--for torchtitan --set workload.activation=swiglu"));
  CHECK_THAT(text.out, Contains("plans that torchtitan cannot run"));
  const json j = answer(plan("--top 5 --for megatron --memory-headroom 50%"));
  for (const json& p : j.at("plans")) {
    CHECK(p.at("plan").at("schedule") == "1f1b");
    CHECK(p.at("memory_bytes").at("total").get<double>() <= 0.5 * 80 * 1024 * 1024 * 1024);
  }
  rejected(plan("--for megatron --set workload.activation=geglu"), "workload.activation",
           "no argument for geglu");
  rejected(plan("--for torchtitan"), "workload.activation", "use swiglu");
  rejected(plan("--for torchtitan --export megatron"), "--for", "name one framework");
  rejected(plan("--memory-headroom 120%"), "--memory-headroom", "a share such as 5%");
  rejected(plan("--memory-headroom 5"), "--memory-headroom", "unit");
  rejected(plan("--memory-headroom 0.1"), "--memory-headroom", "\"10%\" of the memory");
  rejected(plan("--memory-headroom '90 GiB'"), "--memory-headroom", "less than");
}

TEST_CASE("plan says which plans have no script, and which models before it searches",
          "[cli][plan]") {
  const auto said = [](const Words& more) {
    return call("plan llama3-8b -n 8 --pp 2 --gbs 64 --seq 4k --top 1" + more, "", 300).out;
  };
  CHECK_THAT(said("--set schedule=zb-h1"),
             Contains("No script in Megatron-LM: plan 1") && Contains("Megatron-LM runs 1f1b"));
  CHECK_THAT(said("--for megatron"), !Contains("No script"));
  // No plan fits one GPU: a search would say that.
  rejected("plan nemotron-h-47b -n 1 --export megatron", "does not write");
}

TEST_CASE("plans that are shown differ in kind, at the pace of a framework", "[cli][plan]") {
  const auto planned = [](const Words& more) {
    return answer("plan llama2-7b -n 16 --gbs 32 --seq 4k --top 5" + more);
  };
  const json usual = planned({});
  CHECK(usual.at("framework") == "megatron-core");
  std::set<std::string> kinds;
  for (const json& p : usual.at("plans")) {
    const json& plan = p.at("plan");
    json kind = json::array();
    for (const char* key : {"tensor", "context", "expert", "pipeline", "zero"}) {
      kind.push_back(plan.at(key));
    }
    kinds.insert(kind.dump());
    CHECK(p.at("job").at("parallel").at("overlap").at("data"));  // as that framework overlaps
  }
  CHECK(kinds.size() == usual.at("plans").size());
  const json titan = planned("--for torchtitan");
  CHECK(titan.at("framework") == "torchtitan");
  CHECK(titan.at("plans").at(0).at("plan").at("zero") == 3);
  // Settings of the job go before what the framework usually does.
  const json own = planned("--for megatron --set parallel.overlap.data=false");
  const json& overlap = own.at("plans").at(0).at("job").at("parallel").at("overlap");
  CHECK_FALSE(overlap.value("data", false));
  CHECK(overlap.at("pipeline") == true);
}

TEST_CASE("a plan that was written predicts as the plan said", "[cli][plan]") {
  const Folder folder;
  const std::string file = folder / "plan.json";
  const Outcome outcome = succeeded(plan({"--set", "stack=megatron-core", "--out", file, "--export",
                                          "megatron=" + (folder / "arguments.txt")}));
  CHECK_THAT(outcome.out, !Contains("--num-layers"));
  CHECK_THAT(text_of(folder / "arguments.txt"), Contains("--num-layers 72"));
  const json written = json::parse(text_of(file));
  const std::string job = folder.file("job.json", written.at("job").dump());
  const auto planned = Approx(written.at("predicted_step_s").get<double>()).epsilon(1e-9);
  CHECK(step_of({"predict", job}) == planned);
  succeeded({"explain", job, file, "--format", "json"});
  // The plan file and the arguments stand for the job themselves.
  CHECK(step_of({"predict", file}) == planned);
  CHECK(step_of({"predict", folder / "arguments.txt", "--set", "system=dgx-a100-80gb"}) == planned);
  rejected({"predict", file, "--set", "batch.micro=3"}, "plan.json: job");
  // Another system keeps the framework, and with it the pace.
  const json same = answer({"predict", file, "--set", "system=dgx-a100-80gb"});
  CHECK(same.at("framework") == "megatron-core");
  CHECK(same.at("iteration_time_s").get<double>() == planned);
}

TEST_CASE("a plan's time limit holds, and what was seen by then is returned", "[cli][plan]") {
  const json cut = answer("plan llama3-70b -n 512 --gbs 1024 --time-limit 0.2");
  CHECK_FALSE(cut.at("plans").empty());
  CHECK(cut.at("search").at("cut") == true);
}

TEST_CASE("what a job fixes stays fixed in every plan", "[cli][plan]") {
  const json j = answer(plan("--set parallel.tensor=4 --set parallel.zero=0 --set batch.micro=2"));
  REQUIRE(j.at("plans").size() == 3);
  for (const auto* list : {"plans", "front"}) {
    for (const json& entry : j.at(list)) {
      const json& p = entry.contains("plan") ? entry.at("plan") : entry;
      CHECK(p.at("tensor") == 4);
      CHECK(p.at("zero") == 0);
      CHECK(p.at("micro") == 2);
    }
  }
}

TEST_CASE("a loader does not hide the package it needs", "[cli][plan][export]") {
  rejected({"plan", STEPCAST_SOURCE_DIR "/docs/examples/dlrm.json", "--export",
            "torchrec=torchrec.json"},
           "would hide the package", "sharding.json");
}

TEST_CASE("where no plan fits, plan exits with 1 and says what is missing", "[cli][plan]") {
  const Outcome outcome = call(plan({}, "1"));
  CHECK(outcome.code == 1);
  CHECK(outcome.out.empty());
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  CHECK_THAT(outcome.err, Contains("no plan fits: the smallest needs") && Contains("79.2 GiB"));
  const Outcome as_json = call(plan("--format json", "1"));
  CHECK(as_json.code == 1);
  const json j = json::parse(as_json.out);
  CHECK(j.at("plans").empty());
  CHECK_THAT(j.at("infeasible").get<std::string>(), Contains("no plan fits"));
  // Weights alone fit here and activations do not: what is needed is beyond what there is.
  const Outcome full =
      call("plan llama3-8b -n 8 --mbs 3 --gbs 24 --zero 3 --tp 1 --pp 1 --cp 1 --recompute none");
  const std::string needs = "smallest needs ";
  const std::size_t at = full.err.find(needs);
  REQUIRE(at != std::string::npos);
  CHECK(std::stod(full.err.substr(at + needs.size())) > 79.1);
  CHECK_THAT(full.err, Contains("may use 75.1 GiB of 79.1 GiB (--memory-headroom 0 uses all)"));
  CHECK_THAT(call(plan("--memory-headroom 0", "1")).err, Contains("and a device has 79.2 GiB"));
}

TEST_CASE("plan searches what a job fixes of every strategy", "[cli][plan]") {
  const auto best = [](const std::string& setting) {
    return answer(plan({"--set", setting, "--top", "1"})).at("plans").at(0);
  };
  CHECK(best("parallel.context=2").at("plan").at("context") == 2);
  const json hybrid = best(R"(parallel.zero={"stage": 3, "level": "nvlink"})");
  CHECK(hybrid.at("plan").at("zero") == json({{"stage", 3}, {"level", "nvlink"}}));
  CHECK(hybrid.at("job").at("parallel").at("zero").at("level") == "nvlink");
}

TEST_CASE("plan refuses what it cannot search", "[cli][plan][malformed]") {
  rejected(plan("--set parallel.tensor=3"), "parallel.tensor", "3 does not divide 8 devices");
  rejected(plan("--set parallel.tensr=2"), "parallel.tensr", "tensor");
  rejected(plan({"--set", "parallel.zero={\"stage\": 3, \"level\": \"rack\"}"}),
           "parallel.zero.level", "rack");
  rejected(plan("--export torchrec=x"), "--export", "megatron");
  rejected(plan("--export megatron="), "--export", "expected NAME or NAME=FILE");
  rejected(plan("--seed 3"), "--seed", "transformer");
  rejected(plan("--compare"), "--compare", "transformer");
  rejected(plan("--top 0"), "--top", "whole number");
  rejected(plan("--jobs 0"), "--jobs", "whole number");
  rejected(plan("--out /no-such-folder/plan.json"), "/no-such-folder/plan.json", "written");
  rejected("plan --set workload=rm1 --set system=dgx-h100 --front", "--front", "recommendation");
}
