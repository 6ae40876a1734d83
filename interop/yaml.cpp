#include "interop/yaml.h"

#include <algorithm>
#include <optional>

namespace stepcast::interop {
namespace {

constexpr int kDeepest = 64;

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

struct Line {
  std::size_t indent = 0;
  std::string text;
  std::size_t number = 0;
};

/// Calls `see(position)` with each character outside quotes, until it returns false.
template <class See>
void each_unquoted(std::string_view text, const See& see) {
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quote != 0) {
      quote = text[i] == quote ? 0 : quote;
    } else if (text[i] == '"' || text[i] == '\'') {
      quote = text[i];
    } else if (!see(i)) {
      return;
    }
  }
}

/// True if a key's text begins on the next line: "|", ">", and how it ends.
bool begins_block(std::string_view line) {
  const std::size_t colon = line.rfind(": ");
  const std::string_view mark =
      colon == std::string_view::npos ? std::string_view() : trimmed(line.substr(colon + 2));
  return !mark.empty() && (mark[0] == '|' || mark[0] == '>') &&
         mark.find_first_not_of("|>+-0123456789") == std::string_view::npos;
}

class YamlReader {
 public:
  YamlReader(std::string_view text, std::string_view label) : label_(label) {
    std::size_t number = 0;
    int open = 0;  // brackets of the line before, which goes on
    constexpr std::size_t kNone = std::string_view::npos;
    std::size_t block = kNone;  // indentation of a key whose text stands on the lines below
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line = without_comment(text.substr(at, end - at));
      at = end + 1;
      ++number;
      const std::size_t indent = line.find_first_not_of(" \r");
      if (indent == std::string_view::npos || (indent == 0 && trimmed(line) == "---")) {
        continue;
      }
      if (indent > block) {
        continue;
      }
      block = kNone;
      if (line[indent] == '\t') {
        throw InputError(fmt::format("{}:{}", label_, number),
                         "found a tab before a key; indent with spaces");
      }
      if (open > 0) {
        lines_.back().text += " " + std::string(trimmed(line));
      } else {
        lines_.push_back({indent, std::string(trimmed(line)), number});
        if (std::string& last = lines_.back().text; begins_block(last)) {
          block = indent;
          last.replace(last.rfind(' ') + 1, std::string::npos,
                       "\"...\"");  // no key of ours is a text
        }
      }
      each_unquoted(line, [&](std::size_t i) {
        open += line[i] == '[' || line[i] == '{' ? 1 : line[i] == ']' || line[i] == '}' ? -1 : 0;
        return true;
      });
      open = std::max(open, 0);
    }
  }

  Json read() {
    Json root = lines_.empty() ? Json() : block(0);
    if (at_ < lines_.size()) {
      fail("an indentation that no key above it has");
    }
    return root;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    const std::size_t line = lines_[std::min(at_, lines_.size() - 1)].number;
    throw InputError(fmt::format("{}:{}", label_, line), fmt::format("found {}", what));
  }

  /// Up to the first '#' outside quotes that begins a word.
  static std::string_view without_comment(std::string_view line) {
    std::size_t end = line.size();
    each_unquoted(line, [&](std::size_t i) {
      end = line[i] == '#' && (i == 0 || line[i - 1] == ' ') ? i : end;
      return end == line.size();
    });
    return line.substr(0, end);
  }

  static bool is_item(const Line& line) {
    return line.text.front() == '-' && (line.text.size() == 1 || line.text[1] == ' ');
  }

  /// First ':' outside quotes and brackets that ends a key.
  static std::size_t end_of_key(std::string_view text) {
    std::size_t end = std::string_view::npos;
    each_unquoted(text, [&](std::size_t i) {
      const bool key = text[i] == ':' && (i + 1 == text.size() || text[i + 1] == ' ');
      end = key ? i : end;
      return !key && text[i] != '[' && text[i] != '{';
    });
    return end;
  }

  /// The value at the line's indentation.
  Json block(int depth) {
    if (depth > kDeepest) {
      fail("more than 64 levels");
    }
    const std::size_t indent = lines_[at_].indent;
    const auto here = [&] { return at_ < lines_.size() && lines_[at_].indent == indent; };
    if (is_item(lines_[at_])) {
      Json list = Json::array();
      while (here() && is_item(lines_[at_])) {
        Line& line = lines_[at_];
        const std::size_t rest = line.text.find_first_not_of(' ', 1);
        if (rest == std::string::npos) {
          ++at_;
          list.push_back(below(indent, depth));
        } else {  // the rest of the line begins a block of its own
          line.indent += rest;
          line.text.erase(0, rest);
          list.push_back(block(depth + 1));
        }
      }
      return list;
    }
    if (end_of_key(lines_[at_].text) == std::string_view::npos) {
      return scalar(lines_[at_++].text);
    }
    Json map = Json::object();
    while (here() && !is_item(lines_[at_])) {
      const std::string text = lines_[at_].text;
      const std::size_t end = end_of_key(text);
      if (end == std::string_view::npos) {
        fail("a line that is neither \"key: value\" nor \"- item\"");
      }
      const Json key = scalar(trimmed(std::string_view(text).substr(0, end)));
      const std::string name = key.is_string() ? key.get<std::string>() : key.dump();
      const std::string_view rest = trimmed(std::string_view(text).substr(end + 1));
      if (map.contains(name)) {
        fail(fmt::format("key \"{}\" twice", name));
      }
      if (!rest.empty()) {
        map[name] = scalar(rest);
        ++at_;
        continue;
      }
      ++at_;
      const bool list = here() && is_item(lines_[at_]);
      map[name] = list ? block(depth + 1) : below(indent, depth);
    }
    return map;
  }

  /// The block that is indented more, null if there is none.
  Json below(std::size_t indent, int depth) {
    return at_ < lines_.size() && lines_[at_].indent > indent ? block(depth + 1) : Json();
  }

  Json scalar(std::string_view text) {
    std::size_t at = 0;
    Json value = flow(text, at, "", 0);
    if (!trimmed(text.substr(at)).empty()) {
      fail(fmt::format("\"{}\" after a value", text.substr(at)));
    }
    return value;
  }

  Json flow(std::string_view text, std::size_t& at, std::string_view ends, int depth) {
    while (at < text.size() && text[at] == ' ') {
      ++at;
    }
    if (depth > kDeepest) {
      fail("more than 64 levels");
    }
    const char first = at < text.size() ? text[at] : ' ';
    if (first == '[' || first == '{') {
      return collection(text, at, first == '{', depth);
    }
    if (first == '"' || first == '\'') {
      const std::size_t end = text.find(first, at + 1);
      if (end == std::string_view::npos) {
        fail("a quotation that does not end on its line");
      }
      std::string value(text.substr(at + 1, end - at - 1));
      at = end + 1;
      return value;
    }
    if (std::string_view("&*!|>%@`").find(first) != std::string_view::npos) {
      fail(fmt::format("\"{}\": anchors, tags and texts over several lines are not read", text));
    }
    const std::size_t end =
        ends.empty() ? text.size() : std::min(text.find_first_of(ends, at), text.size());
    const std::string_view word = trimmed(text.substr(at, end - at));
    at = end;
    return plain(word);
  }

  Json collection(std::string_view text, std::size_t& at, bool map, int depth) {
    Json all = map ? Json::object() : Json::array();
    const char close = map ? '}' : ']';
    for (++at;;) {
      while (at < text.size() && (text[at] == ' ' || text[at] == ',')) {
        ++at;
      }
      if (at >= text.size()) {
        fail("a list or map that does not end on its line");
      }
      if (text[at] == close) {
        ++at;
        return all;
      }
      if (!map) {
        all.push_back(flow(text, at, ",]", depth + 1));
        continue;
      }
      const Json key = flow(text, at, ":}", depth + 1);
      if (at >= text.size() || text[at] != ':') {
        fail("a map without \"key: value\"");
      }
      ++at;
      all[key.is_string() ? key.get<std::string>() : key.dump()] = flow(text, at, ",}", depth + 1);
    }
  }

  static Json plain(std::string_view word) {
    if (word.empty() || word == "~" || word == "null" || word == "None") {
      return nullptr;
    }
    if (word == "true" || word == "True") {
      return true;
    }
    if (word == "false" || word == "False") {
      return false;
    }
    std::string digits(word);
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    const Json number = Json::parse(digits, nullptr, false);
    return number.is_number() ? number : Json(std::string(word));
  }

  std::string label_;
  std::vector<Line> lines_;
  std::size_t at_ = 0;
};

}  // namespace

Json parse_yaml(std::string_view text, std::string_view label) {
  return YamlReader(text, label).read();
}

}  // namespace stepcast::interop
