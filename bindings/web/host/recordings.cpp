#include "cli/support/recordings.h"

#include "core/error.h"

namespace stepcast::cli {

bool is_recording(const std::string& /*path*/) { return false; }

traces::MeasuredRun read_run(const std::string& path, const std::string& /*mark*/) {
  throw InputError(path, "is a recording, which the page does not read; use the executable");
}

}  // namespace stepcast::cli
