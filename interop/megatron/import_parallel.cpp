#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "interop/megatron/import_parts.h"

// How the arguments of Megatron-LM split a step.
namespace stepcast::interop {
namespace {

/// Layers of every chunk that a layout draws: stages apart by '|', E embedding, t layer, m layer of
/// multi-token prediction, L loss, "x*3" and "(xy|)*3" for repetition, commas of no meaning.
std::vector<std::int64_t> layers_of_layout(const Arguments& a, std::string layout) {
  const char* option = "pipeline-model-parallel-layout";
  std::erase(layout, ',');
  const auto reject = [&](const std::string& why) {
    a.reject(option, fmt::format("found '{}': {}; expected like \"Et*3|(tt|)*6tL\" with E "
                                 "embedding, t layer, L loss",
                                 layout.substr(0, 40), why));
  };
  constexpr std::size_t kLongest = 100'000;
  for (std::size_t star = layout.find('*'); star != std::string::npos; star = layout.find('*')) {
    const std::size_t open = star > 0 && layout[star - 1] == ')' ? layout.rfind('(', star) : star;
    if (star == 0 || open == std::string::npos) {
      reject("nothing is repeated before '*'");
    }
    const bool one = open == star;
    const std::string repeated =
        one ? layout.substr(star - 1, 1) : layout.substr(open + 1, star - open - 2);
    std::size_t times = 0;
    const char* end = layout.data() + layout.size();
    const auto [stop, error] = std::from_chars(layout.data() + star + 1, end, times);
    if (error != std::errc() || times > kLongest || times * repeated.size() > kLongest) {
      reject("no number of repetitions follows '*', or too large a one");
    }
    std::string unrolled;
    for (std::size_t i = 0; i < times; ++i) {
      unrolled += repeated;
    }
    const std::size_t begin = one ? star - 1 : open;
    layout.replace(begin, static_cast<std::size_t>(stop - layout.data()) - begin, unrolled);
  }
  if (layout.empty() || layout.front() != 'E' || layout.back() != 'L') {
    reject("the embedding comes first and the loss last");
  }
  std::vector<std::int64_t> layers{0};
  for (const char c : layout.substr(1, layout.size() - 2)) {
    if (c == '|') {
      layers.push_back(0);
    } else if (c == 't') {
      ++layers.back();
    } else if (c != 'm') {  // a layer of multi-token prediction, which lies before the loss
      reject(fmt::format("'{}' has no counterpart here", c));
    }
  }
  return layers;
}

/// Every chunk of the first stage, of the last and of those between, which share what is left.
std::vector<std::int64_t> layers_of_ends(Arguments& a, std::int64_t layers, std::int64_t pipeline,
                                         std::int64_t chunks) {
  const auto first = a.size("decoder-first-pipeline-num-layers");
  const auto last = a.size("decoder-last-pipeline-num-layers");
  const char* option =
      first ? "decoder-first-pipeline-num-layers" : "decoder-last-pipeline-num-layers";
  const std::int64_t between = pipeline - (first ? 1 : 0) - (last ? 1 : 0);
  const std::int64_t left = layers - first.value_or(0) - last.value_or(0);
  if (between < 0 || left < 0 || (between == 0 ? left != 0 : left % between != 0)) {
    a.reject(option,
             fmt::format("leaves {} of {} layers to the {} other stages, which cannot share "
                         "them equally",
                         left, layers, between));
  }
  std::vector<std::int64_t> counts;
  for (std::int64_t i = 0; i < pipeline * chunks; ++i) {
    const std::int64_t stage = i % pipeline;
    const std::int64_t own = stage == 0 && first             ? *first
                             : stage + 1 == pipeline && last ? *last
                                                             : left / between;
    if (own % chunks != 0) {
      a.reject(option, fmt::format("gives stage {} {} layers, which its {} chunks cannot share "
                                   "equally",
                                   stage, own, chunks));
    }
    counts.push_back(own / chunks);
  }
  return counts;
}

/// Stages of one rank: from their number, or from layers of each.
std::int64_t virtual_stages(Arguments& a, std::int64_t layers, std::int64_t pipeline) {
  if (const auto stages = a.size("num-virtual-stages-per-pipeline-rank")) {
    return *stages;
  }
  const auto each = a.size("num-layers-per-virtual-pipeline-stage");
  if (!each) {
    return 1;
  }
  if (layers % (pipeline * *each) != 0) {
    a.reject("num-layers-per-virtual-pipeline-stage",
             fmt::format("found {}, which does not divide {} layers / {} stages", *each, layers,
                         pipeline));
  }
  return layers / pipeline / *each;
}

Json recompute_of(Arguments& a) {
  const std::string granularity =
      a.has("recompute-activations") ? "selective" : a.text("recompute-granularity");
  const std::string method = a.text("recompute-method");
  const auto layers = a.integer_at_least("recompute-num-layers", 0);
  const std::vector<std::string> modules = a.words("recompute-modules");
  if (granularity.empty()) {
    return "none";
  }
  if (granularity == "selective") {
    if (modules.empty()) {
      return "selective";
    }
    Json known = Json::array();
    std::vector<std::string> others;
    for (const std::string& module : modules) {
      const bool experts = module == "moe_act";
      const bool latent = module == "mla_up_proj";
      if (module == "core_attn" || module == "layernorm" || module == "mlp" ||
          (experts && a.has("num-experts")) || (latent && a.has("multi-latent-attention"))) {
        known.push_back(module);
      } else if (!experts && !latent) {
        others.push_back(module);
      }
    }
    if (!others.empty()) {
      a.approximate(
          fmt::format("recomputed modules {} (kept in memory here)", fmt::join(others, ", ")));
    }
    return known.empty() ? Json("none") : Json{{"modules", known}};
  }
  if (granularity != "full") {
    a.reject("recompute-granularity",
             fmt::format("found '{}', expected full or selective", granularity.substr(0, 40)));
  }
  if (method == "block") {
    return {{"layers", layers.value_or(1)}};
  }
  return "full";
}

int zero_stage(Arguments& a) {
  const bool sharded = a.has("use-distributed-optimizer") || a.text("optimizer") == "dist_muon";
  if (a.has("use-torch-fsdp2")) {
    return 3;
  }
  if (a.has("use-megatron-fsdp") || a.has("use-custom-fsdp")) {
    return a.choice<int>(
        "data-parallel-sharding-strategy",
        {{"no_shard", 0}, {"optim", 1}, {"optim_grads", 2}, {"optim_grads_params", 3}});
  }
  return sharded ? 1 : 0;
}

/// Chunks of a stage and layers of a chunk.
void read_chunks(Arguments& a, std::int64_t layers, std::int64_t pipeline, Json& p) {
  if (a.has("pipeline-model-parallel-layout")) {
    const auto counts = layers_of_layout(a, a.text("pipeline-model-parallel-layout"));
    const auto chunks = static_cast<std::int64_t>(counts.size());
    if (chunks % pipeline != 0) {
      a.reject(
          "pipeline-model-parallel-layout",
          fmt::format("found {} chunks, which do not divide over {} stages", chunks, pipeline));
    }
    p["virtual_stages"] = chunks / pipeline;
    p["pipeline_split"] = counts;
    return;
  }
  const int embedding = a.has("account-for-embedding-in-pipeline-split") ? 1 : 0;
  const int head = a.has("account-for-loss-in-pipeline-split") ? 1 : 0;
  const std::int64_t chunks = virtual_stages(a, layers + embedding + head, pipeline);
  p["virtual_stages"] = chunks;
  const bool ends =
      a.has("decoder-first-pipeline-num-layers") || a.has("decoder-last-pipeline-num-layers");
  if (ends && embedding + head > 0) {
    a.reject("decoder-first-pipeline-num-layers",
             "cannot be combined with --account-for-embedding-in-pipeline-split or -loss-, "
             "expected one way "
             "to assign layers");
  }
  if (ends) {
    p["pipeline_split"] = layers_of_ends(a, layers, pipeline, chunks);
  } else if (embedding + head > 0) {
    p["pipeline_split"] = {{"embedding", embedding}, {"head", head}};
  }
}

/// Schedules of the zero-bubble fork of Megatron-LM, which Primus takes over.
void read_schedule(Arguments& a, std::int64_t pipeline, Json& p) {
  const bool v = a.has("zero-bubble-v-schedule");
  const std::string pending = a.text("zero-bubble-max-pending-backward");
  const auto* setup =
      a.has("zero-bubble-v-schedule-mem-setup")
          ? a.choice<const char*>("zero-bubble-v-schedule-mem-setup",
                                  {{"zb", "zb-v"}, {"half", "v-half"}, {"min", "v-min"}})
          : "zb-v";
  if (pipeline == 1 || (!a.has("enable-zero-bubble") && !v)) {
    return;
  }
  if (v) {
    if (p["virtual_stages"] > 1) {
      a.reject("zero-bubble-v-schedule", "gives each stage two chunks, expected no other number");
    }
    p["virtual_stages"] = 2;
    p["schedule"] = setup;
    return;
  }
  if (p["virtual_stages"] > 1) {
    a.approximate("zero bubbles of interleaved stages (as 1f1b: slower)");
    return;
  }
  std::int64_t most = pipeline;
  if (pending.empty() || pending == "auto") {
    a.approximate("as many pending backward passes as memory allows (as there are stages)");
  } else {
    most = *a.size("zero-bubble-max-pending-backward");
  }
  p["schedule"] = most >= 2 * pipeline ? "zb-h2" : "zb-h1";
}

/// Reads which transfers overlap; `p` holds virtual_stages.
void read_overlap(Arguments& a, Json& p) {
  const bool gather = a.has("overlap-param-gather");
  p["overlap"] = {{"data", a.has("overlap-grad-reduce") || gather},
                  {"parameters", gather},
                  {"tensor", a.has("tp-comm-overlap")},
                  {"tensor_products", false},
                  {"expert", false},
                  {"pipeline", p["virtual_stages"] > 1 && !a.has("no-overlap-p2p-communication")}};
  const bool whole_gathers = a.has("disable-tp-comm-overlap-ag");
  const bool whole_sums = a.has("disable-tp-comm-overlap-rs");
  if (whole_gathers != whole_sums) {
    a.reject(
        whole_gathers ? "disable-tp-comm-overlap-ag" : "disable-tp-comm-overlap-rs",
        "found one of --disable-tp-comm-overlap-ag and -rs, expected both or none: gathers and "
        "reductions overlapped with products are split together (overlap.tensor_products)");
  }
  if (a.has("tp-comm-overlap") && !whole_gathers) {
    p["overlap"]["tensor_products"] = true;
  }
  if (a.has("overlap-moe-expert-parallel-comm")) {
    p["overlap"]["expert"] = "batch";
  } else if (a.has("moe-shared-expert-overlap")) {
    p["overlap"]["expert"] = true;
  }
}

}  // namespace

Json megatron_parallel(Arguments& a, std::int64_t layers) {
  Json p = Json::object();
  p["tensor"] = a.size("tensor-model-parallel-size").value_or(1);
  const std::int64_t pipeline = a.size("pipeline-model-parallel-size").value_or(1);
  p["pipeline"] = pipeline;
  p["context"] = a.size("context-parallel-size").value_or(1);
  p["expert"] = a.size("expert-model-parallel-size").value_or(1);
  if (const auto columns = a.size("expert-tensor-parallel-size"); columns && a.has("num-experts")) {
    const std::int64_t tensor = p["tensor"].get<std::int64_t>();
    const bool some = *columns != 1 && *columns != tensor;
    if (some) {
      a.approximate(
          fmt::format("experts split over {} of {} tensor ranks as over all (narrower "
                      "products, other exchanges)",
                      *columns, tensor));
    }
    p["expert_tensor"] = some ? tensor : *columns;
  }
  const bool flex = a.text("moe-token-dispatcher-type") == "flex";
  for (const char* backend : {"moe-enable-deepep", "moe-flex-dispatcher-backend"}) {
    if (a.has(backend) && !flex) {
      a.reject(backend, "found without --moe-token-dispatcher-type flex, to which it belongs");
    }
  }
  if (flex && p["expert"] > 1) {
    const bool hybrid = a.text("moe-flex-dispatcher-backend") == "hybridep";
    p["dispatcher"] = hybrid ? "hybridep" : "deepep";
    p["fused_permutation"] = a.has("moe-permute-fusion") && hybrid;
  }
  p["order"] = a.has("use-tp-pp-dp-mapping") ? "tensor-context-pipeline-expert-data"
                                             : "tensor-context-expert-data-pipeline";
  read_chunks(a, layers, pipeline, p);
  if (const auto group = a.size("microbatch-group-size-per-virtual-pipeline-stage");
      group && *group != pipeline && p["virtual_stages"] > 1) {
    p["chunk_microbatches"] = *group;
  }
  read_schedule(a, pipeline, p);
  p["sequence_parallel"] = a.has("sequence-parallel") && p["tensor"] > 1;
  p["zero"] = zero_stage(a);
  p["recompute"] = recompute_of(a);
  if (const auto elements = a.size("ddp-bucket-size")) {
    p["bucket_elements"] = *elements;
  }
  if (a.has("cp-comm-type")) {
    const auto* algorithm = a.choice<const char*>("cp-comm-type", {{"p2p", "ring"},
                                                                   {"a2a", "all_to_all"},
                                                                   {"all_gather", "all_gather"},
                                                                   {"a2a+p2p", "ring"}});
    if (p["context"] > 1) {
      if (a.text("cp-comm-type") == "a2a+p2p") {
        a.approximate("context ranks in two levels (a2a+p2p) as one ring (slower)");
      }
      p["context_algorithm"] = algorithm;
    }
  }
  read_overlap(a, p);
  return p;
}

}  // namespace stepcast::interop
