#pragma once
#include <string>
#include <string_view>

namespace stepcast::config {

/// A shell script with its own variables put in: `A=8` on a line of its own (also after export,
/// readonly or local), then $A, ${A}, ${A:-4} and $((A * 2)) anywhere below it. Lines stay lines.
/// Left as they are: variables that the script does not set, sets to different values (the branch
/// of an `if` that would run is not known) or to what a command prints; options kept in a variable,
/// which are read where they are written; and whatever else starts with a dollar sign.
std::string with_variables(std::string_view script);

}  // namespace stepcast::config
