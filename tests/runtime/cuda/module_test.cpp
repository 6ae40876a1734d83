#include <catch2/catch.hpp>

#include "core/error.h"
#include "runtime/cuda/backend.h"
#include "runtime/loaded_module.h"

using namespace stepcast;
using namespace stepcast::runtime;

TEST_CASE("the CUDA module loads and says what this machine has", "[runtime][cuda]") {
  const cuda::Module& module = cuda::loaded_module(STEPCAST_CUDA_MODULE);
  const cuda::Probe probe = module.probe();
  INFO(probe.versions);
  CHECK(probe.versions.find("NCCL") != std::string::npos);
  CHECK(probe.nccl > 20000);
  CHECK((probe.devices > 0) == probe.missing.empty());
  if (probe.devices == 0) {
    // Errors say what is missing, and what to do about it.
    CHECK_THROWS_AS(cuda::usable_module(STEPCAST_CUDA_MODULE), EnvironmentError);
    CHECK_THROWS_WITH(cuda::usable_module(STEPCAST_CUDA_MODULE),
                      Catch::Contains("--backend cpu") && Catch::Contains("nvidia-smi"));
  }
}

TEST_CASE("a module that is not there is an error with a remedy", "[runtime][cuda]") {
  CHECK_THROWS_AS(cuda::loaded_module("/nowhere/libstepcast_cuda.so"), EnvironmentError);
  CHECK_THROWS_WITH(cuda::loaded_module("/nowhere/libstepcast_cuda.so"),
                    Catch::Contains("STEPCAST_CUDA=ON"));
  const LoadedModule file(STEPCAST_CUDA_MODULE);
  CHECK_THROWS_WITH(file.function<void()>("no_such_function"), Catch::Contains("no_such_function"));
}

TEST_CASE("errors of the module are those of the program", "[runtime][cuda]") {
  const cuda::Module& module = cuda::loaded_module(STEPCAST_CUDA_MODULE);
  if (module.probe().devices > 0) {
    return;  // nothing fails
  }
  ExecutionGraph graph;
  graph.programs.resize(1);
  graph.programs.front().streams = {"compute"};
  graph.classes.push_back({0, {0}});
  // Thrown in one library, caught by type in another; the message names the call and its code.
  CHECK_THROWS_AS(module.executor(graph, cuda::Ranks{}, cuda::Options{}, nullptr), RunError);
  CHECK_THROWS_WITH(module.executor(graph, cuda::Ranks{}, cuda::Options{}, nullptr),
                    Catch::Contains("cudaGetDeviceCount") && Catch::Contains("(35)"));
}

TEST_CASE("a module of another build is refused", "[runtime][cuda]") {
  const LoadedModule file(STEPCAST_CUDA_MODULE);
  cuda::Stamp other;
  other.program += 8;
  CHECK(file.function<cuda::ModuleEntry>(cuda::kModuleEntry)(other) == nullptr);
  CHECK(file.function<cuda::ModuleEntry>(cuda::kModuleEntry)(cuda::Stamp{}) != nullptr);
}
