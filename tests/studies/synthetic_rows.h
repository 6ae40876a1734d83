#pragma once
#include <unistd.h>

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <string>

#include "core/config/config.h"
#include "core/whole_file.h"
#include "models/measured/measured_table.h"

namespace stepcast::studies::test {

/// A table of `count` adds of [B, H] fp32 on a T4 whose times are `milliseconds(bytes)`, written to
/// a file in a folder of its own and read back.
inline models::MeasuredTable adds(const std::string& name, int count,
                                  const std::function<double(double bytes, int row)>& milliseconds,
                                  const std::string& more = "") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("stepcast-rows-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::string text = "kind,s0,s1,seconds,configuration,device,stack,kernel\n";
  for (int i = 0; i < count; ++i) {
    const int rows = 4096 + 631 * (i % 23);
    const int width = 512 + 97 * (i / 3);
    const double bytes = 3.0 * 4 * rows * width;
    text += fmt::format("add,{},{},{:.9g},add {},t4,torch 2.1,\n", rows, width,
                        1e-3 * milliseconds(bytes, i), width);
  }
  const std::filesystem::path file = folder / (name + ".csv");
  write_whole_file(file, text + more);
  return models::read_measured(file);
}

inline Device t4() {
  Device d = config::load_device("t4", {STEPCAST_SOURCE_DIR});
  d.fitted.clear();
  return d;
}

/// Start of 5 us and 80 % of the T4's 320 GB/s.
inline double typical_milliseconds(double bytes) { return 0.005 + 1e3 * bytes / (0.8 * 320e9); }

}  // namespace stepcast::studies::test
