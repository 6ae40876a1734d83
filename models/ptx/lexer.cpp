#include "models/ptx/lexer.h"

#include <algorithm>
#include <cctype>

#include "core/error.h"

namespace stepcast::models::ptx {
namespace {

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

}  // namespace

void Lexer::fail(int line, std::string_view what) const {
  throw InputError(fmt::format("{}:{}", file_, line), what);
}

void Lexer::skip_space() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '\n') {
      ++line_;
      ++at_;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at_;
    } else if (text_.substr(at_, 2) == "//") {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (text_.substr(at_, 2) == "/*") {
      const std::size_t end = text_.find("*/", at_);
      if (end == std::string_view::npos) {
        fail(line_, "a comment begins with /* and never ends");
      }
      line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                           text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
      at_ = end + 2;
    } else {
      return;
    }
  }
}

Token Lexer::read() {
  skip_space();
  if (at_ >= text_.size()) {
    return {{}, line_};
  }
  const std::size_t begin = at_;
  if (in_word(text_[at_])) {
    while (at_ < text_.size() &&
           (in_word(text_[at_]) || (text_.substr(at_, 2) == "::" && at_ + 2 < text_.size()))) {
      at_ += text_[at_] == ':' ? 2 : 1;
    }
  } else if (text_[at_] == '"') {
    const std::size_t end = text_.find('"', at_ + 1);
    if (end == std::string_view::npos) {
      fail(line_, "a string never ends");
    }
    at_ = end + 1;
  } else {
    ++at_;
  }
  return {text_.substr(begin, at_ - begin), line_};
}

Token Lexer::next() {
  if (peeked_) {
    peeked_ = false;
    return ahead_;
  }
  return read();
}

const Token& Lexer::peek() {
  if (!peeked_) {
    ahead_ = read();
    peeked_ = true;
  }
  return ahead_;
}

Token Lexer::expect(std::string_view what) {
  const Token t = next();
  if (!t.is(what)) {
    fail(t.line, fmt::format("found '{}'; expected '{}'", t.end() ? "the end" : t.text, what));
  }
  return t;
}

bool Lexer::take(std::string_view what) {
  if (peek().is(what)) {
    next();
    return true;
  }
  return false;
}

void Lexer::skip_line(const Token& token) {
  while (!peek().end() && peek().line == token.line) {
    next();
  }
}

std::string_view Lexer::skip_braces() {
  const int first = line_;
  const std::size_t begin = at_;
  int depth = 1;
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '"') {
      at_ = std::min(text_.find('"', at_ + 1), text_.size() - 1);
    } else if (c == '/' && text_.substr(at_, 2) == "//") {
      at_ = std::min(text_.find('\n', at_), text_.size()) - 1;
    } else if (c == '\n') {
      ++line_;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      ++at_;
      return text_.substr(begin, at_ - 1 - begin);
    }
  }
  fail(first, "a '{' is never closed");
}

}  // namespace stepcast::models::ptx
