#include "runtime/mpi/collectives.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "core/error.h"
#include "runtime/futex.h"
#include "runtime/mpi/mpi_calls.h"

namespace stepcast::runtime {
namespace {

int as_count(std::size_t n, const char* what) {
  if (n > static_cast<std::size_t>(INT_MAX)) {
    throw RunError(fmt::format("{} of {} elements per rank is more than MPI can move", what, n));
  }
  return static_cast<int>(n);
}

MpiReduction operation(Collectives::Reduction reduction) {
  return reduction == Collectives::Reduction::kMax ? MpiReduction::kMax : MpiReduction::kSum;
}

}  // namespace

MpiCollectives::MpiCollectives(const MpiApi& mpi, MpiHandle communicator, InFlight& flight,
                               Waiting waiting)
    : mpi_(mpi), communicator_(communicator), flight_(flight), waiting_(waiting) {
  check(mpi_.rank(communicator_, &rank_), "rank");
  check(mpi_.size(communicator_, &size_), "size");
  counts_.resize(4 * static_cast<std::size_t>(size_));
  sends_.reserve(64);
}

MpiCollectives::~MpiCollectives() {
  if (!mpi_.stopped()) {
    for (auto& [bytes, type] : types_) {
      mpi_.free_type(type);
    }
    mpi_.free_communicator(communicator_);
  }
}

void MpiCollectives::check(int code, const char* what) const {
  check_mpi(mpi_, code, what, flight_.communicator);
}

/// Tests for a few microseconds, then sleeps between tests, longer and longer.
void MpiCollectives::wait(MpiHandle* request, const char* what) const {
  if (waiting_ == Waiting::kBlocking) {
    check(mpi_.wait(request), what);
    return;
  }
  constexpr int kQuickTests = 16;
  constexpr std::int64_t kFirstSleep = 10'000;
  constexpr std::int64_t kLongestSleep = 200'000;
  std::int64_t pause = kFirstSleep;
  bool done = false;
  for (int i = 0;; ++i) {
    check(mpi_.test(request, &done), what);
    if (done) {
      return;
    }
    if (i >= kQuickTests) {
      sleep_until_ns(steady_ns() + pause);
      pause = std::min(kLongestSleep, pause * 3 / 2);
    }
  }
}

template <typename Post>
void MpiCollectives::finish(const Post& post, const char* what) const {
  if (waiting_ == Waiting::kBlocking) {
    check(post(nullptr), what);
    return;
  }
  MpiHandle request = nullptr;
  check(post(&request), what);
  wait(&request, what);
}

MpiHandle MpiCollectives::type_of(std::size_t element_bytes) {
  const auto [it, fresh] = types_.try_emplace(element_bytes);
  if (fresh) {
    check(mpi_.make_type(as_count(element_bytes, "an element"), &it->second), "type");
  }
  return it->second;
}

void MpiCollectives::all_reduce(float* data, std::size_t count, Reduction reduction) {
  const Flight flight(flight_, "all_reduce");
  in_pieces(size_ > 1 ? count : 0, [&](std::size_t first, int n) {
    finish(
        [&](MpiHandle* request) {
          return mpi_.all_reduce(communicator_, data + first, n, MpiType::kFloat,
                                 operation(reduction), request);
        },
        "all_reduce");
  });
}

void MpiCollectives::all_gather(const float* send, float* receive, std::size_t count_per_rank) {
  const Flight flight(flight_, "all_gather");
  const int n = as_count(count_per_rank, "all_gather");
  const bool placed = send == receive + static_cast<std::size_t>(rank_) * count_per_rank;
  if (size_ == 1) {
    if (!placed) {
      std::copy_n(send, count_per_rank, receive);
    }
    return;
  }
  finish(
      [&](MpiHandle* request) {
        return mpi_.all_gather(communicator_, placed ? nullptr : send, receive, n, MpiType::kFloat,
                               request);
      },
      "all_gather");
}

void MpiCollectives::reduce_scatter(const float* send, float* receive, std::size_t count_per_rank) {
  const Flight flight(flight_, "reduce_scatter");
  const int n = as_count(count_per_rank, "reduce_scatter");
  if (size_ == 1) {
    if (send != receive) {
      std::copy_n(send, count_per_rank, receive);
    }
    return;
  }
  // In place, MPI leaves the result at the buffer's start; the caller wants it in the own part.
  const bool placed = receive == send + static_cast<std::size_t>(rank_) * count_per_rank;
  float* target = placed ? receive - static_cast<std::size_t>(rank_) * count_per_rank : receive;
  finish(
      [&](MpiHandle* request) {
        return mpi_.reduce_scatter(communicator_, placed ? nullptr : send, target, n,
                                   MpiType::kFloat, MpiReduction::kSum, request);
      },
      "reduce_scatter");
  if (placed && rank_ > 0) {
    std::copy_n(target, count_per_rank, receive);
  }
}

void MpiCollectives::broadcast(float* data, std::size_t count, int root) {
  const Flight flight(flight_, "broadcast");
  in_pieces(size_ > 1 ? count : 0, [&](std::size_t first, int n) {
    finish(
        [&](MpiHandle* request) {
          return mpi_.broadcast(communicator_, data + first, n, MpiType::kFloat, root, request);
        },
        "broadcast");
  });
}

void MpiCollectives::all_to_all_v(const void* send, std::span<const std::int64_t> send_counts,
                                  std::span<const std::int64_t> send_offsets, void* receive,
                                  std::span<const std::int64_t> receive_counts,
                                  std::span<const std::int64_t> receive_offsets,
                                  std::size_t element_bytes) {
  const Flight flight(flight_, "all_to_all_v");
  const auto ranks = static_cast<std::size_t>(size_);
  STEPCAST_CHECK(send_counts.size() == ranks && send_offsets.size() == ranks &&
                     receive_counts.size() == ranks && receive_offsets.size() == ranks,
                 "all_to_all_v over {} ranks with {} counts", ranks, send_counts.size());
  if (size_ == 1) {
    std::memcpy(
        static_cast<char*>(receive) + static_cast<std::size_t>(receive_offsets[0]) * element_bytes,
        static_cast<const char*>(send) + static_cast<std::size_t>(send_offsets[0]) * element_bytes,
        static_cast<std::size_t>(send_counts[0]) * element_bytes);
    return;
  }
  int* lists = counts_.data();
  for (const auto& list : {send_counts, send_offsets, receive_counts, receive_offsets}) {
    for (const std::int64_t v : list) {
      *lists++ = as_count(static_cast<std::size_t>(v), "all_to_all_v");
    }
  }
  const int* c = counts_.data();
  MpiHandle type = type_of(element_bytes);
  // A buffer without elements may stand where the other one begins; Open MPI takes equal addresses
  // for an exchange in place.
  char none = 0;
  if (send == receive) {
    const bool sends = std::any_of(c, c + size_, [](int n) { return n > 0; });
    if (sends) {
      receive = &none;
    } else {
      send = &none;
    }
  }
  finish(
      [&](MpiHandle* request) {
        return mpi_.all_to_all_v(communicator_, send, c, c + size_, receive, c + 2 * size_,
                                 c + 3 * size_, type, request);
      },
      "all_to_all_v");
}

void MpiCollectives::post_send(const float* data, std::size_t count, int peer, int tag) {
  const Flight flight(flight_, "send");
  sends_.emplace_back();
  check(mpi_.send(communicator_, data, as_count(count, "send"), MpiType::kFloat, peer, tag,
                  &sends_.back()),
        "send");
}

void MpiCollectives::receive(float* data, std::size_t count, int peer, int tag) {
  const Flight flight(flight_, "receive");
  const int n = as_count(count, "receive");
  finish(
      [&](MpiHandle* request) {
        return mpi_.receive(communicator_, data, n, MpiType::kFloat, peer, tag, request);
      },
      "receive");
}

void MpiCollectives::finish_sends() {
  if (sends_.empty()) {
    return;
  }
  const Flight flight(flight_, "the end of sends");
  for (MpiHandle& request : sends_) {
    wait(&request, "send");
  }
  sends_.clear();
}

void MpiCollectives::progress() {
  check(mpi_.progress(communicator_), "probe");
}

void MpiCollectives::barrier() {
  const Flight flight(flight_, "barrier");
  if (size_ == 1) {
    return;
  }
  finish([&](MpiHandle* request) { return mpi_.barrier(communicator_, request); }, "barrier");
}

}  // namespace stepcast::runtime
