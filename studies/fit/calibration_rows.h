#pragma once
#include <string>

#include "studies/fit_rows.h"

namespace stepcast::studies {

/// Measurements as the CSV table that `stepcast fit` reads back
/// (docs/reference/measurement-tables.md): one line per op with the reuse distances
/// of its operands and its embedding tables, per collective with its group, per host sample, per
/// whole step. Base units. Fits of the lines see what fits of `rows` saw, to the digits printed.
std::string calibration_csv(const FitRows& rows);

}  // namespace stepcast::studies
