#pragma once
#include <string>
#include <string_view>

#include "core/config/internal/document.h"

namespace stepcast::config {

/// Refuses what CONTRACT names but this version does not build: "not implemented in this version:
/// ...; use ...". `feature` is a key of the one table in unsupported.cpp; building the feature
/// means deleting its line and the calls that name it.
[[noreturn]] void not_implemented(const Value& value, std::string_view feature);

/// The same text, of something found, for an error whose place is no value at hand.
std::string not_implemented_text(std::string_view found, std::string_view feature);

/// True when the table has the feature: an enumerated name ("zb-h1", "wukong") that should not be
/// reported as unknown.
bool is_not_implemented(std::string_view feature);

}  // namespace stepcast::config
