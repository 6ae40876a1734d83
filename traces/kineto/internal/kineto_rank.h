#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/input/input.h"
#include "traces/events/rank_builder.h"
#include "traces/kineto/internal/raw_event.h"

namespace stepcast::traces::internal {

/// Turns the events and members of one Kineto file into a RankRecording.
class KinetoRank {
 public:
  KinetoRank(Input& input, Names& names);
  /// Any member besides the events: device properties, distributed information, base time, ...
  void member(std::string_view key, std::string_view json);
  void event(const RawEvent& event, std::uint64_t offset);
  void repaired(std::uint64_t windows);
  RankRecording finish() &&;

 private:
  [[nodiscard]] std::string place(std::uint64_t offset) const;
  NameId name_of_text(std::string_view text, std::uint64_t offset);
  std::uint16_t lane(const RawEvent& e, bool device);
  std::int64_t number_of(std::string_view id);
  std::int32_t detail(const RawEvent& e, EventCategory category);
  std::int32_t collective(const RawEvent& e);
  std::int32_t group(const RawCollective& c);
  bool times(const RawEvent& e, std::uint64_t offset, Nanoseconds& begin, Nanoseconds& duration);
  /// The E of a range that B began: of the innermost on its thread.
  void end_range(const RawEvent& e, std::uint64_t offset);
  /// Takes a change of a device's memory; false where it is none that tells enough.
  bool memory(const RawEvent& e);
  /// Leaves out events whose clock jumped.
  /// Errors: InputError where they are many: then the file is not one run.
  void drop_far();
  void profiler_notes(std::string_view line);
  bool communicates(NameId kernel);

  enum class Told : std::uint8_t { kNotAsked, kNo, kYes };

  Input& input_;
  Names& names_;
  RankBuilder builder_;
  std::array<std::uint64_t, 128> phases_{};
  std::uint64_t own_spans_ = 0;
  std::map<std::pair<std::int64_t, std::int64_t>, NameId>
      threads_;                     ///< names, by process and thread
  std::vector<Told> communicates_;  ///< by name
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<EventId>> open_;  ///< begun with B
  std::optional<Nanoseconds> first_;
  bool apart_ = false;  ///< an event is more than a month from the first
  std::int64_t base_ = 0;
};

}  // namespace stepcast::traces::internal
