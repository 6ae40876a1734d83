#include "runtime/cuda/streams.h"

#include <utility>

#include "runtime/cuda/check.h"

namespace stepcast::runtime::cuda {

Stream::Stream() {
  check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

Stream::~Stream() {
  if (handle_ != nullptr) {
    let_go(cudaStreamDestroy(handle_));
  }
}

Stream::Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Event::Event(bool timed) {
  check(cudaEventCreateWithFlags(&handle_, timed ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreateWithFlags");
}

Event::~Event() {
  if (handle_ != nullptr) {
    let_go(cudaEventDestroy(handle_));
  }
}

Event::Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

void Event::record(const Stream& stream, bool into_graph) {
  check(cudaEventRecordWithFlags(handle_, stream.handle(),
                                 into_graph ? cudaEventRecordExternal : cudaEventRecordDefault),
        "cudaEventRecordWithFlags");
}

void Event::hold(const Stream& stream) const {
  check(cudaStreamWaitEvent(stream.handle(), handle_, cudaEventWaitDefault), "cudaStreamWaitEvent");
}

bool Event::happened() const {
  const cudaError_t code = cudaEventQuery(handle_);
  if (code == cudaErrorNotReady) {
    let_go(cudaGetLastError());
    return false;
  }
  check(code, "a kernel or copy enqueued before (cudaEventQuery)");
  return true;
}

void Event::wait() const { check(cudaEventSynchronize(handle_), "cudaEventSynchronize"); }

double Event::nanoseconds_since(const Event& begin) const {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin.handle_, handle_), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e6;
}

}  // namespace stepcast::runtime::cuda
