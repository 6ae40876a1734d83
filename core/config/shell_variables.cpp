#include "core/config/internal/shell_variables.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>

namespace stepcast::config {
namespace {

bool begins_name(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool in_name(char c) { return begins_name(c) || (c >= '0' && c <= '9'); }

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlank);
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

/// nullopt: set to several values.
using Variables = std::map<std::string, std::optional<std::string>, std::less<>>;

std::optional<std::string> value_of(const Variables& variables, std::string_view name) {
  const auto it = variables.find(name);
  return it == variables.end() ? std::nullopt : it->second;
}

/// Integers, variables, + - * / % and parentheses; nullopt for anything else, for a division by
/// zero and beyond 64 bits.
class Arithmetic {
 public:
  Arithmetic(std::string_view text, const Variables& variables)
      : text_(text), variables_(variables) {}
  std::optional<std::int64_t> value() {
    const auto v = sum(0);
    skip_blanks();
    return at_ == text_.size() ? v : std::nullopt;
  }

 private:
  using Number = std::optional<std::int64_t>;
  static constexpr int kDeepest = 50;

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  char next() {
    skip_blanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  static Number combined(char op, std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    switch (op) {
      case '+':
        return __builtin_add_overflow(a, b, &result) ? Number() : result;
      case '-':
        return __builtin_sub_overflow(a, b, &result) ? Number() : result;
      case '*':
        return __builtin_mul_overflow(a, b, &result) ? Number() : result;
      default:
        if (b == 0 || b == -1) {  // INT64_MIN / -1 does not fit
          return std::nullopt;
        }
        return op == '/' ? a / b : a % b;
    }
  }
  Number sum(int depth) {
    Number left = product(depth);
    while (left && (next() == '+' || next() == '-')) {
      const char op = text_[at_++];
      const Number right = product(depth);
      left = right ? combined(op, *left, *right) : Number();
    }
    return left;
  }
  Number product(int depth) {
    Number left = factor(depth);
    while (left && (next() == '*' || next() == '/' || next() == '%')) {
      const char op = text_[at_++];
      const Number right = factor(depth);
      left = right ? combined(op, *left, *right) : Number();
    }
    return left;
  }
  Number factor(int depth) {
    const char c = next();
    if (c == '(' && depth < kDeepest) {
      ++at_;
      const Number inner = sum(depth + 1);
      if (next() != ')') {
        return std::nullopt;
      }
      ++at_;
      return inner;
    }
    const std::size_t first = at_;
    while (at_ < text_.size() && in_name(text_[at_])) {
      ++at_;
    }
    const std::string_view word = text_.substr(first, at_ - first);
    if (word.empty()) {
      return std::nullopt;
    }
    const std::string digits =
        begins_name(word.front()) ? value_of(variables_, word).value_or("") : std::string(word);
    std::int64_t n = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, n);
    return error == std::errc() && stop == end && !digits.empty() ? Number(n) : std::nullopt;
  }

  std::string_view text_;
  const Variables& variables_;
  std::size_t at_ = 0;
};

/// Where the bracket closes that is open at `from`; npos if it does not.
std::size_t closing(std::string_view text, std::size_t from, char open, char close) {
  int depth = 1;
  for (std::size_t i = from; i < text.size(); ++i) {
    depth += text[i] == open ? 1 : text[i] == close ? -1 : 0;
    if (depth == 0) {
      return i;
    }
  }
  return std::string_view::npos;
}

struct Expansion {
  std::optional<std::string> value;  ///< nullopt: stays as it is
  std::size_t length = 1;            ///< characters of the script it stands for
};

std::string expanded(std::string_view line, const Variables& variables);

/// What stands at a dollar sign, the first character of `text`.
Expansion expansion(std::string_view text, const Variables& variables) {
  if (text.starts_with("$((")) {
    const std::size_t end = closing(text, 3, '(', ')');
    if (end == std::string_view::npos || end + 1 >= text.size() || text[end + 1] != ')') {
      return {};
    }
    const std::string inside = expanded(text.substr(3, end - 3), variables);
    const auto n = Arithmetic(inside, variables).value();
    return {n ? std::optional(std::to_string(*n)) : std::nullopt, end + 2};
  }
  if (text.starts_with("${")) {
    const std::size_t end = closing(text, 2, '{', '}');
    if (end == std::string_view::npos) {
      return {};
    }
    const std::string_view inside = text.substr(2, end - 2);
    std::size_t name = 0;
    while (name < inside.size() && in_name(inside[name])) {
      ++name;
    }
    const std::string_view rest = inside.substr(name);
    const auto known = variables.find(inside.substr(0, name));
    if (name > 0 && (rest.empty() || rest.starts_with(":-") || rest.starts_with("-"))) {
      if (known != variables.end() || rest.empty()) {
        return {value_of(variables, inside.substr(0, name)), end + 1};
      }
      return {expanded(rest.substr(rest.front() == ':' ? 2 : 1), variables), end + 1};
    }
    return {std::nullopt, end + 1};
  }
  std::size_t end = 1;
  while (end < text.size() && (end == 1 ? begins_name(text[end]) : in_name(text[end]))) {
    ++end;
  }
  return {end > 1 ? value_of(variables, text.substr(1, end - 1)) : std::nullopt, end};
}

std::string expanded(std::string_view line, const Variables& variables) {
  std::string result;
  for (std::size_t i = 0; i < line.size();) {
    if (line[i] != '$') {
      result += line[i++];
      continue;
    }
    const Expansion e = expansion(line.substr(i), variables);
    result += e.value.value_or(std::string(line.substr(i, e.length)));
    i += e.length;
  }
  return result;
}

/// Where the command ends that begins a line: its first ';' outside quotes, or the line's end.
std::size_t command_end(std::string_view line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quote != 0 ? line[i] == quote : line[i] == '"' || line[i] == '\'') {
      quote = quote != 0 ? '\0' : line[i];
    } else if (quote == 0 && (line[i] == ';' || (line[i] == '#' && i > 0 && line[i - 1] == ' '))) {
      return i;
    }
  }
  return line.size();
}

/// Takes note of `NAME=value`, where that is all the (expanded) command says.
void note_assignment(std::string_view command, Variables& variables) {
  std::string_view rest = trimmed(command);
  for (const std::string_view word : {"export ", "readonly ", "local "}) {
    if (rest.starts_with(word)) {
      rest = trimmed(rest.substr(word.size()));
    }
  }
  const std::size_t equals = rest.find('=');
  const std::string_view name = rest.substr(0, equals);
  if (equals == std::string_view::npos || name.empty() || !begins_name(name.front()) ||
      name.find_first_not_of("_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") !=
          std::string_view::npos) {
    return;
  }
  std::string_view value = rest.substr(equals + 1);
  const bool quoted = value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
                      value.back() == value.front();
  value = quoted ? value.substr(1, value.size() - 2) : value;
  const bool plain = value.find_first_of("$`\"'()\\;&|<>") == std::string_view::npos &&
                     value.find("--") == std::string_view::npos &&
                     (quoted || value.find_first_of(" \t") == std::string_view::npos);
  const std::optional<std::string> read = plain ? std::optional(std::string(value)) : std::nullopt;
  const auto [it, first] = variables.emplace(name, read);
  if (!first && it->second != read) {
    it->second = std::nullopt;
  }
}

/// The file of `source FILE` or `. FILE`; empty for any other command.
std::string_view sourced_name(std::string_view command) {
  const std::string_view text = trimmed(command);
  const std::size_t word = text.starts_with("source ") ? 7 : text.starts_with(". ") ? 2 : 0;
  std::string_view name = word > 0 ? trimmed(text.substr(word)) : std::string_view();
  const bool quoted = name.size() >= 2 && (name.front() == '"' || name.front() == '\'') &&
                      name.back() == name.front();
  return quoted ? name.substr(1, name.size() - 2) : name;
}

std::string expanded_script(std::string_view script, const SourcedFile& sourced, int depth,
                            Variables& variables) {
  constexpr int kDeepest = 8;  // of files that read others
  std::string result;
  for (std::size_t at = 0; at <= script.size();) {
    const std::size_t end = std::min(script.find('\n', at), script.size());
    const std::string_view line = script.substr(at, end - at);
    if (trimmed(line).starts_with("#")) {
      result += line;
    } else {
      // Commands one after another: each sees what those before it set.
      for (std::string_view rest = line; !rest.empty();) {
        const std::size_t stop = command_end(rest);
        const std::string text = expanded(rest.substr(0, stop), variables);
        note_assignment(text, variables);
        if (const auto name = sourced_name(text); !name.empty() && depth < kDeepest) {
          (void)expanded_script(sourced(name), sourced, depth + 1, variables);
        }
        result += text;
        const bool comment = stop < rest.size() && rest[stop] == '#';
        result += comment ? rest.substr(stop) : rest.substr(stop, stop < rest.size() ? 1 : 0);
        rest = comment || stop == rest.size() ? std::string_view() : rest.substr(stop + 1);
      }
    }
    if (end < script.size()) {
      result += '\n';
    }
    at = end + 1;
  }
  return result;
}

}  // namespace

std::string with_variables(std::string_view script, const SourcedFile& sourced) {
  Variables variables;
  return expanded_script(script, sourced, 0, variables);
}

}  // namespace stepcast::config
