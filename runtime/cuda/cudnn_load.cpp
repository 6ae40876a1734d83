#include <dlfcn.h>

#include "core/error.h"
#include "runtime/cuda/cudnn_descriptor.h"

namespace stepcast::runtime::cuda {

std::optional<CudnnFunctions> cudnn_functions(std::string& missing) {
  constexpr const char* kLibrary = "libcudnn.so.9";
  void* library = dlopen(kLibrary, RTLD_LAZY | RTLD_LOCAL);  // stays loaded
  if (library == nullptr) {
    missing = dlerror();
    return std::nullopt;
  }
  CudnnFunctions f;
  const auto find = [&](auto& function, const char* name) {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr && missing.empty()) {
      missing = fmt::format("{} has no {}", kLibrary, name);
    }
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  find(f.version, "cudnnGetVersion");
  find(f.error_string, "cudnnGetErrorString");
  find(f.last_error, "cudnnGetLastErrorString");
  find(f.create, "cudnnCreate");
  find(f.destroy, "cudnnDestroy");
  find(f.set_stream, "cudnnSetStream");
  find(f.create_descriptor, "cudnnBackendCreateDescriptor");
  find(f.destroy_descriptor, "cudnnBackendDestroyDescriptor");
  find(f.finalize, "cudnnBackendFinalize");
  find(f.set_attribute, "cudnnBackendSetAttribute");
  find(f.get_attribute, "cudnnBackendGetAttribute");
  find(f.execute, "cudnnBackendExecute");
  if (!missing.empty()) {
    return std::nullopt;
  }
  constexpr std::size_t kOldest = 90800;
  if (f.version() < kOldest) {
    missing = fmt::format("{} is version {}, older than {}; update cuDNN", kLibrary, f.version(),
                          kOldest);
    return std::nullopt;
  }
  return f;
}

}  // namespace stepcast::runtime::cuda
