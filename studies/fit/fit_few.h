#pragma once
#include "models/fit/fit.h"
#include "studies/fit_rows.h"

namespace stepcast::studies {

/// Models for kinds with too few shapes for constants of their own (1 to models::kMinimumRows - 1,
/// however often each was measured), as when a trace holds one optimizer op per rank.
///
///   collectives   constants of "collective", fitted to all kinds together, the kind's own rows as
///                 points of its curve
///   memory-bound  constants of the whole class
///   other kernels their form's constants, as near to its start values as the few rows allow
///
/// To the constants of kernels come the medians of the kind's own shapes as residual points that
/// fade slowly (residual_scale 8, noise 0.01): a factor on the form, which gives these shapes
/// again.
///
/// Adds only keys that `system` does not have; errors are those on the rows themselves.
void fit_few(System& system, const FitRows& rows, const models::FitOptions& options);

}  // namespace stepcast::studies
