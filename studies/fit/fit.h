#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/system.h"
#include "models/measured/measured_table.h"

namespace stepcast::studies {

struct FitDataOptions {
  /// Hardware facts of the device (inside) and of the fabric around it, and what is fitted already.
  System base;
  bool collectives = false;  ///< fit them too, to rows taken on the system `base`
  /// Keeps rows of this framework (or one that begins so) where an op kind was measured on several.
  std::string framework;
  std::string date;               ///< written into every model's source
  std::size_t max_points = 1000;  ///< residual points kept per model; 0: constants only
  std::size_t max_rows = 1000;    ///< rows the search of constants looks at
  std::int64_t folds = 4;         ///< of the held-out error
};

/// One fitted model, for the report.
struct FittedLine {
  std::string key;        ///< in the fitted models of the device or system
  std::string framework;  ///< of its rows; several where they were taken in different places
  std::int64_t used = 0, skipped = 0;
  FittedModel model;  ///< its error is that of held-out configurations
};

/// A row that was not used, as people read it.
struct SkippedRow {
  std::string place, reason;
};

struct FitDataResult {
  System system;  ///< the base with the fitted models put in place of those of the same rows
  std::vector<FittedLine> kernels, collectives;
  std::vector<SkippedRow> skipped;    ///< rows that cannot be right or cannot be used
  std::int64_t other_devices = 0;     ///< rows taken on another device
  std::int64_t stand_ins = 0;         ///< rows of kernels that only stand in for an op kind
  std::int64_t other_frameworks = 0;  ///< rows of a framework that was not asked for
  std::vector<models::MeasuredTable::File> files;  ///< those with rows used
};

/// Fits the models of one device, and of one system's collectives, to measured rows: robust
/// constants, residual points, valid range, error on held-out configurations (models/fit/fit.h),
/// and into every model's source what the rows were taken from, the framework and the date. A
/// fitted model replaces those of the base that were more specific for the same rows; others stay.
/// Deterministic.
/// Errors: InputError when no row was measured on that device or system, or when rows of one op
/// kind and format come from several frameworks and none is chosen: each framework has its own
/// kernels, and a mixture is a model of neither.
FitDataResult fit_data(const models::MeasuredTable& table, const FitDataOptions& options);

}  // namespace stepcast::studies
