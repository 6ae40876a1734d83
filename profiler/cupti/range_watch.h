#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>

#include "profiler/cupti/cupti_records.h"

namespace stepcast::profiler::cupti {

/// Follows the NVTX ranges of a program, as CUPTI calls back, for those that are steps: pushed and
/// popped on a thread, or started and ended anywhere.
class RangeWatch {
 public:
  /// Called for every range that begins: whether it is a step to be followed to its end.
  using Begins = std::function<bool(const char* name)>;
  using Ends = std::function<void()>;
  RangeWatch(Begins begins, Ends ends) : begins_(std::move(begins)), ends_(std::move(ends)) {}

  /// A callback of CUPTI_CB_DOMAIN_NVTX.
  void called(CUpti_CallbackId callback, const CUpti_NvtxData& data);

 private:
  void pushed(const void* domain, const char* name);
  void popped(const void* domain);

  Begins begins_;
  Ends ends_;
  std::mutex mutex_;
  std::set<std::uint64_t> started_;  ///< ids of ranges that are steps
};

}  // namespace stepcast::profiler::cupti
