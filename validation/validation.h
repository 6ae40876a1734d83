#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "studies/fit/error_statistics.h"

namespace stepcast::validation {

/// One measurement and its prediction. A row that cannot be
/// predicted says why and is counted; it is never dropped.
struct ValidationRow {
  std::string id;
  double measured = 0;   ///< seconds
  double predicted = 0;  ///< seconds; 0 where skipped
  std::optional<std::string> skipped;
  double measured_memory = 0;   ///< bytes on the fullest device; 0 where not measured
  double predicted_memory = 0;  ///< bytes
  /// For published runs, where predicted.
  struct Run {
    std::string source, device, framework, plan, format;
    double hardware = 0;  ///< seconds at the hardware's pace
    bool fits = true;     ///< by our own ledger
  };
  std::optional<Run> run{};
  [[nodiscard]] double error() const { return predicted / measured - 1; }
};

/// Errors of some of the rows under one regime.
struct ValidationGroup {
  std::string name;
  studies::ErrorStatistics errors;
  std::string worst_row;
  std::string baseline;  ///< the naive predictor compared with; empty: none
  double baseline_mean = 0;
  double in_range_share = 0;
  std::optional<double> repeat_noise;  ///< of the measurements themselves
  std::optional<double> kendall_tau;   ///< of the order of plans of one model
  std::optional<double> regret;        ///< of the plan predicted to be the best
  std::optional<studies::ErrorStatistics> memory{};
  /// Share of rows inside the interval said to hold 80 % of them, made without the group's source.
  std::optional<double> covered{};
  std::size_t skipped = 0;  ///< rows of the group that could not be scored
  std::string bound;        ///< the group's own bar; empty: only reported
  bool pass = true;
};

/// What `stepcast validate` prints for one suite.
struct ValidationSuite {
  std::string name;
  std::string bound;
  bool pass = false;
  std::vector<ValidationGroup> groups{};
  std::vector<ValidationRow> rows{};
  std::vector<std::string> notes{};  ///< settings that decide the figures, for the reader
  bool in_bytes = false;             ///< what rows measure; else seconds
};

/// A number above 0 and at most 1e15, the whole of `field`; else 0, and `unusable`, where still
/// empty, says what was found in the column.
double positive_or_say(std::string_view column, std::string_view field, std::string& unusable);

/// Statistics of `rows`, of which none is skipped.
ValidationGroup group_of(std::string name, const std::vector<ValidationRow>& rows);

}  // namespace stepcast::validation
