#include "core/config/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/config/aliases.h"

namespace stepcast::config {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Optimal string alignment distance, three rows of the table at a time.
std::size_t distance(std::string_view a, std::string_view b) {
  std::array<std::vector<std::size_t>, 3> row;
  for (auto& r : row) {
    r.assign(b.size() + 1, 0);
  }
  for (std::size_t j = 0; j <= b.size(); ++j) {
    row[0][j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto& now = row[i % 3];
    const auto& before = row[(i + 2) % 3];
    const auto& two_before = row[(i + 1) % 3];
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      now[j] = std::min({before[j] + 1, now[j - 1] + 1, before[j - 1] + (same ? 0U : 1U)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
          lower(a[i - 2]) == lower(b[j - 1])) {
        now[j] = std::min(now[j], two_before[j - 2] + 1);
      }
    }
  }
  return row[a.size() % 3][b.size()];
}

/// Words of a name, in one order: "adagrad_rowwise" is "rowwise_adagrad".
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (c == '_' || c == '-' || c == ' ') {
      words.emplace_back();
    } else {
      words.back() += lower(c);
    }
  }
  std::sort(words.begin(), words.end());
  return words;
}

/// The same first letter, and all others in order.
bool abbreviates(std::string_view shorter, std::string_view found) {
  std::size_t at = 0;
  for (const char c : found) {
    at += at < shorter.size() && lower(shorter[at]) == lower(c) ? 1 : 0;
  }
  return at == shorter.size() && lower(shorter.front()) == lower(found.front());
}

}  // namespace

std::string_view meant_by_shorthand(std::string_view word) {
  const std::string_view key = key_called(word);
  return key == word ? std::string_view() : key.substr(key.rfind('.') + 1);
}

std::string nearest_name(std::string_view found, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongest = 64;  // bounds the table; longer names are not mistyped
  if (found.empty() || found.size() > kLongest) {
    return {};
  }
  if (const auto meant = std::find(candidates.begin(), candidates.end(), meant_by_shorthand(found));
      meant != candidates.end()) {
    return *meant;
  }
  const std::vector<std::string> words = words_of(found);
  for (const std::string& c : candidates) {
    if (words_of(c) == words) {
      return c;
    }
  }
  // The beginning of a name says more than letters that are near: "h100" of "h100-sxm-80gb".
  constexpr std::size_t kTelling = 4;
  for (const std::string& c : candidates) {
    if (found.size() >= kTelling && c.starts_with(found)) {
      return c;
    }
  }
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, found.size() / 3) + 1;
  for (const std::string& c : candidates) {
    if (c.size() > kLongest) {
      continue;
    }
    if (const std::size_t d = distance(found, c); d < best_distance) {
      best_distance = d;
      best = c;
    }
  }
  if (!best.empty() || found.size() < 2) {
    return best;
  }
  // The beginning of a name: "h100" of "h100-sxm-80gb"; else a part of it: of "dgx-h100".
  for (const bool beginning : {true, false}) {
    for (const std::string& c : candidates) {
      const std::size_t at = c.find(found);
      if (at == 0 || (at != std::string::npos && !beginning && found.size() > 2)) {
        return c;
      }
    }
  }
  // A name that abbreviates it: "bf16" for "bfloat16".
  for (const std::string& c : candidates) {
    if (c.size() > 2 && c.size() < found.size() && abbreviates(c, found)) {
      return c;
    }
  }
  return {};
}

std::string list_of(const std::vector<std::string>& names, std::size_t limit) {
  std::string text;
  const std::size_t shown = std::min(limit, names.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == names.size();
    text += (i == 0 ? "" : last ? " or " : ", ") + names[i];
  }
  return shown < names.size() ? text + ", ..." : text;
}

std::string suggestion(std::string_view found, const std::vector<std::string>& candidates) {
  const std::string near = nearest_name(found, candidates);
  return near.empty()
             ? fmt::format("use one of {}", list_of(candidates, 48))
             : fmt::format("did you mean \"{}\"? (one of {})", near, list_of(candidates, 12));
}

}  // namespace stepcast::config
