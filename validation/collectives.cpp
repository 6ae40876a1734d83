#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "core/error.h"
#include "models/fit/fit.h"
#include "models/fit/points.h"
#include "models/kernels/transfer.h"
#include "validation/held_out.h"

namespace stepcast::validation {
namespace {

struct Collectives : HeldOut<Collectives> {
  using HeldOut::HeldOut;
  static constexpr const char* kName = "collectives";
  static constexpr const char* kUnknown = "no system of this name; give --system";
  static constexpr const char* kNoSource = "no other system has rows of this kind";
  static constexpr std::size_t kFewest = 0;

  using CollectiveRow = models::MeasuredTable::CollectiveRow;
  const CollectiveRow& row(std::uint32_t i) const { return table_.collectives[i]; }
  bool across(std::uint32_t i) const { return row(i).ranks > row(i).ranks_per_machine; }
  models::MeasuredCollective as_fitted(std::uint32_t i, const System& system) const {
    return models::measured_collectives(table_, system, {&i, 1}).front();
  }

  /// Rows of one system and framework; beside them those inside one machine of the same device.
  std::vector<Unit> units() const {
    std::map<std::tuple<std::string, std::string, std::string>, Unit> units;
    for (std::uint32_t i = 0; i < table_.collectives.size(); ++i) {
      const GroupKey key = key_of(i);
      if ((options_.device.empty() || options_.device == table_.testbed(row(i).origin).device) &&
          key.framework.starts_with(options_.framework)) {
        Unit& unit = units[{key.device, key.framework, key.variant}];
        unit.key = key;
        unit.own.push_back(i);
      }
    }
    std::vector<Unit> all;
    for (auto& [key, unit] : units) {
      const bool several = std::any_of(unit.own.begin(), unit.own.end(),
                                       [this](std::uint32_t i) { return across(i); });
      const auto facts = facts_.systems.find(unit.key.device);
      if (several && facts != facts_.systems.end() && unit.key.framework.starts_with("nccl")) {
        for (const std::uint32_t i : models::find_collectives(table_, facts->second)) {
          const models::Testbed& t = table_.testbed(row(i).origin);
          if (t.framework.starts_with("nccl") && t.system != unit.key.device) {
            unit.others.push_back(i);
          }
        }
      }
      all.push_back(std::move(unit));
    }
    return all;
  }

  Measurement measured(std::uint32_t i) const { return {row(i).origin, row(i).time.base()}; }

  GroupKey key_of(std::uint32_t i) const {
    const models::Testbed& t = table_.testbed(row(i).origin);
    return {row(i).kind, row(i).format, std::string(name_of(row(i).kind)), t.system,
            t.framework, t.variant,     across(i) ? "across machines" : ""};
  }

  std::string shape_of(std::uint32_t i) const {
    const CollectiveRow& r = row(i);
    return fmt::format("{} {:.0f} B {} ranks{} {}", name_of(r.kind), r.bytes, r.ranks,
                       across(i) ? fmt::format(", {} per machine", r.ranks_per_machine) : "",
                       name_of(r.format));
  }

  std::optional<System> system_of(const GroupKey& key) const {
    const auto system = facts_.systems.find(key.device);
    return system == facts_.systems.end() ? std::nullopt : std::optional(system->second);
  }
  std::string impossible(std::uint32_t i, const System& system) const {
    return models::impossible_on(system, as_fitted(i, system));
  }

  std::vector<std::int64_t> folds(const Indices& rows) const {
    std::vector<std::int64_t> fold(rows.size(), -1);
    if (options_.holdout == Holdout::kRows) {
      return models::folds_of(fold, 4);
    }
    // Rank counts between the least and the largest; or every other size of each curve, whose
    // neighbours on both sides stay.
    const bool ranks = options_.holdout == Holdout::kRanks;
    const auto curve = [&](std::uint32_t i) {
      const CollectiveRow& c = row(i);
      return ranks ? std::tuple(OpKind{}, Format{}, std::int64_t{0}, std::int64_t{0}, 0U)
                   : std::tuple(c.kind, c.format, c.ranks, c.ranks_per_machine, c.origin.testbed);
    };
    const auto place = [&](std::uint32_t i) {
      return ranks ? static_cast<double>(row(i).ranks) : row(i).bytes;
    };
    std::map<decltype(curve(0)), std::set<double>> places;
    for (const std::uint32_t i : rows) {
      places[curve(i)].insert(place(i));
    }
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const std::set<double>& of = places[curve(rows[r])];
      const double at = place(rows[r]);
      fold[r] = !ranks                                  ? std::distance(of.begin(), of.find(at)) % 2
                : at > *of.begin() && at < *of.rbegin() ? std::llround(at)
                                                        : -1;
    }
    return fold;
  }

  System fitted(System system, const Indices& rows, const models::FitOptions& options) const {
    system.fitted = models::fit_collectives(
        system, models::measured_collectives(table_, system, rows),
        system.host.shares_core ? "collective.knee" : "collective.fabric", options);
    return system;
  }

  models::Prediction predicted(std::uint32_t i, const models::CostModel& cost) const {
    const models::MeasuredCollective m = as_fitted(i, *system_);
    Op op;
    op.kind = m.kind;
    op.format = m.format;
    op.shape[0] = std::llround(m.bytes * 8 / bits_per_element(m.format, 1));
    return cost.collective(op, m.group);
  }

  /// Constants of the other system measured with most of these kinds; no scalar.
  const Unit* source_of(const Unit& unit) const {
    const Unit* source = nullptr;
    for (const Unit& u : units_) {
      const bool usable = u.key.device != unit.key.device &&
                          facts_.systems.contains(u.key.device) &&
                          u.key.variant == unit.key.variant &&
                          u.key.framework.substr(0, 4) == unit.key.framework.substr(0, 4);
      if (usable && (source == nullptr || u.own.size() > source->own.size())) {
        source = &u;
      }
    }
    return source;
  }

  void transfer(const Unit& source, const Indices& rows) {
    System to = *system_;
    to.fitted = models::transferred(
        fitted(*system_of(source.key), source.own, fit_options(options_.max_points)), to);
    const models::CostModel cost(to, {});
    for (const std::uint32_t i : rows) {
      score(i, cost);
    }
  }

  /// All kinds and formats measured inside one machine, by system and framework.
  void summarise() {
    std::map<std::pair<std::string, std::string>, Scored> machines;
    for (const auto& [key, group] : groups_) {
      if (key.apart.empty() && key.variant.empty()) {
        Scored& all = machines[{key.device, key.framework}];
        all.note = all.rows.empty() ? group.note : all.note;
        all.rows.insert(all.rows.end(), group.rows.begin(), group.rows.end());
      }
    }
    for (const auto& [where, all] : machines) {
      std::optional<Bar> bar;
      if (where.second.starts_with("nccl") && !options_.form_only) {
        bar = options_.holdout == Holdout::kSizes ? std::optional(Bar{.median = 0.035, .p90 = 0.10})
              : options_.holdout == Holdout::kRanks ? std::optional(Bar{.median = 0.08})
                                                    : std::nullopt;
      }
      const Group& summary = add(
          fmt::format("one machine, all kinds / {} / {}{}", where.first, where.second, all.note),
          all.rows, bar);
      result_.groups.back().skipped = 0;  // counted by the groups
      if (summary.errors.n == 0) {
        result_.groups.pop_back();
      }
    }
  }
};

}  // namespace

Suite validate_collectives(const models::MeasuredTable& table, const ModelFacts& facts,
                           const ValidateModelsOptions& options) {
  if (options.holdout == Holdout::kPairs) {
    throw InputError("--holdout",
                     "pairs applies to kernels; for collectives use sizes, ranks, device or rows");
  }
  return Collectives(table, facts, options).run();
}

}  // namespace stepcast::validation
