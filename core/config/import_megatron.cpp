#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "core/config/import.h"
#include "core/config/internal/foreign.h"
#include "core/config/internal/loaders.h"
#include "core/config/internal/megatron_option_table.h"
#include "core/config/internal/megatron_options.h"
#include "core/config/internal/table_list.h"
#include "core/config/suggest.h"

// Arguments of Megatron-LM (a launch script's, or one per line) -> job without a system.
namespace stepcast::config {
namespace {

/// "([0]*3+[1]*11)" as its 14 numbers; empty where it is not such a sum of zeros and ones.
std::vector<int> layer_pattern(std::string text) {
  std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == ' '; });
  std::vector<int> pattern;
  constexpr std::size_t kMost = 10'000;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('+', at), text.size());
    const std::string_view part = std::string_view(text).substr(at, end - at);
    const bool one = part.starts_with("[1]");
    std::size_t times = part.size() == 3 ? 1 : 0;
    if (part.size() > 4 && part[3] == '*') {
      const char* stop = part.data() + part.size();
      const auto [read, error] = std::from_chars(part.data() + 4, stop, times);
      times = error == std::errc() && read == stop ? times : 0;
    }
    if ((!one && !part.starts_with("[0]")) || times == 0 || times > kMost - pattern.size()) {
      return {};
    }
    pattern.insert(pattern.end(), times, one ? 1 : 0);
    at = end + 1;
  }
  return pattern;
}

void read_experts(Arguments& a, Json& w) {
  const auto experts = a.size("num-experts");
  if (!experts) {
    return;
  }
  Json& moe = w["moe"] = Json::object();
  moe["experts"] = *experts;
  moe["per_token"] = a.size("moe-router-topk").value_or(2);
  const std::int64_t width =
      a.size("moe-ffn-hidden-size").value_or(w["ffn_hidden"].get<std::int64_t>());
  moe["ffn_hidden"] = width;
  if (const auto shared = a.integer_at_least("moe-shared-expert-intermediate-size", 0)) {
    const std::int64_t count = (*shared + width - 1) / width;
    if (*shared % width != 0) {
      a.approximate(
          fmt::format("shared experts of {} columns as {} of {} (slower)", *shared, count, width));
    }
    moe["shared"] = count;
  }
  if (const auto groups = a.size("moe-router-num-groups")) {
    moe["groups"] = *groups;
    moe["groups_per_token"] = a.required(
        "moe-router-group-topk", "of how many of --moe-router-num-groups a token's experts are");
  }
  // Megatron-LM's own default gathers every token on every rank of the group.
  const bool gathers = a.choice<bool>(
      "moe-token-dispatcher-type",
      {{"allgather", true}, {"alltoall", false}, {"alltoall_seq", false}, {"flex", false}});
  if (gathers && a.size("expert-model-parallel-size").value_or(1) > 1) {
    a.approximate(
        "the dispatcher allgather as an all-to-all (every token goes to every rank of the expert "
        "group: more bytes)");
  }
  if (!a.has("moe-grouped-gemm")) {
    a.approximate("products of experts one after another (without --moe-grouped-gemm: slower)");
  }
  if (a.has("moe-expert-capacity-factor")) {
    moe["capacity_factor"] =
        parse_json(a.text("moe-expert-capacity-factor"), a.where("moe-expert-capacity-factor"));
  }
  if (a.has("moe-layer-freq")) {
    const std::string freq = a.text("moe-layer-freq");
    const auto pattern = layer_pattern(freq);
    const auto first = std::find(pattern.begin(), pattern.end(), 1);
    if (freq != "1" && (pattern.empty() || std::find(first, pattern.end(), 0) != pattern.end())) {
      a.refuse("moe-layer-freq",
               fmt::format("found '{}'; dense layers can only come first: use 1 or ([0]*n+[1]*m)",
                           freq.substr(0, 40)));
    }
    moe["first_dense_layers"] = first - pattern.begin();
  }
}

/// Keys a query sees: "127,0" are 127 before its own, and none after it.
void read_window(Arguments& a, Json& w) {
  if (!a.has("window-size")) {
    return;
  }
  std::string text = a.text("window-size");
  std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == ' '; });
  const std::size_t comma = std::min(text.find(','), text.size());
  std::int64_t left = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + comma, left);
  constexpr std::int64_t kWidest = 1 << 26;
  if (error != std::errc() || stop != text.data() + comma || left < 0 || left >= kWidest) {
    a.refuse("window-size",
             fmt::format("found '{}', expected the keys before a query and after it, like 4095,0",
                         text.substr(0, 40)));
  }
  w["window"] = left + 1;
  if (a.has("window-attn-skip-freq")) {
    const std::string freq = a.text("window-attn-skip-freq");
    std::vector<bool> sees_all;  // a pattern says 1 where a layer has the window
    for (const int has_window : layer_pattern(freq)) {
      sees_all.push_back(has_window == 0);
    }
    const auto every = sees_all.empty()
                           ? a.required("window-attn-skip-freq", "how often a layer sees all keys")
                           : full_attention_every(sees_all);
    if (!every) {
      a.refuse("window-attn-skip-freq",
               fmt::format("found '{}', expected a number n, or a pattern in which every n-th "
                           "layer sees all keys",
                           freq.substr(0, 40)));
    }
    if (*every > 0) {
      w["full_attention_every"] = *every;
    }
  }
}

/// Entries of the vocabulary, padded as Megatron-LM does it; nullopt where neither an option nor
/// the tokenizer's name tells.
std::optional<std::int64_t> vocabulary_of(Arguments& a) {
  if (const auto padded = a.size("padded-vocab-size")) {
    return padded;
  }
  auto entries = a.size("vocab-size");
  if (entries && a.text("tokenizer-type") == "NullTokenizer") {
    ++*entries;  // the end of a document
  }
  if (!entries) {
    entries = tokenizer_size(a.text("tokenizer-type"), a.text("tokenizer-model"),
                             a.has("vocab-file") && a.has("merge-file"));
  }
  if (!entries) {
    return std::nullopt;
  }
  const std::int64_t tensor = a.size("tensor-model-parallel-size").value_or(1);
  const std::int64_t unit = a.size("make-vocab-size-divisible-by").value_or(128) * tensor;
  return (*entries + unit - 1) / unit * unit;
}

Json workload_of(Arguments& a) {
  Json w = Json::object();
  w["kind"] = "transformer";
  w["name"] = "megatron-lm";
  w["layers"] = a.required("num-layers", "the number of layers");
  const std::int64_t hidden = a.required("hidden-size", "the hidden width");
  w["hidden"] = hidden;
  w["heads"] = a.required("num-attention-heads", "the number of attention heads");
  const bool swiglu = a.has("swiglu");
  const bool squared = a.has("squared-relu");
  w["activation"] = swiglu ? "swiglu" : squared ? "squared_relu" : "gelu";
  if (a.has("multi-latent-attention") && !swiglu && !squared) {
    // Here latent attention goes with rotary positions and no biases.
    w["activation"] = "squared_relu";
    a.approximate("GELU with biases as squared ReLU without (slightly faster)");
  }
  // Megatron's own default: four times, or two thirds of it in units of 64 with a gate.
  const std::int64_t usual = swiglu ? 4 * hidden * 2 / 3 / 64 * 64 : 4 * hidden;
  w["ffn_hidden"] = a.size("ffn-hidden-size").value_or(usual);
  if (a.has("multi-latent-attention")) {
    w["mla"] = {{"q_rank", a.integer_at_least("q-lora-rank", 0).value_or(0)},
                {"kv_rank", a.size("kv-lora-rank").value_or(32)},
                {"rope_dim", a.size("qk-pos-emb-head-dim").value_or(64)},
                {"nope_dim", a.size("qk-head-dim").value_or(128)},
                {"v_dim", a.size("v-head-dim").value_or(128)}};
    a.size("kv-channels");
    a.size("num-query-groups");
  } else {
    if (const auto groups = a.size("num-query-groups")) {
      w["kv_heads"] = *groups;
    }
    if (const auto dim = a.size("kv-channels")) {
      w["head_dim"] = *dim;
    }
  }
  read_window(a, w);
  w["tied_embeddings"] = !a.has("untie-embeddings-and-output-weights");
  if (const auto entries = vocabulary_of(a)) {
    w["vocabulary"] = *entries;
  }
  read_experts(a, w);
  return w;
}

/// Layers of every chunk that a layout draws: stages apart by '|', E embedding, t layer, m layer of
/// multi-token prediction, L loss, "x*3" and "(xy|)*3" for repetition, commas of no meaning.
std::vector<std::int64_t> layers_of_layout(const Arguments& a, std::string layout) {
  const char* option = "pipeline-model-parallel-layout";
  std::erase(layout, ',');
  const auto refuse = [&](const std::string& why) {
    a.refuse(option, fmt::format("found '{}': {}; expected like \"Et*3|(tt|)*6tL\" with E "
                                 "embedding, t layer, L loss",
                                 layout.substr(0, 40), why));
  };
  constexpr std::size_t kLongest = 100'000;
  for (std::size_t star = layout.find('*'); star != std::string::npos; star = layout.find('*')) {
    const std::size_t open = star > 0 && layout[star - 1] == ')' ? layout.rfind('(', star) : star;
    if (star == 0 || open == std::string::npos) {
      refuse("nothing is repeated before '*'");
    }
    const bool one = open == star;
    const std::string repeated =
        one ? layout.substr(star - 1, 1) : layout.substr(open + 1, star - open - 2);
    std::size_t times = 0;
    const char* end = layout.data() + layout.size();
    const auto [stop, error] = std::from_chars(layout.data() + star + 1, end, times);
    if (error != std::errc() || times > kLongest || times * repeated.size() > kLongest) {
      refuse("no number of repetitions follows '*', or too large a one");
    }
    std::string unrolled;
    for (std::size_t i = 0; i < times; ++i) {
      unrolled += repeated;
    }
    const std::size_t begin = one ? star - 1 : open;
    layout.replace(begin, static_cast<std::size_t>(stop - layout.data()) - begin, unrolled);
  }
  if (layout.empty() || layout.front() != 'E' || layout.back() != 'L') {
    refuse("the embedding comes first and the loss last");
  }
  std::vector<std::int64_t> layers{0};
  for (const char c : layout.substr(1, layout.size() - 2)) {
    if (c == '|') {
      layers.push_back(0);
    } else if (c == 't') {
      ++layers.back();
    } else if (c != 'm') {  // a layer of multi-token prediction, which is left out
      refuse(fmt::format("'{}' has no counterpart here", c));
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
    a.refuse(option,
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
      a.refuse(option, fmt::format("gives stage {} {} layers, which its {} chunks cannot share "
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
    a.refuse("num-layers-per-virtual-pipeline-stage",
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
      const bool experts = module == "moe_act" && a.has("num-experts");
      if (module == "core_attn" || module == "layernorm" || module == "mlp" || experts) {
        known.push_back(module);
      } else if (module != "moe_act") {
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
    a.refuse("recompute-granularity",
             fmt::format("found '{}', expected full or selective", granularity.substr(0, 40)));
  }
  if (method == "block") {
    return {{"layers", layers.value_or(1)}};
  }
  return "full";
}

int zero_stage(Arguments& a) {
  const bool sharded = a.has("use-distributed-optimizer");
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

/// Of products; weights and activations are stored in fp32 unless an option says otherwise.
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

/// Which kernels a step is made of, in what numbers, and what updates the weights.
void read_step(Arguments& a, Json& job, Json& workload) {
  const bool fp16 = a.has("fp16");
  job["formats"]["compute"] = compute_format(a, fp16);
  // Beside --bf16, Megatron-LM turns --accumulate-allreduce-grads-in-fp32 on itself.
  const bool in_fp32 = a.has("accumulate-allreduce-grads-in-fp32");
  job["formats"]["gradient"] = a.has("grad-reduce-in-bf16") ? "bf16"
                               : fp16 && !in_fp32           ? "fp16"
                                                            : "fp32";
  job["attention"] = a.choice<const char*>(
      "attention-backend",
      {{"auto", "flash"}, {"flash", "flash"}, {"fused", "flash"}, {"unfused", "unfused"}});
  if (a.text("transformer-impl") == "local" && !a.has("use-flash-attn")) {
    job["attention"] = "unfused";  // Megatron-LM's own attention
  }
  job["optimizer"] = a.choice<const char*>(
      "optimizer", {{"adam", "adam"}, {"sgd", "sgd"}, {"muon", "adam"}, {"dist_muon", "adam"}});
  if (a.text("optimizer").ends_with("muon")) {
    a.approximate(
        "Muon as Adam (its states are 4 B of every weight of a matrix smaller; its products are "
        "left out)");
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
  // Its own fusion is the compiler's; Transformer Engine brings a kernel.
  job["loss"] = !a.has("cross-entropy-loss-fusion")           ? "copied"
                : a.text("cross-entropy-fusion-impl") == "te" ? "fused"
                                                              : "compiled";
  const bool hidden = drops(a, "hidden-dropout");
  const bool attention = drops(a, "attention-dropout");
  workload["dropout"] = hidden && attention;
  if (hidden != attention) {
    a.approximate(
        fmt::format("dropout of {} alone (its kernels, and a byte of mask for each value)",
                    hidden ? "both branches" : "attention probabilities"));
  }
}

/// Chunks of a stage and layers of a chunk.
void read_chunks(Arguments& a, std::int64_t layers, std::int64_t pipeline, Json& p) {
  if (a.has("pipeline-model-parallel-layout")) {
    const auto counts = layers_of_layout(a, a.text("pipeline-model-parallel-layout"));
    const auto chunks = static_cast<std::int64_t>(counts.size());
    if (chunks % pipeline != 0) {
      a.refuse(
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
    a.refuse("decoder-first-pipeline-num-layers",
             "found beside --account-for-embedding-in-pipeline-split or -loss-, expected one way "
             "to deal out layers");
  }
  if (ends) {
    p["pipeline_split"] = layers_of_ends(a, layers, pipeline, chunks);
  } else if (embedding + head > 0) {
    p["pipeline_split"] = {{"embedding", embedding}, {"head", head}};
  }
}

Json parallel_of(Arguments& a, std::int64_t layers) {
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
      a.refuse(backend, "found without --moe-token-dispatcher-type flex, to which it belongs");
    }
  }
  if (flex && p["expert"] > 1) {
    p["expert_dispatch"] = "per_machine";  // DeepEP and HybridEP send the same bytes
  }
  p["order"] = a.has("use-tp-pp-dp-mapping") ? "tensor-context-pipeline-expert-data"
                                             : "tensor-context-expert-data-pipeline";
  read_chunks(a, layers, pipeline, p);
  if (const auto group = a.size("microbatch-group-size-per-virtual-pipeline-stage");
      group && *group != pipeline && p["virtual_stages"] > 1) {
    a.approximate(
        fmt::format("chunks that take turns every {} micro-batches as one chunk a stage "
                    "(longer bubble)",
                    *group));
    p["virtual_stages"] = 1;
    p.erase("pipeline_split");
  }
  p["sequence_parallel"] = a.has("sequence-parallel") && p["tensor"] > 1;
  p["zero"] = zero_stage(a);
  p["recompute"] = recompute_of(a);
  if (const auto elements = a.size("ddp-bucket-size")) {  // of gradients in fp32
    p["bucket"] = fmt::format("{} B", 4 * *elements);
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
  const bool gather = a.has("overlap-param-gather");
  // Megatron-LM hides exchanges beside another micro-batch; parts of one come nearest.
  const bool beside_others = a.has("overlap-moe-expert-parallel-comm");
  p["overlap"] = {{"data", a.has("overlap-grad-reduce") || gather},
                  {"parameters", gather},
                  {"tensor", a.has("tp-comm-overlap")},
                  {"pipeline", p["virtual_stages"] > 1 && !a.has("no-overlap-p2p-communication")}};
  const bool whole_gathers = a.has("disable-tp-comm-overlap-ag");
  const bool whole_sums = a.has("disable-tp-comm-overlap-rs");
  if (whole_gathers != whole_sums) {
    a.refuse(
        whole_gathers ? "disable-tp-comm-overlap-ag" : "disable-tp-comm-overlap-rs",
        "found one of --disable-tp-comm-overlap-ag and -rs, expected both or none: gathers and "
        "sums beside products are cut up together (overlap.tensor_products)");
  }
  if (a.has("tp-comm-overlap") && !whole_gathers) {
    p["overlap"]["tensor_products"] = true;
  }
  if (a.has("moe-shared-expert-overlap") || beside_others) {
    p["overlap"]["expert"] = true;
  }
  if (beside_others) {
    p["expert_chunks"] = 2;
  }
  return p;
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
    a.refuse("step-batch-size-schedule",
             fmt::format("found '{}', expected sizes with what begins them, like 0:384 200B:768",
                         steps.front().substr(0, 40)));
  }
  a.approximate("a batch that grows in steps (the last size is taken)");
  return size;
}

Json batch_of(Arguments& a) {
  return {{"micro", a.required("micro-batch-size", "sequences per micro-batch")},
          {"global", global_batch(a)},
          {"sequence", a.required("seq-length", "tokens per sequence")}};
}

}  // namespace

bool is_megatron(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] != '{' &&
         (text.find("--num-layers") != std::string_view::npos ||
          text.find("--num_layers") != std::string_view::npos ||
          text.find("--num-attention-heads") != std::string_view::npos);  // of T5, say
}

Document job_of_megatron(const Source& source, bool needs_vocabulary) {
  Arguments a(source);
  for (const auto& [script, model] : {std::pair{"pretrain_bert.py", "a BERT"},
                                      {"pretrain_t5.py", "an encoder and a decoder (T5)"},
                                      {"pretrain_vlm.py", "an encoder of pictures"},
                                      {"pretrain_mamba.py", "layers of state-space models"}}) {
    if (source.text.find(script) != std::string::npos) {
      throw InputError(source.label,
                       fmt::format("{} trains {}, which stepcast does not model", script, model));
    }
  }
  a.refuse_other_step();
  if (a.has("vocab-file") && !a.has("merge-file") && !a.has("tokenizer-type") &&
      !a.has("vocab-size")) {
    a.refuse("vocab-file",
             "found without --merge-file: words in pieces, as a BERT reads them, which stepcast does "
             "not model; of a GPT name --vocab-size or the tokenizer");
  }
  Json job = Json::object();
  job["stepcast"] = 1;
  job["stack"] = "megatron-core";  // whose pace the step has; what it overlaps the arguments say
  Json workload = workload_of(a);
  const auto processes = a.size("nproc-per-node");
  const auto nodes = a.size("nnodes");
  if (const auto world = a.size("world-size")) {
    job["devices"] = *world;
  } else if (processes) {
    job["devices"] = *processes * nodes.value_or(1);
  }
  if (needs_vocabulary && !workload.contains("vocabulary")) {
    a.refuse("vocab-size",
             "missing, and the tokenizer is not one whose size is known; expected the entries of "
             "its vocabulary, or --set workload.vocabulary=N");
  }
  job["batch"] = batch_of(a);
  job["parallel"] = parallel_of(a, workload["layers"].get<std::int64_t>());
  read_step(a, job, workload);
  a.refuse_unread();
  if (const auto phrases = a.left_out(); !phrases.empty()) {
    workload["approximated"] = phrases;
  }
  const auto unused = a.without_effect();
  workload["source"] =
      fmt::format("arguments of Megatron-LM{}{}",
                  unused.empty() ? "" : "; without effect on a step: --", fmt::join(unused, " --"));
  job["workload"] = std::move(workload);
  Document d;
  d.label = source.label;
  d.folder = source.folder;
  d.root = std::move(job);
  return d;
}

Foreign foreign_kind(std::string_view text) {
  if (is_megatron(text)) {
    return Foreign::kMegatron;
  }
  if (is_table_list(text)) {
    return Foreign::kEmbeddingTables;
  }
  if (text.find("\"model_type\"") == std::string_view::npos &&
      text.find("\"embedding_") == std::string_view::npos) {
    return Foreign::kNone;
  }
  try {
    const Json root = parse_json(text, "");
    return is_hugging_face(root)       ? Foreign::kHuggingFace
           : is_embedding_tables(root) ? Foreign::kEmbeddingTables
                                       : Foreign::kNone;
  } catch (const InputError&) {
    return Foreign::kNone;
  }
}

std::string import_to_json(const Source& source, int indent) {
  if (is_megatron(source.text)) {
    return job_of_megatron(source, true).root.dump(indent) + "\n";
  }
  Document d = parse_document(source);
  if (is_embedding_tables(d.root)) {
    d = job_of_embedding_tables(std::move(d));
    (void)workload_from(Value::root_of(d).at("workload", ""));  // what no command could use
    return d.root.dump(indent) + "\n";
  }
  if (!is_hugging_face(d.root)) {
    throw InputError(source.label,
                     "neither a config.json of a Hugging Face model (no \"model_type\"), nor "
                     "tables of TorchRec or HugeCTR (no \"embedding_bag_collection\" or "
                     "\"embedding_tables\"), nor arguments of Megatron-LM (no --num-layers)");
  }
  return workload_of_hugging_face(std::move(d)).root.dump(indent) + "\n";
}

}  // namespace stepcast::config
