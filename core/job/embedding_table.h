#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/formats.h"

namespace stepcast {

class Access;                        // core/access/access.h
enum class RowRemap : std::uint8_t;  // core/access/access.h

enum class PoolingMode : std::uint8_t { kSum, kMean, kSequence };

/// Deduplication structure of a feature's values inside sessions (RecD).
struct Session {
  double samples = 1;
  double keep = 0;
};

/// Rows and ids of a table before its rows were hashed into fewer buckets.
struct Remapping {
  std::int64_t rows = 0;
  std::shared_ptr<const Access> access;
  RowRemap kind{};
  bool evicts = false;  ///< rows have keys: an id without a row takes that of another
  double admitted = 1;  ///< or does so with this probability, and reads one row for all such
};

/// One of several features whose ids are rows of one table.
struct TableFeature {
  std::string name;  ///< empty where the workload counts features only
  double pooling = 1;
};

struct EmbeddingTable {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  /// Lookups per sample, of all features together; an integer is exact, a fraction is the mean of a
  /// Poisson.
  double pooling = 1;
  PoolingMode mode = PoolingMode::kSum;
  /// Features that share the rows; each is pooled by itself and has `dim` columns of the
  /// interaction. Empty: one.
  std::vector<TableFeature> features;
  std::optional<Format> format;  ///< of its rows; none: RoleFormats::embedding
  bool weighted = false;         ///< each id travels with an fp32 weight that scales its row
  std::shared_ptr<const Access> access;  ///< over the table's rows (after remap, if any)
  std::optional<Session> session;
  std::string access_file;            ///< the histogram or indices file behind `access`, if any
  std::optional<Remapping> remapped;  ///< when rows were remapped; `rows` counts buckets then
  [[nodiscard]] std::int64_t feature_count() const {
    return features.empty() ? 1 : static_cast<std::int64_t>(features.size());
  }
  /// Rows are found by their keys (Remapping::evicts).
  [[nodiscard]] bool keyed() const { return remapped && remapped->evicts; }
  /// Columns that it puts into the interaction.
  [[nodiscard]] std::int64_t output_columns() const { return dim * feature_count(); }
  /// Bytes that travel with each lookup: the id (int64), and its weight where it has one.
  [[nodiscard]] double id_bytes() const { return weighted ? 12 : 8; }
};

}  // namespace stepcast
