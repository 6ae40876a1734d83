#include "interop/megatron/options.h"

#include <algorithm>
#include <charconv>

#include "core/config/document.h"
#include "core/config/suggest.h"
#include "interop/megatron/option_table.h"

namespace stepcast::interop {
namespace {

/// "tensor-model-parallel-size" has the words of "tensor-parallel-size", in their order, and begins
/// with the first.
bool has_words_of(std::string_view longer, std::string_view name) {
  std::size_t from = 0;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('-', at), name.size());
    const std::size_t found = longer.find(name.substr(at, end - at), from);
    if (found == std::string_view::npos || (at == 0 && found != 0)) {
      return false;
    }
    from = found + end - at;
    at = end + 1;
  }
  return true;
}

std::vector<std::pair<std::string, int>> words_of(std::string_view text) {
  std::vector<std::pair<std::string, int>> words;
  std::string word;
  int line = 1;
  char quote = 0;
  bool comment = false;
  const auto finish = [&] {
    if (!word.empty()) {
      words.emplace_back(std::move(word), line);
      word.clear();
    }
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') {
      finish();
      ++line;
      comment = false;
    } else if (comment) {
      continue;
    } else if (quote != 0 ? c == quote : c == '"' || c == '\'') {
      quote = quote != 0 ? '\0' : c;
    } else if (quote == 0 && c == '#' && word.empty()) {
      comment = true;
    } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\\' && quote == 0) ||
               (quote == 0 && (c == '(' || c == ')'))) {
      finish();
    } else {
      word += c;
    }
  }
  finish();
  return words;
}

}  // namespace

Arguments::Arguments(const config::Source& source) : label_(source.label) {
  Option* into = nullptr;
  for (const auto& [word, line] : words_of(source.text)) {
    lines_ = std::max(lines_, line);
    if (word.starts_with("--")) {
      const std::size_t equals = std::min(word.find('='), word.size());
      std::string name = word.substr(2, equals - 2);
      std::replace(name.begin(), name.end(), '_', '-');
      Option& option = options_[name];
      option = {equals < word.size() ? word.substr(equals + 1) : "", {}, line};
      into = &option;
    } else if (into != nullptr) {
      (into->value.empty() ? into->value : into->rest.emplace_back()) = word;
    }
  }
}

std::optional<std::int64_t> Arguments::integer_at_least(const std::string& name,
                                                        std::int64_t least) {
  if (!has(name)) {
    return std::nullopt;
  }
  const std::string& value = options_.at(name).value;
  std::int64_t n = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, n);
  if (error != std::errc() || stop != end || n < least || n > INT32_MAX) {
    const bool variable = value.find('$') != std::string::npos;
    reject(name, fmt::format("found '{}', expected a whole number from {} to {}{}",
                             value.substr(0, 40), least, INT32_MAX,
                             variable ? "; only the shell knows what a variable is: write the "
                                        "number, or have it print the arguments "
                                        "(docs/how-to/import-a-model.md)"
                                      : ""));
  }
  return n;
}

std::int64_t Arguments::required(const std::string& name, const char* what) {
  const auto n = size(name);
  if (!n) {
    const std::string meant = config::nearest_name(name, unknown());
    reject(name, fmt::format("missing; expected {}{}", what,
                             meant.empty() ? "" : fmt::format(" (found --{})", meant)));
  }
  return *n;
}

void Arguments::reject_other_step() const {
  for (const auto& [name, option] : options_) {
    const auto known = megatron_option(name, option.value);
    if (known && known->effect == OptionEffect::kOtherStep) {
      reject(name, fmt::format("trains {}, which stepcast does not model", known->note));
    }
  }
}

void Arguments::reject_unread() const {
  const std::vector<std::string> left = unknown();
  if (left.empty()) {
    return;
  }
  std::vector<std::string> known(seen_.begin(), seen_.end());
  for (const std::string_view name : megatron_option_names()) {
    known.emplace_back(name);
  }
  const auto hint = [&](const std::string& name) {
    const auto longer = std::find_if(known.begin(), known.end(),
                                     [&](const std::string& k) { return has_words_of(k, name); });
    const std::string meant = longer != known.end() ? *longer : config::nearest_name(name, known);
    return meant.empty() ? std::string() : fmt::format("did you mean --{}? ", meant);
  };
  if (left.size() == 1) {
    reject(left.front(), fmt::format("an option that stepcast does not read and that may change "
                                     "what a step costs; {}remove it if it does not, else write "
                                     "the job in stepcast's own form",
                                     hint(left.front())));
  }
  std::string list;
  for (const std::string& name : left) {
    list += fmt::format("\n  line {}: --{} {}", options_.at(name).line, name, hint(name));
    list.erase(list.find_last_not_of(' ') + 1);
  }
  throw InputError(label_, fmt::format("{} options that stepcast does not read and that may "
                                       "change what a step costs; remove those that do not, else "
                                       "write the job in stepcast's own form:{}",
                                       left.size(), list));
}

std::vector<std::string> Arguments::left_out() const {
  std::vector<std::string> notes = approximated_;
  for (const std::string& name : by_line()) {
    const auto known = megatron_option(name, options_.at(name).value);
    if (seen_.count(name) == 0 && known && known->effect == OptionEffect::kLeftOut &&
        std::find(notes.begin(), notes.end(), known->note) == notes.end()) {
      notes.emplace_back(known->note);
    }
  }
  return notes;
}

std::vector<std::string> Arguments::without_effect() const {
  std::vector<std::string> names = by_line();
  std::erase_if(names, [this](const std::string& name) {
    const auto known = megatron_option(name, options_.at(name).value);
    return seen_.count(name) != 0 || !known || known->effect != OptionEffect::kNone;
  });
  return names;
}

std::vector<std::string> Arguments::unknown() const {
  std::vector<std::string> names = by_line();
  std::erase_if(names, [this](const std::string& name) {
    return seen_.count(name) != 0 || megatron_option(name, "");
  });
  return names;
}

std::vector<std::string> Arguments::by_line() const {
  std::vector<std::string> names;
  for (const auto& [name, option] : options_) {
    names.push_back(name);
  }
  std::stable_sort(names.begin(), names.end(), [this](const std::string& x, const std::string& y) {
    return options_.at(x).line < options_.at(y).line;
  });
  return names;
}

}  // namespace stepcast::interop
