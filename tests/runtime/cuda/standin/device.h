#pragma once
#include <driver_types.h>

#include <atomic>
#include <cstdint>
#include <functional>

// A stand-in for a GPU, in host memory: what is enqueued runs at once, in issue order, or, while a
// stream is captured, joins a graph that is run later. With it the host side of the CUDA backend is
// executed and compared with the CPU backend where there is no GPU. Device memory can be touched
// only by what runs on the device: a host that reads or writes it ends with SIGSEGV, as it would.
// Says nothing about device kernels, about streams that lack an edge, or about what the libraries
// accept.
namespace stepcast::standin {

/// Kind of this machine: an environment variable, set by tests that run the whole
/// executable on it.
std::int64_t setting(const char* name, std::int64_t otherwise);

void enqueue(std::function<void()> work);
/// The same for what a profiler sees no work of: records of events.
void enqueue_unseen(std::function<void()> work);
/// Comes before what is enqueued on `stream`. A copy from pageable memory returns with nothing
/// arrived (the library: maybe not all of it): what comes next on the default stream, or a wait for
/// that or for the device, ends it. Other streams do not.
void arrive(cudaStream_t stream);
/// While one lives, what runs is the device's: it may touch device memory.
class OnDevice {
 public:
  OnDevice();
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
};
/// Times that a heuristic of cuBLASLt's was called.
extern std::int64_t algorithms_asked_for;
/// Handles of cuDNN that were made.
extern std::atomic<int> cudnn_handles;
/// A collective was enqueued. True: it is the one that STANDIN_HANGS_AT says never ends, as when a
/// rank is lost; nothing enqueued after it happens either.
bool collective_hangs();

}  // namespace stepcast::standin
