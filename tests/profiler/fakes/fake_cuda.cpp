// libcuda.so.1 of a machine without a GPU, for tests: what the real driver does with
// CUDA_INJECTION64_PATH at its first use, and nothing else.
#include <dlfcn.h>

#include <cstdlib>

extern "C" __attribute__((visibility("default"))) int cuInit(unsigned /*flags*/) {
  static bool done = false;
  if (!done) {
    done = true;
    if (const char* path = std::getenv("CUDA_INJECTION64_PATH")) {
      if (void* module = dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
        if (void* entry = dlsym(module, "InitializeInjection")) {
          reinterpret_cast<int (*)()>(entry)();
        }
      }
    }
  }
  return 0;
}
