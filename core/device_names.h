#pragma once
#include <optional>
#include <string_view>

namespace stepcast {

/// A device as somebody wrote it, and the zoo names it stands for. `system` is empty where the zoo
/// has no machine of that device.
struct DeviceName {
  std::string_view device, system;
};

/// The one place that joins names of GPUs in data, recordings and jobs with names of the zoo. Case,
/// separators, vendors and what no name of the zoo says are ignored; chip, form (sxm, pcie, nvl)
/// and memory must not contradict the zoo's: "H100", "h100-sxm", "NVIDIA H100 80GB HBM3" and "DGX
/// H100" are h100-sxm-80gb, "H100-96GB HBM2e" is h100-sxm-96gb, and "H100 NVL" is nothing. What is
/// left unsaid is the most usual form of the chip. nullopt: the zoo has no such device.
std::optional<DeviceName> device_named(std::string_view written);

}  // namespace stepcast
