#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/access/access.h"

namespace stepcast {

/// A law of lookups as a file holds it: the fewest numbers that it is made of again, bit for bit.
/// One of the three forms at the end where one is set, else the law of its kind over all rows.
struct StoredAccess {
  AccessKind kind = AccessKind::kUniform;
  std::int64_t rows = 0;
  double exponent = 0;
  std::uint64_t seed = 0;
  double sample_lookups = 0;
  double offset = 0;                   ///< a zipf law from this rank on
  std::vector<std::int64_t> recorded;  ///< the ids of a recording
  /// Rows, probability, count, singles, doubles of each group of rows that are alike, hottest
  /// first.
  std::vector<std::array<double, 5>> atoms = {};
  double share = 1;                      ///< of the rows: a mean over random subsets; with `atoms`
  std::optional<Access> subset_of = {};  ///< a random `rows` of this law's rows

  static StoredAccess of(const Access& access);
  /// Errors: InputError on numbers that no law has.
  [[nodiscard]] Access restored() const;
};

}  // namespace stepcast
