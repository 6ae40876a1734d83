#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/graph/op.h"
#include "models/measured/measured_table.h"
#include "validation/suite.h"

namespace stepcast::validation {

/// Part that is left out of a fit and then predicted.
enum class Holdout : std::uint8_t {
  kPairs,   ///< whole configurations: (n, k) of a GEMM, heads and head width of attention, row
            ///< width, (rows, dim) of an embedding
  kSizes,   ///< message sizes of a collective; m, sequence length or rows of a kernel
  kRanks,   ///< rank counts between the smallest and the largest measured
  kDevice,  ///< all rows of the device: constants of another one on its facts, and one scalar
  kRows,    ///< rows at random: flatters whatever interpolates, most have a near neighbour
};
std::optional<Holdout> holdout_named(std::string_view name);

/// Hardware facts by zoo name; rows of a device or system that is not here are skipped and say so.
struct ModelFacts {
  std::map<std::string, Device> devices;
  std::map<std::string, System> systems;
};

struct ValidateModelsOptions {
  Holdout holdout = Holdout::kPairs;
  bool form_only = false;         ///< the analytical form without residual points
  std::string device;             ///< only rows of this device; empty: all
  std::string framework;          ///< only frameworks that begin so; empty: all
  std::size_t max_points = 1000;  ///< residual points per model
  std::int64_t thin = 1;          ///< looks at every n-th configuration only
};

/// Refits every (op kind, format, device, framework, variant) without the held-out part and scores
/// the predictions of the cost model on it. Each group is compared with the roofline of hardware
/// facts. Rows that cannot have been measured on the device, or cannot be predicted, are listed.
///
/// Device holdout: constants of the device with rows of this kind whose bandwidth is nearest,
/// carried over by models/kernels/transfer.h, times exp(median ln(measured / predicted)) over every
/// 16th configuration, scored on the others.
Suite validate_kernels(const models::MeasuredTable& table, const ModelFacts& facts,
                       const ValidateModelsOptions& options);
/// Validates as above, for collectives: all kinds of one system and framework are fitted together,
/// rows of several machines together with those inside one machine of the same device, as `stepcast
/// fit` does.
Suite validate_collectives(const models::MeasuredTable& table, const ModelFacts& facts,
                           const ValidateModelsOptions& options);

/// Properties that the rows of a group have in common.
struct GroupKey {
  OpKind kind = OpKind::kGemm;
  Format format = Format::kFp32;
  std::string model;  ///< most specific key of the fitted models: "activation_forward.gelu"
  std::string device, framework, variant;
  std::string apart{};  ///< "across machines", "over a window": of a part with a score of its own
  auto operator<=>(const GroupKey&) const = default;
  [[nodiscard]] std::string name() const;
};

/// The bars on held-out rows that the project has set itself; nullopt where a group is only
/// reported. Those of collectives inside one machine are on all kinds of a system and framework
/// together.
std::optional<Bar> bar_of(const GroupKey& key, const ValidateModelsOptions& options);

}  // namespace stepcast::validation
