#pragma once
#include <functional>
#include <vector>

#include "core/system.h"
#include "models/cost_model.h"

namespace stepcast::models {

/// Coordinates of a collective's residual points and ranges: natural logarithms of the bytes (at
/// least 1), of the group's size, and of its members in one innermost unit.
struct CollectivePlace {
  double log_bytes = 0, log_size = 0, log_members = 0;
};
CollectivePlace place_of(double bytes, const GroupShape& group);

/// Correction of a collective's form by calibration points: curves in bytes, one per measured
/// group.
///
/// Between two points the residual r = ln(measured / form) changes as the form rises:
///
///   r(b) = r_k + (r_k+1 - r_k) (G(b) - G_k) / (G_k+1 - G_k)
///   G = ln form + 0.05 ln b where r rises, ln form where it falls
///
/// with the times at the points made non-decreasing, so time is monotone and continuous whatever
/// the points say, and a knee of the form between two points stays where it is; beyond the first
/// and last point the form continues, scaled. A group between two measured sizes takes the points
/// of both, weighted by its logarithm and aligned at equal chunks (bytes / size), the protocols'
/// own coordinate. Groups inside one unit and groups across units do not borrow from each other;
/// away from the measured sizes and members per unit the points fade by exp(-distance): the form
/// alone answers. Checked by tests/models/collective_test.cpp.
class CollectiveCurves {
 public:
  using LogTime =
      std::function<double(double log_bytes)>;  ///< of the form, for the group asked for

  CollectiveCurves() = default;
  /// Points have features {log_bytes, log_size, log_members}; without the third the group lies in
  /// one unit.
  explicit CollectiveCurves(const FittedModel& model);
  /// ln(corrected / form) at a place.
  [[nodiscard]] double at(const CollectivePlace& place, const LogTime& form) const;
  [[nodiscard]] bool empty() const { return curves_.empty(); }

 private:
  struct Knot {
    double log_bytes, log_ratio;
  };
  struct Curve {
    double log_size, log_members;
    std::vector<Knot> knots;  // ascending in bytes
  };
  /// The curves a place lies between, with their weights; a weight of 0 leaves the form alone.
  struct Neighbours {
    const Curve* below = nullptr;
    const Curve* above = nullptr;
    double weight_below = 0, weight_above = 0;
  };
  [[nodiscard]] Neighbours neighbours(const CollectivePlace& place) const;
  std::vector<Curve> curves_;  // ascending in size
};

}  // namespace stepcast::models
