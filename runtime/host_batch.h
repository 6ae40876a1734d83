#pragma once
#include <cstdint>
#include <vector>

namespace stepcast::runtime {

/// Batch that this rank trains on in one step, all microbatches, drawn by a data generator outside
/// the timed step; microbatch m owns samples [m * batch.micro, (m + 1) * batch.micro). `dense`
/// [batch, features], `labels` [batch]; `lookups[t]`/`offsets[t]` are the local batch's ids (in the
/// workload's row numbering) and batch + 1 bag offsets of table t; `ranks[t]` the popularity rank
/// behind each id; `tokens` [batch * (sequence + 1)]: the targets are the tokens one later.
struct HostBatch {
  std::vector<float> dense;
  std::vector<float> labels;
  std::vector<std::vector<std::int64_t>> lookups;
  std::vector<std::vector<std::int64_t>> offsets;
  std::vector<std::int32_t> tokens;
  std::vector<std::vector<std::int64_t>> ranks;
};

}  // namespace stepcast::runtime
