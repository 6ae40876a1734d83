#include "workloads/schedule/v_schedule.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "core/error.h"

namespace stepcast::workloads {
namespace {

constexpr std::int64_t kPeriod = 6;  // passes of a micro-batch on a stage of two chunks

/// When a stage begins each pass of micro-batch 0, by 3 * chunk + pass.
using Block = std::array<std::int64_t, kPeriod>;

constexpr std::size_t slot_of(Pass pass, std::int32_t chunk) {
  return static_cast<std::size_t>(3 * chunk + static_cast<std::int32_t>(pass));
}
constexpr std::size_t kF0 = slot_of(Pass::kForward, 0), kB0 = slot_of(Pass::kBackward, 0),
                      kW0 = slot_of(Pass::kWeights, 0), kF1 = slot_of(Pass::kForward, 1),
                      kB1 = slot_of(Pass::kBackward, 1), kW1 = slot_of(Pass::kWeights, 1);

/// The block of every stage where a micro-batch waits so long at each turn; nothing where two
/// passes of a stage meet.
std::optional<std::vector<Block>> blocks_of(const VHops& hops, std::int64_t stages,
                                            const std::array<std::int64_t, 3>& waits) {
  const std::int64_t behind = stages - 1;
  const std::int64_t forward_1 = hops.forward_0 * behind + 1 + waits[0];  // on the last stage
  const std::int64_t backward_1 = forward_1 + hops.forward_1 * behind + 1 + waits[1];
  const std::int64_t backward_0 = backward_1 + hops.backward_1 * behind + 1 + waits[2];
  std::vector<Block> blocks;
  for (std::int64_t i = 0; i < stages; ++i) {
    Block block{};
    block[kF0] = hops.forward_0 * i;
    block[kF1] = forward_1 + hops.forward_1 * (behind - i);
    block[kB1] = backward_1 + hops.backward_1 * i;
    block[kB0] = backward_0 + hops.backward_0 * (behind - i);
    std::array<bool, kPeriod> taken{};
    const auto take = [&taken](std::int64_t time) {
      return !std::exchange(taken[static_cast<std::size_t>(time % kPeriod)], true);
    };
    for (const std::size_t pass : {kF0, kF1, kB1, kB0}) {
      if (!take(block[pass])) {
        return std::nullopt;
      }
    }
    if (hops.pairs &&
        ((block[kB1] - block[kF0]) % kPeriod != 1 || (block[kB0] - block[kF1]) % kPeriod != 1)) {
      return std::nullopt;
    }
    for (const auto& [weights, backward] : {std::pair{kW1, kB1}, std::pair{kW0, kB0}}) {
      block[weights] = block[backward] + 1;
      while (!take(block[weights])) {
        ++block[weights];
      }
    }
    blocks.push_back(block);
  }
  return blocks;
}

/// Most chunks in flight in a stage whose blocks go on for ever.
std::int64_t most_in_flight(const Block& block) {
  std::int64_t most = 0;
  for (std::int64_t at = 0; at < kPeriod; ++at) {
    const std::int64_t now = at + kPeriod * (*std::max_element(block.begin(), block.end()) + 1);
    const auto begun = [now](std::int64_t first) { return (now - first) / kPeriod; };
    most = std::max(most, begun(block[kF0]) - begun(block[kW0] + 1) + begun(block[kF1]) -
                              begun(block[kW1] + 1));
  }
  return most;
}

struct Blocks {
  std::vector<Block> of_stage;
  std::int64_t in_flight = 0;
};

Blocks best_blocks(const VHops& hops, std::int64_t stages) {
  constexpr std::int64_t kLongestWait = 3;
  const bool patient = hops.forward_0 + hops.backward_0 >= kPeriod;
  std::optional<Blocks> best;
  std::int64_t best_wait = 0;
  for (std::int64_t a = 0; a <= kLongestWait; ++a) {
    for (std::int64_t b = 0; b <= kLongestWait; ++b) {
      for (std::int64_t c = 0; c <= kLongestWait; ++c) {
        auto blocks = blocks_of(hops, stages, {a, b, c});
        if (!blocks) {
          continue;
        }
        std::int64_t most = 0;
        for (const Block& block : *blocks) {
          most = std::max(most, most_in_flight(block));
        }
        const std::int64_t wait = (a + b + c) * (patient ? -1 : 1);
        if (!best || std::tie(most, wait) < std::tie(best->in_flight, best_wait)) {
          best = Blocks{std::move(*blocks), most};
          best_wait = wait;
        }
      }
    }
  }
  STEPCAST_CHECK(best.has_value(), "passes of a V meet on {} stages", stages);
  return std::move(*best);
}

/// All stages side by side in passes of one unit: what v_schedules says of moving blocks together.
class Squeeze {
 public:
  Squeeze(const Blocks& blocks, std::int32_t microbatches);
  std::vector<std::vector<ScheduleStep>> run() &&;

 private:
  struct Stage {
    std::deque<ScheduleStep> next;     ///< in the order of its blocks
    std::deque<ScheduleStep> put_off;  ///< weight gradients that wait for a gap
    std::int32_t forwards = 0;         ///< left
    std::int64_t in_flight = 0;
    std::vector<ScheduleStep> steps;  ///< run
  };
  [[nodiscard]] std::size_t slot(Pass pass, std::int64_t virtual_stage,
                                 std::int32_t microbatch) const {
    const std::int64_t way = pass == Pass::kForward ? virtual_stage : 2 * all_ - 1 - virtual_stage;
    return static_cast<std::size_t>(way * microbatches_ + microbatch);
  }
  [[nodiscard]] bool ready(std::size_t stage, const ScheduleStep& step) const;
  [[nodiscard]] std::deque<ScheduleStep>::iterator early_forward(Stage& stage) const;
  bool work(std::size_t stage);

  VirtualStages virtual_;
  std::int64_t all_;  // virtual stages
  std::int64_t microbatches_;
  std::int64_t most_in_flight_;
  std::int64_t now_ = 0;
  std::vector<Stage> stages_;
  std::vector<std::int64_t> ends_;  // by slot: all forwards as a micro-batch goes, then backwards
};

Squeeze::Squeeze(const Blocks& blocks, std::int32_t microbatches)
    : virtual_{static_cast<std::int64_t>(blocks.of_stage.size()), 2, ChunkPlacement::kV},
      all_(virtual_.count()),
      microbatches_(microbatches),
      most_in_flight_(blocks.in_flight),
      ends_(static_cast<std::size_t>(2 * all_ * microbatches),
            std::numeric_limits<std::int64_t>::max()) {
  for (const Block& block : blocks.of_stage) {
    std::vector<std::pair<std::int64_t, ScheduleStep>> timed;
    for (std::int32_t m = 0; m < microbatches; ++m) {
      for (const std::int32_t chunk : {0, 1}) {
        for (const Pass pass : {Pass::kForward, Pass::kBackward, Pass::kWeights}) {
          timed.push_back({block[slot_of(pass, chunk)] + kPeriod * m, {pass, chunk, m}});
        }
      }
    }
    std::sort(timed.begin(), timed.end());
    Stage& stage = stages_.emplace_back();
    stage.forwards = 2 * microbatches;
    for (const auto& [time, step] : timed) {
      stage.next.push_back(step);
    }
  }
}

/// Weight gradients follow their stage's own backward pass in its list.
bool Squeeze::ready(std::size_t stage, const ScheduleStep& step) const {
  if (step.pass == Pass::kWeights) {
    return true;
  }
  const std::size_t own =
      slot(step.pass, virtual_.at(static_cast<std::int64_t>(stage), step.chunk), step.microbatch);
  const auto before = static_cast<std::size_t>(microbatches_);
  return own < before || ends_[own - before] <= now_;
}

/// The next forward of chunk 0, or the end if it would make a moment with too many in flight.
std::deque<ScheduleStep>::iterator Squeeze::early_forward(Stage& stage) const {
  std::int64_t in_flight = stage.in_flight + 1;
  for (auto at = stage.next.begin(); at != stage.next.end(); ++at) {
    const bool forward = at->pass == Pass::kForward;
    if (in_flight > most_in_flight_ || (forward && at->chunk == 0)) {
      return in_flight > most_in_flight_ ? stage.next.end() : at;
    }
    in_flight += forward ? 1 : at->pass == Pass::kWeights ? -1 : 0;
  }
  return stage.next.end();
}

/// False where the stage waits.
bool Squeeze::work(std::size_t of) {
  Stage& stage = stages_[of];
  std::deque<ScheduleStep>& next = stage.next;
  while (stage.forwards == 0 && !next.empty() && next.front().pass == Pass::kWeights) {
    stage.put_off.push_back(next.front());
    next.pop_front();
  }
  std::deque<ScheduleStep>* from = &next;
  auto at = next.begin();
  if (next.empty() || !ready(of, *at)) {
    if (stage.forwards > 0) {
      at = early_forward(stage);
    } else {
      from = &stage.put_off;
      at = from->begin();
    }
    if (at == from->end() || !ready(of, *at)) {
      return false;
    }
  }
  const ScheduleStep step = *at;
  from->erase(at);
  if (step.pass == Pass::kForward) {
    --stage.forwards;
    ++stage.in_flight;
  } else if (step.pass == Pass::kWeights) {
    --stage.in_flight;
  }
  if (step.pass != Pass::kWeights) {
    ends_[slot(step.pass, virtual_.at(static_cast<std::int64_t>(of), step.chunk),
               step.microbatch)] = now_ + 1;
  }
  stage.steps.push_back(step);
  return true;
}

std::vector<std::vector<ScheduleStep>> Squeeze::run() && {
  const std::size_t all = static_cast<std::size_t>(kPeriod * microbatches_) * stages_.size();
  for (std::size_t done = 0; done < all; ++now_) {
    const std::size_t before = done;
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
      done += work(stage) ? 1 : 0;
    }
    STEPCAST_CHECK(done > before, "the stages of a V wait for each other");
  }
  std::vector<std::vector<ScheduleStep>> steps;
  for (Stage& stage : stages_) {
    steps.push_back(std::move(stage.steps));
  }
  return steps;
}

/// The same with more micro-batches: the six passes up to the last forward of chunk 0, again.
std::vector<ScheduleStep> with_more(const std::vector<ScheduleStep>& steps, std::int32_t more) {
  const auto last = std::find_if(steps.rbegin(), steps.rend(), [](const ScheduleStep& s) {
                      return s.pass == Pass::kForward && s.chunk == 0;
                    }).base();
  std::vector<ScheduleStep> all(steps.begin(), last);
  const auto add = [&all](ScheduleStep step, std::int32_t later) {
    step.microbatch += later;
    all.push_back(step);
  };
  for (std::int32_t n = 1; n <= more; ++n) {
    std::for_each(last - kPeriod, last, [&](const ScheduleStep& s) { add(s, n); });
  }
  std::for_each(last, steps.end(), [&](const ScheduleStep& s) { add(s, more); });
  return all;
}

}  // namespace

std::vector<std::vector<ScheduleStep>> v_schedules(const VHops& hops, const PipelineShape& shape) {
  STEPCAST_CHECK(shape.chunks == 2, "a V of {} chunks", shape.chunks);
  const std::int32_t simulated = std::min(shape.microbatches, 3 * shape.stages);
  auto steps = Squeeze(best_blocks(hops, shape.stages), simulated).run();
  for (auto& of_stage : steps) {
    of_stage = with_more(of_stage, shape.microbatches - simulated);
  }
  return steps;
}

}  // namespace stepcast::workloads
