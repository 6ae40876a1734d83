#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config/config.h"
#include "core/error.h"

namespace stepcast::interop {

/// The options of a launch script, each with its line, in any order, "_" as "-". What is asked for
/// is noted, so that unread options that matter can be rejected at the end.
class Arguments {
 public:
  explicit Arguments(const config::Source& source);

  [[nodiscard]] std::string where(const std::string& name) const {
    const auto it = options_.find(name);
    return it == options_.end() || lines_ == 1
               ? fmt::format("{}: --{}", label_, name)
               : fmt::format("{}:{}: --{}", label_, it->second.line, name);
  }
  [[noreturn]] void reject(const std::string& name, const std::string& message) const {
    throw InputError(where(name), message);
  }
  bool has(const std::string& name) {
    seen_.insert(name);
    return options_.count(name) != 0;
  }
  std::string text(const std::string& name) {
    return has(name) ? options_.at(name).value : std::string();
  }
  /// All words after it: a list.
  std::vector<std::string> words(const std::string& name) {
    std::vector<std::string> all;
    if (has(name) && !options_.at(name).value.empty()) {
      all = options_.at(name).rest;
      all.insert(all.begin(), options_.at(name).value);
    }
    return all;
  }
  /// At most 2^31 - 1, so that products of two are exact.
  std::optional<std::int64_t> integer_at_least(const std::string& name, std::int64_t least);
  /// Sizes and degrees: 1 or more.
  std::optional<std::int64_t> size(const std::string& name) { return integer_at_least(name, 1); }
  std::int64_t required(const std::string& name, const char* what);
  /// Value that one of the words `known` stands for; the first where the option is not given.
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
    reject(name, fmt::format("found '{}', expected one of {}", value.substr(0, 40), words));
  }
  /// Notes what the options say and the job does not.
  void approximate(std::string phrase) { approximated_.push_back(std::move(phrase)); }
  /// Rejects another kind of step.
  void reject_other_step() const;
  /// Rejects options that nothing knows: all of these at once, each with its line and the option it
  /// may be meant for.
  void reject_unread() const;
  /// Phrases for what costs something and the job leaves out.
  [[nodiscard]] std::vector<std::string> left_out() const;
  /// Options that nothing has asked for because the step is the same without them, by line.
  [[nodiscard]] std::vector<std::string> without_effect() const;

 private:
  [[nodiscard]] std::vector<std::string> by_line() const;
  /// Options that nothing has asked for and that the table does not have, by line.
  [[nodiscard]] std::vector<std::string> unknown() const;

  struct Option {
    std::string value;              ///< the word after it; empty: a flag
    std::vector<std::string> rest;  ///< further words: a list, or the launcher's own
    int line = 0;
  };
  std::string label_;
  int lines_ = 1;  ///< of its text
  std::map<std::string, Option> options_;
  std::set<std::string> seen_;
  std::vector<std::string> approximated_;
};

}  // namespace stepcast::interop
