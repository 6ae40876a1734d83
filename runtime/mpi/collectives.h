#pragma once
#include <map>
#include <vector>

#include "runtime/collectives.h"
#include "runtime/mpi/api.h"
#include "runtime/mpi/watchdog.h"

namespace stepcast::runtime {

/// The collectives of one MPI communicator, which it owns.
class MpiCollectives final : public Collectives {
 public:
  MpiCollectives(const MpiApi& mpi, MpiHandle communicator, InFlight& flight,
                 Waiting waiting = Waiting::kBlocking);
  ~MpiCollectives() override;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void all_reduce(float* data, std::size_t count, Reduction reduction) override;
  void all_gather(const float* send, float* receive, std::size_t count_per_rank) override;
  void reduce_scatter(const float* send, float* receive, std::size_t count_per_rank) override;
  void broadcast(float* data, std::size_t count, int root) override;
  void all_to_all_v(const void* send, std::span<const std::int64_t> send_counts,
                    std::span<const std::int64_t> send_offsets, void* receive,
                    std::span<const std::int64_t> receive_counts,
                    std::span<const std::int64_t> receive_offsets,
                    std::size_t element_bytes) override;
  void post_send(const float* data, std::size_t count, int peer, int tag) override;
  void receive(float* data, std::size_t count, int peer, int tag) override;
  void finish_sends() override;
  void barrier() override;
  void progress() override;

  InFlight* flight() override { return &flight_; }

 private:
  void check(int code, const char* what) const;
  /// `post(MpiHandle* request)`, and the wait for it.
  template <typename Post>
  void finish(const Post& post, const char* what) const;
  void wait(MpiHandle* request, const char* what) const;
  MpiHandle type_of(std::size_t element_bytes);

  const MpiApi& mpi_;
  MpiHandle communicator_;
  InFlight& flight_;
  Waiting waiting_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<MpiHandle> sends_;
  std::map<std::size_t, MpiHandle> types_;
  std::vector<int> counts_;  ///< of all_to_all_v: four runs of `size` ints
};

}  // namespace stepcast::runtime
