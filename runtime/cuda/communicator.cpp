#include "runtime/cuda/communicator.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "core/error.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/device_memory.h"
#include "runtime/cuda/host_clock.h"
#include "runtime/cuda/streams.h"

namespace stepcast::runtime::cuda {
namespace {

using Clock = std::chrono::steady_clock;

ncclConfig_t without_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

/// Polls a communicator until what it does in the background is done; `looked`: when it did last.
void wait_until_ready(ncclComm_t handle, const std::string& name, std::string_view call,
                      std::chrono::duration<double> timeout, std::atomic<std::int64_t>& looked) {
  const auto begin = Clock::now();
  ncclResult_t state = ncclInProgress;
  while (true) {
    looked = now_ns();
    check(ncclCommGetAsyncError(handle, &state), "ncclCommGetAsyncError");
    if (state != ncclInProgress) {
      break;
    }
    const std::chrono::duration<double> age = Clock::now() - begin;
    if (age > timeout) {
      throw RunError(
          fmt::format("{} on '{}' has not finished for {:.1f} s (deadline {:.1f} s); a "
                      "rank is lost or hangs",
                      call, name, age.count(), timeout.count()));
    }
    if (age.count() < 1e-3) {
      std::this_thread::yield();  // a sleep takes 60 us, as long as NCCL's thread for a collective
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }
  if (state != ncclSuccess) {
    throw RunError(fmt::format("{} on '{}': {}", call, name, text_of(state)));
  }
}

std::string name_of_round(const ExecutionGraph& graph, const CommunicatorPlan& plan,
                          const SplitRound& round, std::int32_t rank) {
  const auto index = static_cast<std::int32_t>(&round - plan.rounds.data());
  const auto found = std::find(plan.round_of.begin(), plan.round_of.end(), index);
  if (found != plan.round_of.end()) {
    return graph.communicators[static_cast<std::size_t>(found - plan.round_of.begin())].name;
  }
  for (const auto& group : round.groups) {
    if (std::find(group.begin(), group.end(), rank) != group.end()) {
      return fmt::format("messages {} -> {}", group.front(), group.back());
    }
  }
  return "messages";
}

}  // namespace

Communicator::Communicator(ncclComm_t handle, std::string name,
                           std::chrono::duration<double> timeout, std::atomic<std::int64_t>* looked)
    : handle_(handle), name_(std::move(name)), timeout_(timeout), looked_(looked) {}

Communicator::~Communicator() {
  if (handle_ == nullptr) {
    return;
  }
  if (std::uncaught_exceptions() > 0) {
    abort();  // the others may never come
    return;
  }
  ncclResult_t state = ncclCommFinalize(handle_);
  const auto begin = Clock::now();
  while (state == ncclInProgress && Clock::now() - begin < timeout_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    let_go(ncclCommGetAsyncError(handle_, &state));
  }
  let_go(state == ncclSuccess ? ncclCommDestroy(handle_) : ncclCommAbort(handle_));
}

void Communicator::complete(ncclResult_t code, const char* call) const {
  if (code == ncclInProgress) {
    wait_until_ready(handle_, name_, call, timeout_, *looked_);
  } else {
    check(code, fmt::format("{} on '{}'", call, name_));
  }
}

void Communicator::check_background() const {
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(handle_, &state), "ncclCommGetAsyncError");
  check(state, fmt::format("'{}' in the background", name_));
}

void Communicator::abort() {
  if (handle_ != nullptr) {
    let_go(ncclCommAbort(handle_));
    handle_ = nullptr;
  }
}

Communicators::Communicators(const ExecutionGraph& graph, const Ranks& ranks,
                             const Options& options)
    : timeout_(options.setup_timeout()), plan_(communicator_plan(graph)) {
  if (plan_.rounds.empty()) {
    return;
  }
  ncclUniqueId id{};
  if (ranks.rank == 0) {
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  }
  if (ranks.broadcast) {
    ranks.broadcast(&id, sizeof id);
  }
  const auto add = [&](ncclComm_t handle, std::string name) {
    all_.push_back(
        std::make_unique<Communicator>(handle, std::move(name), timeout_, &last_look_ns_));
    return all_.back().get();
  };
  const auto ready = [&](Communicator& c, ncclResult_t code, const char* call) {
    check(code, call);
    wait_until_ready(c.handle(), c.name(), call, timeout_, last_look_ns_);
    check(ncclCommUserRank(c.handle(), &c.rank_), "ncclCommUserRank");
    check(ncclCommCount(c.handle(), &c.size_), "ncclCommCount");
  };
  ncclConfig_t config = without_blocking();
  ncclComm_t handle = nullptr;
  ncclResult_t code = ncclCommInitRankConfig(&handle, ranks.size, id, ranks.rank, &config);
  Communicator& world = *add(handle, "all ranks");
  ready(world, code, "ncclCommInitRankConfig");
  for (const SplitRound& round : plan_.rounds) {
    const Split split = split_of(round, ranks.rank);
    config = without_blocking();
    handle = nullptr;
    code = ncclCommSplit(world.handle(), split.color < 0 ? NCCL_SPLIT_NOCOLOR : split.color,
                         split.key, &handle, &config);
    check(code, "ncclCommSplit");
    wait_until_ready(world.handle(), world.name(), "ncclCommSplit", timeout_, last_look_ns_);
    Communicator* part = nullptr;
    if (split.color >= 0) {
      part = add(handle, name_of_round(graph, plan_, round, ranks.rank));
      ready(*part, ncclSuccess, "ncclCommSplit");
    }
    by_round_.push_back(part);
  }
  connect_pairs(ranks.rank);
  timeout_ = options.timeout;
  for (const auto& c : all_) {
    c->timeout_ = timeout_;
  }
}

/// A pair connects with its first message, for which both hosts have to come. Here all pairs do at
/// once, with a byte each: the order of a step's messages cannot make two ranks wait for each
/// other, and the first step is no slower for it.
void Communicators::connect_pairs(std::int32_t rank) {
  if (plan_.pairs.empty()) {
    return;
  }
  std::vector<const Communicator*> mine;
  Buffer bytes(Buffer::Kind::kDevice, "first messages");
  char* const first = static_cast<char*>(bytes.reserve(2));
  const Stream stream;
  check(ncclGroupStart(), "ncclGroupStart");
  ncclResult_t code = ncclSuccess;
  for (const CommunicatorPlan::Pair& p : plan_.pairs) {
    if ((p.sender != rank && p.receiver != rank) ||
        (code != ncclSuccess && code != ncclInProgress)) {
      continue;
    }
    const Communicator& pair = *by_round_.at(p.round);
    code = p.sender == rank ? ncclSend(first, 1, ncclInt8, 1, pair.handle(), stream.handle())
                            : ncclRecv(first + 1, 1, ncclInt8, 0, pair.handle(), stream.handle());
    mine.push_back(&pair);
  }
  // The group ends whatever came: NCCL aborts nothing while one is open.
  const ncclResult_t ended = ncclGroupEnd();
  if (code != ncclInProgress) {
    check(code, "ncclSend or ncclRecv of a first message");
  }
  for (const Communicator* pair : mine) {
    pair->complete(ended, "ncclGroupEnd of the first messages");
  }
  if (!mine.empty()) {
    wait_for(stream.handle(), "the first message of a pair of ranks");
  }
}

Communicators::~Communicators() {
  while (!all_.empty()) {
    all_.pop_back();  // parts before the whole
  }
}

Communicator* Communicators::collective(std::int32_t communicator) const {
  const std::int32_t round = plan_.round_of.at(static_cast<std::size_t>(communicator));
  return round < 0 ? nullptr : by_round_.at(static_cast<std::size_t>(round));
}

Communicator* Communicators::pair(std::int32_t communicator, std::int32_t sender,
                                  std::int32_t receiver) const {
  for (const CommunicatorPlan::Pair& p : plan_.pairs) {
    if (p.communicator == communicator && p.sender == sender && p.receiver == receiver) {
      return by_round_.at(p.round);
    }
  }
  throw InternalError(fmt::format("no communicator for messages {} -> {}", sender, receiver));
}

void Communicators::check_background() const {
  for (const auto& c : all_) {
    c->check_background();
  }
}

void Communicators::wait_for(cudaStream_t stream, std::string_view what) const {
  const auto begin = Clock::now();
  auto looked = begin;
  while (true) {
    const cudaError_t code = cudaStreamQuery(stream);
    if (code == cudaSuccess) {
      return;
    }
    if (code != cudaErrorNotReady) {
      check(code, "a kernel or copy enqueued before (cudaStreamQuery)");
    }
    let_go(cudaGetLastError());
    std::this_thread::yield();
    if (Clock::now() - looked < std::chrono::milliseconds(50)) {
      continue;
    }
    looked = Clock::now();
    last_look_ns_ = now_ns();
    check_background();
    const std::chrono::duration<double> age = looked - begin;
    if (age > timeout_) {
      throw RunError(
          fmt::format("{} has not finished for {:.1f} s (deadline {:.1f} s); a rank is "
                      "lost or hangs",
                      what, age.count(), timeout_.count()));
    }
  }
}

void Communicators::abort() {
  for (auto it = all_.rbegin(); it != all_.rend(); ++it) {
    (*it)->abort();
  }
}

}  // namespace stepcast::runtime::cuda
