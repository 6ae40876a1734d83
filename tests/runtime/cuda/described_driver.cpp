// Lets cuDNN compile plans for a device that is only described: the toolkit's stub of the driver
// rejects every call, so those with which the library loads and inspects kernels are answered here.
// The program's own dlsym comes before the C library's, which cuDNN would find them with.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

using Find = void* (*)(void*, const char*);

int succeed() { return 0; }
int hand_out(void** handle) {
  static char nothing[256];
  *handle = nothing;
  return 0;
}
int answer_zero(int* value) {
  *value = 0;
  return 0;
}
int answer_one(int* value) {
  *value = 1;
  return 0;
}
/// Clusters of two blocks on the 132 multiprocessors of the description.
int answer_clusters(int* value) {
  *value = 66;
  return 0;
}

struct Answer {
  std::string_view name;
  void* function;
};
const Answer kAnswers[] = {
    {"cuInit", reinterpret_cast<void*>(&succeed)},
    {"cuLibraryLoadData", reinterpret_cast<void*>(&hand_out)},
    {"cuLibraryGetKernel", reinterpret_cast<void*>(&hand_out)},
    {"cuLibraryGetModule", reinterpret_cast<void*>(&hand_out)},
    {"cuLibraryUnload", reinterpret_cast<void*>(&succeed)},
    {"cuKernelGetFunction", reinterpret_cast<void*>(&hand_out)},
    {"cuModuleLoadData", reinterpret_cast<void*>(&hand_out)},
    {"cuModuleLoadDataEx", reinterpret_cast<void*>(&hand_out)},
    {"cuModuleGetFunction", reinterpret_cast<void*>(&hand_out)},
    {"cuModuleUnload", reinterpret_cast<void*>(&succeed)},
    {"cuKernelGetAttribute", reinterpret_cast<void*>(&answer_zero)},
    {"cuFuncGetAttribute", reinterpret_cast<void*>(&answer_zero)},
    {"cuKernelSetAttribute", reinterpret_cast<void*>(&succeed)},
    {"cuFuncSetAttribute", reinterpret_cast<void*>(&succeed)},
    {"cuOccupancyMaxActiveClusters", reinterpret_cast<void*>(&answer_clusters)},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessor", reinterpret_cast<void*>(&answer_one)},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", reinterpret_cast<void*>(&answer_one)},
};

void* real(void* handle, const char* name) {
  static const auto find = reinterpret_cast<Find>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  return find(handle, name);
}

int procedure(const char* name, void** function, int, std::uint64_t, int* found) {
  void* const stub = dlopen(CUDA_DRIVER_STUB, RTLD_LAZY);
  *function = dlsym(stub, name);
  if (found != nullptr) {
    *found = 0;
  }
  return *function != nullptr ? 0 : 500;  // CUDA_ERROR_NOT_FOUND
}

}  // namespace

extern "C" void* dlsym(void* handle, const char* name) noexcept {
  const std::string_view wanted(name);
  if (wanted == "cuGetProcAddress" || wanted == "cuGetProcAddress_v2") {
    return reinterpret_cast<void*>(&procedure);
  }
  const auto* const known = std::find_if(std::begin(kAnswers), std::end(kAnswers),
                                         [&](const Answer& a) { return a.name == wanted; });
  return known != std::end(kAnswers) ? known->function : real(handle, name);
}
