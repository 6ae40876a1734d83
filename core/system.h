#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/formats.h"
#include "core/framework_traits.h"
#include "core/units.h"

namespace stepcast {

/// Error of a fit on its own rows, as fractions: |predicted / measured - 1|.
struct FitError {
  double median = 0, mean = 0, p90 = 0, worst = 0, bias = 0;
};

/// The fitted constants of one op class on one device or system: data, never numbers in code.
/// `form` names the analytical form the constants belong to (documented in that model's header);
/// constants are in SI base units.
struct FittedModel {
  std::string form;
  std::map<std::string, double> constants;
  /// Residual points for interpolation: `features` in the form's own coordinates, `log_ratio` =
  /// ln(measured / analytical).
  struct Point {
    std::vector<double> features;
    double log_ratio = 0;
  };
  std::vector<Point> points;
  std::map<std::string, std::pair<double, double>> range;  ///< valid range per feature name
  std::int64_t samples = 0;
  FitError error;
  double log_sigma =
      0;               ///< standard deviation of ln(measured / predicted): the source of intervals
  std::string source;  ///< tool, date and rows the fit was made from
};
/// Keyed by op class or kind: "gemm", "embedding_forward", "all_reduce", "host", ...
using FittedModels = std::map<std::string, FittedModel>;

/// A compute device: hardware facts with their source, and fitted constants of kernels where
/// measurements exist.
struct Device {
  std::string name;
  Bytes memory;
  BytesPerSecond bandwidth;
  Bytes l2;  ///< last cache level before memory; 0 unknown
  std::int64_t multiprocessors = 1;
  Seconds launch;  ///< host time to launch one kernel
  double watts = 0;
  std::map<Format, FlopsPerSecond> peak;
  std::string source;
  FittedModels fitted;
  /// Peak of a format; formats without native support run at the next wider one's rate. nullopt if
  /// even fp32 is unknown.
  [[nodiscard]] std::optional<FlopsPerSecond> peak_of(Format f) const;
};

/// One level of the interconnect. Bandwidth is per device and direction, latency one way.
struct FabricLevel {
  std::string name;
  std::int64_t size = 1;  ///< units of the level below that it joins
  BytesPerSecond bandwidth;
  Seconds latency;
  double oversubscription = 1;
  bool in_switch_reduction = false;
  /// How many of the units a job takes in each domain; 0: all. Schedulers give a job the same share
  /// of every domain, so that its groups do not straddle two.
  std::int64_t used = 0;
  [[nodiscard]] std::int64_t taken() const { return used > 0 ? used : size; }
};

/// A memory tier; `capacity` and `bandwidth` are totals over `shared_by` devices. The device's own
/// memory is the tier "hbm".
struct Tier {
  std::string name;
  Bytes capacity;
  BytesPerSecond bandwidth;
  std::int64_t shared_by = 1;
};

struct Host {
  std::int64_t devices = 1;  ///< per machine
  std::int64_t cores = 1;
  /// The host thread and the streams of a rank run on the same core (CPU backend): they never
  /// overlap.
  bool shares_core = false;
  /// Transfers need that core too (memory copies); false where a paced fabric moves the data by
  /// itself.
  bool collectives_hold_core = true;
};

struct System {
  std::string name;
  Device device;
  std::vector<FabricLevel> fabric;  ///< innermost first
  std::vector<Tier> tiers;
  Host host;
  FittedModels fitted;  ///< collectives
  FrameworkTraits framework;
  /// Devices of a job inside one unit of level `i`: product of what it takes up to it.
  [[nodiscard]] std::int64_t devices_in_level(std::size_t i) const;
  /// Devices inside one unit of the level of that name; "node" is a machine. nullopt: no such
  /// level.
  [[nodiscard]] std::optional<std::int64_t> devices_in(const std::string& level) const;
};

}  // namespace stepcast
