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
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  watchdog_ = std::make_unique<Watchdog>(options_.timeout, [this](const std::string& what) {
    abort(4, fmt::format("rank {}: {}; a rank is lost or hangs", rank_, what));
  });
  flight_ = &watchdog_->watch("all ranks");
  const Flight flight(*flight_, "the set-up of communicators");
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL,
                      &handles_->machine);
  MPI_Comm_rank(handles_->machine, &local_rank_);
  MPI_Comm_size(handles_->machine, &local_size_);
  MPI_Comm world = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &world);
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
    MPI_Comm_split(MPI_COMM_WORLD, color, static_cast<int>(position), &communicator);
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
  const Flight flight(*flight_, "an exchange between steps");
  MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX,
                MPI_COMM_WORLD);
  return values;
}

std::vector<double> MpiSession::sum(std::vector<double> values) {
  const Flight flight(*flight_, "an exchange between steps");
  MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_SUM,
                MPI_COMM_WORLD);
  return values;
}

std::int64_t MpiSession::local_sum(std::int64_t value) {
  const Flight flight(*flight_, "an exchange between steps");
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_SUM, handles_->machine);
  return value;
}

std::int64_t MpiSession::from_rank_zero(std::int64_t value) {
  const Flight flight(*flight_, "an exchange between steps");
  MPI_Bcast(&value, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
  return value;
}

void MpiSession::broadcast_bytes(void* data, std::size_t bytes) {
  const Flight flight(*flight_, "an exchange between steps");
  MPI_Bcast(data, static_cast<int>(bytes), MPI_BYTE, 0, MPI_COMM_WORLD);
}

void MpiSession::rank_zero_does(const std::function<void()>& work) {
  if (rank_ == 0) {
    work();
  }
  meet();
}

std::vector<std::string> MpiSession::everyones(const std::string& own) {
  meet();
  const Flight flight(*flight_, "an exchange of results");
  const auto ranks = static_cast<std::size_t>(size_);
  std::vector<int> sizes(ranks);
  const int size = static_cast<int>(own.size());
  MPI_Allgather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, MPI_COMM_WORLD);
  std::vector<int> starts(ranks, 0);
  for (std::size_t r = 1; r < ranks; ++r) {
    starts[r] = starts[r - 1] + sizes[r - 1];
  }
  std::string all(static_cast<std::size_t>(starts.back() + sizes.back()), '\0');
  MPI_Allgatherv(own.data(), size, MPI_CHAR, all.data(), sizes.data(), starts.data(), MPI_CHAR,
                 MPI_COMM_WORLD);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < ranks; ++r) {
    texts.push_back(
        all.substr(static_cast<std::size_t>(starts[r]), static_cast<std::size_t>(sizes[r])));
  }
  return texts;
}

void MpiSession::meet() {
  MPI_Request done = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &done);
  for (int finished = 0; finished == 0;) {
    MPI_Test(&done, &finished, MPI_STATUS_IGNORE);
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
  MPI_Win_shared_query(window, 0, &found, &unit, &base);
  if (local_rank_ == 0) {
    std::memset(base, 0, bytes);
  }
  MPI_Barrier(handles_->machine);
  return {base, [window](void*) mutable {
            int finalized = 0;
            MPI_Finalized(&finalized);
            if (finalized == 0) {
              MPI_Win_free(&window);
            }
          }};
}

}  // namespace stepcast::runtime
