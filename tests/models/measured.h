#pragma once
#include <string>
#include <vector>

#include "core/system.h"
#include "models/measured/measured_table.h"

namespace stepcast::models::test {

/// Op rows that are wanted; an empty field asks for nothing. Rows of a variant are found only when
/// it is named ("*": any).
struct OpFilter {
  std::string device = {}, variant = {};
  std::optional<OpKind> kind = {};
  std::optional<Format> format = {};
};
/// Indices into table.ops, ascending.
std::vector<std::uint32_t> find_ops(const MeasuredTable& table, const OpFilter& filter);

/// Op rows of a converted table; none, with a warning, where it is absent.
struct MeasuredRows {
  MeasuredTable table;
  std::vector<MeasuredOp> ops;
};
MeasuredRows rows_of(const std::string& file, const OpFilter& filter);

/// Facts of a built-in device, nothing fitted.
Device facts_of(const std::string& device);

/// Error of the cost model of `device` with these fitted models on measured rows.
FitError score(const Device& device, const FittedModels& fitted,
               const std::vector<MeasuredOp>& rows);

/// Prints one line of an accuracy table: median, mean, p90, worst, bias in percent.
void print_error(const std::string& what, const FitError& error);

}  // namespace stepcast::models::test
