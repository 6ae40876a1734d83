#include "interop/layer_list.h"

#include <algorithm>
#include <map>

#include "core/config/pattern_text.h"

namespace stepcast::interop {
namespace {

std::string word_of(const FileLayer& layer) {
  return layer.mixer.empty() || layer.feed_forward.empty() ? layer.mixer + layer.feed_forward
                                                           : layer.mixer + "+" + layer.feed_forward;
}

/// n where layers n, 2n, ..., counted from 1, and no others see all keys; 0 where none does;
/// nothing where no such n says it.
std::optional<std::int64_t> full_attention_every(const std::vector<bool>& sees_all) {
  const auto first = std::find(sees_all.begin(), sees_all.end(), true);
  const std::int64_t every = first == sees_all.end() ? 0 : first - sees_all.begin() + 1;
  for (std::size_t i = 0; i < sees_all.size(); ++i) {
    if (sees_all[i] != (every > 0 && (i + 1) % static_cast<std::size_t>(every) == 0)) {
      return std::nullopt;
    }
  }
  return every;
}

}  // namespace

std::optional<FileLayer> hybrid_block(const std::string& block) {
  static const std::map<std::string, FileLayer> kinds{
      {"M", {"mamba", ""}},   {"mamba", {"mamba", ""}},         {"*", {"attention", ""}},
      {"-", {"", "mlp"}},     {"attention", {"attention", ""}}, {"mlp", {"", "mlp"}},
      {"E", {"", "experts"}}, {"moe", {"", "experts"}}};
  const auto kind = kinds.find(block);
  return kind == kinds.end() ? std::nullopt : std::optional(kind->second);
}

void write_layers(Json& w, const std::vector<FileLayer>& layers) {
  if (std::none_of(layers.begin(), layers.end(), [](const FileLayer& layer) {
        return layer.feed_forward == "experts";
      })) {
    w.erase("moe");
  }
  const bool experts = w.contains("moe");
  std::vector<bool> sees_all;
  std::size_t dense = 0;
  bool plain = true;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    sees_all.push_back(layers[i].mixer == "attention");
    plain = plain && !layers[i].feed_forward.empty() &&
            (layers[i].mixer == "attention" || layers[i].mixer == "window");
    const bool is_dense = layers[i].feed_forward != "experts";
    plain = plain && (!experts || !is_dense || dense == i);
    dense += is_dense ? 1 : 0;
  }
  const std::optional<std::int64_t> every =
      w.contains("window") ? full_attention_every(sees_all) : 0;
  if (!plain || !every) {
    std::vector<std::string> words;
    for (const FileLayer& layer : layers) {
      words.push_back(word_of(layer));
    }
    w["pattern"] = config::pattern_text(words);
    return;
  }
  if (*every > 0) {
    w["full_attention_every"] = *every;
  }
  if (experts) {
    w["moe"]["first_dense_layers"] = dense;
  }
}

}  // namespace stepcast::interop
