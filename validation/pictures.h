#pragma once
#include <span>
#include <string>

#include "validation/models.h"

namespace stepcast::validation {

/// One SVG for one op kind: predicted against measured time, both logarithmic, with the diagonal,
/// and the relative error against size, clipped at +-50 %. A colour per group; every row is drawn,
/// in cells of two pixels that are darker where 3 or 10 rows fall together. No scripts, no fonts of
/// its own; the same points give the same bytes.
std::string accuracy_picture(const std::string& title, std::span<const ScoredCurve* const> curves);

}  // namespace stepcast::validation
