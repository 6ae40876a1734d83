#pragma once
#include <simdjson.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/input/input.h"
#include "traces/input/internal/json_ahead.h"

namespace stepcast::traces::internal {

using simdjson::ondemand::object;

/// A JSON document with one list too long for memory: {"a": 1, "list": [{...}, {...}, ...], "b":
/// 2}. The list is read in windows that end where an element ends; everything else must be small.
///
/// simdjson indexes each window at some GB/s and stops at 4 GiB a document; a window is at most
/// kLargestWindow. Where an element ends is not known beforehand: a window is cut behind some "},
/// {" and what the cut leaves incomplete fails to parse and is read again with the next window. So
/// `on_element` must have no effect when it returns an error.
class JsonStream {
 public:
  explicit JsonStream(Input& input);

  /// The next character that is no blank, unconsumed; '\0' at the end.
  char next();
  /// Consumes `c` or fails.
  void expect(char c, std::string_view where);
  /// Consumes a string without escapes, such as a key.
  std::string key();
  /// Consumes any value and returns its text, valid until the next call. At most 64 MiB, 256 deep.
  std::string_view value() { return take(true); }
  /// Consumes any value, however long.
  void skip() { take(false); }
  /// Consumes an object: calls on_member(key), which consumes the value.
  template <typename OnMember>
  void members(std::string_view where, OnMember&& on_member);
  /// Consumes a list of objects and calls on_element(object&, offset) -> simdjson::error_code for
  /// each, in order.
  template <typename OnElement>
  void list(OnElement&& on_element);
  /// The same for large lists: parse(object&, Parsed&) -> simdjson::error_code runs on other
  /// threads, take(Parsed&, offset) on this one, in order. What a Parsed points to stays until
  /// then.
  template <typename Parsed, typename Take>
  void list(typename JsonAhead<Parsed>::Parse parse, Take&& take);

  [[nodiscard]] std::uint64_t offset() const { return offset_of(begin_); }
  [[nodiscard]] Input& input() { return input_; }
  [[noreturn]] void fail(std::uint64_t at, std::string_view what) const { input_.fail(at, what); }
  /// Windows in which bytes that are no UTF-8 were replaced.
  [[nodiscard]] std::uint64_t repaired() const { return repaired_; }

 private:
  static constexpr std::size_t kWindow = std::size_t{1} << 20;
  static constexpr std::size_t kLargestWindow = std::size_t{64} << 20;

  std::string_view take(bool keep);
  [[nodiscard]] std::uint64_t offset_of(std::size_t index) const { return base_ + index - 1; }
  [[nodiscard]] std::size_t room() const { return buffer_.size() - simdjson::SIMDJSON_PADDING - 1; }
  /// Moves unread text to the front and reads what fits. False when nothing came.
  bool fill();
  /// fill(), in a larger buffer when it is full; fails where an element exceeds the largest window.
  bool more();
  /// Character `k` of the unread text; '\0' at the end.
  char at(std::size_t k);
  /// Place at which a window that starts at begin_ may be cut, before `limit`; 0 where nowhere.
  [[nodiscard]] std::size_t cut_before(std::size_t limit) const;
  /// Indexes a window [begin_, cut_) put into brackets. False when more input is needed first.
  bool open_window(simdjson::ondemand::document& document);
  void close_window();
  /// One window of a list; false after its last.
  template <typename OnElement>
  bool window(OnElement& on_element);
  /// Cuts the next part of a list off the unread text and what follows it, behind an element whose
  /// follower begins with the same key as the first; false where that is not to be had.
  bool next_part(JsonPart& part, std::string_view key);
  /// Puts a part back in front of the unread text.
  void put_back(const JsonPart& part);
  /// '{', blanks and a key in quotes, where the unread text begins with such an element.
  std::string first_key();
  /// After the window parsed without error up to `after` (null: up to the cut). True when the list
  /// goes on.
  bool list_goes_on(const char* after);
  /// After an error in the element at `start` (null: between elements): makes it the first of the
  /// next window, or fails.
  void retry_from(const char* start, simdjson::error_code error);

  Input& input_;
  std::vector<char> buffer_;  ///< [begin_, end_) is unread text; padding follows
  std::size_t begin_ = 1;     ///< never 0: an opening bracket may go in front
  std::size_t end_ = 1;
  std::uint64_t base_ = 0;  ///< offset in the file of buffer_[1]
  bool ended_ = false;      ///< all input is in the buffer
  std::size_t cut_ = 0;
  char under_front_ = 0;  ///< what stood where the brackets were put
  char under_bracket_ = 0;
  std::uint64_t repaired_ = 0;
  simdjson::ondemand::parser parser_;
};

template <typename OnMember>
void JsonStream::members(std::string_view where, OnMember&& on_member) {
  expect('{', where);
  while (next() != '}') {
    const std::string name = key();
    expect(':', where);
    on_member(name);
    if (next() != '}') {
      expect(',', where);
    }
  }
  expect('}', where);
}

template <typename OnElement>
void JsonStream::list(OnElement&& on_element) {
  expect('[', "a list");
  if (next() == ']') {
    expect(']', "a list");
    return;
  }
  while (window(on_element)) {
  }
}

template <typename Parsed, typename Take>
void JsonStream::list(typename JsonAhead<Parsed>::Parse parse, Take&& take) {
  expect('[', "a list");
  if (next() == ']') {
    expect(']', "a list");
    return;
  }
  const auto one = [&](object& item, std::uint64_t offset) {
    Parsed parsed;
    const simdjson::error_code error = parse(item, parsed);
    if (error == simdjson::SUCCESS) {
      take(parsed, offset);
    }
    return error;
  };
  const std::size_t threads = std::clamp(std::thread::hardware_concurrency(), 2U, 5U) - 1;
  constexpr int kPatience = 8;  // parts that were none, before all goes window by window
  constexpr std::uint64_t kLarge = std::uint64_t{16} << 20U;  // less is done before threads help
  const std::string key = input_.expected() > kLarge ? first_key() : "";
  std::optional<JsonAhead<Parsed>> ahead;
  std::vector<std::unique_ptr<typename JsonAhead<Parsed>::Job>> spare;
  int failed = 0;
  for (bool goes_on = true; goes_on; goes_on = window(one)) {
    while (!key.empty() && failed < kPatience) {
      if (!ahead) {
        ahead.emplace(parse, threads);
      }
      while (ahead->given() < threads + 1) {
        auto job = spare.empty() ? std::make_unique<typename JsonAhead<Parsed>::Job>()
                                 : std::move(spare.back());
        if (!spare.empty()) {
          spare.pop_back();
        }
        if (!next_part(job->part, key)) {
          break;
        }
        ahead->give(std::move(job));
      }
      if (ahead->given() == 0) {
        break;
      }
      auto job = ahead->take();
      if (!job->whole) {
        ++failed;
        std::vector<std::unique_ptr<typename JsonAhead<Parsed>::Job>> undone;
        undone.push_back(std::move(job));
        while (ahead->given() > 0) {
          undone.push_back(ahead->take());
        }
        for (; !undone.empty(); undone.pop_back()) {
          put_back(undone.back()->part);
        }
        break;
      }
      for (std::size_t i = 0; i < job->items.size(); ++i) {
        take(job->items[i], job->offsets[i]);
      }
      spare.push_back(std::move(job));
    }
  }
}

template <typename OnElement>
bool JsonStream::window(OnElement& on_element) {
  simdjson::ondemand::document document;
  if (!open_window(document)) {
    return true;
  }
  const char* start = nullptr;
  simdjson::ondemand::array elements;
  simdjson::error_code error = document.get_array().get(elements);
  if (error == simdjson::SUCCESS) {
    for (auto element : elements) {
      simdjson::ondemand::value value;
      object item;
      start = nullptr;
      if ((error = std::move(element).get(value)) != simdjson::SUCCESS) {
        break;
      }
      start = value.raw_json_token().data();
      if ((error = value.get_object().get(item)) != simdjson::SUCCESS ||
          (error = on_element(item, offset_of(static_cast<std::size_t>(start - buffer_.data())))) !=
              simdjson::SUCCESS) {
        break;
      }
    }
  }
  const char* after = nullptr;
  if (error == simdjson::SUCCESS && document.current_location().get(after) != simdjson::SUCCESS) {
    after = nullptr;
  }
  close_window();
  if (error != simdjson::SUCCESS) {
    retry_from(start, error);
    return true;
  }
  return list_goes_on(after);
}

}  // namespace stepcast::traces::internal
