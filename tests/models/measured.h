#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/graph/program.h"
#include "core/system.h"
#include "models/fit/fit.h"

namespace stepcast::models::test {

/// Rows of a CSV file with a header, plain or gzip; nullopt where the file is absent. Fields hold
/// no commas or quotes.
using Record = std::map<std::string, std::string>;
std::optional<std::vector<Record>> read_csv(const std::string& path);

/// Measured single ops with the program their facts refer to; the program's ops are in row order.
struct MeasuredSet {
  Program program;
  std::vector<Seconds> times;
  std::vector<std::int64_t> configurations;
  void add(Op op, Seconds time, std::int64_t configuration = -1);
  [[nodiscard]] std::vector<MeasuredOp> rows(std::size_t first = 0, std::size_t stride = 1) const;
};

/// Data-sheet facts of the two measured devices (no fitted constants).
Device h100();
Device a100();

/// Error of the cost model of `device` with these fitted models on measured rows.
FitError score(const Device& device, const FittedModels& fitted,
               const std::vector<MeasuredOp>& rows);
void print_constants(const FittedModels& models);

/// Prints one line of an accuracy table: median, mean, p90, worst, bias in percent.
void print_error(const std::string& what, const FitError& error);

}  // namespace stepcast::models::test
