#pragma once
#include <string>
#include <vector>

#include "core/graph/step_inputs.h"
#include "runtime/data/batch_source.h"
#include "runtime/data/data_file.h"

namespace stepcast::runtime {

/// Click logs in the Criteo layout: label, 13 integers, 26 hexadecimal categories, separated by
/// tabs, any of them empty. Integers x become log(1 + max(x, 0)); category c of column i becomes
/// row criteo_row(c) of table i, the row that access laws taken from the file know it by. Samples
/// follow the file's order and start over at its end.
/// Errors: InputError naming the line for a wrong label or number of columns, and for workloads
/// that do not have 13 dense features and at most 26 tables.
class CriteoSource final : public BatchSource {
 public:
  CriteoSource(const StepInputs& inputs, SampleRange range, const std::string& file);
  void draw(std::int64_t step, HostBatch& batch) override;

 private:
  void parse(std::size_t line, std::size_t sample, HostBatch& batch) const;

  const StepInputs& inputs_;
  SampleRange range_;
  std::string name_;
  DataFile file_;
  std::vector<std::size_t> lines_;  ///< where each line starts
};

}  // namespace stepcast::runtime
