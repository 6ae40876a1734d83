#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/measured/measured_table.h"
#include "validation/validation.h"

namespace stepcast::validation {

/// What is left out of a fit and then predicted.
enum class Holdout : std::uint8_t {
  kPairs,   ///< whole configurations: (n, k) of a GEMM, heads and head width of attention, row
            ///< width, (rows, dim) of an embedding
  kSizes,   ///< message sizes of a collective; m, sequence length or rows of a kernel
  kRanks,   ///< rank counts between the smallest and the largest measured
  kDevice,  ///< all rows of the device: constants of another one on its facts, and one scalar
  kRows,    ///< rows at random: flatters whatever interpolates, most have a near neighbour
};
std::optional<Holdout> holdout_named(std::string_view name);
std::string_view name_of(Holdout h);

/// Hardware facts by zoo name; rows of a device or system that is not here are skipped and say so.
struct ModelFacts {
  std::map<std::string, Device> devices;
  std::map<std::string, System> systems;
};

struct ValidateModelsOptions {
  Holdout holdout = Holdout::kPairs;
  bool form_only = false;         ///< the analytical form without residual points
  std::string device;             ///< only rows of this device; empty: all
  std::string stack;              ///< only stacks that begin so; empty: all
  std::size_t max_points = 1000;  ///< residual points per model
  std::size_t max_rows = 3000;    ///< rows the search of constants looks at
  std::int64_t folds = 4;         ///< every row is held out of one of them
  std::int64_t thin = 1;          ///< looks at every n-th configuration only
};

/// Refits every (op kind, format, device, stack, variant) without the held-out part and scores the
/// predictions of the cost model on it. Each group is compared with the roofline of hardware facts.
/// Rows that cannot have been measured on the device, or cannot be predicted, are listed.
///
/// Device holdout: constants of the device with rows of this kind whose bandwidth is nearest,
/// carried over by models/kernels/transfer.h, times exp(median ln(measured / predicted)) over every
/// 16th configuration, scored on the others.
ValidationSuite validate_kernels(const models::MeasuredTable& table, const ModelFacts& facts,
                                 const ValidateModelsOptions& options);
/// As above for collectives: all kinds of one system and stack are fitted together, rows of several
/// machines together with those inside one machine of the same device, as `stepcast fit` does.
ValidationSuite validate_collectives(const models::MeasuredTable& table, const ModelFacts& facts,
                                     const ValidateModelsOptions& options);

}  // namespace stepcast::validation
