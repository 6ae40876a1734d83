#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "core/formats.h"

namespace stepcast::models {

/// A device as measurements name it, and the zoo names it stands for. `system` is empty where the
/// name says nothing about the machine around the device.
struct DeviceName {
  std::string_view written, device, system;
};

/// The one list that joins names in data files (columns, file names) with names of the zoo.
std::optional<DeviceName> device_named(std::string_view written);  ///< a whole field, case ignored
/// The longest known name that stands between separators (_ - . space) in a file's name.
std::optional<DeviceName> device_in(std::string_view file_name);

/// Number formats as measurements name them ("bfloat16", "half"); `variant` is the name itself
/// where the kernel is not the plain one of that format ("fp8_block": scales per block).
struct FormatName {
  std::string_view written;
  Format format = Format::kFp32;
  std::string_view variant = {};
};
std::optional<FormatName> measured_format(std::string_view written);

}  // namespace stepcast::models
