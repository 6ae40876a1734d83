#include <algorithm>
#include <catch2/catch.hpp>

#include "core/error.h"
#include "runtime/cuda/backend.h"

using namespace stepcast;
using namespace stepcast::runtime;

namespace {

bool has(const std::vector<std::string>& environment, const std::string& entry) {
  return std::find(environment.begin(), environment.end(), entry) != environment.end();
}

}  // namespace

TEST_CASE("ranks that share a device tell NCCL so", "[runtime][cuda]") {
  cuda::Probe probe;
  probe.devices = 2;
  probe.nccl = 22809;
  CHECK(cuda::shared_device_environment(probe, 1, 2, 2).empty());  // one each
  CHECK(cuda::shared_device_environment(probe, 1, 2, 8).empty());  // on four machines
  const auto first = cuda::shared_device_environment(probe, 0, 4, 4);
  const auto last = cuda::shared_device_environment(probe, 3, 4, 4);
  CHECK(has(first, "NCCL_HOSTID=stepcast-rank-0"));
  CHECK(has(last, "NCCL_HOSTID=stepcast-rank-3"));  // each rank another machine
  CHECK(has(last, "NCCL_SOCKET_IFNAME=lo"));
  probe.nccl = 23004;  // has a switch for it
  CHECK(has(cuda::shared_device_environment(probe, 0, 4, 4), "NCCL_MULTI_RANK_GPU_ENABLE=1"));
  CHECK_THROWS_AS(cuda::shared_device_environment(probe, 0, 4, 8), InputError);
}

TEST_CASE("the module stands beside the folder of the executable", "[runtime][cuda]") {
  CHECK(cuda::module_of("/opt/stepcast/bin/stepcast") ==
        std::filesystem::path("/opt/stepcast/lib/libstepcast_cuda.so"));
}
