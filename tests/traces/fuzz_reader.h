#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/input/input.h"
#include "traces/events/edit.h"
#include "traces/events/recording.h"

namespace stepcast::traces::test {

/// One input to a reader: the only way out is a rank that keeps the model's promises, or an
/// InputError of reasonable length.
inline void fuzz_reader(RankRecording (*read)(Input&, Names&), const std::uint8_t* data,
                        std::size_t size) {
  try {
    Recording recording;
    Input input = Input::of_text("fuzz", std::string(reinterpret_cast<const char*>(data), size));
    recording.ranks.push_back(read(input, recording.names));
    const RankRecording& rank = recording.ranks.front();
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
    (void)recording.all_oddities();
    anonymize(recording);
  } catch (const InputError& e) {
    if (std::string_view(e.what()).size() > 4000) {
      std::abort();
    }
  }
}

}  // namespace stepcast::traces::test
