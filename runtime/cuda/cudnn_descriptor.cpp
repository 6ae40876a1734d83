#include "runtime/cuda/cudnn_descriptor.h"

#include <array>
#include <utility>

#include "core/error.h"

namespace stepcast::runtime::cuda {

void check(const CudnnFunctions& cudnn, cudnnStatus_t code, const std::string& call) {
  if (code == CUDNN_STATUS_SUCCESS) {
    return;
  }
  std::array<char, 512> words{};
  cudnn.last_error(words.data(), words.size());
  words.back() = '\0';
  std::string text(words.data());
  text = text.substr(0, text.find('\n'));
  throw CudnnRejection(fmt::format("{}: {} ({}){}{}", call, cudnn.error_string(code), int{code},
                                   text.empty() ? "" : ": ", text));
}

CudnnDescriptor::CudnnDescriptor(const CudnnFunctions& cudnn, cudnnBackendDescriptorType_t type)
    : cudnn_(&cudnn) {
  check(cudnn, cudnn.create_descriptor(type, &handle_),
        fmt::format("cudnnBackendCreateDescriptor of type {}", int{type}));
}

CudnnDescriptor::~CudnnDescriptor() {
  if (handle_ != nullptr) {
    static_cast<void>(cudnn_->destroy_descriptor(handle_));  // nothing can be done about it
  }
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : cudnn_(other.cudnn_), handle_(std::exchange(other.handle_, nullptr)) {}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          std::int64_t count, const void* values) {
  check(*cudnn_, cudnn_->set_attribute(handle_, name, type, count, values),
        fmt::format("cudnnBackendSetAttribute {}", int{name}));
}

void CudnnDescriptor::finalize(const std::string& what) {
  check(*cudnn_, cudnn_->finalize(handle_), "cudnnBackendFinalize of the " + what);
}

std::int64_t CudnnDescriptor::number(cudnnBackendAttributeName_t name) const {
  std::int64_t value = 0;
  std::int64_t count = 0;
  check(*cudnn_, cudnn_->get_attribute(handle_, name, CUDNN_TYPE_INT64, 1, &count, &value),
        fmt::format("cudnnBackendGetAttribute {}", int{name}));
  return value;
}

std::int64_t CudnnDescriptor::read(cudnnBackendAttributeName_t name,
                                   std::vector<CudnnDescriptor>& into) const {
  std::vector<cudnnBackendDescriptor_t> handles;
  handles.reserve(into.size());
  for (const CudnnDescriptor& d : into) {
    handles.push_back(d.handle());
  }
  std::int64_t count = 0;
  check(*cudnn_,
        cudnn_->get_attribute(handle_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                              static_cast<std::int64_t>(handles.size()), &count, handles.data()),
        fmt::format("cudnnBackendGetAttribute {}", int{name}));
  return count;
}

}  // namespace stepcast::runtime::cuda
