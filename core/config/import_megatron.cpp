#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "core/config/import.h"
#include "core/config/internal/foreign.h"
#include "core/config/internal/shell_variables.h"
#include "core/config/internal/table_list.h"
#include "core/config/suggest.h"

// Arguments of Megatron-LM (a launch script's, or one per line) -> job without a system.
namespace stepcast::config {
namespace {

/// Options that do not change a step's shape: by name, or by the beginning of the name.
const std::set<std::string_view> kHarmless{"seed",
                                           "split",
                                           "save",
                                           "load",
                                           "bf16",
                                           "clip-grad",
                                           "weight-decay",
                                           "num-workers",
                                           "train-iters",
                                           "train-samples",
                                           "exit-duration-in-mins",
                                           "exit-interval",
                                           "init-method-std",
                                           "attention-dropout",
                                           "hidden-dropout",
                                           "norm-epsilon",
                                           "layernorm-epsilon",
                                           "normalization",
                                           "position-embedding-type",
                                           "use-rotary-position-embeddings",
                                           "apply-layernorm-1p",
                                           "disable-bias-linear",
                                           "add-qkv-bias",
                                           "max-position-embeddings",
                                           "vocab-file",
                                           "merge-file",
                                           "use-mcore-models",
                                           "use-legacy-models",
                                           "transformer-impl",
                                           "attention-softmax-in-fp32",
                                           "use-flash-attn",
                                           "distributed-backend",
                                           "distributed-timeout-minutes",
                                           "local-rank",
                                           "manual-gc",
                                           "manual-gc-interval",
                                           "mock-data",
                                           "override-opt-param-scheduler",
                                           "override-opt_param-scheduler",
                                           "use-checkpoint-args",
                                           "finetune",
                                           "ckpt-format",
                                           "async-save",
                                           "empty-unused-memory-level",
                                           "group-query-attention",
                                           "initial-loss-scale",
                                           "min-loss-scale",
                                           "loss-scale",
                                           "loss-scale-window",
                                           "hysteresis",
                                           "overlap-p2p-communication",
                                           "cross-entropy-loss-fusion",
                                           "calculate-per-token-loss",
                                           "qk-layernorm",
                                           "eod-mask-loss",
                                           "reset-position-ids",
                                           "reset-attention-mask",
                                           "master-addr",
                                           "master-port",
                                           "node-rank",
                                           "rdzv-endpoint",
                                           "rdzv-backend",
                                           "rdzv-id",
                                           "max-restarts",
                                           "moe-grouped-gemm",
                                           "moe-permute-fusion",
                                           "moe-deepep-num-sms",
                                           "moe-hybridep-num-sms",
                                           "moe-z-loss-coeff",
                                           "moe-aux-loss-coeff",
                                           "moe-input-jitter-eps",
                                           "no-gradient-accumulation-fusion",
                                           "no-async-tensor-model-parallel-allreduce",
                                           "create-attention-mask-in-dataloader",
                                           "fp8-amax-history-len",
                                           "fp8-amax-compute-algo",
                                           "fp8-margin",
                                           "fp8-interval",
                                           "fp8-param-gather",
                                           "overlap-param-gather-with-optimizer-step",
                                           "te-rng-tracker",
                                           "enable-cuda-graph",
                                           "external-cuda-graph",
                                           "cuda-graph-scope",
                                           "enable-experimental"};
const std::vector<std::string_view> kHarmlessBeginnings{"adam-",
                                                        "data-args-path",
                                                        "data-cache-path",
                                                        "data-parallel-random-init",
                                                        "data-path",
                                                        "data-sharding",
                                                        "lr",
                                                        "min-lr",
                                                        "log-",
                                                        "tensorboard-",
                                                        "wandb-",
                                                        "eval-",
                                                        "save-",
                                                        "no-load-",
                                                        "no-save-",
                                                        "tokenizer-",
                                                        "rotary-",
                                                        "moe-router-",
                                                        "train-data",
                                                        "valid-data",
                                                        "test-data",
                                                        "timing-",
                                                        "no-masked-softmax",
                                                        "no-bias-",
                                                        "no-rope",
                                                        "no-create-attention",
                                                        "no-mmap",
                                                        "dist-ckpt",
                                                        "profile",
                                                        "check-",
                                                        "rerun-",
                                                        "start-weight",
                                                        "end-weight",
                                                        "weight-decay-incr",
                                                        "no-check-",
                                                        "tp-comm-overlap-"};

/// "tensor-model-parallel-size" has the words of "tensor-parallel-size", in their order, and begins
/// with the first.
bool has_words_of(std::string_view longer, std::string_view name) {
  std::size_t from = 0;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('-', at), name.size());
    const std::size_t found = longer.find(name.substr(at, end - at), from);
    if (found == std::string_view::npos || (at == 0 && found != 0)) {
      return false;
    }
    from = found + end - at;
    at = end + 1;
  }
  return true;
}

struct Option {
  std::string value;  ///< empty: a flag
  int line = 0;
};

std::vector<std::pair<std::string, int>> words_of(std::string_view text) {
  std::vector<std::pair<std::string, int>> words;
  std::string word;
  int line = 1;
  char quote = 0;
  bool comment = false;
  const auto finish = [&] {
    if (!word.empty()) {
      words.emplace_back(std::move(word), line);
      word.clear();
    }
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      finish();
      ++line;
      comment = false;
    } else if (comment) {
      continue;
    } else if (quote != 0 ? c == quote : c == '"' || c == '\'') {
      quote = quote != 0 ? '\0' : c;
    } else if (quote == 0 && c == '#' && word.empty()) {
      // Our own export says in a comment how many processes the launcher starts.
      comment = !text.substr(i).starts_with("# torchrun ");
    } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\\' && quote == 0) ||
               (quote == 0 && (c == '(' || c == ')'))) {
      finish();
    } else {
      word += c;
    }
  }
  finish();
  return words;
}

class Arguments {
 public:
  explicit Arguments(const Source& source) : label_(source.label) {
    std::string* into = nullptr;
    for (const auto& [word, line] : words_of(with_variables(source.text))) {
      if (word.starts_with("--")) {
        const std::size_t equals = std::min(word.find('='), word.size());
        std::string name = word.substr(2, equals - 2);
        std::replace(name.begin(), name.end(), '_', '-');
        Option& option = options_[name];
        option = {equals < word.size() ? word.substr(equals + 1) : "", line};
        into = &option.value;
      } else if (into != nullptr && into->empty()) {
        *into = word;
      }  // further words are lists of paths and weights, or the launcher's own
    }
  }

  [[nodiscard]] std::string where(const std::string& name) const {
    const auto it = options_.find(name);
    return it == options_.end() ? fmt::format("{}: --{}", label_, name)
                                : fmt::format("{}:{}: --{}", label_, it->second.line, name);
  }
  [[noreturn]] void refuse(const std::string& name, const std::string& message) const {
    throw InputError(where(name), message);
  }
  bool has(const std::string& name) {
    seen_.insert(name);
    return options_.count(name) != 0;
  }
  std::string text(const std::string& name) {
    return has(name) ? options_.at(name).value : std::string();
  }
  /// At most 2^31 - 1, so that products of two are exact.
  std::optional<std::int64_t> integer_at_least(const std::string& name, std::int64_t least) {
    if (!has(name)) {
      return std::nullopt;
    }
    const std::string& value = options_.at(name).value;
    std::int64_t n = 0;
    const char* end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, n);
    if (error != std::errc() || stop != end || n < least || n > INT32_MAX) {
      const bool variable = value.find('$') != std::string::npos;
      refuse(name, fmt::format("found '{}', expected a whole number from {} to {}{}",
                               value.substr(0, 40), least, INT32_MAX,
                               variable ? "; the script does not set this variable to one plain "
                                          "value: write the number"
                                        : ""));
    }
    return n;
  }
  /// Sizes and degrees: 1 or more.
  std::optional<std::int64_t> size(const std::string& name) { return integer_at_least(name, 1); }
  std::int64_t required(const std::string& name, const char* what) {
    const auto n = size(name);
    if (!n) {
      const std::string meant = nearest_name(name, unknown());
      refuse(name, fmt::format("missing; expected {}{}", what,
                               meant.empty() ? "" : fmt::format(" (found --{})", meant)));
    }
    return *n;
  }
  /// What one of the words `known` stands for; the first where the option is not given.
  template <typename T>
  T choice(const std::string& name, std::initializer_list<std::pair<std::string_view, T>> known) {
    if (!has(name)) {
      return known.begin()->second;
    }
    const std::string value = text(name);
    std::string words;
    for (const auto& [word, meaning] : known) {
      if (word == value) {
        return meaning;
      }
      words += fmt::format("{}{}", words.empty() ? "" : ", ", word);
    }
    refuse(name, fmt::format("found '{}', expected one of {}", value.substr(0, 40), words));
  }
  /// All of them at once, each with its line and the option it may be meant for.
  void refuse_unread() const {
    const std::vector<std::string> left = unknown();
    if (left.empty()) {
      return;
    }
    std::vector<std::string> known(seen_.begin(), seen_.end());
    known.insert(known.end(), kHarmless.begin(), kHarmless.end());
    const auto hint = [&](const std::string& name) {
      const auto longer = std::find_if(known.begin(), known.end(),
                                       [&](const std::string& k) { return has_words_of(k, name); });
      const std::string meant = longer != known.end() ? *longer : nearest_name(name, known);
      return meant.empty() ? std::string() : fmt::format("did you mean --{}? ", meant);
    };
    if (left.size() == 1) {
      refuse(left.front(), fmt::format("an option that stepcast does not read and that may change "
                                       "what a step costs; {}remove it if it does not, else write "
                                       "the job in stepcast's own form",
                                       hint(left.front())));
    }
    std::string list;
    for (const std::string& name : left) {
      list += fmt::format("\n  line {}: --{} {}", options_.at(name).line, name, hint(name));
      list.erase(list.find_last_not_of(' ') + 1);
    }
    throw InputError(label_, fmt::format("{} options that stepcast does not read and that may "
                                         "change what a step costs; remove those that do not, else "
                                         "write the job in stepcast's own form:{}",
                                         left.size(), list));
  }

 private:
  /// Options that nothing has asked for and that matter, by line.
  [[nodiscard]] std::vector<std::string> unknown() const {
    std::vector<std::string> names;
    for (const auto& [name, option] : options_) {
      const bool harmless =
          kHarmless.count(name) != 0 ||
          std::any_of(kHarmlessBeginnings.begin(), kHarmlessBeginnings.end(),
                      [&n = name](std::string_view b) { return n.starts_with(b); });
      if (seen_.count(name) == 0 && !harmless) {
        names.push_back(name);
      }
    }
    std::stable_sort(names.begin(), names.end(),
                     [this](const std::string& x, const std::string& y) {
                       return options_.at(x).line < options_.at(y).line;
                     });
    return names;
  }

  std::string label_;
  std::map<std::string, Option> options_;
  std::set<std::string> seen_;
};

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
    if (*shared % width != 0) {
      a.refuse("moe-shared-expert-intermediate-size",
               fmt::format("found {}: shared experts are counted in experts of {} columns; use a "
                           "multiple",
                           *shared, width));
    }
    moe["shared"] = *shared / width;
  }
  if (const auto groups = a.size("moe-router-num-groups")) {
    moe["groups"] = *groups;
    moe["groups_per_token"] = a.required(
        "moe-router-group-topk", "of how many of --moe-router-num-groups a token's experts are");
  }
  if (a.has("moe-token-dispatcher-type") && a.size("expert-model-parallel-size").value_or(1) > 1) {
    // Gathering every token on every rank of the group moves other bytes.
    a.choice<bool>("moe-token-dispatcher-type",
                   {{"alltoall", true}, {"alltoall_seq", true}, {"flex", true}});
  }
  if (a.has("moe-expert-capacity-factor")) {
    moe["capacity_factor"] =
        parse_json(a.text("moe-expert-capacity-factor"), a.where("moe-expert-capacity-factor"));
  }
  if (a.has("moe-layer-freq")) {
    // 1, or a list such as ([0]*3+[1]*58): the dense layers first.
    std::string freq = a.text("moe-layer-freq");
    std::erase_if(freq, [](char c) { return c == '(' || c == ')'; });
    constexpr std::string_view kDense = "[0]*";
    int dense = 0;
    const char* end = freq.data() + freq.size();
    const auto [stop, error] =
        std::from_chars(freq.data() + std::min(kDense.size(), freq.size()), end, dense);
    if (freq.starts_with(kDense) && error == std::errc() && dense >= 0 &&
        std::string_view(stop, static_cast<std::size_t>(end - stop)).starts_with("+[1]*")) {
      moe["first_dense_layers"] = dense;
    } else if (freq != "1") {
      a.refuse("moe-layer-freq",
               fmt::format("found '{}'; dense layers can only come first: use 1 or ([0]*n+[1]*m)",
                           freq.substr(0, 40)));
    }
  }
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
  if (const auto window = a.size("window-size")) {
    w["window"] = *window;
  }
  w["tied_embeddings"] = !a.has("untie-embeddings-and-output-weights");
  auto vocabulary = a.size("padded-vocab-size");
  const auto raw = a.size("vocab-size");
  const std::int64_t tensor = a.size("tensor-model-parallel-size").value_or(1);
  const std::int64_t unit = a.size("make-vocab-size-divisible-by").value_or(128) * tensor;
  if (!vocabulary && raw) {
    vocabulary = (*raw + unit - 1) / unit * unit;
  }
  if (!vocabulary) {
    a.refuse("vocab-size", "missing; expected the size of the tokenizer's vocabulary");
  }
  w["vocabulary"] = *vocabulary;
  read_experts(a, w);
  w["source"] = "arguments of Megatron-LM";
  return w;
}

/// Layers of every chunk that a layout draws: stages apart by '|', E embedding, t layer, L loss,
/// "x*3" and "(xy|)*3" for repetition, commas of no meaning.
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
    } else {
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
  if (granularity.empty() || granularity == "selective") {
    return granularity.empty() ? "none" : "selective";
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
  if (a.has("use-megatron-fsdp")) {
    return a.choice<int>(
        "data-parallel-sharding-strategy",
        {{"no_shard", 0}, {"optim", 1}, {"optim_grads", 2}, {"optim_grads_params", 3}});
  }
  return sharded ? 1 : 0;
}

/// Which kernels a step is made of, in what numbers, and what updates the weights.
void read_step(Arguments& a, Json& job) {
  const bool fp8 = a.has("fp8-format") || a.has("fp8-hybrid") || a.has("fp8-recipe");
  const bool fp16 = a.has("fp16");
  if (fp8 || fp16 || a.has("bf16")) {
    job["formats"]["compute"] = fp8 ? "fp8" : fp16 ? "fp16" : "bf16";
  }
  // Beside --bf16, Megatron-LM turns --accumulate-allreduce-grads-in-fp32 on itself.
  const bool in_fp32 = a.has("accumulate-allreduce-grads-in-fp32");
  job["formats"]["gradient"] = a.has("grad-reduce-in-bf16") ? "bf16"
                               : fp16 && !in_fp32           ? "fp16"
                                                            : "fp32";
  job["attention"] = a.choice<const char*>(
      "attention-backend",
      {{"auto", "flash"}, {"flash", "flash"}, {"fused", "flash"}, {"unfused", "unfused"}});
  job["optimizer"] = a.choice<const char*>("optimizer", {{"adam", "adam"}, {"sgd", "sgd"}});
  const std::string momentum = a.text("sgd-momentum");
  if (job["optimizer"] == "sgd" && momentum.find_first_not_of("0.") != std::string::npos) {
    a.refuse("sgd-momentum", fmt::format("found '{}', expected 0: sgd keeps no state here, and "
                                         "momentum is 4 B of every parameter",
                                         momentum.substr(0, 40)));
  }
  if (job["optimizer"] == "sgd" && momentum.empty()) {
    a.refuse("sgd-momentum",
             "missing; expected 0: Megatron-LM's own momentum (0.9) is 4 B of "
             "every parameter, and sgd keeps no state here");
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
  if (const auto columns = a.size("expert-tensor-parallel-size")) {
    p["expert_tensor"] = *columns;
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
  p["sequence_parallel"] = a.has("sequence-parallel") && p["tensor"] > 1;
  p["zero"] = zero_stage(a);
  p["recompute"] = recompute_of(a);
  if (const auto elements = a.size("ddp-bucket-size")) {  // of gradients in fp32
    p["bucket"] = fmt::format("{} B", 4 * *elements);
  }
  if (a.has("cp-comm-type")) {
    const auto* algorithm = a.choice<const char*>(
        "cp-comm-type", {{"p2p", "ring"}, {"a2a", "all_to_all"}, {"all_gather", "all_gather"}});
    if (p["context"] > 1) {
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

}  // namespace

bool is_megatron(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] != '{' &&
         (text.find("--num-layers") != std::string_view::npos ||
          text.find("--num_layers") != std::string_view::npos);
}

Document job_of_megatron(const Source& source) {
  Arguments a(source);
  Json job = Json::object();
  job["stepcast"] = 1;
  Json workload = workload_of(a);
  const auto processes = a.size("nproc-per-node");
  const auto nodes = a.size("nnodes");
  if (const auto world = a.size("world-size")) {
    job["devices"] = *world;
  } else if (processes) {
    job["devices"] = *processes * nodes.value_or(1);
  }
  const std::int64_t micro = a.required("micro-batch-size", "sequences per micro-batch");
  job["batch"] = {{"micro", micro}, {"sequence", a.required("seq-length", "tokens per sequence")}};
  if (const auto global = a.size("global-batch-size")) {
    job["batch"]["global"] = *global;
  } else {
    a.refuse("global-batch-size", "missing; expected sequences per optimizer step");
  }
  job["parallel"] = parallel_of(a, workload["layers"].get<std::int64_t>());
  job["workload"] = std::move(workload);
  read_step(a, job);
  a.refuse_unread();
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
    return job_of_megatron(source).root.dump(indent) + "\n";
  }
  Document d = parse_document(source);
  if (is_embedding_tables(d.root)) {
    return job_of_embedding_tables(std::move(d)).root.dump(indent) + "\n";
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
