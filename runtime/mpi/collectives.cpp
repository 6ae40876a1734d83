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

MPI_Op operation(Collectives::Reduction reduction) {
  return reduction == Collectives::Reduction::kMax ? MPI_MAX : MPI_SUM;
}

}  // namespace

MpiCollectives::MpiCollectives(MPI_Comm communicator, InFlight& flight, Waiting waiting)
    : communicator_(communicator), flight_(flight), waiting_(waiting) {
  check(MPI_Comm_rank(communicator_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(communicator_, &size_), "MPI_Comm_size");
  counts_.resize(4 * static_cast<std::size_t>(size_));
  sends_.reserve(64);
}

MpiCollectives::~MpiCollectives() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) {
    for (auto& [bytes, type] : types_) {
      MPI_Type_free(&type);
    }
    MPI_Comm_free(&communicator_);
  }
}

void MpiCollectives::check(int code, const char* what) const {
  check_mpi(code, what, flight_.communicator);
}

/// Tests for a few microseconds, then sleeps between tests, longer and longer.
void MpiCollectives::wait(MPI_Request* request, const char* what) const {
  constexpr int kQuickTests = 16;
  constexpr std::int64_t kFirstSleep = 10'000;
  constexpr std::int64_t kLongestSleep = 200'000;
  std::int64_t pause = kFirstSleep;
  int done = 0;
  for (int i = 0;; ++i) {
    check(MPI_Test(request, &done, MPI_STATUS_IGNORE), what);
    if (done != 0) {
      return;
    }
    if (i >= kQuickTests) {
      sleep_until_ns(steady_ns() + pause);
      pause = std::min(kLongestSleep, pause * 3 / 2);
    }
  }
}

MPI_Datatype MpiCollectives::type_of(std::size_t element_bytes) {
  if (element_bytes == sizeof(float)) {
    return MPI_FLOAT;
  }
  const auto [it, fresh] = types_.try_emplace(element_bytes);
  if (fresh) {
    check(MPI_Type_contiguous(as_count(element_bytes, "an element"), MPI_BYTE, &it->second),
          "type");
    check(MPI_Type_commit(&it->second), "type");
  }
  return it->second;
}

void MpiCollectives::all_reduce(float* data, std::size_t count, Reduction reduction) {
  const Flight flight(flight_, "all_reduce");
  in_pieces(size_ > 1 ? count : 0, [&](std::size_t first, int n) {
    if (waiting_ == Waiting::kBlocking) {
      check(MPI_Allreduce(MPI_IN_PLACE, data + first, n, MPI_FLOAT, operation(reduction),
                          communicator_),
            "all_reduce");
    } else {
      MPI_Request request;
      check(MPI_Iallreduce(MPI_IN_PLACE, data + first, n, MPI_FLOAT, operation(reduction),
                           communicator_, &request),
            "all_reduce");
      wait(&request, "all_reduce");
    }
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
  const void* source = placed ? MPI_IN_PLACE : send;
  if (waiting_ == Waiting::kBlocking) {
    check(MPI_Allgather(source, n, MPI_FLOAT, receive, n, MPI_FLOAT, communicator_), "all_gather");
  } else {
    MPI_Request request;
    check(MPI_Iallgather(source, n, MPI_FLOAT, receive, n, MPI_FLOAT, communicator_, &request),
          "all_gather");
    wait(&request, "all_gather");
  }
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
  const void* source = placed ? MPI_IN_PLACE : send;
  if (waiting_ == Waiting::kBlocking) {
    check(MPI_Reduce_scatter_block(source, target, n, MPI_FLOAT, MPI_SUM, communicator_),
          "reduce_scatter");
  } else {
    MPI_Request request;
    check(MPI_Ireduce_scatter_block(source, target, n, MPI_FLOAT, MPI_SUM, communicator_, &request),
          "reduce_scatter");
    wait(&request, "reduce_scatter");
  }
  if (placed && rank_ > 0) {
    std::copy_n(target, count_per_rank, receive);
  }
}

void MpiCollectives::broadcast(float* data, std::size_t count, int root) {
  const Flight flight(flight_, "broadcast");
  in_pieces(size_ > 1 ? count : 0, [&](std::size_t first, int n) {
    if (waiting_ == Waiting::kBlocking) {
      check(MPI_Bcast(data + first, n, MPI_FLOAT, root, communicator_), "broadcast");
    } else {
      MPI_Request request;
      check(MPI_Ibcast(data + first, n, MPI_FLOAT, root, communicator_, &request), "broadcast");
      wait(&request, "broadcast");
    }
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
  const MPI_Datatype type = type_of(element_bytes);
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
  if (waiting_ == Waiting::kBlocking) {
    check(MPI_Alltoallv(send, c, c + size_, type, receive, c + 2 * size_, c + 3 * size_, type,
                        communicator_),
          "all_to_all_v");
  } else {
    MPI_Request request;
    check(MPI_Ialltoallv(send, c, c + size_, type, receive, c + 2 * size_, c + 3 * size_, type,
                         communicator_, &request),
          "all_to_all_v");
    wait(&request, "all_to_all_v");
  }
}

void MpiCollectives::post_send(const float* data, std::size_t count, int peer, int tag) {
  const Flight flight(flight_, "send");
  sends_.emplace_back();
  check(
      MPI_Isend(data, as_count(count, "send"), MPI_FLOAT, peer, tag, communicator_, &sends_.back()),
      "send");
}

void MpiCollectives::receive(float* data, std::size_t count, int peer, int tag) {
  const Flight flight(flight_, "receive");
  const int n = as_count(count, "receive");
  if (waiting_ == Waiting::kBlocking) {
    check(MPI_Recv(data, n, MPI_FLOAT, peer, tag, communicator_, MPI_STATUS_IGNORE), "receive");
  } else {
    MPI_Request request;
    check(MPI_Irecv(data, n, MPI_FLOAT, peer, tag, communicator_, &request), "receive");
    wait(&request, "receive");
  }
}

void MpiCollectives::finish_sends() {
  if (sends_.empty()) {
    return;
  }
  const Flight flight(flight_, "the end of sends");
  if (waiting_ == Waiting::kBlocking) {
    check(MPI_Waitall(static_cast<int>(sends_.size()), sends_.data(), MPI_STATUSES_IGNORE), "send");
  } else {
    for (MPI_Request& request : sends_) {
      wait(&request, "send");
    }
  }
  sends_.clear();
}

void MpiCollectives::progress() {
  int found = 0;
  check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &found, MPI_STATUS_IGNORE), "probe");
}

void MpiCollectives::barrier() {
  const Flight flight(flight_, "barrier");
  if (size_ == 1) {
    return;
  }
  if (waiting_ == Waiting::kBlocking) {
    check(MPI_Barrier(communicator_), "barrier");
  } else {
    MPI_Request request;
    check(MPI_Ibarrier(communicator_, &request), "barrier");
    wait(&request, "barrier");
  }
}

}  // namespace stepcast::runtime
