#pragma once
#include <span>
#include <string>

#include "studies/validate_models.h"

namespace stepcast::studies {

/// One SVG for one op kind: predicted against measured time, both logarithmic, with the diagonal,
/// and the relative error against size, clipped at +-50 %. A colour per group; of many points an
/// even share is drawn (`limit` per group), the counts in the legend are those of all. No scripts,
/// no fonts of its own; the same points give the same bytes.
std::string accuracy_picture(const std::string& title, std::span<const ScoredCurve* const> curves,
                             std::size_t limit = 1500);

}  // namespace stepcast::studies
