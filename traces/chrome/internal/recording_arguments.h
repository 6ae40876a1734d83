#pragma once
#include <fmt/format.h>

#include <string>
#include <vector>

#include "traces/events/recording.h"

namespace stepcast::traces::internal {

/// The arguments of an event as members of a JSON object, without braces.
class ArgumentWriter {
 public:
  explicit ArgumentWriter(const Recording& recording);
  void write(fmt::memory_buffer& to, const RankRecording& rank, EventId event) const;
  /// The name of an event, quoted.
  [[nodiscard]] const std::string& name(NameId id) const {
    return id == kNoName ? none_ : quoted_[id];
  }

 private:
  /// A recorded JSON text as it stands, any other text in quotes.
  [[nodiscard]] std::string json_or_text(NameId id) const;
  const Recording& recording_;
  std::vector<std::string> quoted_;
  std::string none_ = "\"\"";
};

/// Kineto's word for a category.
std::string_view kineto_category(EventCategory category);
/// Nanoseconds as microseconds with three digits.
std::string microseconds_of(Nanoseconds t);
/// Errors: InputError when a rank has no times.
void check_timeline(const Recording& recording, std::string_view format);

}  // namespace stepcast::traces::internal
