#pragma once
#include <cstdint>
#include <vector>

#include "core/graph/program.h"

namespace stepcast::runtime {

/// Places of the copies of one layer's tokens on one rank, for one micro-batch of one step. The
/// draw is a function of the token, so each rank knows what the others send without being told.
///
/// Orders of copies are lists of blocks; block i is [first[i], first[i + 1]):
///   sent      [part][expert]            this rank's tokens
///   received  [part][member][local]     what its expert group sends to its experts
///   unsorted  [part][source][local]     the same of all tensor ranks that compute together:
///                                       source = tensor coordinate * members + member
///   sorted    [part][local][source]     expert by expert
struct ExpertPlan {
  ExpertPlan(const ExecutionGraph& graph, const ExpertRouting& routing, std::int32_t rank);
  /// The orders of this step, worked out once. Out: whether they are new. What each copy is, is
  /// left to place_copies here or to a device, which needs the first token and the phase for it.
  bool draw(std::int64_t step, std::int32_t microbatch);
  void place_copies();

  struct Block {
    std::int64_t first = 0, count = 0;
  };
  static Block blocks(const std::vector<std::int64_t>& first, std::int64_t begin,
                      std::int64_t count);
  [[nodiscard]] Block sent_to(std::int64_t part, std::int64_t member) const {
    return blocks(sent, part * experts + member * local, local);
  }
  [[nodiscard]] Block received_from(std::int64_t part, std::int64_t member) const {
    return blocks(received, (part * members + member) * local, local);
  }
  /// Block that the experts' rank `tensor` of those that compute together got.
  [[nodiscard]] Block gathered_from(std::int64_t part, std::int64_t tensor) const {
    return blocks(unsorted, (part * sources + tensor * members) * local, members * local);
  }
  [[nodiscard]] Block rows_of(std::int64_t part, std::int64_t expert) const {
    return blocks(sorted, (part * local + expert) * sources, sources);
  }
  /// Rows of all experts held here, in either order.
  [[nodiscard]] Block computed(std::int64_t part) const {
    return blocks(sorted, part * local * sources, local * sources);
  }
  /// Blocks that this rank sends to each member and receives from it, on the way to the experts or
  /// back. Blocks of a side stand one after the other in the order of members.
  struct Exchange {
    std::vector<Block> send, receive;
    /// Copies for members other than `own`.
    [[nodiscard]] std::int64_t leaving(std::int32_t own) const;
  };
  [[nodiscard]] Exchange exchange(std::int64_t part, CopyWay way) const;
  /// Tensor ranks that compute together, and the most copies that one of them got: they meet with
  /// equal parts.
  [[nodiscard]] std::int64_t tensors() const { return sources / members; }
  [[nodiscard]] std::int64_t most_gathered(std::int64_t part) const;
  /// This rank's copies among those received, it being tensor rank `tensor`.
  [[nodiscard]] Block brought(std::int64_t part, std::int64_t tensor) const {
    return {received_from(part, 0).first, gathered_from(part, tensor).count};
  }
  [[nodiscard]] std::int64_t copies() const { return sent.back(); }

  std::int64_t experts, per_token, local, members, sources;
  std::int64_t first_token = 0;  ///< of the rows
  std::uint64_t phase = 0;
  std::vector<std::int64_t> sent, received, unsorted, sorted;
  // Once placed.
  std::vector<std::int32_t> chosen;     ///< [row][choice]: expert
  std::vector<std::int64_t> copy_of;    ///< [row][choice]: its place among the sent; -1: dropped
  std::vector<std::int64_t> row_of;     ///< by copy sent
  std::vector<std::int32_t> expert_of;  ///< by copy sent

 private:
  [[nodiscard]] std::int64_t first_token_of(std::int32_t rank, std::int32_t microbatch) const;
  [[nodiscard]] std::int64_t part_of(std::int64_t copies, std::int64_t part) const {
    return copies * (part + 1) / routing_.parts - copies * part / routing_.parts;
  }

  const Batch& batch_;
  const ExpertRouting& routing_;
  Mesh mesh_;
  std::int32_t rank_;
  std::vector<std::int32_t> source_ranks_;  ///< by source
  std::int64_t own_tensor_ = 0;             ///< this rank's among the sources
  std::int64_t step_ = -1;
};

}  // namespace stepcast::runtime
