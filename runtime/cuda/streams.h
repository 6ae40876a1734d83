#pragma once
#include <cuda_runtime_api.h>

namespace stepcast::runtime::cuda {

/// A stream that does not wait for the default stream.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;
  [[nodiscard]] cudaStream_t handle() const { return handle_; }

 private:
  cudaStream_t handle_ = nullptr;
};

/// An event; `timed` ones know when they happened.
class Event {
 public:
  explicit Event(bool timed);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&&) = delete;

  /// `into_graph`: the stream is being captured, and the host will look at the event after the
  /// graph has run.
  void record(const Stream& stream, bool into_graph = false);
  /// The stream goes on when what was recorded last has happened.
  void hold(const Stream& stream) const;
  [[nodiscard]] bool happened() const;
  void wait() const;
  /// From `begin` to this one, both timed and happened.
  [[nodiscard]] double nanoseconds_since(const Event& begin) const;

 private:
  cudaEvent_t handle_ = nullptr;
};

}  // namespace stepcast::runtime::cuda
