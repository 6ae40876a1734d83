#include "core/config/pattern_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace stepcast::config {
namespace {

/// How often the first `length` layers stand one after the other.
std::size_t repeats(std::span<const std::string> layers, std::size_t length) {
  std::size_t same = length;
  while (same < layers.size() && layers[same] == layers[same - length]) {
    ++same;
  }
  return same / length;
}

std::string text_of(std::span<const std::string> layers) {
  std::string text;
  while (!layers.empty()) {
    std::size_t length = 1;
    for (std::size_t other = 1; other <= layers.size() / 2; ++other) {
      const std::size_t times = repeats(layers, other);
      length = times > 1 && other * times > length * repeats(layers, length) ? other : length;
    }
    const std::size_t times = repeats(layers, length);
    text += text.empty() ? "" : " ";
    text += times > 1 ? fmt::format("{} x ", times) : "";
    text += length > 1 ? fmt::format("({})", text_of(layers.first(length))) : layers.front();
    layers = layers.subspan(length * times);
  }
  return text;
}

}  // namespace

std::string pattern_text(std::span<const std::string> layers) {
  std::size_t period = 1;
  const auto goes_on = [&] {
    for (std::size_t i = period; i < layers.size(); ++i) {
      if (layers[i] != layers[i - period]) {
        return false;
      }
    }
    return true;
  };
  while (!goes_on()) {
    ++period;
  }
  return text_of(layers.first(std::min(period, layers.size())));
}

}  // namespace stepcast::config
