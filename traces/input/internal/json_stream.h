#pragma once
#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/input/input.h"

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
  std::string_view value();
  /// Consumes a list of objects and calls on_element(object&, offset) -> simdjson::error_code for
  /// each, in order.
  template <typename OnElement>
  void list(OnElement&& on_element);

  [[nodiscard]] std::uint64_t offset() const { return offset_of(begin_); }
  [[nodiscard]] Input& input() { return input_; }
  [[noreturn]] void fail(std::uint64_t at, std::string_view what) const { input_.fail(at, what); }
  /// Windows in which bytes that are no UTF-8 were replaced.
  [[nodiscard]] std::uint64_t repaired() const { return repaired_; }

 private:
  static constexpr std::size_t kWindow = std::size_t{2} << 20;
  static constexpr std::size_t kLargestWindow = std::size_t{64} << 20;

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

template <typename OnElement>
void JsonStream::list(OnElement&& on_element) {
  expect('[', "a list");
  if (next() == ']') {
    expect(']', "a list");
    return;
  }
  for (bool goes_on = true; goes_on;) {
    simdjson::ondemand::document document;
    if (!open_window(document)) {
      continue;
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
            (error =
                 on_element(item, offset_of(static_cast<std::size_t>(start - buffer_.data())))) !=
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
    } else {
      goes_on = list_goes_on(after);
    }
  }
}

}  // namespace stepcast::traces::internal
