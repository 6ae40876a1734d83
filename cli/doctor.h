#pragma once
#include <string>

namespace stepcast::cli {

/// Text of `--version`: revision, compiler, what is built in.
std::string version_report();

}  // namespace stepcast::cli
