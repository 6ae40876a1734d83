#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/execution_order.h"
#include "simulator/event_queue.h"
#include "simulator/hosts.h"
#include "simulator/links.h"
#include "simulator/rank_state.h"
#include "simulator/rendezvous.h"
#include "simulator/simulate.h"

namespace stepcast::simulator {

/// Finds `critical` and `makespan` among the ranks.
void find_critical(SimulationResult& result);

/// The event engine behind simulate(); one object per run. Not part of the room's interface.
///
/// It takes events from the queue and runs the streams: each takes its ops in order. Hosts issue
/// those ops, a Rendezvous makes ranks wait for each other, Links carry what they then transfer.
///
/// Where nothing depends on the order of events in time (no shared links, no slowdown, no shared
/// core), a stream runs ahead through its ops on its own clock until it needs another stream or
/// rank: begin and end follow from maxima and sums alone. Otherwise ends are events in time order.
class Engine final : private Hosts::Client, private Links::Client {
 public:
  Engine(const ExecutionGraph& graph, const StepCosts& costs, const SimulationOptions& options,
         Observer* observer);
  SimulationResult run();

 private:
  using Doing = StreamState::Doing;

  // Set-up (engine_setup.cpp).
  void check_length() const;
  void prepare(std::size_t instance);
  void prepare_streams(RankState& rank, std::uint32_t instance);
  void find_alone(std::size_t instance);

  // Events, and what they make a rank do next.
  void handle(const EventQueue::Event& event);
  void drive(std::uint32_t rank);
  void wake(std::uint32_t rank, std::uint32_t stream) {
    ranks_[rank].streams[stream].doing = Doing::kReady;
    ranks_[rank].runnable |= 1ULL << stream;
    wake_rank(rank);
  }
  void wake_rank(std::uint32_t rank) override {
    if (!ranks_[rank].listed) {
      ranks_[rank].listed = true;
      work_.push_back(rank);
    }
  }

  // Streams.
  void advance(std::uint32_t rank, std::uint32_t stream);
  /// Begins an op of several ranks; true where the stream goes on at once.
  bool start_shared(std::uint32_t rank, std::uint32_t stream, std::uint32_t op, std::int64_t begin);
  void run_plain(std::uint32_t rank, std::uint32_t stream);
  static void seek(const RankState& rank, StreamState& stream, std::uint32_t stream_index);
  [[nodiscard]] std::int64_t issue_time(const RankState& rank, const StreamState& stream,
                                        std::uint32_t op) const;
  [[nodiscard]] static std::int64_t latency_of(const RankState& rank, std::uint32_t op) {
    return rank.costs->latency.empty() ? 0 : rank.costs->latency[op];
  }
  /// Device time from when an op may begin until it does.
  [[nodiscard]] std::int64_t dispatch_of(const RankState& rank, std::uint32_t op) const {
    return costs_.dispatch + (rank.costs->delay.empty() ? 0 : rank.costs->delay[op]);
  }
  void start_compute(std::uint32_t rank, std::uint32_t stream, std::int64_t time, std::uint32_t op);
  void meet_equals(const Attendance& here);
  void begin_compute(std::uint32_t rank, std::uint32_t stream, std::int64_t begin) override;
  void finish_op(std::uint32_t rank, std::uint32_t stream, std::int64_t end);

  // Calls of the links.
  void change_rate(std::uint32_t rank) override;
  void want_cores(std::uint32_t id, const Transfer& transfer) override;
  void give_cores(std::uint32_t transfer, std::size_t parties) override;
  void end_transfer(const Transfer& transfer, std::int64_t end) override;

  void emit(const RankState& rank, const StreamState& stream, std::uint32_t op, std::int64_t issued,
            std::int64_t begin, std::int64_t ready, std::int64_t end);
  void finish_ranks(SimulationResult& result);
  [[nodiscard]] std::string stuck() const;
  [[nodiscard]] std::uint32_t stream_source(std::uint32_t rank, std::uint32_t stream) const {
    return first_source_[rank] + stream;
  }

  const ExecutionGraph& graph_;
  const StepCosts& costs_;
  SimulationOptions options_;
  Observer* observer_;
  const bool core_;  // hosts share a core with their streams
  EventQueue queue_;
  std::vector<ExecutionOrder> orders_;
  std::vector<RankState> ranks_;
  // Event sources: streams, then cores, then links.
  std::vector<std::uint32_t> first_source_;  // by rank
  std::vector<std::uint32_t> source_rank_;   // by stream source
  const std::uint32_t first_core_;
  Hosts hosts_;
  const std::uint32_t first_link_;
  Links links_;
  Rendezvous rendezvous_;
  std::vector<std::uint32_t> work_;  // ranks to drive
  std::size_t work_first_ = 0;
};

}  // namespace stepcast::simulator
