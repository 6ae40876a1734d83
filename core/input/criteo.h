#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace stepcast {

/// Click logs of Criteo: label, integers, categories, separated by tabs; any of them may be empty.
constexpr std::size_t kCriteoIntegers = 13;
constexpr std::size_t kCriteoCategories = 26;

/// The row that a category, a hash of hexadecimal digits, has in a table of `rows`: the hash modulo
/// the rows, as the DLRM reference code takes it, and 0 where it is missing. With `rows` 0 the hash
/// itself. nullopt: no such hash.
inline std::optional<std::int64_t> criteo_row(std::string_view category, std::int64_t rows) {
  if (category.empty()) {
    return 0;
  }
  std::int64_t hash = 0;
  const char* last = category.data() + category.size();
  const auto [end, error] = std::from_chars(category.data(), last, hash, 16);
  if (error != std::errc() || end != last || hash < 0) {
    return std::nullopt;
  }
  return rows > 0 ? hash % rows : hash;
}

}  // namespace stepcast
