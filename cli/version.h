#pragma once
#include <string_view>

namespace stepcast::cli {

// Generated (version.cpp.in): a new revision compiles one small file.
extern const std::string_view kVersion;
extern const std::string_view kGit;
extern const std::string_view kDataVersion;  ///< of the data predictions are made of: "2026.11.1"
extern const std::string_view kVersionText;  ///< "stepcast 0.1.0 (1a2b3c4d)"

// How this executable was built.
extern const std::string_view kCompiler;
extern const std::string_view kBuildType;
extern const std::string_view kLinked;
extern const std::string_view kBuiltModules;

}  // namespace stepcast::cli
