#pragma once
#include <span>

#include "core/system.h"
#include "models/fit/fit.h"

namespace stepcast::models {

/// One compute op while transfers of its own rank were in flight for part of its time.
struct MeasuredOverlap {
  Seconds alone;       ///< the same op with no transfer in flight: its median, or a prediction
  Seconds time;        ///< measured begin to end
  Seconds overlapped;  ///< part of `time` in which a transfer was in flight; at most `time`
  std::int64_t configuration = -1;  ///< rows of one are held out together
};

/// "slowdown": factor `compute` (>= 1) by which compute takes longer while a transfer of the rank
/// is in flight, as the simulator applies it: progress at rate 1 / s in the overlapped share f of
/// the time,
///
///   alone = time (1 - f + f / s)
///
/// s by robust least squares of ln(time); rows with less than a twentieth of their time overlapped
/// say nothing about it and are left out. `bias` (a constant too) is the factor by which rows
/// without overlap miss `alone`: taken out first, since baselines measured elsewhere are often off.
/// Empty where fewer than kMinimumRows rows overlap.
/// Valid:   s in [1, 8]; one factor for every kind of op: memory-bound ops suffer more than GEMMs.
///          Checked by tests/models/interference_test.cpp.
FittedModels fit_slowdown(std::span<const MeasuredOverlap> rows, const FitOptions& options = {});

}  // namespace stepcast::models
