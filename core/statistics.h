#pragma once
#include <span>
#include <utility>
#include <vector>

namespace stepcast {

/// Quantile q of a sample that is not empty: the nearest order statistic, so always one of its
/// values; of q = 0.5 and an even count the upper of the two in the middle.
double quantile_of(std::vector<double> values, double q);
inline double median_of(std::vector<double> values) { return quantile_of(std::move(values), 0.5); }
/// The same of a sorted sample, between order statistics in proportion: what estimates need.
double interpolated_quantile(std::span<const double> sorted, double q);
/// The median as it is usually defined: of an even count the mean of the two in the middle; 0 of
/// nothing. For reports and estimates; `median_of` where the answer must be one of the values.
double middle_of(std::vector<double> values);

using WeightedValue = std::pair<double, double>;  ///< value, weight
/// The smallest value below or at which lies the share q of all weight; 0 of nothing.
double weighted_quantile(std::vector<WeightedValue> values, double q);

}  // namespace stepcast
