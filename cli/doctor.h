#pragma once
#include <string>

namespace stepcast::cli {

/// What `--version` prints: revision, compiler, what is built in.
std::string version_report();

}  // namespace stepcast::cli
