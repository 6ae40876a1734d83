#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/error.h"
#include "core/input/input.h"
#include "traces/events/edit.h"
#include "traces/events/recording.h"

namespace stepcast::traces::test {

inline void check_rank(const RankRecording& rank) {
  EventId next = 0;
  for (const Lane& lane : rank.lanes) {
    if (lane.first != next) {
      std::abort();
    }
    next += lane.count;
    for (EventId i = lane.first; i < next; ++i) {
      if (rank.events.duration[i].count() < 0 ||
          (rank.timing == Timing::kTimeline && i > lane.first &&
           rank.events.begin[i] < rank.events.begin[i - 1])) {
        std::abort();
      }
    }
  }
  if (next != rank.events.size() || rank.events.link.size() != next) {
    std::abort();
  }
}

/// One input to a reader, of one rank or several: the only way out are ranks that keep the model's
/// promises, or an InputError of reasonable length.
template <typename Ranks>
void fuzz_reader(Ranks (*read)(Input&, Names&), const std::uint8_t* data, std::size_t size) {
  try {
    Recording recording;
    Input input = Input::of_text("fuzz", std::string(reinterpret_cast<const char*>(data), size));
    if constexpr (std::is_same_v<Ranks, RankRecording>) {
      recording.ranks.push_back(read(input, recording.names));
    } else {
      recording.ranks = read(input, recording.names);
    }
    for (const RankRecording& rank : recording.ranks) {
      check_rank(rank);
    }
    (void)recording.all_oddities();
    anonymize(recording);
  } catch (const InputError& e) {
    if (std::string_view(e.what()).size() > 4000) {
      std::abort();
    }
  }
}

}  // namespace stepcast::traces::test
