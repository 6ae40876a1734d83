#pragma once
#include <string>
#include <utility>
#include <vector>

namespace stepcast::fixtures {

/// Words of a command line, or settings of a job: listed, or in one text that is taken apart as a
/// shell does.
struct Words : std::vector<std::string> {
  using std::vector<std::string>::vector;
  Words(const char* line);                                                          // NOLINT
  Words(std::vector<std::string> words) : vector<std::string>(std::move(words)) {}  // NOLINT
};

inline Words words_of(const std::string& line) {
  Words words;
  bool quoted = false, inside = false;
  for (const char c : line) {
    if (c == ' ' && !quoted) {
      inside = false;
      continue;
    }
    if (!inside) {
      words.emplace_back();
    }
    inside = true;
    quoted = quoted != (c == '\'');
    if (c != '\'') {
      words.back() += c;
    }
  }
  return words;
}

inline Words::Words(const char* line) : Words(words_of(line)) {}

inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace stepcast::fixtures
