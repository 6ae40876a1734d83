#include "runtime/emulation/emulated_collectives.h"

#include <algorithm>

#include "core/error.h"
#include "runtime/futex.h"
#include "runtime/mpi/watchdog.h"

namespace stepcast::runtime {
namespace {

double bytes_of(std::size_t elements) {
  return static_cast<double>(elements) * static_cast<double>(sizeof(float));
}

/// Keeps the watchdog informed while a paced collective sleeps.
class PacedFlight {
 public:
  PacedFlight(Collectives& inside, const char* what) {
    if (InFlight* slot = inside.flight()) {
      flight_.emplace(*slot, what);
    }
  }

 private:
  std::optional<Flight> flight_;
};

}  // namespace

/// Other ranks may still be in the call inside: their messages must not wait for this rank's sleep.
void EmulatedCollectives::rest_until(std::int64_t ns) {
  constexpr std::int64_t kWhile = 200'000;
  for (std::int64_t now = steady_ns(); now < ns; now = steady_ns()) {
    inside_->progress();
    sleep_until_ns(std::min(ns, now + kWhile));
  }
}

// Everybody first comes together asleep: a transfer begins when its last member is there. Then the
// data moves, then the rest of the time passes.

void EmulatedCollectives::all_reduce(float* data, std::size_t count, Reduction reduction) {
  const PacedFlight flight(*inside_, "all_reduce");
  const std::int64_t start = schedules_.rendezvous();
  inside_->all_reduce(data, count, reduction);
  rest_until(schedules_.play(RingUse::kAllReduce, bytes_of(count), start));
}

void EmulatedCollectives::all_gather(const float* send, float* receive,
                                     std::size_t count_per_rank) {
  const PacedFlight flight(*inside_, "all_gather");
  const std::int64_t start = schedules_.rendezvous();
  inside_->all_gather(send, receive, count_per_rank);
  rest_until(schedules_.play(RingUse::kAllGather,
                             bytes_of(count_per_rank) * static_cast<double>(size()), start));
}

void EmulatedCollectives::reduce_scatter(const float* send, float* receive,
                                         std::size_t count_per_rank) {
  const PacedFlight flight(*inside_, "reduce_scatter");
  const std::int64_t start = schedules_.rendezvous();
  inside_->reduce_scatter(send, receive, count_per_rank);
  rest_until(schedules_.play(RingUse::kReduceScatter,
                             bytes_of(count_per_rank) * static_cast<double>(size()), start));
}

void EmulatedCollectives::broadcast(float* data, std::size_t count, int root) {
  const PacedFlight flight(*inside_, "broadcast");
  const std::int64_t start = schedules_.rendezvous();
  inside_->broadcast(data, count, root);
  rest_until(schedules_.broadcast(bytes_of(count), root, start));
}

void EmulatedCollectives::all_to_all_v(const void* send, std::span<const std::int64_t> send_counts,
                                       std::span<const std::int64_t> send_offsets, void* receive,
                                       std::span<const std::int64_t> receive_counts,
                                       std::span<const std::int64_t> receive_offsets,
                                       std::size_t element_bytes) {
  const PacedFlight flight(*inside_, "all_to_all_v");
  bytes_to_.resize(send_counts.size());
  std::transform(send_counts.begin(), send_counts.end(), bytes_to_.begin(), [&](std::int64_t n) {
    return static_cast<double>(n) * static_cast<double>(element_bytes);
  });
  schedules_.meet_for_exchange(bytes_to_);
  inside_->all_to_all_v(send, send_counts, send_offsets, receive, receive_counts, receive_offsets,
                        element_bytes);
  rest_until(schedules_.exchange());
}

void EmulatedCollectives::post_send(const float* data, std::size_t count, int peer, int tag) {
  const PacedFlight flight(*inside_, "send");
  const std::int64_t start = steady_ns();
  inside_->post_send(data, count, peer, tag);
  schedules_.post(peer, bytes_of(count), tag, start);
}

void EmulatedCollectives::receive(float* data, std::size_t count, int peer, int tag) {
  const PacedFlight flight(*inside_, "receive");
  const std::int64_t arrived = schedules_.await(peer, tag);
  inside_->receive(data, count, peer, tag);
  rest_until(arrived);
}

void EmulatedCollectives::barrier() {
  const PacedFlight flight(*inside_, "barrier");
  const std::int64_t start = schedules_.rendezvous();
  rest_until(schedules_.barrier(start));
}

Emulation::Emulation(const System& system, const ExecutionGraph& graph, int cores,
                     MpiSession& session)
    : graph_(graph), rank_(session.rank()) {
  if (session.local_size() != session.size()) {
    throw EnvironmentError(
        fmt::format("an emulated fabric needs all {} ranks on one machine; {} "
                    "are on this one",
                    session.size(), session.local_size()));
  }
  // Layout: links of fabric and memory tiers, core tokens, then per communicator and rank the
  // arrivals of the group it leads, then mailboxes for all pairs of positions of every group, then
  // what their exchanges move.
  const auto ranks = static_cast<std::size_t>(session.size());
  const std::size_t fabric_links = PacedFabric::links_needed(system, session.size());
  const std::size_t links = fabric_links + PacedTiers::links_needed(system, session.size());
  struct Place {
    std::size_t arrivals = 0;
    std::size_t boxes = 0;
    std::size_t words = 0;
  };
  std::vector<Place> places(graph.communicators.size());
  std::size_t boxes = 0;
  std::size_t words = 0;  // of all-to-all-v: doubles, then ends
  for (std::size_t c = 0; c < graph.communicators.size(); ++c) {
    std::vector<bool> counted(ranks, false);
    for (std::int32_t r = 0; r < session.size(); ++r) {
      const auto members = graph.members(static_cast<std::int32_t>(c), r);
      if (members.empty() || counted[static_cast<std::size_t>(members.front())]) {
        continue;
      }
      counted[static_cast<std::size_t>(members.front())] = true;
      if (std::find(members.begin(), members.end(), rank_) != members.end()) {
        places[c] = {c * ranks + static_cast<std::size_t>(members.front()), boxes, words};
      }
      boxes += 2 * members.size() * members.size();
      words += 2 * members.size() * (members.size() + 1);
    }
  }
  const std::size_t arrivals = graph.communicators.size() * ranks;
  const auto token_count = static_cast<std::size_t>(cores);
  memory_ = session.shared_memory(
      links * sizeof(PacedFabric::Link) + token_count * sizeof(CoreLease::Token) +
      arrivals * sizeof(Arrivals) + boxes * sizeof(Mailbox) + words * sizeof(double) + 64);
  auto* memory = static_cast<char*>(memory_.get());
  memory += (64 - reinterpret_cast<std::uintptr_t>(memory) % 64) % 64;
  auto* first_link = reinterpret_cast<PacedFabric::Link*>(memory);
  auto* first_token = reinterpret_cast<CoreLease::Token*>(first_link + links);
  auto* first_arrivals = reinterpret_cast<Arrivals*>(first_token + token_count);
  auto* first_box = reinterpret_cast<Mailbox*>(first_arrivals + arrivals);
  auto* first_word = reinterpret_cast<double*>(first_box + boxes);
  fabric_ = std::make_unique<PacedFabric>(system, session.size(), first_link);
  if (!graph.programs.empty() && !graph.program_of(rank_).tiers.empty()) {
    tiers_.emplace(system, session.size(), rank_, graph.program_of(rank_).tiers,
                   first_link + fabric_links);
  }
  lease_.emplace(first_token[static_cast<std::size_t>(
      core_of(session.local_rank(), session.local_size(), cores))]);
  for (std::size_t c = 0; c < graph.communicators.size(); ++c) {
    const auto members = graph.members(static_cast<std::int32_t>(c), rank_);
    Mailbox* own = first_box + places[c].boxes;
    const std::size_t pairs = members.size() * members.size();
    double* bytes = first_word + places[c].words;
    groups_.push_back({&first_arrivals[places[c].arrivals], own, own + pairs, bytes,
                       reinterpret_cast<PacedFabric::End*>(bytes + 2 * pairs)});
  }
}

std::vector<std::unique_ptr<Collectives>> Emulation::paced(
    std::vector<std::unique_ptr<Collectives>> real) {
  for (std::size_t c = 0; c < real.size(); ++c) {
    if (real[c] == nullptr || real[c]->size() == 1) {
      continue;
    }
    Schedules schedules(*fabric_, graph_.members(static_cast<std::int32_t>(c), rank_),
                        real[c]->rank(), groups_[c],
                        [inside = real[c].get()] { inside->progress(); });
    real[c] = std::make_unique<EmulatedCollectives>(std::move(real[c]), std::move(schedules));
  }
  return real;
}

}  // namespace stepcast::runtime
