#include "traces/input/internal/json_stream.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace stepcast::traces::internal {
namespace {

bool blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

JsonStream::JsonStream(Input& input)
    : input_(input), buffer_(kWindow + simdjson::SIMDJSON_PADDING + 1, '\0') {}

bool JsonStream::fill() {
  if (begin_ > 1) {
    std::memmove(buffer_.data() + 1, buffer_.data() + begin_, end_ - begin_);
    base_ += begin_ - 1;
    end_ -= begin_ - 1;
    begin_ = 1;
  }
  std::size_t got = 0;
  if (!ended_ && end_ < room()) {
    got = input_.read(buffer_.data() + end_, room() - end_);
    ended_ = got < room() - end_;
    end_ += got;
  }
  // simdjson looks at what follows a document: nothing of what stood there before.
  std::fill_n(buffer_.begin() + static_cast<std::ptrdiff_t>(end_), simdjson::SIMDJSON_PADDING,
              '\0');
  return got > 0;
}

bool JsonStream::more() {
  if (fill()) {
    return true;
  }
  if (ended_) {
    return false;
  }
  if (buffer_.size() >= kLargestWindow) {
    fail(offset(), fmt::format("a value of more than {} MiB; expected events and their arguments",
                               kLargestWindow >> 20));
  }
  buffer_.resize(buffer_.size() * 2, '\0');
  return fill();
}

char JsonStream::at(std::size_t k) {
  while (begin_ + k >= end_) {
    if (!more()) {
      return '\0';
    }
  }
  return buffer_[begin_ + k];
}

char JsonStream::next() {
  while (blank(at(0))) {
    ++begin_;
  }
  return at(0);
}

void JsonStream::expect(char c, std::string_view where) {
  const char found = next();
  if (found != c) {
    fail(offset(), found == '\0'
                       ? fmt::format("the file ends in {}; expected '{}'; was it cut?", where, c)
                       : fmt::format("found '{}' in {}; expected '{}'", found, where, c));
  }
  ++begin_;
}

std::string JsonStream::key() {
  const std::string_view text = value();
  if (text.size() < 2 || text.front() != '"') {
    fail(offset() - text.size(), "expected a key in quotes");
  }
  return std::string(text.substr(1, text.size() - 2));
}

std::string_view JsonStream::take(bool keep) {
  constexpr int kDeepest = 256;
  next();
  const std::uint64_t start = offset();
  std::size_t k = 0;
  int depth = 0;
  bool inside = false;  // a text
  while (true) {
    if (!keep && k >= kWindow / 2) {
      begin_ += std::exchange(k, 0);
    }
    const char c = at(k);
    if (c == '\0') {
      fail(offset() + k, "the file ends inside a value; was it cut?");
    }
    if (inside) {
      k += c == '\\' ? 2 : 1;
      inside = c != '"';
    } else if ((c == ',' || c == '}' || c == ']' || c == ':' || blank(c)) && depth == 0) {
      break;
    } else {
      inside = c == '"';
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
      ++k;
      if (depth > kDeepest) {
        fail(offset() + k, fmt::format("values nested more than {} deep", kDeepest));
      }
    }
    if (depth == 0 && !inside && (c == '"' || c == '}' || c == ']')) {
      break;
    }
  }
  if (k == 0 && offset() == start) {
    fail(offset(), fmt::format("found '{}'; expected a value", at(0)));
  }
  if (k > 0) {
    at(k - 1);  // an escape may have stepped over the end
  }
  if (begin_ + k > end_) {
    fail(offset(), "the file ends inside a text; was it cut?");
  }
  begin_ += k;
  return {buffer_.data() + begin_ - k, k};
}

std::size_t JsonStream::cut_before(std::size_t limit) const {
  // A closing brace, a comma and an opening brace, with blanks between: the cut is behind the
  // first.
  const char* const text = buffer_.data();
  std::size_t end = limit;
  while (end > begin_ + 1) {
    const void* found = memrchr(text + begin_, '}', end - begin_ - 1);
    if (found == nullptr) {
      return 0;
    }
    const std::size_t brace = static_cast<std::size_t>(static_cast<const char*>(found) - text);
    std::size_t k = brace + 1;
    for (; k < limit && blank(text[k]); ++k) {
    }
    if (k < limit && text[k] == ',') {
      for (++k; k < limit && blank(text[k]); ++k) {
      }
      if (k < limit && text[k] == '{') {
        return brace + 1;
      }
    }
    end = brace + 1;
  }
  return 0;
}

std::string JsonStream::first_key() {
  std::size_t k = 1;
  while (blank(at(k))) {
    ++k;
  }
  if (at(0) != '{' || at(k) != '"') {
    return {};
  }
  std::string text = "\"";
  do {
    text += at(++k);
  } while (text.back() != '"' && text.back() != '\\' && text.back() != '\0');
  return text.back() == '"' ? text : std::string{};
}

bool JsonStream::next_part(JsonPart& part, std::string_view key) {
  fill();
  const char* const text = buffer_.data();
  const auto skip_blanks = [&](std::size_t k) {
    while (k < end_ && blank(text[k])) {
      ++k;
    }
    return k;
  };
  std::size_t cut = 0, next = 0;
  for (std::size_t end = end_; cut == 0 && end > 2;) {
    const void* found = memrchr(text + 1, '}', end - 1);
    if (found == nullptr) {
      break;
    }
    const auto brace = static_cast<std::size_t>(static_cast<const char*>(found) - text);
    next = skip_blanks(brace + 1);
    if (text[next] == ',') {
      next = skip_blanks(next + 1);
      const std::size_t quote = text[next] == '{' ? skip_blanks(next + 1) : end_;
      if (quote + key.size() <= end_ && std::memcmp(text + quote, key.data(), key.size()) == 0) {
        cut = brace + 1;
      }
    }
    end = brace;
  }
  if (cut == 0) {
    return false;
  }
  std::vector<char> rest = std::move(part.text);
  rest.resize(buffer_.size());
  std::memcpy(rest.data() + 1, text + next, end_ - next);
  part.gap.assign(text + cut, next - cut);
  part.size = cut - 1;
  part.offset = base_;
  part.text = std::move(buffer_);
  part.text[0] = '[';
  part.text[cut] = ']';
  std::fill_n(part.text.begin() + static_cast<std::ptrdiff_t>(cut) + 1, simdjson::SIMDJSON_PADDING,
              '\0');
  buffer_ = std::move(rest);
  base_ += next - 1;
  end_ = 1 + end_ - next;
  return true;
}

void JsonStream::put_back(const JsonPart& part) {
  std::vector<char> all(1);
  const auto first = part.text.begin() + 1;
  all.insert(all.end(), first, first + static_cast<std::ptrdiff_t>(part.size));
  all.insert(all.end(), part.gap.begin(), part.gap.end());
  base_ = base_ + begin_ - 1 - part.size - part.gap.size();
  all.insert(all.end(), buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
             buffer_.begin() + static_cast<std::ptrdiff_t>(end_));
  begin_ = 1;
  end_ = all.size();
  all.resize(std::max(buffer_.size(), end_ + simdjson::SIMDJSON_PADDING + 1), '\0');
  buffer_ = std::move(all);
}

bool JsonStream::open_window(simdjson::ondemand::document& document) {
  fill();
  cut_ = ended_ ? end_ : cut_before(end_);
  constexpr int kCuts = 16;  // places to try before reading on; inside texts they are rare
  for (int cuts = 0; cut_ != 0 && cuts < kCuts;) {
    if (parser_.capacity() < buffer_.size()) {
      if (const auto error = parser_.allocate(buffer_.size()); error != simdjson::SUCCESS) {
        fail(offset(), simdjson::error_message(error));
      }
    }
    under_front_ = std::exchange(buffer_[begin_ - 1], '[');
    under_bracket_ = std::exchange(buffer_[cut_], ']');
    const simdjson::error_code error =
        parser_.iterate(buffer_.data() + begin_ - 1, cut_ - begin_ + 2, buffer_.size() - begin_ + 1)
            .get(document);
    if (error == simdjson::SUCCESS) {
      return true;
    }
    close_window();
    const auto first = buffer_.begin() + static_cast<std::ptrdiff_t>(begin_);
    const auto last = buffer_.begin() + static_cast<std::ptrdiff_t>(cut_);
    if (error == simdjson::UTF8_ERROR) {
      ++repaired_;
      std::replace_if(
          first, last, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
    } else if (error == simdjson::UNESCAPED_CHARS) {
      ++repaired_;
      std::replace_if(
          first, last, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
    } else if (error != simdjson::UNCLOSED_STRING) {
      fail(offset(), simdjson::error_message(error));
    } else if (ended_) {
      fail(offset_of(end_), "the file ends inside a text; was it cut?");
    } else {
      cut_ = cut_before(cut_);
      ++cuts;
    }
  }
  more();
  return false;
}

void JsonStream::close_window() {
  buffer_[cut_] = under_bracket_;
  buffer_[begin_ - 1] = under_front_;
}

bool JsonStream::list_goes_on(const char* after) {
  if (after != nullptr) {
    begin_ = static_cast<std::size_t>(after - buffer_.data());
    return false;
  }
  begin_ = cut_;
  if (ended_ && begin_ == end_) {
    fail(offset_of(end_), "the list of events is not closed; was the file cut?");
  }
  expect(',', "a list");
  return true;
}

void JsonStream::retry_from(const char* start, simdjson::error_code error) {
  const std::size_t place =
      start == nullptr ? begin_ : static_cast<std::size_t>(start - buffer_.data());
  constexpr std::size_t kPatience = std::size_t{16} << 20;  // no event is that long
  const bool stuck = place == begin_ && buffer_.size() >= kPatience;
  if (start == nullptr || stuck || (ended_ && cut_ == end_)) {
    fail(offset_of(place),
         fmt::format("found something that is no list of whole events ({}); was the "
                     "file cut or edited?",
                     simdjson::error_message(error)));
  }
  if (place > begin_) {
    begin_ = place;
    return;
  }
  more();
}

}  // namespace stepcast::traces::internal
