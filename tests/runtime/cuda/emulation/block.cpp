#include "tests/runtime/cuda/emulation/block.h"

#include <algorithm>
#include <array>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "core/error.h"

namespace stepcast::emulation {
namespace {

namespace context = boost::context;

constexpr unsigned kLanes = 32;
// Tops of stacks lie in different sets of a cache: the threads of a block take turns at barriers.
constexpr std::size_t kStack = 256 * 1024 + 13 * 64;
constexpr std::size_t kMostShared = 163 * 1024;  // of a block on compute capability 8.0
constexpr unsigned kMostThreads = 1024;
constexpr unsigned kMostBlocksYZ = 65535;

/// Lanes of one warp that wait for each other. Two turns of data: a lane may come to the next
/// exchange while others have not read this one.
struct Meeting {
  std::uint32_t arrived = 0;
  bool orders = false;  ///< those who meet next meet at a barrier of the warp
  unsigned turn = 0;
  std::array<std::uint32_t, 2> took_part{};
  std::array<std::array<std::byte, kLanes * kWord>, 2> shown;
};

/// For one warp, by mask.
class Meetings {
 public:
  Meeting& of(std::uint32_t mask) {
    if (last_ == nullptr || mask != last_mask_) {
      last_ = &all_[mask];
      last_mask_ = mask;
    }
    return *last_;
  }
  [[nodiscard]] std::map<std::uint32_t, Meeting>& all() { return all_; }

 private:
  std::map<std::uint32_t, Meeting> all_;
  Meeting* last_ = nullptr;
  std::uint32_t last_mask_ = 0;
};

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  bool valid;
};

struct Thread {
  Place place{};
  unsigned index = 0;
  context::fiber resume;  ///< where it goes on
  bool at_barrier = false;
  std::uint32_t meets = 0;  ///< mask of the exchange it waits in
  std::vector<Copy> open;   ///< copies of no group yet
  std::vector<std::vector<Copy>> groups;
};

class Block {
 public:
  Block(const char* name, dim3 size, dim3 grid, std::size_t shared,
        const std::function<void()>& kernel);
  void run(uint3 at);

  Thread& current() { return *current_; }
  void* shared() { return shared_.data(); }
  void barrier();
  Shown exchange(std::uint32_t mask, const void* mine, std::size_t bytes, bool orders);

 private:
  static std::uint32_t bit(const Thread& t) { return 1U << (t.index % kLanes); }
  void start();
  void go_on(Thread& t);
  void pause();
  void leave();
  void release_barrier();
  void release(std::uint32_t mask, unsigned warp, Meeting& m);
  void make_ready();
  [[nodiscard]] RunError stuck() const;

  const char* name_;
  const std::function<void()>& kernel_;
  std::vector<std::byte> shared_;
  std::minstd_rand random_;
  std::vector<Thread> threads_;
  std::vector<Thread*> begin_;        ///< all, in the order in which they begin
  std::vector<Thread*> fresh_;        ///< not begun
  std::deque<Thread*> ready_;         ///< paused, may go on
  std::vector<Thread*> released_;     ///< about to be ready
  std::vector<std::uint32_t> alive_;  ///< lanes of each warp that have not returned
  std::vector<Meetings> meetings_;    ///< of each warp
  std::size_t waiting_ = 0;           ///< at the block's barrier
  std::size_t returned_ = 0;
  Thread* current_ = nullptr;
  context::fiber scheduler_;
  std::exception_ptr error_;
};

thread_local Block* running = nullptr;
Observer* observer = nullptr;
Accessed accessed = nullptr;
int atomics = 0;  ///< that live
thread_local context::pooled_fixedsize_stack stacks{kStack};

Block& block() {
  STEPCAST_CHECK(running != nullptr, "device code runs inside a launch");
  return *running;
}

Block::Block(const char* name, dim3 size, dim3 grid, std::size_t shared,
             const std::function<void()>& kernel)
    : name_(name), kernel_(kernel), shared_(shared), random_(grid.x * 31 + size.x) {
  threads_.resize(std::size_t{size.x} * size.y * size.z);
  meetings_.resize((threads_.size() + kLanes - 1) / kLanes);
  unsigned index = 0;
  for (Thread& t : threads_) {
    t.index = index++;
    t.place = {
        {t.index % size.x, t.index / size.x % size.y, t.index / size.x / size.y}, {}, size, grid};
    begin_.push_back(&t);
  }
  std::shuffle(begin_.begin(), begin_.end(), random_);
}

void Block::run(uint3 at) {
  std::fill(shared_.begin(), shared_.end(), std::byte{0xff});
  alive_.assign(meetings_.size(), 0);
  for (Thread& t : threads_) {
    t.place.block = at;
    t.open.clear();
    t.groups.clear();
    alive_[t.index / kLanes] |= bit(t);
  }
  if (observer != nullptr) {
    observer->block_begins(threads_.size(), shared_.data(), shared_.size());
  }
  std::rotate(begin_.begin(), begin_.begin() + random_() % begin_.size(), begin_.end());
  fresh_ = begin_;
  returned_ = 0;
  Block* const outer = std::exchange(running, this);
  while (returned_ < threads_.size() && error_ == nullptr) {
    if (!ready_.empty()) {
      Thread* next = ready_.front();
      ready_.pop_front();
      go_on(*next);
    } else if (!fresh_.empty()) {
      start();
    } else {
      error_ = std::make_exception_ptr(stuck());
    }
  }
  running = outer;
  if (error_ != nullptr) {
    std::rethrow_exception(error_);
  }
}

/// A fiber that runs fresh threads one after the other until one of them has to wait: threads that
/// never wait cost no switch.
void Block::start() {
  context::fiber worker(std::allocator_arg, stacks, [this](context::fiber&& from) {
    scheduler_ = std::move(from);
    while (!fresh_.empty() && error_ == nullptr) {
      current_ = fresh_.back();
      fresh_.pop_back();
      try {
        kernel_();
      } catch (const context::detail::forced_unwind&) {
        throw;
      } catch (...) {
        error_ = std::current_exception();
      }
      leave();
    }
    return std::move(scheduler_);
  });
  context::fiber paused = std::move(worker).resume();
  current_->resume = std::move(paused);  // empty where all of its threads have returned
}

void Block::go_on(Thread& t) {
  current_ = &t;
  context::fiber paused = std::move(t.resume).resume();
  current_->resume = std::move(paused);  // maybe a thread that the same fiber began afterwards
}

/// Suspends the current thread until another makes it ready.
void Block::pause() {
  Thread& self = *current_;
  scheduler_ = std::move(scheduler_).resume();
  STEPCAST_CHECK(current_ == &self, "a thread goes on as itself");
}

void Block::leave() {
  const unsigned warp = current_->index / kLanes;
  alive_[warp] &= ~bit(*current_);
  ++returned_;
  for (auto& [mask, meeting] : meetings_[warp].all()) {
    if (meeting.arrived != 0) {
      release(mask, warp, meeting);
    }
  }
  release_barrier();
}

void Block::make_ready() {
  std::shuffle(released_.begin(), released_.end(), random_);
  ready_.insert(ready_.end(), released_.begin(), released_.end());
  released_.clear();
}

void Block::release_barrier() {
  if (waiting_ == 0 || waiting_ + returned_ < threads_.size()) {
    return;
  }
  for (Thread& t : threads_) {
    if (std::exchange(t.at_barrier, false)) {
      released_.push_back(&t);
    }
  }
  waiting_ = 0;
  if (observer != nullptr) {
    observer->barrier_opens();
  }
  make_ready();
}

void Block::barrier() {
  current_->at_barrier = true;
  ++waiting_;
  release_barrier();
  pause();
}

void Block::release(std::uint32_t mask, unsigned warp, Meeting& m) {
  if ((mask & alive_[warp] & ~m.arrived) != 0) {
    return;
  }
  m.took_part[m.turn % 2] = m.arrived;
  ++m.turn;
  if (std::exchange(m.orders, false) && observer != nullptr) {
    observer->warp_barrier_opens(warp, m.arrived);
  }
  m.arrived = 0;
  for (std::size_t i = warp * kLanes; i < threads_.size() && i < (warp + 1) * kLanes; ++i) {
    if (threads_[i].meets == mask) {
      threads_[i].meets = 0;
      released_.push_back(&threads_[i]);
    }
  }
  make_ready();
}

Shown Block::exchange(std::uint32_t mask, const void* mine, std::size_t bytes, bool orders) {
  const unsigned warp = current_->index / kLanes;
  if ((mask & bit(*current_)) == 0) {
    throw RunError(fmt::format("CUDA kernel {}: lane {} waits with mask {:#x}, which lacks it",
                               name_, current_->index % kLanes, mask));
  }
  Meeting& m = meetings_[warp].of(mask);
  const unsigned turn = m.turn % 2;
  if (bytes > 0) {
    std::memcpy(m.shown[turn].data() + current_->index % kLanes * kWord, mine, bytes);
  }
  m.arrived |= bit(*current_);
  m.orders = m.orders || orders;
  current_->meets = mask;
  release(mask, warp, m);
  pause();
  return {name_, m.shown[turn].data(), m.took_part[turn]};
}

RunError Block::stuck() const {
  std::string who;
  for (const Thread& t : threads_) {
    if (t.meets != 0) {
      who = fmt::format("lane {} of warp {} waits for lanes {:#x} of {:#x} that have not returned",
                        t.index % kLanes, t.index / kLanes, t.meets, alive_[t.index / kLanes]);
    }
  }
  return RunError(
      fmt::format("CUDA kernel {}: threads wait for each other in different places ({} of {} have "
                  "returned, {} are at the "
                  "block's barrier{}{})",
                  name_, returned_, threads_.size(), waiting_, who.empty() ? "" : "; ", who));
}

void check_limits(const char* name, dim3 blocks, dim3 threads, std::size_t shared) {
  const std::size_t size = std::size_t{threads.x} * threads.y * threads.z;
  if (size == 0 || size > kMostThreads || blocks.x == 0 || blocks.y == 0 || blocks.z == 0 ||
      blocks.y > kMostBlocksYZ || blocks.z > kMostBlocksYZ || shared > kMostShared) {
    throw RunError(fmt::format(
        "CUDA kernel {}: no device takes a grid of {} x {} x {} blocks of {} threads with {} "
        "bytes of shared memory",
        name, blocks.x, blocks.y, blocks.z, size, shared));
  }
}

}  // namespace

void run_grid(const char* name, dim3 blocks, dim3 threads, std::size_t shared,
              const std::function<void()>& kernel) {
  check_limits(name, blocks, threads, shared);
  const std::uint64_t count = std::uint64_t{blocks.x} * blocks.y * blocks.z;
  std::vector<std::uint64_t> order(count);
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  Block block(name, threads, blocks, shared, kernel);
  std::minstd_rand random(static_cast<unsigned>(count * 31 + threads.x));
  std::shuffle(order.begin(), order.end(), random);
  if (observer != nullptr) {
    observer->launch_begins(name);
  }
  for (const std::uint64_t b : order) {
    block.run({static_cast<unsigned>(b % blocks.x), static_cast<unsigned>(b / blocks.x % blocks.y),
               static_cast<unsigned>(b / blocks.x / blocks.y)});
  }
  if (observer != nullptr) {
    observer->launch_ends();
  }
}

const Place& place() { return block().current().place; }
int lane() { return static_cast<int>(block().current().index % kLanes); }
void* dynamic_shared() { return block().shared(); }
void block_barrier() { block().barrier(); }

Shown warp_exchange(std::uint32_t mask, const void* mine, std::size_t bytes) {
  STEPCAST_CHECK(bytes <= kWord, "a lane shows up to {} bytes", kWord);
  return block().exchange(mask, mine, bytes, false);
}
void warp_barrier(std::uint32_t mask) { block().exchange(mask, nullptr, 0, true); }

void set_observer(Observer* one) { observer = one; }
Atomic::Atomic() { ++atomics; }
Atomic::~Atomic() { --atomics; }
bool Atomic::any() { return atomics > 0; }
void set_accessed(Accessed one) { accessed = one; }
int running_thread() {
  return running == nullptr ? -1 : static_cast<int>(running->current().index);
}

const std::byte* Shown::of(int lane) const {
  if (lane < 0 || (lanes >> lane & 1U) == 0) {
    throw RunError(
        fmt::format("CUDA kernel {}: reads from lane {}, which takes no part", kernel, lane));
  }
  return data + static_cast<std::size_t>(lane) * kWord;
}

void copy_later(void* to, const void* from, std::size_t bytes, bool valid) {
  block().current().open.push_back({to, from, bytes, valid});
}
void commit_copies() {
  Thread& t = block().current();
  t.groups.push_back(std::exchange(t.open, {}));
}
void wait_for_copies(int pending) {
  Thread& t = block().current();
  while (t.groups.size() > static_cast<std::size_t>(pending)) {
    for (const Copy& c : t.groups.front()) {
      if (accessed != nullptr) {
        accessed(c.to, c.bytes, true);
      }
      if (c.valid) {
        if (accessed != nullptr) {
          accessed(c.from, c.bytes, false);
        }
        std::memcpy(c.to, c.from, c.bytes);
      } else {
        std::memset(c.to, 0, c.bytes);
      }
    }
    t.groups.erase(t.groups.begin());
  }
}

}  // namespace stepcast::emulation
