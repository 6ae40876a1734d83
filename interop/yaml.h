#pragma once
#include <string_view>

#include "interop/formats.h"

namespace stepcast::interop {

/// JSON of the part of YAML 1.2 that configurations are written in: maps and lists by indentation,
/// [a, b] and {a: b} on one line, quoted and plain scalars, comments. Plain scalars are numbers
/// (also 100_000), true, false and null where they look like it. Not read, each an error by line:
/// anchors, tags, several documents, tabs before a key. Texts over several lines are passed over. Errors:
/// InputError "LABEL:LINE".
Json parse_yaml(std::string_view text, std::string_view label);

}  // namespace stepcast::interop
