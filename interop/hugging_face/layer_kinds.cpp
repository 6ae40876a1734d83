#include "interop/hugging_face/reader.h"

#include <map>

namespace stepcast::interop {
namespace {

using Layers = std::vector<FileLayer>;

/// Entries of a list, one for each layer.
std::vector<Value> entries_of(const Value& v, std::string_view expected, const Layers& layers) {
  std::vector<Value> entries = v.items(expected);
  if (entries.size() != layers.size()) {
    v.reject(fmt::format("has {} entries, and the model {} layers", entries.size(), layers.size()));
  }
  return entries;
}

/// Blocks of Nemotron-H: one letter, or one word, each.
void read_blocks(const Value& v, Layers& layers) {
  std::vector<std::string> blocks;
  if (v.is_string()) {
    for (const char letter : v.text("letters of blocks")) {
      blocks.emplace_back(1, letter);
    }
  } else {
    for (const Value& block : v.items("kinds of blocks")) {
      blocks.push_back(block.text("mamba, attention, mlp or moe"));
    }
  }
  if (blocks.size() != layers.size()) {
    v.reject(fmt::format("has {} blocks, and the model {} layers", blocks.size(), layers.size()));
  }
  layers.clear();
  for (const std::string& block : blocks) {
    const auto layer = hybrid_block(block);
    if (!layer) {
      v.reject(fmt::format("found \"{}\": stepcast does not model blocks of this kind",
                           block.substr(0, 40)));
    }
    layers.push_back(*layer);
  }
}

/// Kinds of layers, a word each; a list of another length goes over and over, which is said.
void read_types(ConfigReader& r, const Value& v, Layers& layers) {
  static const std::map<std::string, const char*> kinds{{"full_attention", "attention"},
                                                        {"attention", "attention"},
                                                        {"sliding_attention", "window"},
                                                        {"chunked_attention", "window"},
                                                        {"linear_attention", "delta"},
                                                        {"mamba", "mamba"},
                                                        {"conv", "convolution"},
                                                        {"compressed_sparse_attention", "csa"},
                                                        {"heavily_compressed_attention", "hca"}};
  const std::vector<Value> types = v.items("a list of kinds of layers", 1);
  if (types.size() != layers.size()) {
    r.approximate(fmt::format("{} kinds of layers for {} layers (over and over)", types.size(),
                              layers.size()));
  }
  bool sparse = false;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Value& at = types[i % types.size()];
    const std::string type = at.text("the kind of a layer");
    const auto kind = kinds.find(type);
    if (kind == kinds.end() && type.find("sparse") != std::string::npos) {
      sparse = true;
    } else if (kind == kinds.end()) {
      at.reject(fmt::format(
          "found \"{}\", expected full_attention, sliding_attention, chunked_attention, "
          "linear_attention, mamba, conv, compressed_sparse_attention or "
          "heavily_compressed_attention: stepcast does not model layers of other kinds",
          type.substr(0, 40)));
    } else {
      layers[i].mixer = kind->second;
    }
  }
  if (sparse && !r.value().json().contains("index_topk")) {
    r.approximate("sparse attention (every query sees all keys: slower)");
  }
}

/// DeepSeek-V4: how many tokens a key beside the window stands for; those of layers of multi-token
/// prediction follow.
void read_ratios(const Value& v, const Json& compressed, Layers& layers) {
  const std::vector<Value> ratios = v.items("a number of tokens for each layer", layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::int64_t ratio = ratios[i].integer(0, kLargestCount);
    if (ratio != 0 && ratio != compressed["ratio"] && ratio != compressed["heavy_ratio"]) {
      ratios[i].fail(fmt::format("0, {} or {}", compressed["ratio"].get<std::int64_t>(),
                                 compressed["heavy_ratio"].get<std::int64_t>()));
    }
    layers[i].mixer = ratio == 0 ? "window" : ratio == compressed["ratio"] ? "csa" : "hca";
  }
}

/// Layers that a list names attend, the others have the mixer.
void read_attending(const Value& v, std::int64_t first, const char* mixer, Layers& layers) {
  for (FileLayer& layer : layers) {
    layer.mixer = mixer;
  }
  const auto most = static_cast<std::int64_t>(layers.size());
  for (const Value& at : v.items("layers with attention")) {
    layers[static_cast<std::size_t>(at.integer(first, most - 1 + first) - first)].mixer =
        "attention";
  }
}

bool has(const Layers& layers, std::string_view mixer) {
  return std::any_of(layers.begin(), layers.end(),
                     [&](const FileLayer& layer) { return layer.mixer == mixer; });
}

void read_mamba(ConfigReader& r, Json& w) {
  w["mamba"] = {{"heads", r.integer({"mamba_num_heads", "mamba_n_heads"})},
                {"head_dim", r.integer({"mamba_head_dim", "mamba_d_head"})},
                {"groups", r.integer({"n_groups", "mamba_n_groups"})},
                {"state", r.integer({"ssm_state_size", "mamba_d_state"})},
                {"kernel", r.integer_or({"conv_kernel", "mamba_d_conv"}, 4)},
                {"chunk", r.integer_or({"chunk_size", "mamba_chunk_size"}, 256)}};
  r.find({"expand", "mamba_expand", "mamba_conv_bias", "mamba_proj_bias", "use_conv_bias"});
}

void read_delta(ConfigReader& r, Json& w) {
  if (const auto own = r.find("linear_attn_config")) {  // Kimi Linear
    const std::int64_t heads = own->at("num_heads", "heads").integer(1, 1 << 16);
    const std::int64_t dim = own->at("head_dim", "the width of a head").integer(1, 1 << 16);
    const auto kernel = own->find("short_conv_kernel_size");
    w["delta"] = {{"heads", heads},   {"key_heads", heads},
                  {"key_dim", dim},   {"value_dim", dim},
                  {"gate_rank", dim}, {"kernel", kernel ? kernel->integer(1, 64) : 4}};
    return;
  }
  w["delta"] = {{"heads", r.integer({"linear_num_value_heads"})},
                {"key_heads", r.integer({"linear_num_key_heads"})},
                {"key_dim", r.integer({"linear_key_head_dim"})},
                {"value_dim", r.integer({"linear_value_head_dim"})},
                {"kernel", r.integer_or({"linear_conv_kernel_dim"}, 4)}};
}

/// Mixers of all layers, without windows of attention.
void read_mixers(ConfigReader& r, Json& w, const ModelClass& c, Layers& layers) {
  const auto blocks = r.find({"hybrid_override_pattern", "layers_block_type"});
  const auto types = r.find("layer_types");
  const auto ratios = r.find("compress_ratios");
  const auto kimi = r.find("linear_attn_config");
  const auto attending = r.find({"attn_layer_indices", "full_attn_idxs"});
  const auto every = r.find("full_attention_interval");
  const std::int64_t interval = every ? every->integer(1, kLargestCount) : 4;
  if (blocks) {
    read_blocks(*blocks, layers);
  } else if (types) {
    read_types(r, *types, layers);
  } else if (ratios && w.contains("compressed")) {
    read_ratios(*ratios, w["compressed"], layers);
  } else if (kimi) {
    read_attending(kimi->at("full_attn_layers", "layers with attention"), 1, "delta", layers);
  } else if (attending) {
    read_attending(*attending, 0, r.find("conv_L_cache") ? "convolution" : "mamba", layers);
  } else if (r.find("linear_num_key_heads")) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      layers[i].mixer = (static_cast<std::int64_t>(i) + 1) % interval == 0 ? "attention" : "delta";
    }
  }
  if (const auto state = r.find({"ssm_state_size", "mamba_d_state"});
      state && !blocks && !types && !attending) {
    state->reject("found without a list that says which layers have a state");
  }
  if (w.contains("compressed") && !has(layers, "csa") && !has(layers, "hca")) {
    (void)r.value().at("compress_ratios", "a number of tokens for each layer");
  }
  if (has(layers, "csa")) {
    w["sparse"] = indexer_of(r);
  }
  if (has(layers, "mamba")) {
    read_mamba(r, w);
  }
  if (has(layers, "delta")) {
    read_delta(r, w);
  }
  if (has(layers, "convolution")) {
    w["convolution"] = {{"kernel", r.integer_or({"conv_L_cache"}, 3)}};
    r.find({"conv_dim", "conv_dim_out", "conv_bias", "conv_use_xavier_init"});
  }
  if (r.flag_or("attn_output_gate", c.output_gate)) {
    w["output_gate"] = true;
  }
  // Granite keeps the sizes of layers that it does not have.
  r.find({"mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv",
          "mamba_chunk_size", "mamba_expand", "mamba_conv_bias", "mamba_proj_bias"});
}

/// Windows of attention: of some layers as a list says, else of all but every n-th.
void read_windows(ConfigReader& r, Json& w, const ModelClass& c, Layers& layers) {
  const bool windowed = r.flag_or("use_sliding_window", true);
  const std::int64_t all =
      r.integer_or({"sliding_window_pattern", "no_rope_layer_interval"}, c.full_every);
  const std::int64_t every = all > 1 ? all : 0;       // 0: no layer sees all
  const auto chunk = r.find("attention_chunk_size");  // Llama 4
  const auto narrow = r.find({"sliding_window", "sliding_window_size", "window_size"});
  const auto window = narrow ? narrow : chunk;
  if (const auto list = r.find("hybrid_layer_pattern")) {  // MiMo: 1 has a window
    const std::vector<Value> narrows = entries_of(*list, "0 or 1 for each layer", layers);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      layers[i].mixer = narrows[i].integer(0, 1) == 1 ? "window" : "attention";
    }
  } else if (!r.find("layer_types") && window) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const bool sees_all = every > 0 && (static_cast<std::int64_t>(i) + 1) % every == 0;
      layers[i].mixer = layers[i].mixer == "attention" && !sees_all ? "window" : layers[i].mixer;
    }
  }
  if (!window || !windowed) {
    if (!window && has(layers, "window")) {
      r.approximate("windows of a width that the file does not say (all see all keys: slower)");
    }
    for (FileLayer& layer : layers) {
      layer.mixer = layer.mixer == "window" ? "attention" : layer.mixer;
    }
  }
  if (!has(layers, "window") && !w.contains("compressed")) {
    return;
  }
  w["window"] = window ? window->integer(1, 1 << 26) : r.integer({"sliding_window"});
  if (!narrow) {
    w["chunked"] = true;
  }
}

/// Layers without experts where a file says which have them.
void read_dense(ConfigReader& r, Layers& layers) {
  const auto set = [&](const auto& is_dense) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (layers[i].feed_forward == "experts" && is_dense(static_cast<std::int64_t>(i))) {
        layers[i].feed_forward = "mlp";
      }
    }
  };
  const std::int64_t first =
      r.integer_or({"first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"}, 0);
  set([&](std::int64_t i) { return i < first; });
  const auto frequency = r.find(
      {"moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"});
  if (frequency && frequency->json().is_array()) {
    const std::vector<Value> list = entries_of(*frequency, "0 or 1 for each layer", layers);
    set([&](std::int64_t i) { return list[static_cast<std::size_t>(i)].integer(0, 1) == 0; });
  } else if (frequency) {
    const std::int64_t every = frequency->integer(1, kLargestCount);
    set([&](std::int64_t i) { return (i + 1) % every != 0; });
  }
  if (const auto list = r.find("mlp_only_layers")) {
    for (const Value& layer : list->items("layers without experts")) {
      layers[static_cast<std::size_t>(
                 layer.integer(0, static_cast<std::int64_t>(layers.size()) - 1))]
          .feed_forward = "mlp";
    }
  }
  if (const auto types = r.find("mlp_layer_types")) {
    const std::vector<Value> kinds =
        entries_of(*types, "\"dense\" or \"sparse\" for each layer", layers);
    set([&](std::int64_t i) { return kinds[static_cast<std::size_t>(i)].is("dense"); });
  }
}

}  // namespace

Json indexer_of(ConfigReader& r) {
  return {{"top_k", r.integer({"index_topk"})},
          {"index_heads", r.integer({"index_n_heads"})},
          {"index_head_dim", r.integer({"index_head_dim"})}};
}

std::vector<FileLayer> layers_of(ConfigReader& r, Json& w, const ModelClass& c) {
  Layers layers(static_cast<std::size_t>(w["layers"].get<std::int64_t>()));
  read_mixers(r, w, c, layers);
  read_windows(r, w, c, layers);
  if (w.contains("moe") && !r.find({"hybrid_override_pattern", "layers_block_type"})) {
    for (FileLayer& layer : layers) {
      layer.feed_forward = "experts";
    }
    read_dense(r, layers);
  }
  const bool experts = std::any_of(layers.begin(), layers.end(), [](const FileLayer& layer) {
    return layer.feed_forward == "experts";
  });
  if (experts && !w.contains("moe")) {
    (void)r.value().at("n_routed_experts", "the number of experts of its blocks E");
  }
  return layers;
}

}  // namespace stepcast::interop
