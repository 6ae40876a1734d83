#include <algorithm>
#include <charconv>

#include "interop/megatron/import_parts.h"
#include "interop/megatron/option_table.h"
#include "interop/window_pattern.h"

// Which model the arguments of Megatron-LM describe.
namespace stepcast::interop {
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
      a.reject("moe-layer-freq",
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
    a.reject("window-size",
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
      a.reject("window-attn-skip-freq",
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

}  // namespace

Json megatron_workload(Arguments& a) {
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

}  // namespace stepcast::interop
