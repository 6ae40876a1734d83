// How many plans Calculon's exhaustive search visits, beside which the speed of ours is given.
#include <algorithm>
#include <catch2/catch.hpp>

#include "planner/parallel/parallel_space.h"
#include "tests/planner/parallel_jobs.h"

namespace stepcast::planner {
namespace {

using testing::kLibrary;

/// Points that Calculon's exhaustive search visits for a model of `layers` blocks on `devices`
/// processors with a batch of at most `batch`: its rules, as found in its command
/// `llm-optimal-execution`. It has dimensions we do not search (three ways to run tensor-parallel
/// communication, three ways to overlap it, a network for each kind of parallelism, offloading to a
/// second memory) and lacks some that we do; the count is the yardstick its published speed refers
/// to.
std::int64_t calculon_space(const TransformerWorkload& model, std::int64_t sequence,
                            std::int64_t devices, std::int64_t batch, std::int64_t networks,
                            bool second_memory) {
  std::int64_t space = 0;
  for (const std::int32_t t : divisors_of(devices)) {
    if (model.hidden % t != 0 || model.heads % t != 0) {
      continue;
    }
    for (const std::int32_t p : divisors_of(std::min<std::int64_t>(devices / t, model.layers))) {
      const std::int64_t d = devices / t / p;
      if (devices % (std::int64_t{t} * p) != 0 || model.layers % p != 0 || d > batch) {
        continue;
      }
      const auto interleavings = p == 1 ? std::size_t{1} : divisors_of(model.layers / p).size();
      std::int64_t micros = 0;
      for (const std::int32_t micro : divisors_of(batch / d)) {
        micros += micro * sequence % t == 0 ? 1 : 0;
      }
      const std::int64_t nets =
          (t > 1 ? networks : 1) * (p > 1 ? networks : 1) * (d > 1 ? networks : 1);
      // Recompute full, attention only, none; each with three kinds of tensor-parallel
      // communication, one of which may gather again where not everything is recomputed.
      const std::int64_t full = 3;
      const std::int64_t partial = 2 * (3 + 1);
      const std::int64_t offloads = second_memory ? full * 4 + partial * 8 : full + partial;
      const std::int64_t overlaps = (d > 1 ? 2 * 2 : 1) * (t > 1 ? 3 : 1);  // and sharded optimizer
      space += static_cast<std::int64_t>(interleavings) * micros * nets * overlaps * offloads;
    }
  }
  return space;
}

TEST_CASE("Calculon's spaces, counted by its rules", "[planner][parallel][space]") {
  // 64 processors, batch 64, two networks; 512 processors, batch 512.
  const auto model = [](const char* name) {
    return *config::load_workload(name, kLibrary).transformer();
  };
  const TransformerWorkload gpt3 = model("gpt3-175b");
  CHECK(calculon_space(gpt3, 2048, 64, 64, 2, false) == 467'808);
  CHECK(calculon_space(gpt3, 2048, 64, 64, 2, true) == 3'232'128);
  CHECK(calculon_space(gpt3, 2048, 512, 512, 2, true) == 6'582'816);
  CHECK(calculon_space(model("sc21-1t"), 2048, 512, 512, 2, true) == 5'882'400);
}

}  // namespace
}  // namespace stepcast::planner
