#include "runtime/mpi/session.h"

#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <thread>

#include "core/error.h"
#include "runtime/launch.h"
#include "runtime/mpi/collectives.h"
#include "runtime/mpi/mpi_calls.h"

namespace stepcast::runtime {

namespace {

int exit_code_of(const std::exception& e) {
  if (dynamic_cast<const InputError*>(&e) != nullptr) {
    return 2;
  }
  if (dynamic_cast<const EnvironmentError*>(&e) != nullptr) {
    return 3;
  }
  return dynamic_cast<const InternalError*>(&e) != nullptr ? 70 : 4;
}

void check(int code, const char* call) { check_mpi(code, call, "all ranks"); }

constexpr const char* kBetweenSteps = "an exchange between steps";
constexpr const char* kOfResults = "an exchange of results";

void reduce(std::vector<double>& values, MPI_Op operation, InFlight& all) {
  const Flight flight(all, kBetweenSteps);
  in_pieces(values.size(), [&](std::size_t first, int n) {
    check(MPI_Allreduce(MPI_IN_PLACE, values.data() + first, n, MPI_DOUBLE, operation,
                        MPI_COMM_WORLD),
          kBetweenSteps);
  });
}

void broadcast_from(int rank, char* data, std::size_t bytes) {
  in_pieces(bytes, [&](std::size_t first, int n) {
    check(MPI_Bcast(data + first, n, MPI_BYTE, rank, MPI_COMM_WORLD), "broadcast");
  });
}

std::string message_of(const std::exception& e, int rank) {
  const bool memory = dynamic_cast<const std::bad_alloc*>(&e) != nullptr;
  return fmt::format("rank {}: {}", rank, memory ? "out of memory" : e.what());
}

}  // namespace

struct MpiSession::Handles {
  MPI_Comm machine = MPI_COMM_NULL;
};

MpiSession::MpiSession(MpiOptions options)
    : options_(std::move(options)),
      handles_(std::make_unique<Handles>()),
      cores_(available_cores()),
      uncaught_(std::uncaught_exceptions()) {
  int granted = 0;
  {
    // A rank that never gets this far would keep the others in MPI_Init for ever, where nothing but
    // leaving helps.
    Watchdog start(options_.timeout, [this](const std::string& what) {
      if (options_.report) {
        options_.report(fmt::format("{}; a rank is lost or hangs", what));
      }
      std::_Exit(4);
    });
    const Flight flight(start.watch("all ranks"), "the start of MPI");
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &granted);
  }
  if (granted < MPI_THREAD_MULTIPLE) {
    MPI_Finalize();
    throw EnvironmentError(
        fmt::format("this MPI grants thread level {}, but streams need MPI_THREAD_MULTIPLE ({})",
                    granted, MPI_THREAD_MULTIPLE));
  }
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "error handling");
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "size");
  watchdog_ = std::make_unique<Watchdog>(options_.timeout, [this](const std::string& what) {
    abort(4, fmt::format("rank {}: {}; a rank is lost or hangs", rank_, what));
  });
  flight_ = &watchdog_->watch("all ranks");
  const Flight flight(*flight_, "the set-up of communicators");
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL,
                            &handles_->machine),
        "split by machine");
  check(MPI_Comm_rank(handles_->machine, &local_rank_), "rank");
  check(MPI_Comm_size(handles_->machine, &local_size_), "size");
  MPI_Comm world = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &world), "duplicate");
  world_ = std::make_unique<MpiCollectives>(world, watchdog_->watch("all ranks"));
}

MpiSession::~MpiSession() {
  if (size_ > 1 && std::uncaught_exceptions() > uncaught_) {
    abort(4, fmt::format("rank {} failed", rank_));
  }
  // The others may still be busy: leaving together, with the watchdog on, keeps the end orderly.
  try {
    world_->barrier();
  } catch (const std::exception& e) {
    abort(4, e.what());
  }
  world_.reset();
  watchdog_.reset();
  MPI_Comm_free(&handles_->machine);
  MPI_Finalize();
}

void MpiSession::abort(int exit_code, const std::string& message) {
  if (options_.report) {
    options_.report(message);
  }
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

void MpiSession::abort(const std::exception& error) {
  abort(exit_code_of(error), message_of(error, rank_));
}

std::vector<std::unique_ptr<Collectives>> MpiSession::communicators(const ExecutionGraph& graph,
                                                                    Waiting waiting) {
  const Flight flight(*flight_, "the set-up of communicators");
  std::vector<std::unique_ptr<Collectives>> all;
  for (std::size_t c = 0; c < graph.communicators.size(); ++c) {
    const auto members = graph.members(static_cast<std::int32_t>(c), rank_);
    const int color = members.empty() ? MPI_UNDEFINED : members.front();
    MPI_Comm communicator = MPI_COMM_NULL;
    // Members are ascending or as listed; the key keeps that order.
    const auto position = std::find(members.begin(), members.end(), rank_) - members.begin();
    check(MPI_Comm_split(MPI_COMM_WORLD, color, static_cast<int>(position), &communicator),
          "split");
    if (communicator == MPI_COMM_NULL) {
      all.push_back(nullptr);
      continue;
    }
    all.push_back(std::make_unique<MpiCollectives>(
        communicator, watchdog_->watch(graph.communicators[c].name), waiting));
  }
  return all;
}

std::vector<double> MpiSession::maximum(std::vector<double> values) {
  reduce(values, MPI_MAX, *flight_);
  return values;
}

std::vector<double> MpiSession::sum(std::vector<double> values) {
  reduce(values, MPI_SUM, *flight_);
  return values;
}

std::int64_t MpiSession::local_sum(std::int64_t value) {
  const Flight flight(*flight_, kBetweenSteps);
  check(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_SUM, handles_->machine),
        kBetweenSteps);
  return value;
}

std::int64_t MpiSession::from_rank_zero(std::int64_t value) {
  broadcast_bytes(&value, sizeof(value));
  return value;
}

void MpiSession::broadcast_bytes(void* data, std::size_t bytes) {
  const Flight flight(*flight_, kBetweenSteps);
  broadcast_from(0, static_cast<char*>(data), bytes);
}

void MpiSession::rank_zero_does(const std::function<void()>& work) {
  if (rank_ == 0) {
    work();
  }
  meet();
}

std::vector<std::string> MpiSession::everyones(const std::string& own) {
  meet();
  const Flight flight(*flight_, kOfResults);
  const auto size = static_cast<std::int64_t>(own.size());
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(size_));
  check(MPI_Allgather(&size, 1, MPI_INT64_T, sizes.data(), 1, MPI_INT64_T, MPI_COMM_WORLD),
        kOfResults);
  std::vector<std::string> texts;
  for (int r = 0; r < size_; ++r) {  // each of any length
    std::string& text = texts.emplace_back(
        r == rank_ ? own
                   : std::string(static_cast<std::size_t>(sizes[static_cast<std::size_t>(r)]), 0));
    broadcast_from(r, text.data(), text.size());
  }
  return texts;
}

void MpiSession::meet() {
  MPI_Request done = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(MPI_COMM_WORLD, &done), "barrier");
  for (int finished = 0; finished == 0;) {
    check(MPI_Test(&done, &finished, MPI_STATUS_IGNORE), "barrier");
    if (finished == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

std::shared_ptr<void> MpiSession::shared_memory(std::size_t bytes) {
  void* own = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  const MPI_Aint size = local_rank_ == 0 ? static_cast<MPI_Aint>(bytes) : 0;
  if (MPI_Win_allocate_shared(size, 1, MPI_INFO_NULL, handles_->machine, &own, &window) !=
      MPI_SUCCESS) {
    throw RunError(fmt::format("{} bytes of memory shared by ranks are not to be had", bytes));
  }
  MPI_Aint found = 0;
  int unit = 0;
  void* base = nullptr;
  check(MPI_Win_shared_query(window, 0, &found, &unit, &base), "shared memory");
  if (local_rank_ == 0) {
    std::memset(base, 0, bytes);
  }
  check(MPI_Barrier(handles_->machine), "barrier");
  return {base, [window](void*) mutable {
            int finalized = 0;
            MPI_Finalized(&finalized);
            if (finalized == 0) {
              MPI_Win_free(&window);
            }
          }};
}

}  // namespace stepcast::runtime
