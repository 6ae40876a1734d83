#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "core/error.h"
#include "models/collectives/collective_form.h"
#include "models/cost_model.h"
#include "models/fit/fit.h"
#include "models/fit/points.h"
#include "models/kernels/transfer.h"
#include "validation/models.h"

namespace stepcast::validation {
namespace {

using models::CostModel;
using models::MeasuredCollective;
using models::MeasuredTable;
using Indices = std::vector<std::uint32_t>;

/// Rows that are fitted together: of one system and stack. Only those of `own` are scored; the
/// others were taken inside one machine of the same device.
struct Unit {
  std::string system, framework, variant;
  Indices own, others;
};

class CollectiveValidation {
 public:
  CollectiveValidation(const MeasuredTable& table, const ModelFacts& facts,
                       const ValidateModelsOptions& options)
      : table_(table), facts_(facts), options_(options) {}

  Suite run() {
    result_.name = "collectives";
    find_units();
    for (const Unit& unit : units_) {
      const auto system = facts_.systems.find(unit.system);
      if (system == facts_.systems.end()) {
        for (const std::uint32_t i : unit.own) {
          group_of(i).skip(id_of(i), row(i).time.base(), "no system of this name; give --system");
        }
        continue;
      }
      score_unit(unit, system->second);
    }
    add_machine_summaries();
    for (auto& [key, group] : groups_) {
      add_group(std::move(group), options_, result_);
    }
    close_suite(options_, result_);
    return std::move(result_);
  }

 private:
  [[nodiscard]] const MeasuredTable::CollectiveRow& row(std::uint32_t i) const {
    return table_.collectives[i];
  }
  [[nodiscard]] static bool across(const MeasuredTable::CollectiveRow& r) {
    return r.ranks > r.ranks_per_machine;
  }

  /// All kinds and formats measured inside one machine, by system and stack.
  void add_machine_summaries() {
    std::map<std::pair<std::string, std::string>, std::vector<const ScoredGroup*>> machines;
    for (const auto& [key, group] : groups_) {
      if (!key.across_machines && key.variant.empty()) {
        machines[{key.device, key.framework}].push_back(&group);
      }
    }
    for (const auto& [where, groups] : machines) {
      add_summary(fmt::format("one machine, all kinds / {} / {}{}", where.first, where.second,
                              groups.front()->note),
                  groups, bar_of_machine(where.second, options_), result_);
    }
  }

  void find_units() {
    std::map<std::tuple<std::string, std::string, std::string>, Unit> units;
    for (std::uint32_t i = 0; i < table_.collectives.size(); ++i) {
      const models::Testbed& t = table_.testbed(row(i).origin);
      if ((options_.device.empty() || options_.device == t.device) &&
          t.framework.rfind(options_.framework, 0) == 0) {
        Unit& unit = units[{t.system, t.framework, t.variant}];
        unit.system = t.system;
        unit.framework = t.framework;
        unit.variant = t.variant;
        unit.own.push_back(i);
      }
    }
    for (auto& [key, unit] : units) {
      const bool several = std::any_of(unit.own.begin(), unit.own.end(),
                                       [this](std::uint32_t i) { return across(row(i)); });
      const auto facts = facts_.systems.find(unit.system);
      if (several && facts != facts_.systems.end() && unit.framework.rfind("nccl", 0) == 0) {
        for (const std::uint32_t i : models::find_collectives(table_, facts->second)) {
          const models::Testbed& t = table_.testbed(row(i).origin);
          if (t.framework.rfind("nccl", 0) == 0 && t.system != unit.system) {
            unit.others.push_back(i);
          }
        }
      }
      units_.push_back(std::move(unit));
    }
  }

  [[nodiscard]] std::string id_of(std::uint32_t i) const {
    const MeasuredTable::CollectiveRow& r = row(i);
    return fmt::format("{} {:.0f} B {} ranks{} {} @ {}", name_of(r.kind), r.bytes, r.ranks,
                       across(r) ? fmt::format(", {} per machine", r.ranks_per_machine) : "",
                       name_of(r.format), table_.place(r.origin));
  }

  ScoredGroup& group_of(std::uint32_t i) {
    const MeasuredTable::CollectiveRow& r = row(i);
    const models::Testbed& t = table_.testbed(r.origin);
    const GroupKey key{r.kind,    r.format, std::string(name_of(r.kind)), t.system, t.framework,
                       t.variant, across(r)};
    ScoredGroup& group = groups_[key];
    group.key = key;
    return group;
  }

  /// Sets of rows held out together, by row of the unit: a fold, or -1 for rows that are always
  /// fitted.
  [[nodiscard]] std::vector<std::int64_t> folds(const Indices& own) const {
    std::vector<std::int64_t> fold(own.size(), -1);
    if (options_.holdout == Holdout::kRanks) {
      std::set<std::int64_t> counts;
      for (const std::uint32_t i : own) {
        counts.insert(row(i).ranks);
      }
      for (std::size_t r = 0; r < own.size(); ++r) {
        const std::int64_t n = row(own[r]).ranks;
        fold[r] = n > *counts.begin() && n < *counts.rbegin() ? n : -1;
      }
      return fold;
    }
    if (options_.holdout == Holdout::kRows) {
      return models::folds_of(fold, options_.folds);
    }
    // Every other size of each curve: its neighbours on both sides stay.
    std::map<std::tuple<OpKind, Format, std::int64_t, std::int64_t, std::uint32_t>,
             std::set<double>>
        sizes;
    const auto curve = [this](std::uint32_t i) {
      const MeasuredTable::CollectiveRow& c = row(i);
      return std::tuple(c.kind, c.format, c.ranks, c.ranks_per_machine, c.origin.testbed);
    };
    for (const std::uint32_t i : own) {
      sizes[curve(i)].insert(row(i).bytes);
    }
    for (std::size_t r = 0; r < own.size(); ++r) {
      const std::set<double>& of = sizes[curve(own[r])];
      fold[r] = std::distance(of.begin(), of.find(row(own[r]).bytes)) % 2;
    }
    return fold;
  }

  [[nodiscard]] models::FitOptions fit_options() const {
    models::FitOptions fit;
    fit.folds = 1;
    fit.max_rows = options_.max_rows;
    fit.max_points = options_.form_only ? 0 : options_.max_points;
    return fit;
  }

  [[nodiscard]] FittedModels fit(const System& system, const Indices& rows) const {
    return models::fit_collectives(
        system, models::measured_collectives(table_, system, rows),
        system.host.shares_core ? "collective.knee" : "collective.fabric", fit_options());
  }

  [[nodiscard]] static CostModel cost_of(System system, FittedModels fitted) {
    system.fitted = std::move(fitted);
    return {system, {}};
  }

  void score_unit(const Unit& unit, const System& system) {
    Indices own;
    const auto measured = models::measured_collectives(table_, system, unit.own);
    for (std::size_t r = 0; r < unit.own.size(); ++r) {
      const std::string reason = models::impossible_on(system, measured[r]);
      if (reason.empty()) {
        own.push_back(unit.own[r]);
      } else {
        group_of(unit.own[r]).skip(id_of(unit.own[r]), measured[r].time.base(), reason);
      }
    }
    if (options_.holdout == Holdout::kDevice) {
      transfer(unit, own, system);
      return;
    }
    const std::vector<std::int64_t> fold = folds(own);
    const std::set<std::int64_t> all(fold.begin(), fold.end());
    for (const std::int64_t held : all) {
      if (held < 0) {
        continue;
      }
      Indices kept = unit.others;
      Indices out;
      for (std::size_t r = 0; r < own.size(); ++r) {
        (fold[r] == held ? out : kept).push_back(own[r]);
      }
      score(out, system, cost_of(system, fit(system, kept)));
    }
    for (std::size_t r = 0; r < own.size(); ++r) {
      if (fold[r] < 0 && all.size() == 1) {
        group_of(own[r]).skip(id_of(own[r]), row(own[r]).time.base(),
                              "no rank count between a smaller and a larger one was measured");
      }
    }
  }

  void score(const Indices& rows, const System& system, const CostModel& cost) {
    const CostModel naive = cost_of(system, {});
    const auto measured = models::measured_collectives(table_, system, rows);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const MeasuredCollective& m = measured[r];
      Op op;
      op.kind = m.kind;
      op.format = m.format;
      op.shape[0] = std::llround(m.bytes * 8 / bits_per_element(m.format, 1));
      const models::Prediction p = cost.collective(op, m.group);
      group_of(rows[r]).rows.push_back({.id = id_of(rows[r]),
                                        .measured = m.time.base(),
                                        .predicted = p.time.base(),
                                        .naive = naive.collective(op, m.group).time.base(),
                                        .in_range = p.in_range});
    }
  }

  /// Constants of the other system measured with most of these kinds, by the rule of
  /// models/kernels/transfer.h; no scalar.
  void transfer(const Unit& unit, const Indices& own, const System& system) {
    const Unit* source = nullptr;
    for (const Unit& u : units_) {
      const bool usable = u.system != unit.system && facts_.systems.contains(u.system) &&
                          u.variant == unit.variant &&
                          u.framework.substr(0, 4) == unit.framework.substr(0, 4);
      if (usable && (source == nullptr || u.own.size() > source->own.size())) {
        source = &u;
      }
    }
    if (source == nullptr) {
      for (const std::uint32_t i : own) {
        group_of(i).skip(id_of(i), row(i).time.base(), "no other system has rows of this kind");
      }
      return;
    }
    System from = facts_.systems.at(source->system);
    from.fitted = fit(from, source->own);
    score(own, system, cost_of(system, models::transferred(from, system)));
    for (const std::uint32_t i : own) {
      group_of(i).note = fmt::format(" / constants of {}", source->system);
    }
  }
  const MeasuredTable& table_;
  const ModelFacts& facts_;
  const ValidateModelsOptions& options_;
  std::vector<Unit> units_;
  std::map<GroupKey, ScoredGroup> groups_;
  Suite result_;
};

}  // namespace

Suite validate_collectives(const models::MeasuredTable& table, const ModelFacts& facts,
                           const ValidateModelsOptions& options) {
  if (options.holdout == Holdout::kPairs) {
    throw InputError("--holdout",
                     "pairs applies to kernels; for collectives use sizes, ranks, device or rows");
  }
  return CollectiveValidation(table, facts, options).run();
}

}  // namespace stepcast::validation
