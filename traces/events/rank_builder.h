#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "traces/events/recording.h"

namespace stepcast::traces {

/// One event as a reader hands it over, in any order.
struct NewEvent {
  Nanoseconds begin{};
  Nanoseconds duration{};
  NameId name = kNoName;
  EventCategory category = EventCategory::kHostOther;
  std::uint16_t lane = 0;
  std::int64_t correlation = 0;
  std::int64_t external = -1;
  std::int32_t detail = kNoDetail;
};

/// Collects what one rank recorded and puts it into the order the model promises: lanes contiguous
/// and sorted, launches linked to the work they started, collectives described by the host op that
/// issued them, steps found, oddities counted.
///
///   RankBuilder b(names, "worker0.json.gz");
///   b.add({.begin = ..., .lane = b.stream_lane(0, 1, 7), ...});
///   RankRecording rank = std::move(b).finish();
class RankBuilder {
 public:
  /// `names` must outlive the builder; ranks of a recording share it.
  RankBuilder(Names& names, std::string source);

  /// Makes room: no copy of what is there while it grows. Untouched room costs nothing.
  void reserve(std::uint64_t events);
  std::uint16_t host_lane(std::int64_t process, std::int64_t thread, std::string_view name = {});
  std::uint16_t stream_lane(std::int32_t device, std::int32_t context, std::int32_t stream);
  /// The id of the event until finish() sorts.
  EventId add(const NewEvent& event);
  /// Leaves an event out after all, in finish().
  void drop(EventId event);
  /// Index into `launches`; equal ones share an entry.
  std::int32_t launch(const LaunchInfo& info);
  /// Index into `groups` of the communicator of that name, made when new.
  std::int32_t group(std::string_view name);
  /// Marks an event as a step that the program numbered.
  void step(EventId event, std::int64_t number);
  /// Edge of an execution graph, by `external` ids of nodes; unknown ones are counted and left out.
  void depends(EventId event, std::int64_t on, Dependencies::Kind kind);

  [[nodiscard]] RankRecording& rank() { return rank_; }
  [[nodiscard]] Names& names() { return names_; }

  /// Adds `base` to all times and orders everything.
  RankRecording finish(Nanoseconds base = Nanoseconds{0}) &&;

 private:
  std::uint16_t lane(const Lane& lane);
  std::vector<EventId> sorted_order();
  void drop_repeated(std::vector<EventId>& order);
  void permute(const std::vector<EventId>& order);
  void link_dependencies(const std::vector<EventId>& order);

  struct Edge {
    EventId event;
    std::int64_t on;
    Dependencies::Kind kind;
  };
  Names& names_;
  RankRecording rank_;
  std::vector<Edge> edges_;
  std::vector<bool> dropped_;  ///< empty: none
  std::unordered_map<std::string, std::int32_t> groups_;
  std::unordered_map<std::uint64_t, std::vector<std::int32_t>> launches_;
  std::uint16_t recent_lane_ = 0;
};

}  // namespace stepcast::traces
