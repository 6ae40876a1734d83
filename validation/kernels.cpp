#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/statistics.h"
#include "models/fit/fit.h"
#include "models/fit/points.h"
#include "models/kernels/kernel_form.h"
#include "models/kernels/transfer.h"
#include "validation/held_out.h"

namespace stepcast::validation {
namespace {

struct Kernels : HeldOut<Kernels> {
  using HeldOut::HeldOut;
  static constexpr const char* kName = "kernels";
  static constexpr const char* kUnknown = "no device of this name; give --device or add its facts";
  static constexpr const char* kNoSource = "no other device has rows of this kind";
  static constexpr std::size_t kFewest = models::kMinimumRows;

  const models::MeasuredTable::OpRow& row(std::uint32_t i) const { return table_.ops[i]; }
  std::int32_t window_of(std::uint32_t i) const {
    return table_.op(row(i)).as<AttentionAttributes>().window;
  }

  std::vector<Unit> units() const {
    std::map<GroupKey, Indices> groups;
    for (std::uint32_t i = 0; i < table_.ops.size(); ++i) {
      if (std::max<std::int64_t>(row(i).configuration, 0) % options_.thin == 0) {
        GroupKey key = key_of(i);
        key.apart.clear();
        groups[key].push_back(i);
      }
    }
    std::vector<Unit> units;
    for (auto& [key, rows] : groups) {
      const bool asked = (options_.device.empty() || options_.device == key.device) &&
                         key.framework.starts_with(options_.framework);
      units.push_back({.key = key, .own = std::move(rows), .asked = asked});
    }
    return units;
  }

  Measurement measured(std::uint32_t i) const {
    return {row(i).origin, row(i).time.base(), row(i).apart.base()};
  }

  /// Rows of attention over a window stand apart: they are fitted together with the others, but
  /// most of their time is elsewhere.
  GroupKey key_of(std::uint32_t i) const {
    const Op& op = table_.op(row(i));
    const models::Testbed& t = table_.testbed(row(i).origin);
    return {op.kind,     op.format, models::fitted_keys(op).front(),        t.device,
            t.framework, t.variant, window_of(i) > 0 ? "over a window" : ""};
  }

  std::string shape_of(std::uint32_t i) const {
    const Op& op = table_.op(row(i));
    const auto last = std::find_if(op.shape.rbegin(), op.shape.rend() - 1,
                                   [](std::int64_t extent) { return extent != 0; });
    return fmt::format("{} {}{}", name_of(op.kind), fmt::join(op.shape.begin(), last.base(), "x"),
                       window_of(i) > 0 ? fmt::format(" window {}", window_of(i)) : "");
  }

  std::optional<System> system_of(const GroupKey& key) const {
    const auto device = facts_.devices.find(key.device);
    if (device == facts_.devices.end()) {
      return std::nullopt;
    }
    System system;
    system.device = device->second;
    system.device.fitted = {};
    return system;
  }
  std::string impossible(std::uint32_t i, const System& system) const {
    return models::impossible_on(system.device, table_.op(row(i)), row(i).time);
  }

  /// Few configurations, or few rows, are left out one by one; rows of a single configuration like
  /// rows at random.
  std::vector<std::int64_t> folds(const Indices& rows) const {
    std::vector<std::int64_t> configurations;
    for (const std::uint32_t i : rows) {
      const Op& op = table_.op(row(i));
      // The extent that tells small from large calls of one kernel.
      const std::int64_t extent = op.shape[class_of(op.kind) == OpClass::kAttention ? 3 : 0];
      configurations.push_back(options_.holdout == Holdout::kSizes   ? extent
                               : options_.holdout == Holdout::kPairs ? row(i).configuration
                                                                     : -1);
    }
    const std::set<std::int64_t> distinct(configurations.begin(), configurations.end());
    constexpr std::size_t kFew = 12;
    constexpr std::int64_t kFolds = 4;
    if (rows.size() <= kFew) {  // one by one: every row that can be kept is needed
      std::iota(configurations.begin(), configurations.end(), std::int64_t{0});
      return configurations;
    }
    if (distinct.size() == 1) {
      configurations.assign(rows.size(), -1);
    } else if (distinct.size() <= kFew) {
      for (std::int64_t& c : configurations) {
        c = std::distance(distinct.begin(), distinct.find(c));
      }
      return configurations;
    }
    return models::folds_of(configurations, kFolds);
  }

  System fitted(System system, const Indices& rows, const models::FitOptions& options) const {
    system.device.fitted =
        models::fit_kernels(system.device, models::measured_ops(table_, rows), options);
    return system;
  }

  models::Prediction predicted(std::uint32_t i, const models::CostModel& cost) const {
    models::Prediction all;
    all.in_range = true;
    for (const Op& op : table_.ops_of(row(i))) {
      const models::Prediction p = cost.kernel(*table_.program, op);
      all.time += p.time;
      all.in_range = all.in_range && p.in_range;
    }
    return all;
  }

  /// The device with rows of this kind whose memory bandwidth is nearest.
  const Unit* source_of(const Unit& unit) const {
    const Unit* nearest = nullptr;
    double least = 0;
    for (const Unit& other : units_) {
      const auto device = facts_.devices.find(other.key.device);
      if (other.key.model != unit.key.model || other.key.variant != unit.key.variant ||
          other.key.device == unit.key.device || device == facts_.devices.end()) {
        continue;
      }
      const double distance =
          std::abs(std::log(device->second.bandwidth / system_->device.bandwidth));
      if (nearest == nullptr || distance < least) {
        nearest = &other;
        least = distance;
      }
    }
    return nearest;
  }

  void summarise() {}

  void transfer(const Unit& source, const Indices& rows) {
    System to = *system_;
    const System from = *system_of(source.key);
    to.device.fitted = models::transferred(
        fitted(from, possible(source.own, from), fit_options(0)).device, to.device);
    const models::CostModel cost(to, {});
    std::vector<std::int64_t> configurations;
    for (const std::uint32_t i : rows) {
      configurations.push_back(row(i).configuration);
    }
    const std::vector<std::int64_t> fold = models::folds_of(configurations, 16);
    std::vector<double> logs;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (fold[r] == 0) {
        logs.push_back(std::log(row(rows[r]).time / predicted(rows[r], cost).time));
      }
    }
    const double scalar = logs.empty() ? 1 : std::exp(median_of(logs));
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (fold[r] != 0 || rows.size() < 16) {
        score(rows[r], cost, scalar);
      }
    }
  }
};

}  // namespace

Suite validate_kernels(const models::MeasuredTable& table, const ModelFacts& facts,
                       const ValidateModelsOptions& options) {
  if (options.holdout == Holdout::kRanks) {
    throw InputError("--holdout",
                     "ranks applies to collectives; for kernels use pairs, sizes, device or rows");
  }
  return Kernels(table, facts, options).run();
}

}  // namespace stepcast::validation
