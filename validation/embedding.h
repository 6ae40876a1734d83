#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/job/system.h"
#include "runtime/calibration/embedding_sweep.h"
#include "validation/validation.h"

namespace stepcast::validation {

struct ValidateEmbeddingOptions {
  std::size_t max_points = 200;  ///< residual points per pass
  std::string device = "local-cpu-core";
};

/// How well embedding passes on this machine are predicted for an access exponent or a dim that the
/// fit has not seen.
///
/// Every swept exponent in turn, then every dim, is left out of the fit and predicted; the groups
/// collect all predictions, of both passes together (with the bar: median <= 6 % and at most half
/// of the baseline's) and of each pass. The baseline is the same model fitted and asked with every
/// table's law replaced by the uniform one over as many rows: what knowing the distribution is
/// worth. Groups "form only" leave out the residual points. Void samples are rows that say so.
/// In: samples of one sweep. Errors: none.
ValidationSuite validate_embedding(std::span<const runtime::calibration::EmbeddingSample> samples,
                                   const ValidateEmbeddingOptions& options = {});

/// The samples that are not void as a CSV text in the columns of `stepcast calibrate --rows`:
/// `stepcast fit` reads it.
std::string embedding_rows(std::span<const runtime::calibration::EmbeddingSample> samples);

/// Constants of both passes fitted to the samples that are not void, with errors of held-out cases.
FittedModels fit_embedding(std::span<const runtime::calibration::EmbeddingSample> samples,
                           const Device& device, const ValidateEmbeddingOptions& options = {});

}  // namespace stepcast::validation
