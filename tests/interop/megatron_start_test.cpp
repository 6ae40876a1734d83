// Exported plans against what Megatron-LM itself checks before it starts.
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/job/framework_rules.h"
#include "interop/megatron/arguments.h"
#include "tests/planner/parallel_jobs.h"

namespace stepcast::interop {
namespace {

/// The arguments of a run, as its parser sees them.
class Run {
 public:
  Run(const MegatronArguments& exported, std::int64_t world) : world_(world) {
    for (const std::string& argument : exported.arguments) {
      const std::size_t space = std::min(argument.find(' '), argument.size());
      values_[argument.substr(2, space - 2)] =
          space < argument.size() ? argument.substr(space + 1) : "";
    }
    for (const std::string& command : exported.environment) {
      one_connection_ |= command == "export CUDA_DEVICE_MAX_CONNECTIONS=1";
    }
  }
  [[nodiscard]] bool has(const char* name) const { return values_.count(name) != 0; }
  [[nodiscard]] std::string text(const char* name) const {
    const auto it = values_.find(name);
    return it == values_.end() ? "" : it->second;
  }
  [[nodiscard]] std::int64_t number(const char* name, std::int64_t otherwise) const {
    return has(name) ? std::stoll(text(name)) : otherwise;
  }
  [[nodiscard]] std::int64_t tensor() const { return number("tensor-model-parallel-size", 1); }
  [[nodiscard]] std::int64_t pipeline() const { return number("pipeline-model-parallel-size", 1); }
  [[nodiscard]] std::int64_t context() const { return number("context-parallel-size", 1); }
  [[nodiscard]] std::int64_t expert() const { return number("expert-model-parallel-size", 1); }
  [[nodiscard]] std::int64_t world() const { return world_; }
  [[nodiscard]] bool fsdp() const { return has("use-megatron-fsdp"); }
  [[nodiscard]] bool one_connection() const { return one_connection_; }
  [[nodiscard]] std::int64_t chunks() const {
    if (has("pipeline-model-parallel-layout")) {
      const std::string layout = text("pipeline-model-parallel-layout");
      return (1 + std::count(layout.begin(), layout.end(), '|')) / pipeline();
    }
    return number("num-virtual-stages-per-pipeline-rank", 1);
  }

 private:
  std::map<std::string, std::string> values_;
  std::int64_t world_;
  bool one_connection_ = false;
};

struct Rule {
  const char* says;  ///< and where Megatron-LM checks it
  std::function<bool(const Run&)> holds;
};

/// validate_args: megatron/training/arguments.py; config: __post_init__ of megatron/core/
/// transformer/transformer_config.py. Restated from d98e8a64.
std::vector<Rule> rules() {
  return {
      {"validate_args: ranks are a multiple of tensor x pipeline x context",
       [](const Run& r) { return r.world() % (r.tensor() * r.pipeline() * r.context()) == 0; }},
      {"validate_args: gathers overlap only with the distributed optimizer or FSDP, and with "
       "overlapped reductions",
       [](const Run& r) {
         return !r.has("overlap-param-gather") ||
                ((r.has("use-distributed-optimizer") || r.fsdp()) && r.has("overlap-grad-reduce"));
       }},
      {"validate_args: chunks need two stages, and three where messages do not overlap",
       [](const Run& r) {
         return r.chunks() == 1 || r.pipeline() > (r.has("no-overlap-p2p-communication") ? 2 : 1);
       }},
      {"validate_args: one way to say how layers are dealt out",
       [](const Run& r) {
         return !(r.has("pipeline-model-parallel-layout") &&
                  r.has("num-virtual-stages-per-pipeline-rank"));
       }},
      {"validate_args: layers, with ends that count, are a multiple of the stages",
       [](const Run& r) {
         const std::int64_t layers = r.number("num-layers", 0) +
                                     (r.has("account-for-embedding-in-pipeline-split") ? 1 : 0) +
                                     (r.has("account-for-loss-in-pipeline-split") ? 1 : 0);
         return r.has("pipeline-model-parallel-layout") ||
                layers % (r.pipeline() * r.chunks()) == 0;
       }},
      {"validate_args: Megatron-FSDP writes fsdp_dtensor checkpoints",
       [](const Run& r) { return r.fsdp() == (r.text("ckpt-format") == "fsdp_dtensor"); }},
      {"validate_args: FSDP runs with several connections to the device",
       [](const Run& r) { return !r.fsdp() || !r.one_connection(); }},
      {"validate_args: tensor and context ranks run with one connection before Blackwell",
       [](const Run& r) {
         return r.fsdp() || (r.tensor() == 1 && r.context() == 1) || r.one_connection();
       }},
      {"validate_args: a sequence has two parts for each context rank",
       [](const Run& r) {
         return r.context() == 1 || r.number("seq-length", 0) % (2 * r.context()) == 0;
       }},
      {"validate_args: positions cover the sequence",
       [](const Run& r) {
         return r.number("max-position-embeddings", 0) >= r.number("seq-length", 0);
       }},
      {"validate_args: heads divide the width unless their own is given",
       [](const Run& r) {
         return r.has("kv-channels") || r.has("multi-latent-attention") ||
                r.number("hidden-size", 0) % r.number("num-attention-heads", 1) == 0;
       }},
      {"validate_args: selective recomputation has no method",
       [](const Run& r) {
         return r.text("recompute-granularity") != "selective" || !r.has("recompute-method");
       }},
      {"config: full recomputation has a method and a number of layers",
       [](const Run& r) {
         return r.text("recompute-granularity") != "full" ||
                (r.has("recompute-method") && r.number("recompute-num-layers", 0) > 0);
       }},
      {"validate_args: tensor exchanges overlap with sequence parallelism only",
       [](const Run& r) { return !r.has("tp-comm-overlap") || r.has("sequence-parallel"); }},
      {"validate_args: expert ranks divide the experts, which are not trained in fp16",
       [](const Run& r) {
         return r.expert() == 1 || (r.number("num-experts", 0) % r.expert() == 0 && !r.has("fp16"));
       }},
      {"validate_args: grouped products are in bf16",
       [](const Run& r) { return !r.has("moe-grouped-gemm") || r.has("bf16"); }},
      {"config: experts on tensor ranks need sequence parallelism",
       [](const Run& r) {
         return r.expert() == 1 || r.tensor() == 1 || r.has("sequence-parallel");
       }},
      {"config: experts that tokens are dropped for and shared experts that overlap need another "
       "dispatcher than the default allgather",
       [](const Run& r) { return !r.has("num-experts") || r.has("moe-token-dispatcher-type"); }},
      {"config: flex is DeepEP or HybridEP, which is said",
       [](const Run& r) {
         return r.text("moe-token-dispatcher-type") != "flex" ||
                r.has("moe-flex-dispatcher-backend");
       }},
      {"validate_args: the micro-batch divides each replica's share of the batch",
       [](const Run& r) {
         const std::int64_t data = r.world() / (r.tensor() * r.pipeline() * r.context());
         return r.number("global-batch-size", 0) % (data * r.number("micro-batch-size", 1)) == 0;
       }},
      {"config: interleaving takes groups of as many micro-batches as stages",
       [](const Run& r) {
         const std::int64_t data = r.world() / (r.tensor() * r.pipeline() * r.context());
         return r.chunks() == 1 || r.number("global-batch-size", 0) /
                                           (data * r.number("micro-batch-size", 1)) %
                                           r.pipeline() ==
                                       0;
       }},
      {"model: query groups are split over tensor ranks, or repeated",
       [](const Run& r) { return r.number("num-attention-heads", 0) % r.tensor() == 0; }},
      {"arguments.py: dropout is a tenth unless it is said",
       [](const Run& r) { return r.has("attention-dropout") && r.has("hidden-dropout"); }},
  };
}

TEST_CASE("exported plans pass what Megatron-LM checks before it starts",
          "[interop][megatron][property]") {
  std::mt19937 rng(31);
  const std::vector<Rule> all = rules();
  std::map<std::string, int> kinds;
  int exported = 0;
  for (int i = 0; i < 1000 && exported < 250; ++i) {
    Job job = planner::testing::random_job(rng);
    job.parallel.overlap.data = i % 2 == 0;
    job.parallel.overlap.parameters = i % 4 == 0;
    job.parallel.overlap.pipeline = i % 3 == 0;
    const auto point = planner::testing::random_point(job, rng);
    if (!point) {
      continue;
    }
    const Job plan = applied(job, *point);
    if (broken_rule(plan, TrainingFramework::kMegatron)) {
      continue;
    }
    ++exported;
    const MegatronArguments arguments = megatron_arguments(plan);
    const Run run(arguments, plan.devices);
    kinds["fsdp"] += run.fsdp() ? 1 : 0;
    kinds["experts"] += run.expert() > 1 ? 1 : 0;
    kinds["chunks"] += run.chunks() > 1 ? 1 : 0;
    kinds["context"] += run.context() > 1 ? 1 : 0;
    INFO(text_of(arguments));
    for (const Rule& rule : all) {
      INFO(rule.says);
      CHECK(rule.holds(run));
    }
  }
  CHECK(exported >= 150);
  for (const auto& [kind, count] : kinds) {
    INFO(kind);
    CHECK(count >= 3);
  }
}

TEST_CASE("the checks of Megatron-LM find what they are there for", "[interop][megatron]") {
  // Arguments as they were once written: each breaks the rule that it is named after.
  const auto broken = [](std::vector<std::string> arguments,
                         std::vector<std::string> environment = {}) {
    for (const char* always :
         {"--num-layers 4", "--hidden-size 64", "--num-attention-heads 4", "--seq-length 64",
          "--max-position-embeddings 64", "--micro-batch-size 1", "--global-batch-size 8", "--bf16",
          "--attention-dropout 0.0", "--hidden-dropout 0.0"}) {
      arguments.emplace_back(always);
    }
    MegatronArguments written;
    written.environment = std::move(environment);
    written.arguments = std::move(arguments);
    const Run run(written, 8);
    std::string said;
    for (const Rule& rule : rules()) {
      said += rule.holds(run) ? "" : rule.says;
    }
    return said;
  };
  using Catch::Contains;
  CHECK(broken({}).empty());
  CHECK_THAT(broken({"--use-megatron-fsdp", "--data-parallel-sharding-strategy optim_grads"}),
             Contains("fsdp_dtensor"));
  CHECK_THAT(broken({"--tensor-model-parallel-size 2"}), Contains("one connection"));
  CHECK_THAT(broken({"--use-megatron-fsdp", "--ckpt-format fsdp_dtensor"},
                    {"export CUDA_DEVICE_MAX_CONNECTIONS=1"}),
             Contains("several connections"));
  CHECK_THAT(broken({"--num-experts 8", "--expert-model-parallel-size 8"}),
             Contains("default allgather"));
}

}  // namespace
}  // namespace stepcast::interop
