#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "traces/events/recording.h"

namespace stepcast::traces {

/// Groups of device time.
enum class TimeBy : std::uint8_t {
  kKind,    ///< kinds of kernels (core/graph/kernel_kind.h)
  kModule,  ///< the innermost "nn.Module: ..." around the launch, else the innermost range of the
            ///< program; of the backward pass that of the forward operator of the same sequence
            ///< number
  kStream
};

struct DeviceTime {
  std::string name;
  double launches = 0;     ///< per step
  double nanoseconds = 0;  ///< per step, all ranks asked for; collectives with their waits
};

/// Device time of the steps that count (of several all but the first), of what was launched in
/// them; longest first. Work without a launch counts for the step it begins in. Errors: InputError
/// for a rank that is not there, and those of step_marks.
std::vector<DeviceTime> device_time_by(const Recording& recording, TimeBy by,
                                       std::string_view mark = {},
                                       std::optional<std::int32_t> rank = {});

}  // namespace stepcast::traces
