#pragma once
#include <cstdint>

namespace stepcast::workloads {

struct TransformerShape;

/// Pairs of a query and a key it sees, where `fresh` tokens follow `cached` ones and a query sees
/// the last `window` of the keys up to its own (0: all): the area of the mask, in which a token is
/// as wide as its place, so half of itself counts.
///
///   integral from cached to cached + fresh of min(x, window) dx
double causal_pairs(double cached, double fresh, double window);

/// The window that leaves a whole sequence as many pairs P:
///
///   sequence - sqrt(sequence^2 - 2 P)
///
/// 0 where these are all.
std::int64_t window_of_pairs(std::int64_t sequence, double pairs);

/// The window that leaves as many pairs as chunks of `chunk` tokens do: with n whole chunks, 2 P =
/// n chunk^2 + (sequence mod chunk)^2. 0 where the sequence is no longer than a chunk.
std::int64_t window_like_chunks(std::int64_t sequence, std::int64_t chunk);

/// Attention of a sequence to itself and to cached tokens before it, a part of both on each of
/// `context` ranks. Rank r of c has chunks r and 2 c - 1 - r of 2 c of what is new, so a causal
/// mask leaves all of them the same pairs; a window takes some from the first and few from the
/// others. Pairs are means over ranks, so those of all ranks are those of the whole sequence; sizes
/// are those of the ranks that others wait for.
class SplitAttention {
 public:
  /// `window`: of the layer; 0: all keys.
  SplitAttention(const TransformerShape& shape, std::int64_t window);

  /// A causal core whose queries are the last of its keys.
  struct Part {
    std::int64_t sequences = 1;  ///< for each of the micro-batch
    std::int64_t queries = 1, keys = 1;
    double pairs = 0;  ///< of one of those sequences and one head
  };
  /// The whole sequence, on one rank (of some of the heads).
  [[nodiscard]] Part whole() const;
  /// A rank's queries, with the keys of all ranks at hand. Kernels read those from a window before
  /// the first query on (Transformer Engine, cp_comm_type all_gather).
  [[nodiscard]] Part gathered() const;
  /// Blocks of other ranks that a rank needs: all, or those of neighbours that the window reaches.
  /// Each chunk needs those before it, which lie on ranks on one side for one of a rank's two
  /// chunks and on the other side for the other: half a block from each.
  [[nodiscard]] std::int64_t blocks() const { return blocks_; }
  /// A rank's queries with its own block (0), or with the one that is so many steps away.
  [[nodiscard]] Part block(std::int64_t step) const;
  /// Cached tokens of a rank that a query sees.
  [[nodiscard]] std::int64_t cached() const { return cached_; }

 private:
  [[nodiscard]] double pairs_of_rank() const;
  [[nodiscard]] double pairs_of_chunks(std::int64_t apart) const;
  [[nodiscard]] double pairs_at(std::int64_t apart) const;

  std::int64_t context_, fresh_, past_, queries_, window_;
  std::int64_t cached_ = 0, blocks_ = 0;
  bool by_distance_ = false;  ///< the window reaches neighbours only
};

}  // namespace stepcast::workloads
