#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>

#include "core/portable.h"

namespace stepcast::planner {

/// Runs work(worker, item) for items 0 .. items - 1 on up to `threads` threads, the calling one
/// included; each worker takes the next item that is left. The first error stops the others and is
/// thrown again.
template <class Work>
void parallel_for(std::size_t items, int threads, const Work& work) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr error;
  std::mutex mutex;
  const auto run = [&](std::size_t worker) {
    try {
      for (std::size_t i = next++; i < items; i = next++) {
        work(worker, i);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = error ? error : std::current_exception();
      next = items;
    }
  };
  {
    JoinedThreads workers;
    const auto wanted = std::min(items, static_cast<std::size_t>(std::max(threads, 1)));
    for (std::size_t w = 1; w < wanted; ++w) {
      workers.start(run, w);
    }
    run(0);
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

}  // namespace stepcast::planner
