#pragma once
#include <cstdint>

namespace stepcast {

/// Rows that one batch moves through a cache of rows.
struct RowTraffic {
  double lookups = 0;
  double touched = 0;  ///< distinct rows looked up
  double fetched = 0;  ///< those of them that the cache lacked
  double written = 0;  ///< rows that left it; all of them were updated
  double fetched_bytes = 0, written_bytes = 0;
  RowTraffic& operator+=(const RowTraffic& o);
  RowTraffic& operator*=(double factor);
};

/// Rows that stay when a cache is full: those looked up last, or those looked up most often since
/// the run began.
enum class RowCachePolicy : std::uint8_t { kLru, kLfu };

}  // namespace stepcast
