// libcuda.so.1 of a machine without a GPU, for tests: what the real driver does with
// CUDA_INJECTION64_PATH at its first use, and a call without effect.
#include <dlfcn.h>

#include <cstdlib>

#include "fake_gpu.h"

extern "C" __attribute__((visibility("default"))) int cuDriverGetVersion(int* version) {
  void* cupti = dlopen("libcupti.so.13", RTLD_LAZY | RTLD_NOLOAD);
  if (void* entry = cupti == nullptr ? nullptr : dlsym(cupti, "fake_gpu")) {
    reinterpret_cast<FakeGpuEntry*>(entry)()->driver_call();
  }
  *version = 13000;
  return 0;
}

extern "C" __attribute__((visibility("default"))) int cuInit(unsigned /*flags*/) {
  static bool done = false;
  if (!done) {
    done = true;
    // FAKE_CUDA_CANNOT_LOAD: as where a library of the module's is not there; silently.
    const char* path = std::getenv("CUDA_INJECTION64_PATH");
    if (path != nullptr && std::getenv("FAKE_CUDA_CANNOT_LOAD") == nullptr) {
      if (void* module = dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
        if (void* entry = dlsym(module, "InitializeInjection")) {
          reinterpret_cast<int (*)()>(entry)();
        }
      }
    }
  }
  return 0;
}
