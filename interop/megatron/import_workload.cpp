#include <algorithm>
#include <charconv>

#include "interop/layer_list.h"
#include "interop/megatron/import_parts.h"
#include "interop/megatron/option_table.h"

// Which model the arguments of Megatron-LM describe.
namespace stepcast::interop {
namespace {

constexpr auto kLongestList = static_cast<std::size_t>(kMostFileLayers);

/// "([0]*3+[1]*11)" as its 14 numbers, "([0]*3+[1]*1)*2" as twice four; empty where it is not such
/// a sum of zeros and ones.
std::vector<int> layer_pattern(std::string text) {
  if (const std::size_t close = text.rfind(")*"); text.starts_with('(') && close < text.size()) {
    std::size_t times = 0;
    const char* stop = text.data() + text.size();
    const auto [read, error] = std::from_chars(text.data() + close + 2, stop, times);
    const std::vector<int> once = layer_pattern(text.substr(0, close + 1));
    std::vector<int> all;
    for (std::size_t i = 0; error == std::errc() && read == stop && i < times &&
                            all.size() + once.size() <= kLongestList && !once.empty();
         ++i) {
      all.insert(all.end(), once.begin(), once.end());
    }
    return all;
  }
  std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == ' '; });
  std::vector<int> pattern;
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
    if ((!one && !part.starts_with("[0]")) || times == 0 || times > kLongestList - pattern.size()) {
      return {};
    }
    pattern.insert(pattern.end(), times, one ? 1 : 0);
    at = end + 1;
  }
  return pattern;
}

/// Numbers of an option, one for each layer: of its sum, or of `at(n, layer)` where it is a number
/// n.
/// Errors: InputError where it is neither, or has another number of layers.
template <class At>
std::vector<int> by_layer(Arguments& a, const char* name, std::size_t layers, const At& at) {
  const std::string text = a.text(name);
  std::int64_t n = 0;
  const auto [read, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  std::vector<int> all;
  if (error == std::errc() && read == text.data() + text.size() && n > 0) {
    for (std::size_t layer = 0; layer < layers; ++layer) {
      all.push_back(at(n, static_cast<std::int64_t>(layer)) ? 1 : 0);
    }
    return all;
  }
  all = layer_pattern(text);
  if (all.size() != layers) {
    a.reject(name, fmt::format("found '{}', expected a number n, or 0 or 1 for each of the {} "
                               "layers, like ([0]*2+[1]*{})",
                               text.substr(0, 40), layers, layers > 2 ? layers - 2 : 1));
  }
  return all;
}

void read_experts(Arguments& a, Json& w, std::vector<FileLayer>& layers) {
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
  if (const auto latent = a.size("moe-latent-size")) {
    moe["latent"] = *latent;
  }
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
  std::vector<int> has(layers.size(), 1);
  if (a.has("moe-layer-freq")) {
    has = by_layer(a, "moe-layer-freq", layers.size(),
                   [](std::int64_t n, std::int64_t layer) { return layer % n == 0; });
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].feed_forward = has[i] == 1 ? "experts" : "mlp";
  }
}

/// Keys a query sees: "127,0" are 127 before its own, and none after it.
void read_window(Arguments& a, Json& w, std::vector<FileLayer>& layers) {
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
  std::vector<int> windowed(layers.size(), 1);
  if (a.has("window-attn-skip-freq")) {
    windowed = by_layer(a, "window-attn-skip-freq", layers.size(),
                        [](std::int64_t n, std::int64_t layer) { return (layer + 1) % n != 0; });
  }
  bool any = false;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].mixer = windowed[i] == 1 ? "window" : "attention";
    any = any || windowed[i] == 1;
  }
  if (!any) {
    w.erase("window");
  }
}

/// Blocks of a model of Mamba-2, attention, feed-forward blocks and experts, a letter each.
void read_hybrid(Arguments& a, Json& w, std::vector<FileLayer>& layers) {
  const char* name =
      a.has("hybrid-override-pattern") ? "hybrid-override-pattern" : "hybrid-layer-pattern";
  if (!a.has(name)) {
    if (a.has("is-hybrid-model")) {
      a.reject("is-hybrid-model", "found without --hybrid-override-pattern, which says its layers");
    }
    return;
  }
  a.has("is-hybrid-model");
  std::string text = a.text(name);
  if (const std::size_t end = text.find('/'); end != std::string::npos) {  // then of predictions
    w["mtp"] = std::count(text.begin(), text.end(), '/');
    text.resize(end);
  }
  layers.clear();
  for (const char letter : text) {
    const auto layer = letter == '|' ? std::nullopt : hybrid_block(std::string(1, letter));
    if (!layer && letter != '|') {  // which only says where stages of a pipeline end
      a.reject(name, fmt::format("found '{}', expected M, *, - and E", std::string(1, letter)));
    }
    if (layer) {
      layers.push_back(*layer);
    }
  }
  if (static_cast<std::int64_t>(layers.size()) != w["layers"].get<std::int64_t>()) {
    a.reject(name, fmt::format("has {} layers, and --num-layers is {}", layers.size(),
                               w["layers"].get<std::int64_t>()));
  }
  const std::int64_t dim = a.size("mamba-head-dim").value_or(64);
  const auto mixes = [](const FileLayer& layer) { return layer.mixer == "mamba"; };
  const std::int64_t state = a.size("mamba-state-dim").value_or(128);
  const std::int64_t groups = a.size("mamba-num-groups").value_or(8);
  const std::int64_t heads =
      a.size("mamba-num-heads").value_or(2 * w["hidden"].get<std::int64_t>() / dim);
  if (std::any_of(layers.begin(), layers.end(), mixes)) {
    w["mamba"] = {
        {"heads", heads}, {"head_dim", dim}, {"groups", groups}, {"state", state}, {"chunk", 128}};
  }
}

/// Entries of the vocabulary, padded as Megatron-LM does it; nullopt where neither an option nor
/// the tokenizer's name tells.
std::optional<std::int64_t> vocabulary_of(Arguments& a) {
  const std::int64_t divisor = a.size("make-vocab-size-divisible-by").value_or(128);
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
  const std::int64_t unit = divisor * tensor;
  return (*entries + unit - 1) / unit * unit;
}

}  // namespace

Json megatron_workload(Arguments& a) {
  Json w = Json::object();
  w["kind"] = "transformer";
  w["name"] = "megatron-lm";
  w["layers"] = a.required("num-layers", "the number of layers");
  std::vector<FileLayer> layers(
      static_cast<std::size_t>(std::min(w["layers"].get<std::int64_t>(), kMostFileLayers)));
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
    if (a.text("experimental-attention-variant") == "dsa") {
      w["sparse"] = {{"top_k", a.required("dsa-indexer-topk", "keys that a query attends to")},
                     {"index_heads", a.required("dsa-indexer-n-heads", "heads of the indexer")},
                     {"index_head_dim", a.required("dsa-indexer-head-dim", "their width")}};
    }
  } else {
    if (const auto groups = a.size("num-query-groups")) {
      w["kv_heads"] = *groups;
    }
    if (const auto dim = a.size("kv-channels")) {
      w["head_dim"] = *dim;
    }
  }
  read_window(a, w, layers);
  w["tied_embeddings"] = !a.has("untie-embeddings-and-output-weights");
  if (const auto entries = vocabulary_of(a)) {
    w["vocabulary"] = *entries;
  }
  read_experts(a, w, layers);
  read_hybrid(a, w, layers);
  if (a.has("attention-output-gate")) {
    w["output_gate"] = true;
  }
  write_layers(w, layers);
  return w;
}

}  // namespace stepcast::interop
