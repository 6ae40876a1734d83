#include <catch2/catch.hpp>

#include "core/error.h"
#include "runtime/cuda/module.h"
#include "runtime/loaded_module.h"

using namespace stepcast;
using namespace stepcast::runtime;

TEST_CASE("the CUDA module loads and says what this machine has", "[runtime][cuda]") {
  const LoadedModule file(STEPCAST_CUDA_MODULE);
  const cuda::Module* module = file.function<cuda::ModuleEntry>(cuda::kModuleEntry)();
  const cuda::Probe probe = module->probe();
  INFO(probe.versions);
  CHECK(probe.versions.find("NCCL") != std::string::npos);
  CHECK((probe.devices > 0) == probe.missing.empty());
}

TEST_CASE("a module that is not there is an error with a remedy", "[runtime][cuda]") {
  CHECK_THROWS_AS(LoadedModule("/nowhere/libstepcast_cuda.so"), EnvironmentError);
  CHECK_THROWS_WITH(LoadedModule("/nowhere/libstepcast_cuda.so"),
                    Catch::Contains("STEPCAST_CUDA=ON"));
  const LoadedModule file(STEPCAST_CUDA_MODULE);
  CHECK_THROWS_WITH(file.function<void()>("no_such_function"), Catch::Contains("no_such_function"));
}
