#pragma once
#include <cstdint>
#include <string>

#include "core/units.h"

namespace stepcast {

/// Side traffic of a training run (primitive P7): a checkpoint, a reader, an upload. Every `every`
/// of training it moves bytes from the devices over `via`.
struct Flow {
  /// Amount that moves: a given one of all devices together, or one that the job itself says.
  enum class What : std::uint8_t {
    kAmount,
    kParameters,     ///< weights, each once, in the formats they are kept in
    kState,          ///< weights and optimizer state, each once
    kEmbeddingDiff,  ///< rows of embedding tables that were looked up since the flow last ran
  };
  /// Transfer that training waits for: none | the copy out of the devices to their hosts | all of
  /// it.
  enum class Stall : std::uint8_t { kNone, kHostCopy, kFull };

  std::string name;
  Seconds every;
  What what = What::kAmount;
  Bytes amount;           ///< kAmount
  std::int64_t bits = 0;  ///< embedding elements are sent in so many bits, with an fp16 scale and
                          ///< bias per row; 0: as they are
  std::string via;        ///< a tier or a fabric level of the system, or a name of its own
  BytesPerSecond bandwidth;  ///< of `via`, all devices together; 0: the system's
  Stall stall = Stall::kNone;
};

}  // namespace stepcast
