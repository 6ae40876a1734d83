#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace stepcast::traces::internal {

/// A text as JSON, in quotes; bytes that are no UTF-8 are replaced.
std::string json_text(std::string_view text);

/// An event that takes time. Times are in microseconds, as they are written.
struct ChromeSlice {
  std::string_view category;
  std::string_view name;  ///< as JSON
  std::int64_t process = 0, track = 0;
  std::string begin, duration;
};

/// The event list of a Chrome trace JSON under construction.
class ChromeEvents {
 public:
  /// `arguments` appends the members of the slice's arguments to a buffer.
  template <typename Arguments>
  void slice(const ChromeSlice& s, Arguments&& arguments) {
    add(R"({{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{)",
        s.category, s.name, s.process, s.track, s.begin, s.duration);
    arguments(text_);
    fmt::format_to(std::back_inserter(text_), "}}}}");
  }
  /// Names a process or a track: `what` is process_name or thread_name, `name` JSON.
  void label(std::string_view what, std::int64_t process, std::int64_t track,
             std::string_view name) {
    add(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what, process, track,
        name);
  }
  /// One end of the arrow `id`: from a launch ('s') to its work ('f').
  void arrow(char phase, std::int64_t id, std::int64_t process, std::int64_t track,
             std::string_view at) {
    add(R"({{"ph":"{}","id":{},"cat":"ac2g","name":"ac2g","pid":{},"tid":{},"ts":{}{}}})", phase,
        id, process, track, at, phase == 'f' ? R"(,"bp":"e")" : "");
  }
  /// `opening`: the document up to the list's bracket.
  [[nodiscard]] std::string document(std::string_view opening) const {
    return fmt::format("{}{}\n]}}\n", opening, std::string_view(text_.data(), text_.size()));
  }

 private:
  template <typename... Parts>
  void add(fmt::format_string<Parts...> format, Parts&&... parts) {
    fmt::format_to(std::back_inserter(text_), "{}", text_.size() == 0 ? "\n" : ",\n");
    fmt::format_to(std::back_inserter(text_), format, std::forward<Parts>(parts)...);
  }
  fmt::memory_buffer text_;
};

}  // namespace stepcast::traces::internal
