#pragma once
#include "models/fit/fit.h"
#include "studies/step_rows.h"

namespace stepcast::studies {

/// Models for kinds with too few rows for constants of their own (1 to models::kMinimumRows - 1),
/// as when a trace holds one optimizer op per rank.
///
///   collectives   constants of "collective", fitted to all kinds together, the kind's own rows as
///                 points of its curve
///   memory-bound  constants of the whole class, the kind's rows as residual points that fade
///                 slowly (residual_scale 8, noise 0.1): a factor on the class
///   other kernels their form's constants, as near to its start values as the few rows allow
///
/// Adds only keys that `system` does not have; errors are those on the rows themselves.
void fit_few(System& system, const StepRows& rows, const models::FitOptions& options);

}  // namespace stepcast::studies
