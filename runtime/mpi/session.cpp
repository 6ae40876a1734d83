#include "runtime/mpi/session.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
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

constexpr const char* kBetweenSteps = "an exchange between steps";
constexpr double kPatience = 10;  ///< deadlines, while all ranks answer
constexpr const char* kOfResults = "an exchange of results";

std::string message_of(const std::exception& e, int rank) {
  const bool memory = dynamic_cast<const std::bad_alloc*>(&e) != nullptr;
  return fmt::format("rank {}: {}", rank, memory ? "out of memory" : e.what());
}

}  // namespace

void MpiSession::check(int code, const char* call) const {
  check_mpi(mpi_, code, call, "all ranks");
}

void MpiSession::reduce(std::vector<double>& values, MpiReduction reduction) {
  const Flight flight(*flight_, kBetweenSteps);
  in_pieces(values.size(), [&](std::size_t first, int n) {
    check(
        mpi_.all_reduce(mpi_.world, values.data() + first, n, MpiType::kDouble, reduction, nullptr),
        kBetweenSteps);
  });
}

void MpiSession::broadcast_from(int rank, char* data, std::size_t bytes) {
  in_pieces(bytes, [&](std::size_t first, int n) {
    check(mpi_.broadcast(mpi_.world, data + first, n, MpiType::kByte, rank, nullptr), "broadcast");
  });
}

MpiSession::MpiSession(MpiOptions options)
    : mpi_(options.alone ? alone() : loaded_mpi()),
      options_(std::move(options)),
      cores_(available_cores()),
      uncaught_(std::uncaught_exceptions()) {
  sched_getaffinity(0, sizeof core_set_, &core_set_);
  bool granted = false;
  int started = 0;
  {
    // A rank that never gets this far would keep the others in that call for ever, where nothing
    // but leaving helps.
    Watchdog start(set_up_limit(), [this](const std::string& what, double /*after*/) -> bool {
      if (options_.report) {
        options_.report(lost(what));
      }
      std::_Exit(4);
    });
    const Flight flight(start.watch("all ranks"), "the start of MPI");
    started = mpi_.start(&granted);
  }
  check(started, "the start of MPI");
  if (!granted) {
    mpi_.stop();
    throw EnvironmentError(
        fmt::format("{}: streams need threads that call MPI at any time (MPI_THREAD_MULTIPLE), "
                    "which it does not grant",
                    mpi_.library));
  }
  check(mpi_.rank(mpi_.world, &rank_), "rank");
  check(mpi_.size(mpi_.world, &size_), "size");
  watchdog_ = std::make_unique<Watchdog>(
      set_up_limit(), [this](const std::string& what, double after) -> bool {
        std::string who;
        if (roll_call_ != nullptr) {
          const RollCall::Answer all = roll_call_->call(what, watchdog_->here());
          if (!all.silent && after < kPatience) {
            return false;  // they work: on busy cores a step may take long
          }
          who = "; " + all.text;
        }
        abort(4, fmt::format("rank {}: {}{}", rank_, lost(what), who));
      });
  flight_ = &watchdog_->watch("all ranks");
  const Flight flight(*flight_, "the set-up of communicators");
  check(mpi_.split_by_machine(mpi_.world, rank_, &machine_), "split by machine");
  check(mpi_.rank(machine_, &local_rank_), "rank");
  check(mpi_.size(machine_, &local_size_), "size");
  MpiHandle world = nullptr;
  check(mpi_.duplicate(mpi_.world, &world), "duplicate");
  world_ = std::make_unique<MpiCollectives>(mpi_, world, watchdog_->watch("all ranks"));
  if (size_ > 1) {
    MpiHandle calls = nullptr;
    check(mpi_.duplicate(mpi_.world, &calls), "duplicate");
    char host[HOST_NAME_MAX + 1] = {};
    gethostname(host, sizeof host - 1);
    roll_call_ = std::make_unique<RollCall>(mpi_, calls, host);
    watchdog_->on_patrol([this] { return roll_call_->answer(watchdog_->here()); });
  }
  set_up(false);
}

Watchdog::Limit MpiSession::set_up_limit() const {
  return std::max(Watchdog::Limit(120), 10 * options_.timeout);
}

void MpiSession::set_up(bool begins) {
  watchdog_->set_deadline(begins ? set_up_limit() : options_.timeout);
}

std::string MpiSession::lost(const std::string& what) const {
  return what + "; a rank is lost or hangs" +
         (options_.timeout_option.empty()
              ? ""
              : fmt::format(", or needs more than {} {:g}", options_.timeout_option,
                            options_.timeout.count()));
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
  watchdog_->stop();  // reset() alone would take away the pointer that its thread asks by
  watchdog_.reset();
  roll_call_.reset();
  mpi_.free_communicator(machine_);
  mpi_.stop();
}

void MpiSession::abort(int exit_code, const std::string& message) {
  if (options_.report) {
    options_.report(message);
  }
  mpi_.abort(exit_code);
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
    const int color = members.empty() ? -1 : members.front();
    MpiHandle communicator = nullptr;
    // Members are ascending or as listed; the key keeps that order.
    const auto position = std::find(members.begin(), members.end(), rank_) - members.begin();
    check(mpi_.split(mpi_.world, color, static_cast<int>(position), &communicator), "split");
    if (communicator == nullptr) {
      all.push_back(nullptr);
      continue;
    }
    all.push_back(std::make_unique<MpiCollectives>(
        mpi_, communicator, watchdog_->watch(graph.communicators[c].name), waiting));
  }
  return all;
}

std::vector<double> MpiSession::maximum(std::vector<double> values) {
  reduce(values, MpiReduction::kMax);
  return values;
}

std::vector<double> MpiSession::sum(std::vector<double> values) {
  reduce(values, MpiReduction::kSum);
  return values;
}

std::int64_t MpiSession::local_sum(std::int64_t value) {
  const Flight flight(*flight_, kBetweenSteps);
  check(mpi_.all_reduce(machine_, &value, 1, MpiType::kInt64, MpiReduction::kSum, nullptr),
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
  check(mpi_.all_gather(mpi_.world, &size, sizes.data(), 1, MpiType::kInt64, nullptr), kOfResults);
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
  MpiHandle done = nullptr;
  check(mpi_.barrier(mpi_.world, &done), "barrier");
  for (bool finished = false; !finished;) {
    check(mpi_.test(&done, &finished), "barrier");
    if (!finished) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

std::shared_ptr<void> MpiSession::shared_memory(std::size_t bytes) {
  MpiHandle window = nullptr;
  void* base = nullptr;
  if (mpi_.share(machine_, bytes, &window, &base) != 0) {
    throw RunError(fmt::format("{} bytes of memory shared by ranks are not to be had", bytes));
  }
  if (local_rank_ == 0) {
    std::memset(base, 0, bytes);
  }
  check(mpi_.barrier(machine_, nullptr), "barrier");
  return {base, [window, &mpi = mpi_](void*) {
            if (!mpi.stopped()) {
              mpi.unshare(window);
            }
          }};
}

}  // namespace stepcast::runtime
