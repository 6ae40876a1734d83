#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/cost_model.h"
#include "validation/models.h"

namespace stepcast::validation {

/// Median of |time / mean of its repeats - 1| over rows measured more than once: those with the
/// same id up to its place ("shape @ file:line").
std::optional<double> repeat_noise(const std::vector<Row>& rows);
/// The suite's bound, whether it passed, and how many rows were not scored, after the last group.
void close_suite(const ValidateModelsOptions& options, Suite& suite);

/// Scores rows of a table by fits that did not see them. Table says what is fitted together and
/// how, and what a row is called: units, measured, key_of, shape_of, system_of, impossible, folds,
/// fitted, predicted, source_of, transfer and summarise.
template <class Table>
class HeldOut {
 public:
  using Indices = std::vector<std::uint32_t>;
  /// Rows that are fitted together; those of `others` are not scored.
  struct Unit {
    GroupKey key;
    Indices own, others{};
    bool asked = true;
  };
  struct Measurement {
    models::MeasuredTable::Origin origin;
    double seconds = 0;
    double apart = 0;  ///< measured with it and known: in the time of the whole row
  };
  struct Scored {
    std::string note;       ///< added to the group's name: where transferred constants come from
    std::vector<Row> rows;  ///< naive: roofline of hardware facts
  };

  HeldOut(const models::MeasuredTable& table, const ModelFacts& facts,
          const ValidateModelsOptions& options)
      : table_(table), facts_(facts), options_(options) {}

  Suite run() {
    result_.name = Table::kName;
    units_ = self().units();
    for (const Unit& unit : units_) {
      if (unit.asked) {
        score_unit(unit);
      }
    }
    self().summarise();
    for (auto& [key, group] : groups_) {
      add(key.name() + group.note, group.rows, bar_of(key, options_));
      std::move(group.rows.begin(), group.rows.end(), std::back_inserter(result_.rows));
    }
    close_suite(options_, result_);
    return std::move(result_);
  }

 protected:
  [[nodiscard]] models::FitOptions fit_options(std::size_t points) const {
    models::FitOptions fit;
    fit.folds = 1;
    fit.max_points = options_.form_only ? 0 : points;
    return fit;
  }

  Group& add(const std::string& name, const std::vector<Row>& rows, const std::optional<Bar>& bar) {
    Group g = group_of(name, rows, "roofline of hardware facts");
    g.repeat_noise = repeat_noise(rows);
    if (g.errors.n == 0) {
      g.baseline.clear();
    }
    if (bar) {
      g.hold_to(*bar);
    }
    return result_.groups.emplace_back(std::move(g));
  }

  Indices possible(const Indices& rows, const System& system, bool say = false) {
    Indices kept;
    for (const std::uint32_t row : rows) {
      const std::string reason = self().impossible(row, system);
      if (reason.empty()) {
        kept.push_back(row);
      } else if (say) {
        skip(row, reason);
      }
    }
    return kept;
  }

  void score(std::uint32_t row, const models::CostModel& cost, double factor = 1) {
    const Measurement m = self().measured(row);
    const models::Prediction p = self().predicted(row, cost);
    groups_[self().key_of(row)].rows.push_back(
        {.id = id_of(row),
         .measured = m.seconds + m.apart,
         .predicted = p.time.base() * factor + m.apart,
         .naive = self().predicted(row, *naive_).time.base() + m.apart,
         .in_range = p.in_range});
  }

  const models::MeasuredTable& table_;
  const ModelFacts& facts_;
  const ValidateModelsOptions& options_;
  std::vector<Unit> units_;
  std::optional<System> system_;  ///< of the unit that is scored, nothing fitted
  std::optional<models::CostModel> naive_;
  std::map<GroupKey, Scored> groups_;
  Suite result_;

 private:
  Table& self() { return static_cast<Table&>(*this); }
  std::string id_of(std::uint32_t row) {
    return fmt::format("{} @ {}", self().shape_of(row), table_.place(self().measured(row).origin));
  }
  void skip(std::uint32_t row, std::string reason) {
    groups_[self().key_of(row)].rows.push_back(
        {id_of(row), self().measured(row).seconds, 0, std::move(reason)});
  }

  void score_unit(const Unit& unit) {
    system_ = self().system_of(unit.key);
    if (!system_) {
      for (const std::uint32_t row : unit.own) {
        skip(row, Table::kUnknown);
      }
      return;
    }
    naive_.emplace(*system_, Calibration{});
    const Indices rows = possible(unit.own, *system_, true);
    if (options_.holdout != Holdout::kDevice) {
      return hold_out(unit, rows);
    }
    const Unit* source = self().source_of(unit);
    for (const std::uint32_t row : source == nullptr ? rows : unit.own) {
      if (source == nullptr) {
        skip(row, Table::kNoSource);
      } else {
        groups_[self().key_of(row)].note = " / constants of " + source->key.device;
      }
    }
    if (source != nullptr) {
      self().transfer(*source, rows);
    }
  }

  void hold_out(const Unit& unit, const Indices& rows) {
    const std::vector<std::int64_t> fold = self().folds(rows);
    const std::set<std::int64_t> all(fold.begin(), fold.end());
    for (const std::int64_t held : all) {
      Indices kept = unit.others;
      Indices out;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        (fold[r] == held ? out : kept).push_back(rows[r]);
      }
      const bool enough = kept.size() >= Table::kFewest;
      std::optional<models::CostModel> cost;
      if (held >= 0 && enough) {
        cost.emplace(self().fitted(*system_, kept, fit_options(options_.max_points)),
                     Calibration{});
      }
      for (const std::uint32_t row : out) {
        if (cost) {
          score(row, *cost);
        } else if (held >= 0) {
          skip(row, fmt::format("fewer than {} rows are left to fit", Table::kFewest));
        } else if (all.size() == 1) {
          skip(row, "no rank count between a smaller and a larger one was measured");
        }
      }
    }
  }
};

}  // namespace stepcast::validation
