#pragma once
#include <cudnn_backend.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace stepcast::runtime::cuda {

/// Functions of cuDNN that the backend calls. The library is never linked: a machine without it
/// runs the same program.
struct CudnnFunctions {
  decltype(&::cudnnGetVersion) version = nullptr;
  decltype(&::cudnnGetErrorString) error_string = nullptr;
  decltype(&::cudnnGetLastErrorString) last_error = nullptr;
  decltype(&::cudnnCreate) create = nullptr;
  decltype(&::cudnnDestroy) destroy = nullptr;
  decltype(&::cudnnSetStream) set_stream = nullptr;
  decltype(&::cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&::cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&::cudnnBackendFinalize) finalize = nullptr;
  decltype(&::cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&::cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&::cudnnBackendExecute) execute = nullptr;
};

/// The functions of libcudnn.so.9, which stays loaded; nothing, and why in `missing`, where it is
/// not there, cannot be loaded or is older than 9.8.
std::optional<CudnnFunctions> cudnn_functions(std::string& missing);

/// cuDNN rejected a call: which, with the code and its own words.
class CudnnRejection : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The one way to call cuDNN: every return code passes here. Errors: CudnnRefusal.
void check(const CudnnFunctions& cudnn, cudnnStatus_t code, const std::string& call);

/// A descriptor of the backend API: attributes are set, then it is finalized and only read.
///
///   CudnnDescriptor matmul(cudnn, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
///   matmul.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
///   matmul.finalize("matmul");
class CudnnDescriptor {
 public:
  CudnnDescriptor(const CudnnFunctions& cudnn, cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values);
  template <class T>
  void set(cudnnBackendAttributeName_t name, const T& value) {
    set(name, type_of(value), 1, &value);
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
    set(name, type_of(values.front()), static_cast<std::int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) {
    set(name, other.handle());
  }
  /// `what` names it in a rejection.
  void finalize(const std::string& what);
  /// One int64 of a finalized descriptor.
  [[nodiscard]] std::int64_t number(cudnnBackendAttributeName_t name) const;
  /// Fills descriptors made by the caller; returns how many there are.
  std::int64_t read(cudnnBackendAttributeName_t name, std::vector<CudnnDescriptor>& into) const;
  [[nodiscard]] cudnnBackendDescriptor_t handle() const { return handle_; }

 private:
  static cudnnBackendAttributeType_t type_of(std::int64_t) { return CUDNN_TYPE_INT64; }
  static cudnnBackendAttributeType_t type_of(bool) { return CUDNN_TYPE_BOOLEAN; }
  static cudnnBackendAttributeType_t type_of(cudnnDataType_t) { return CUDNN_TYPE_DATA_TYPE; }
  static cudnnBackendAttributeType_t type_of(cudnnHandle_t) { return CUDNN_TYPE_HANDLE; }
  static cudnnBackendAttributeType_t type_of(void*) { return CUDNN_TYPE_BACKEND_DESCRIPTOR; }
  static cudnnBackendAttributeType_t type_of(cudnnBackendHeurMode_t) {
    return CUDNN_TYPE_HEUR_MODE;
  }
  static cudnnBackendAttributeType_t type_of(cudnnPointwiseMode_t) {
    return CUDNN_TYPE_POINTWISE_MODE;
  }
  static cudnnBackendAttributeType_t type_of(cudnnReduceTensorOp_t) {
    return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
  }

  const CudnnFunctions* cudnn_;
  cudnnBackendDescriptor_t handle_ = nullptr;
};

}  // namespace stepcast::runtime::cuda
