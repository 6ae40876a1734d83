#pragma once
#include <string>

namespace stepcast::runtime::cuda {

/// What this machine offers the module.
struct Probe {
  int devices = 0;       ///< that can be used now
  std::string missing;   ///< empty when there is a device; else what is missing and the remedy
  std::string versions;  ///< of toolkit, driver and libraries, for people
};

/// What libstepcast_cuda.so offers the program that loads it.
class Module {
 public:
  virtual ~Module() = default;
  [[nodiscard]] virtual Probe probe() const = 0;
};

/// The one symbol of the module: `extern "C" const Module* stepcast_cuda_module()`.
using ModuleEntry = const Module*();
constexpr const char* kModuleEntry = "stepcast_cuda_module";

}  // namespace stepcast::runtime::cuda
