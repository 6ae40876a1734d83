#include "traces/events/kernel_kinds.h"

#include <cxxabi.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "traces/events/host_calls.h"
#include "traces/events/internal/kernel_kinds_text.h"

namespace stepcast::traces {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

bool upper(char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; }
bool lower(char c) { return std::islower(static_cast<unsigned char>(c)) != 0; }
bool letter_or_digit(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

/// "nchwToNhwcKernel" -> nchw, to, nhwc, kernel.
Words words_of(std::string_view text) {
  Words words;
  bool open = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (!letter_or_digit(c)) {
      open = false;
      continue;
    }
    const bool after_small =
        i > 0 && upper(c) && letter_or_digit(text[i - 1]) && !upper(text[i - 1]);
    const bool new_word =
        i > 0 && i + 1 < text.size() && upper(c) && upper(text[i - 1]) && lower(text[i + 1]);
    if (!open || after_small || new_word) {
      words.emplace_back();
    }
    open = true;
    words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return words;
}

/// * any text, ? a character, # a digit.
bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
    } else if (p < pattern.size() &&
               (pattern[p] == text[t] || pattern[p] == '?' ||
                (pattern[p] == '#' && std::isdigit(static_cast<unsigned char>(text[t])) != 0))) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') {
    ++p;
  }
  return p == pattern.size();
}

bool holds(const Words& phrase, const Words& words) {
  for (std::size_t at = 0; at + phrase.size() <= words.size(); ++at) {
    std::size_t i = 0;
    while (i < phrase.size() && matches(phrase[i], words[at + i])) {
      ++i;
    }
    if (i == phrase.size()) {
      return true;
    }
  }
  return false;
}

bool any(const std::vector<Words>& phrases, const Words& words) {
  return std::any_of(phrases.begin(), phrases.end(),
                     [&words](const Words& p) { return holds(p, words); });
}

/// A C++ name taken apart: the function's own name, and all that stands in angle brackets.
struct Parts {
  std::string own, inside;
};

Parts parts_of(std::string_view kernel) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  Parts parts;
  std::string open;  // the brackets around
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    const char c = kernel[i];
    if (c == '(' && kernel.substr(i).starts_with(kAnonymous)) {
      i += kAnonymous.size() - 1;
      continue;
    }
    if (c == '(' && open.empty()) {
      break;  // the parameters
    }
    if (c == '<' || c == '(') {
      open += c;
    } else if (c == '>' && i > 0 && kernel[i - 1] != '-' && !open.empty() && open.back() == '<') {
      open.pop_back();
    } else if (c == ')' && !open.empty() && open.back() == '(') {
      open.pop_back();
    } else {
      (open.empty() ? parts.own : parts.inside) += c;
      continue;
    }
    parts.inside += ' ';
  }
  const std::size_t blank = parts.own.rfind(' ');
  if (blank != std::string::npos) {
    parts.own.erase(0, blank + 1);  // what it returns
  }
  return parts;
}

std::vector<std::string> texts(const json& rule, const char* key, const std::string& place) {
  std::vector<std::string> all;
  if (!rule.contains(key)) {
    return all;
  }
  const json& list = rule[key];
  if (!list.is_array() || list.empty()) {
    throw InputError(fmt::format("{}.{}", place, key), "expected a list of texts");
  }
  for (const json& text : list) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty()) {
      throw InputError(fmt::format("{}.{}", place, key), "expected a list of texts");
    }
    all.push_back(text.get<std::string>());
  }
  return all;
}

std::vector<Words> phrases(const json& rule, const char* key, const std::string& place) {
  std::vector<Words> all;
  for (const std::string& text : texts(rule, key, place)) {
    Words words;
    std::string word;
    for (const char c : text + " ") {
      if (c != ' ') {
        word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      } else if (!word.empty()) {
        words.push_back(std::move(word));
        word.clear();
      }
    }
    all.push_back(std::move(words));
  }
  return all;
}

}  // namespace

const KernelKinds& KernelKinds::built_in() {
  static const KernelKinds kinds(internal::kKernelKindsText, "traces/kernel_kinds.json");
  return kinds;
}

KernelKinds::KernelKinds(std::string_view text, const std::string& label) {
  const json file = json::parse(text, nullptr, false, true);
  if (!file.is_object() || file.value("kind", json()) != "kernel_kinds" ||
      !file.value("rules", json()).is_array()) {
    throw InputError(label,
                     "is no table of kernel kinds; expected {\"stepcast\": 1, \"kind\": "
                     "\"kernel_kinds\", \"rules\": [...]}");
  }
  for (std::size_t i = 0; i < file["rules"].size(); ++i) {
    const json& rule = file["rules"][i];
    const std::string place = fmt::format("{}: rules[{}]", label, i);
    constexpr std::array<std::string_view, 8> kKeys{"kind",   "operators", "words",      "with",
                                                    "inside", "except",    "collective", "source"};
    if (!rule.is_object()) {
      throw InputError(place, "expected an object");
    }
    for (const auto& [key, value] : rule.items()) {
      if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
        throw InputError(
            place, fmt::format("unknown key '{}'; known are {}", key, fmt::join(kKeys, ", ")));
      }
    }
    const json said = rule.value("kind", json());
    const auto kind = said.is_string() ? kernel_kind_named(said.get<std::string>()) : std::nullopt;
    if (!kind) {
      throw InputError(place + ".kind",
                       fmt::format("found {}; expected a kernel kind such as \"gemm\" or \"norm\"",
                                   said.dump().substr(0, 40)));
    }
    Rule made;
    made.kind.kind = *kind;
    if (rule.contains("collective")) {
      const json& name = rule["collective"];
      const auto op = name.is_string() ? op_kind_named(name.get<std::string>()) : std::nullopt;
      if (!op || !is_collective(*op)) {
        throw InputError(place + ".collective",
                         fmt::format("found {}; expected a collective such as \"all_reduce\"",
                                     name.dump().substr(0, 40)));
      }
      made.kind.collective = *op;
    }
    made.operators = texts(rule, "operators", place);
    made.words = phrases(rule, "words", place);
    made.with = phrases(rule, "with", place);
    made.inside = phrases(rule, "inside", place);
    made.except = phrases(rule, "except", place);
    if (made.operators.empty() && made.words.empty() && made.inside.empty()) {
      throw InputError(place, "expected operators, words or inside");
    }
    rules_.push_back(std::move(made));
  }
}

namespace {

/// Some profilers leave names as compilers write them. Where the whole is of a compiler too new to
/// be told, the function's own name stands in front, each part behind its length.
std::string demangled(std::string_view kernel) {
  const std::string text(kernel.substr(0, kernel.find('.')));
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> whole(
      abi::__cxa_demangle(text.c_str(), nullptr, nullptr, &status), std::free);
  if (whole != nullptr) {
    return whole.get();
  }
  std::string own;
  std::size_t at = text.starts_with("_ZN") ? 3 : 2;
  for (std::size_t length = 0; at < text.size(); at += length) {
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), length);
    at = static_cast<std::size_t>(end - text.data());
    if (error != std::errc{} || length > text.size() - at) {
      break;
    }
    own += (own.empty() ? "" : "::") + text.substr(at, length);
  }
  return own.empty() ? text : own;
}

}  // namespace

KernelKinds::Kind KernelKinds::of(std::string_view kernel, std::string_view operation) const {
  const Parts parts = kernel.starts_with("_Z") ? parts_of(demangled(kernel)) : parts_of(kernel);
  const Words own = words_of(parts.own);
  const Words inside = words_of(parts.inside);
  for (const Rule& rule : rules_) {
    const bool by_operator =
        rule.operators.empty() ||
        std::any_of(rule.operators.begin(), rule.operators.end(),
                    [operation](const std::string& o) { return matches(o, operation); });
    if (by_operator && (rule.words.empty() || any(rule.words, own)) &&
        (rule.with.empty() || any(rule.with, own)) &&
        (rule.inside.empty() || any(rule.inside, inside)) && !any(rule.except, own)) {
      Kind kind = rule.kind;
      if (kind.kind == KernelKind::kCommunication) {
        kind.collective = collective_kind_of(parts.own).value_or(kind.collective);
      }
      return kind;
    }
  }
  return {};
}

}  // namespace stepcast::traces
