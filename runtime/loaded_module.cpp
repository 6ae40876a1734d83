#include "runtime/loaded_module.h"

#include <dlfcn.h>

#include "core/error.h"

namespace stepcast::runtime {
namespace {

std::string reason() {
  const char* text = dlerror();
  return text == nullptr ? "unknown reason" : text;
}

}  // namespace

LoadedModule::LoadedModule(const std::filesystem::path& file) : name_(file.filename().string()) {
  if (!std::filesystem::exists(file)) {
    throw EnvironmentError(fmt::format(
        "{} is not there: this build has no CUDA part; configure with -DSTEPCAST_CUDA=ON where the "
        "CUDA Toolkit and NCCL are installed (scripts/setup --cuda says what is missing)",
        file.string()));
  }
  handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    throw EnvironmentError(
        fmt::format("{} cannot be loaded: {}; are the libraries of the CUDA Toolkit and NCCL in "
                    "the loader's path (LD_LIBRARY_PATH)?",
                    file.string(), reason()));
  }
}

LoadedModule::LoadedModule(std::string name, std::string_view remedy)
    : name_(std::move(name)), handle_(dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) {
    throw EnvironmentError(fmt::format("{}; {}", reason(), remedy));
  }
}

void* LoadedModule::symbol(const char* name) const {
  void* address = dlsym(handle_, name);
  if (address == nullptr) {
    throw EnvironmentError(fmt::format("{} has no function {}: {}", name_, name, reason()));
  }
  return address;
}

}  // namespace stepcast::runtime
