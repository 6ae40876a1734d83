#pragma once
#include <span>

#include "core/statistics.h"

namespace stepcast::studies {

/// Aggregates of relative errors predicted / measured - 1, as fractions. `geomean` is
/// exp(mean(ln(|error| + 4e-4))), the metric of the published baseline (arXiv 2404.12674); absolute
/// unless `bias`.
struct ErrorStatistics {
  std::size_t n = 0;
  double median = 0, mean = 0, geomean = 0, p90 = 0, worst = 0, bias = 0;
  std::size_t worst_index = 0;
};
ErrorStatistics statistics_of(std::span<const double> errors);

/// Kendall's tau-b of two orders of the same cases: 1 the same order, -1 the reverse, 0 where
/// either knows no order. Source: Kendall, Biometrika 33(3), 1945.
double kendall_tau(std::span<const double> predicted, std::span<const double> measured);

/// Loss of choosing the case of the least predicted cost against the least measured one, as a
/// fraction of the latter; 0 for no cases.
double regret_of(std::span<const double> predicted, std::span<const double> measured);

/// Mean |error| when every measurement is compared with some other case's prediction: the mean over
/// all n - 1 rotations. What a predictor would score whose answers had nothing to do with the
/// question.
double permuted_error(std::span<const double> predicted, std::span<const double> measured);

}  // namespace stepcast::studies
