#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/graph/op_enums.h"

namespace stepcast::runtime {

struct InFlight;

/// How a rank waits inside a collective. Polling is fastest, but takes the core; `kYield` tests and
/// sleeps in between: for ranks whose streams share a core, and for more ranks than cores.
enum class Waiting : std::uint8_t { kBlocking, kYield };

/// The collectives of one group of ranks as one member sees them; NCCL-shaped, so that backends are
/// swappable. Blocking: a call returns when this rank's part is done. Counts are elements of fp32
/// unless a function says bytes.
class Collectives {
 public:
  using Reduction = stepcast::Reduction;
  virtual ~Collectives() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  virtual void all_reduce(float* data, std::size_t count,
                          Reduction reduction = Reduction::kSum) = 0;
  virtual void all_gather(const float* send, float* receive, std::size_t count_per_rank) = 0;
  virtual void reduce_scatter(const float* send, float* receive, std::size_t count_per_rank) = 0;
  virtual void broadcast(float* data, std::size_t count, int root) = 0;
  /// Counts and displacements in elements of `element_bytes` bytes, one entry per member.
  virtual void all_to_all_v(const void* send, std::span<const std::int64_t> send_counts,
                            std::span<const std::int64_t> send_offsets, void* receive,
                            std::span<const std::int64_t> receive_counts,
                            std::span<const std::int64_t> receive_offsets,
                            std::size_t element_bytes) = 0;
  /// Posts a send and returns; `data` must stay unchanged until `finish_sends`.
  virtual void post_send(const float* data, std::size_t count, int peer, int tag) = 0;
  virtual void receive(float* data, std::size_t count, int peer, int tag) = 0;
  virtual void finish_sends() = 0;
  virtual void barrier() = 0;
  /// Bytes this rank has sent since whoever reads it set them to 0, by level of the fabric; empty
  /// where they are not counted.
  virtual std::span<double> sent_by_level() { return {}; }
  /// Messages of calls that have returned go on their way: for ranks that wait for long elsewhere.
  virtual void progress() {}
  /// Record in which the watchdog sees what this rank is waiting for; null without one.
  virtual InFlight* flight() { return nullptr; }
};

}  // namespace stepcast::runtime
