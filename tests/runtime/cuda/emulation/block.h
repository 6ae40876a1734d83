#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>

/// Runs a kernel's blocks on the host: every thread of a block is a fiber that runs until it waits
/// for others, so barriers, shuffles and shared memory mean what they mean on a device. Blocks, and
/// threads between two barriers, run in a shuffled order, the same in every run: what depends on an
/// order shows. Found as errors: a barrier that some threads never reach, a shuffle from a lane
/// that takes no part, launches beyond the limits of any device. Not seen: time, streams, and two
/// threads of a warp that race between two barriers in a way no order of whole threads shows.
namespace stepcast::emulation {

/// A launch. Throws what the kernel threw, or RunError with `name`.
void run_grid(const char* name, dim3 blocks, dim3 threads, std::size_t shared,
              const std::function<void()>& kernel);

/// Facts that a thread of the running block knows of itself.
struct Place {
  uint3 thread;
  uint3 block;
  dim3 block_size;
  dim3 grid_size;
};
/// For a thread the same wherever it asks.
[[gnu::const]] const Place& place();
[[gnu::const]] int lane();

/// Dynamic shared memory of the running block, every byte 0xff when the block begins.
void* dynamic_shared();

/// Waits for all threads of the block that have not returned.
void block_barrier();

constexpr std::size_t kWord = 32;  ///< bytes a lane can show the others at once
/// What the lanes of an exchange showed, until the caller next waits.
struct Shown {
  const char* kernel;
  const std::byte* data;
  std::uint32_t lanes;  ///< that took part
  [[nodiscard]] const std::byte* of(int lane) const;
};
/// Waits for all lanes of `mask` that have not returned; each shows `bytes` of `mine`. Orders no
/// memory: that is a warp_barrier's.
Shown warp_exchange(std::uint32_t mask, const void* mine, std::size_t bytes);
void warp_barrier(std::uint32_t mask);

/// Copies as cp.async does: as late as the device may, when the thread waits for the group.
void copy_later(void* to, const void* from, std::size_t bytes, bool valid);
void commit_copies();
void wait_for_copies(int pending);

/// Sees what orders the accesses to memory of a launch. One thread of the host runs all of it.
class Observer {
 public:
  Observer() = default;
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  virtual ~Observer() = default;
  virtual void launch_begins(const char* kernel) = 0;
  virtual void launch_ends() = 0;
  virtual void block_begins(std::size_t threads, const void* shared, std::size_t bytes) = 0;
  virtual void barrier_opens() = 0;
  virtual void warp_barrier_opens(unsigned warp, std::uint32_t lanes) = 0;
};
void set_observer(Observer* observer);
/// Index of the running thread in its block; -1 outside of device code.
int running_thread();
/// While one lives, what the running thread reads and writes is one atomic operation.
class Atomic {
 public:
  Atomic();
  ~Atomic();
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;
  static bool any();
};
/// Told of accesses that no compiler has marked: asynchronous copies.
using Accessed = void (*)(const void* first, std::size_t bytes, bool written);
void set_accessed(Accessed accessed);

}  // namespace stepcast::emulation
