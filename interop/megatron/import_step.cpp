#include <charconv>

#include "interop/megatron/import_parts.h"

// Kernels, number formats, optimizer and batch of a step of Megatron-LM.
namespace stepcast::interop {
namespace {

/// Format of matrix products; weights and activations are stored in fp32 unless an option says
/// otherwise.
const char* compute_format(Arguments& a, bool fp16) {
  if (a.has("fp4-format")) {
    return "nvfp4";
  }
  const std::string recipe = a.text("fp8-recipe");
  const bool narrow = a.has("fp8-format") || a.has("fp8-hybrid") || !recipe.empty();
  if (narrow && recipe == "blockwise") {
    a.approximate("fp8 with a scale for each block as fp8 with one for each tensor (slower)");
  }
  return narrow          ? (recipe == "mxfp8" ? "mxfp8" : "fp8")
         : fp16          ? "fp16"
         : a.has("bf16") ? "bf16"
                         : "fp32";
}

/// Chance that an activation is dropped; Megatron-LM's own default is a tenth.
bool drops(Arguments& a, const std::string& name) {
  const std::string chance = a.text(name);
  return chance.empty() || chance.find_first_not_of("0.") != std::string::npos;
}

/// The last of a schedule, which most of a run has: "0:384 200B:768", or a ramp up to the size.
std::int64_t global_batch(Arguments& a) {
  const std::vector<std::string> steps = a.words("step-batch-size-schedule");
  if (steps.empty()) {
    if (a.has("rampup-batch-size")) {
      a.approximate("a batch that grows at the start (the last size is taken)");
    }
    return a.required("global-batch-size", "sequences per optimizer step");
  }
  const std::string last = steps.back().substr(steps.back().find_last_of(" :") + 1);
  std::int64_t size = 0;
  const char* end = last.data() + last.size();
  const auto [stop, error] = std::from_chars(last.data(), end, size);
  if (error != std::errc() || stop != end || size < 1) {
    a.reject("step-batch-size-schedule",
             fmt::format("found '{}', expected sizes with what begins them, like 0:384 200B:768",
                         steps.front().substr(0, 40)));
  }
  a.approximate("a batch that grows in steps (the last size is taken)");
  return size;
}

}  // namespace

void read_megatron_step(Arguments& a, Json& job, Json& workload) {
  const bool fp16 = a.has("fp16");
  job["formats"]["compute"] = compute_format(a, fp16);
  const bool whole = a.has("fp8-multi-head-attention");  // its inputs and outputs in fp8 as well
  const bool asked = a.has("fp8-dot-product-attention") || whole;
  const bool narrow = asked && job["formats"]["compute"].get<std::string>().ends_with("fp8");
  if (narrow) {
    job["formats"]["attention"] = "fp8";
  }
  if (narrow && whole) {
    a.approximate("fp8 attention that products hand fp8 to, as one that casts (slower)");
  }
  // With --bf16, Megatron-LM turns --accumulate-allreduce-grads-in-fp32 on itself.
  const bool in_fp32 = a.has("accumulate-allreduce-grads-in-fp32");
  job["formats"]["gradient"] = a.has("grad-reduce-in-bf16") ? "bf16"
                               : fp16 && !in_fp32           ? "fp16"
                                                            : "fp32";
  job["attention"] = a.choice<const char*>(
      "attention-backend",
      {{"auto", "flash"}, {"flash", "flash"}, {"fused", "flash"}, {"unfused", "unfused"}});
  if (a.text("transformer-impl") == "local" && !a.has("use-flash-attn")) {
    job["attention"] = "unfused";  // Megatron-LM's own attention
    const bool wide = a.has("attention-softmax-in-fp32") || a.has("apply-query-key-layer-scaling");
    if (wide && a.has("no-masked-softmax-fusion")) {
      job["formats"]["scores"] = "fp32";
    }
  }
  job["optimizer"] = a.choice<const char*>(
      "optimizer", {{"adam", "adam"}, {"sgd", "sgd"}, {"muon", "muon"}, {"dist_muon", "muon"}});
  if (job["optimizer"] == "muon") {
    job["optimizer"] = {{"dense", "muon"},
                        {"iterations", a.size("muon-num-ns-steps").value_or(Muon{}.iterations)},
                        {"shards", a.has("muon-tp-mode") ? a.text("muon-tp-mode") : "duplicated"}};
  }
  if (job["optimizer"] == "sgd") {
    const std::string momentum = a.text("sgd-momentum");
    if (momentum.empty() || momentum.find_first_not_of("0.") != std::string::npos) {
      a.approximate("SGD's momentum (4 B of every parameter)");
    }
  }
  // One format for both moments: the wider one.
  const auto format = [&a](const char* option) -> std::string {
    return a.choice<const char*>(
        option, {{"fp32", "fp32"}, {"bf16", "bf16"}, {"fp16", "fp16"}, {"fp8", "fp8"}});
  };
  const std::string first = format("exp-avg-dtype");
  const std::string second = format("exp-avg-sq-dtype");
  const auto width = [](const std::string& f) { return f == "fp32" ? 4 : f == "fp8" ? 1 : 2; };
  if (first != second) {
    a.approximate(
        fmt::format("Adam's moments in {} and {} as both in the wider one", first, second));
  }
  const std::string& moments = width(first) >= width(second) ? first : second;
  if (moments != "fp32") {
    job["formats"]["moments"] = moments;
  }
  const std::string master = format("main-params-dtype");
  if (master != "fp32") {
    job["formats"]["master"] = master;
  }
  for (const auto& [option, what] : {std::pair{"optimizer-cpu-offload", "optimizer"},
                                     {"fine-grained-activation-offloading", "activations"}}) {
    if (a.has(option)) {
      job["offload"][what] = true;
    }
  }
  // Its own fusion is the compiler's; Transformer Engine brings a kernel.
  job["loss"] = !a.has("cross-entropy-loss-fusion")           ? "copied"
                : a.text("cross-entropy-fusion-impl") == "te" ? "fused"
                                                              : "compiled";
  if (a.has("defer-embedding-wgrad-compute") && a.size("pipeline-model-parallel-size") > 1) {
    constexpr std::int64_t kAll = 1 << 16;
    const std::int64_t limit = a.integer_at_least("wgrad-deferral-limit", 0).value_or(0);
    job["loss"] = {{"kind", job["loss"]}, {"deferred", limit > 0 ? limit : kAll}};
  }
  const bool hidden = drops(a, "hidden-dropout");
  const bool attention = drops(a, "attention-dropout");
  workload["dropout"] = hidden && attention;
  if (const auto further = a.integer_at_least("mtp-num-layers", 0); further && *further > 0) {
    if (workload["activation"] == "gelu" || workload["dropout"] == true) {
      a.approximate("multi-token prediction of layers with biases or dropout (left out)");
    } else {
      workload["mtp"] = *further;
    }
  }
  if (hidden != attention) {
    a.approximate(
        fmt::format("dropout of {} alone (its kernels, and a byte of mask for each value)",
                    hidden ? "both branches" : "attention probabilities"));
  }
}

Json megatron_batch(Arguments& a) {
  return {{"micro", a.required("micro-batch-size", "sequences per micro-batch")},
          {"global", global_batch(a)},
          {"sequence", a.required("seq-length", "tokens per sequence")}};
}

}  // namespace stepcast::interop
