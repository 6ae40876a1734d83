#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace stepcast::config {

/// The text of a file that a script reads with `source FILE` or `. FILE`; empty where there is
/// none.
using SourcedFile = std::function<std::string(std::string_view name)>;

/// A shell script with its own variables put in, and those of files that it reads: `A=8` as a
/// command of its own (also after export, readonly or local; several on a line apart by ';'), then
/// $A, ${A}, ${A:-4} and $((A * 2)) anywhere below it. Lines stay lines.
/// Left as they are: variables that the script does not set, sets to different values (the branch
/// of an `if` that would run is not known) or to what a command prints; options kept in a variable,
/// which are read where they are written; and whatever else starts with a dollar sign.
std::string with_variables(std::string_view script, const SourcedFile& sourced);

}  // namespace stepcast::config
