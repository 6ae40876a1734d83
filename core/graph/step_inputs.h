#pragma once
#include <cstdint>
#include <vector>

#include "core/job/embedding_table.h"

namespace stepcast {

struct Batch {
  std::int64_t global = 0;    ///< samples (sequences for transformers) per optimizer step
  std::int64_t micro = 1;     ///< per data-parallel replica
  std::int64_t sequence = 0;  ///< tokens per sequence; transformers only
};

/// The samples of a step: how many there are and what one of them holds. Token data has a
/// vocabulary, click data dense features and lookups; other data cannot be made by the runtime.
struct StepInputs {
  Batch batch;
  std::int64_t vocabulary = 0;      ///< tokens are ids in [0, vocabulary)
  std::int64_t dense_features = 0;  ///< of a sample
  std::vector<EmbeddingTable> tables;
  /// A rank looks up and sends each distinct id of its samples once, and of pooled tables each
  /// distinct list (RecD, arXiv 2211.05239).
  bool distinct_ids = false;
};

}  // namespace stepcast
