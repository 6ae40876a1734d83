#include "profiler/cupti/range_watch.h"

// The structs behind functionParams.
#include <generated_nvtx_meta.h>

#include <map>

namespace stepcast::profiler::cupti {
namespace {

/// A thread's ranges that are open, by domain, and which of them is the step.
struct Stack {
  std::int64_t depth = 0, step_at = -1;
};
thread_local std::map<const void*, Stack> stacks;

const char* text(const nvtxEventAttributes_t* attributes) {
  return attributes != nullptr && attributes->messageType == NVTX_MESSAGE_TYPE_ASCII
             ? attributes->message.ascii
             : nullptr;
}

template <class Params>
const Params& as(const CUpti_NvtxData& data) {
  return *static_cast<const Params*>(data.functionParams);
}

}  // namespace

void RangeWatch::pushed(const void* domain, const char* name) {
  Stack& stack = stacks[domain];
  ++stack.depth;
  if (name != nullptr && stack.step_at < 0 && begins_(name)) {
    stack.step_at = stack.depth;
  }
}

void RangeWatch::popped(const void* domain) {
  Stack& stack = stacks[domain];
  if (stack.depth == stack.step_at) {
    stack.step_at = -1;
    ends_();
  }
  stack.depth = stack.depth > 0 ? stack.depth - 1 : 0;  // pushed before we watched
}

void RangeWatch::called(CUpti_CallbackId callback, const CUpti_NvtxData& data) {
  if (data.functionParams == nullptr) {
    return;
  }
  const auto started = [&](const char* name) {
    if (name != nullptr && data.functionReturnValue != nullptr && begins_(name)) {
      const std::lock_guard lock(mutex_);
      started_.insert(*static_cast<const nvtxRangeId_t*>(data.functionReturnValue));
    }
  };
  const auto ended = [&](nvtxRangeId_t id) {
    bool step = false;
    {
      const std::lock_guard lock(mutex_);
      step = started_.erase(id) > 0;
    }
    if (step) {
      ends_();
    }
  };
  switch (callback) {
    case CUPTI_CBID_NVTX_nvtxRangePushA:
      pushed(nullptr, as<nvtxRangePushA_params>(data).message);
      return;
    case CUPTI_CBID_NVTX_nvtxRangePushEx:
      pushed(nullptr, text(as<nvtxRangePushEx_params>(data).eventAttrib));
      return;
    case CUPTI_CBID_NVTX_nvtxRangePop:
      popped(nullptr);
      return;
    case CUPTI_CBID_NVTX_nvtxDomainRangePushEx: {
      const auto& p = as<nvtxDomainRangePushEx_params>(data);
      pushed(p.domain, text(p.core.eventAttrib));
      return;
    }
    case CUPTI_CBID_NVTX_nvtxDomainRangePop:
      popped(as<nvtxDomainRangePop_params>(data).domain);
      return;
    case CUPTI_CBID_NVTX_nvtxRangeStartA:
      started(as<nvtxRangeStartA_params>(data).message);
      return;
    case CUPTI_CBID_NVTX_nvtxRangeStartEx:
      started(text(as<nvtxRangeStartEx_params>(data).eventAttrib));
      return;
    case CUPTI_CBID_NVTX_nvtxDomainRangeStartEx:
      started(text(as<nvtxDomainRangeStartEx_params>(data).core.eventAttrib));
      return;
    case CUPTI_CBID_NVTX_nvtxRangeEnd:
      ended(as<nvtxRangeEnd_params>(data).id);
      return;
    case CUPTI_CBID_NVTX_nvtxDomainRangeEnd:
      ended(as<nvtxDomainRangeEnd_params>(data).core.id);
      return;
    default:
      return;
  }
}

}  // namespace stepcast::profiler::cupti
