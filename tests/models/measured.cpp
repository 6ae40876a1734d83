#include "tests/models/measured.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "core/config/config.h"
#include "models/cost_model.h"
#include "tests/measured_tables.h"

namespace stepcast::models::test {

std::vector<std::uint32_t> find_ops(const MeasuredTable& table, const OpFilter& filter) {
  std::vector<std::uint32_t> found;
  for (std::uint32_t i = 0; i < table.ops.size(); ++i) {
    const Testbed& t = table.testbed(table.ops[i].origin);
    const Op& op = table.op(table.ops[i]);
    if ((filter.device.empty() || filter.device == t.device) &&
        (filter.variant == "*" || filter.variant == t.variant) &&
        op.kind == filter.kind.value_or(op.kind) &&
        op.format == filter.format.value_or(op.format)) {
      found.push_back(i);
    }
  }
  return found;
}

MeasuredRows rows_of(const std::string& file, const OpFilter& filter) {
  const std::filesystem::path path = stepcast::measurements::measured_tables("kernels") / file;
  if (!std::filesystem::exists(path)) {
    WARN(stepcast::measurements::kNoTables);
    return {};
  }
  MeasuredRows rows{read_measured(path), {}};
  rows.ops = measured_ops(rows.table, find_ops(rows.table, filter));
  return rows;
}

Device facts_of(const std::string& device) {
  Device d = config::load_device(device, config::Library{STEPCAST_SOURCE_DIR});
  d.fitted.clear();
  return d;
}

FitError score(const Device& device, const FittedModels& fitted,
               const std::vector<MeasuredOp>& rows) {
  System system;
  system.device = device;
  system.device.fitted = fitted;
  const CostModel cost(system, {});
  std::vector<double> predicted;
  std::vector<double> measured;
  for (const MeasuredOp& row : rows) {
    predicted.push_back(cost.kernel(*row.program, *row.op).time.base());
    measured.push_back(row.time.base());
  }
  return error_of(predicted, measured);
}

void print_error(const std::string& what, const FitError& e) {
  fmt::print("  {:<52} median {:5.1f}  mean {:5.1f}  p90 {:5.1f}  worst {:6.1f}  bias {:+5.1f} %\n",
             what, 100 * e.median, 100 * e.mean, 100 * e.p90, 100 * e.worst, 100 * e.bias);
}

}  // namespace stepcast::models::test
