#pragma once
#include <cstdint>
#include <span>

#include "core/access/access.h"

namespace stepcast {

/// The zipf law that recorded lookups look most like.
struct ZipfFit {
  double exponent = 0;
  /// Largest difference between recorded and expected share of lookups, over the edges of the bins.
  double error = 0;
};

/// Least squares on the shares of lookups that go to rows looked up more than c times, for c the
/// lower edge of each bin above 0 (and 1, 2, 4, ... below the first that holds rows): recorded,
/// against what `lookups` lookups of the law over `rows` rows are expected to show,
///   S(c) = sum_i p_i P(Poisson(lookups p_i) >= c),
/// so that rows which a short recording saw once by chance do not pass for skew. The exponent is
/// sought in 0..4, to 1e-4.
/// In: bins as of Access::histogram (their accesses sum to `lookups`), rows >= 1 and no fewer than
/// were seen.
ZipfFit fit_zipf(std::int64_t rows, std::span<const ReuseBin> bins, double lookups);

}  // namespace stepcast
