#pragma once
#include <string>
#include <vector>

#include "core/job/pace.h"
#include "validation/published/predictions.h"

namespace stepcast::validation {

/// True if a row may give a pace: it was predicted, with a plan that fits, and its time is of
/// steps, not of a whole run with what else those hold.
bool gives_pace(const PublishedPrediction& p);

/// Those rows of `from` that measure the pace of `of`: of its device, framework and family of
/// plans; where there are none, of the framework and family; of the family; all (core/job/pace.h).
std::vector<const PublishedPrediction*> pace_rows(
    const std::vector<const PublishedPrediction*>& from, const PublishedPrediction& of);

/// The factor that rows show: exp of the median of ln(measured / simulated), every source counting
/// once, its rows equally. 1 for no rows.
double pace_factor(const std::vector<const PublishedPrediction*>& rows);

/// The paces that predictions of published runs show, of every device, framework and family that
/// was measured, of framework and family, of family, of all. Where nine of ten steps of a source to
/// come lie follows from sources left out in turn: the residuals of a source at the paces of the
/// others, of that group where three sources measure it, else of all groups of the family as wide
/// in the chain, and no narrower than at narrower groups. Each source counts once, and the one to
/// come as one that lies beyond all. Source of the interval: conformal prediction with hierarchical
/// data, Lee et al., arXiv 2306.06342.
PaceTable fit_paces(const std::vector<const PublishedPrediction*>& from);

}  // namespace stepcast::validation
