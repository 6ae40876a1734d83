#pragma once
#include <string>

#include "core/config/config.h"

namespace stepcast::planner {

/// A workload of the zoo on H100s.
inline Job zoo_job(const std::string& workload, int devices) {
  return config::load_job(
      config::text_source("{}", "test"),
      {"workload=" + workload, "system=dgx-h100", "devices=" + std::to_string(devices)},
      {STEPCAST_SOURCE_DIR});
}

}  // namespace stepcast::planner
