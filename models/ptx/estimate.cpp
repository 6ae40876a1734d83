#include "models/ptx/estimate.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace stepcast::models::ptx {
namespace {

constexpr double kIssuesACycle = 4;
constexpr double kLanesOfSpecial = 16;  // of a multiprocessor's lanes for fp32, 64 or 128

double fp32_lanes(std::string_view target) {
  const bool few = target.starts_with("sm_7") || target == "sm_80";
  return few ? 64 : 128;
}

}  // namespace

Estimate estimate(const Counts& counts, std::uint64_t blocks, const Device& device,
                  std::string_view target) {
  const auto fp32 = device.peak_of(Format::kFp32);
  if (!fp32) {
    throw InputError(device.name, "has no peak of fp32; a kernel's time needs it");
  }
  const auto of_all = [scale = static_cast<double>(blocks) / static_cast<double>(counts.blocks)](
                          std::uint64_t count) { return scale * static_cast<double>(count); };
  const auto sms = static_cast<double>(device.multiprocessors);
  const auto n = static_cast<double>(blocks);
  const double uneven = std::ceil(n / sms) * sms / n;
  const double lanes = fp32_lanes(target);
  const double cycles = sms * fp32->base() / (2 * lanes * sms);  // a second, of all together
  const Bytes moved(static_cast<double>(counts.loads.of_launch + counts.stores.of_launch));
  const double flops = of_all(counts.flops), special = of_all(counts.special);
  const double tensor = of_all(counts.tensor_flops);
  const auto tensor_peak = device.peak_of(Format::kBf16).value_or(*fp32);
  Estimate e;
  e.terms = {
      {"memory", moved.base(), "B", moved / device.bandwidth},
      {"arithmetic", flops, "FLOP", Flops(flops) / *fp32 * uneven},
      {"special functions", special, "operations",
       Seconds(special / (kLanesOfSpecial * cycles) * uneven)},
      {"tensor cores", tensor, "FLOP", Flops(tensor) / tensor_peak * uneven},
      {"shared memory", of_all(counts.shared_passes), "passes",
       Seconds(of_all(counts.shared_passes) / cycles * uneven)},
      {"issue", of_all(counts.instructions), "instructions",
       Seconds(of_all(counts.instructions) / (kIssuesACycle * cycles) * uneven)},
  };
  const auto longest = std::max_element(
      e.terms.begin(), e.terms.end(), [](const Term& a, const Term& b) { return a.time < b.time; });
  e.longest = static_cast<std::size_t>(longest - e.terms.begin());
  e.time = longest->time;
  return e;
}

}  // namespace stepcast::models::ptx
