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
  constexpr int kOld = 22809;
  // One device each, on one machine or on two.
  CHECK(cuda::shared_device_environment(kOld, 1, 2, {7, 8}).empty());
  CHECK(cuda::shared_device_environment(kOld, 1, 2, {7, 8, 9, 10}).empty());
  const auto first = cuda::shared_device_environment(kOld, 0, 4, {7, 8, 7, 8});
  const auto last = cuda::shared_device_environment(kOld, 3, 4, {7, 8, 7, 8});
  CHECK(has(first, "NCCL_HOSTID=stepcast-rank-0"));
  CHECK(has(last, "NCCL_HOSTID=stepcast-rank-3"));  // each rank another machine
  CHECK(has(last, "NCCL_SOCKET_IFNAME=lo"));
  // Newer ones have a switch for it.
  CHECK(has(cuda::shared_device_environment(23004, 0, 2, {7, 7}), "NCCL_MULTI_RANK_GPU_ENABLE=1"));
  CHECK_THROWS_AS(cuda::shared_device_environment(kOld, 0, 4, {7, 8, 7, 8, 9, 9, 9, 9}),
                  InputError);
}

TEST_CASE("devices are told apart by what they are, not by their number", "[runtime][cuda]") {
  cuda::Probe all;  // sees both, instances of one device
  all.identities = {"0000:01:00 a", "0000:01:00 b"};
  cuda::Probe second;  // is shown the second only
  second.identities = {"0000:01:00 b"};
  CHECK(cuda::device_key(all, 1) == cuda::device_key(second, 1));
  CHECK(cuda::device_key(all, 0) != cuda::device_key(second, 1));
  CHECK(cuda::device_key(all, 2) == cuda::device_key(all, 0));  // goes round
  CHECK(cuda::device_key(all, 0) < 0x1p52);                     // exact in a sum of doubles
}

TEST_CASE("the module stands beside the folder of the executable", "[runtime][cuda]") {
  CHECK(cuda::module_of("/opt/stepcast/bin/stepcast") ==
        std::filesystem::path("/opt/stepcast/lib/libstepcast_cuda.so"));
}
