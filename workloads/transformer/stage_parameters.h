#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/job/job.h"
#include "workloads/op_writer.h"

namespace stepcast::workloads {

struct ParameterSpec {
  std::string name;  ///< global: the same whatever the split
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<ParameterPiece> pieces;
  GradientSum sum = GradientSum::kNone;
  Replicas replicas = Replicas::kData;
  std::int64_t unit = kHeadUnit;
  bool of_product = false;    ///< read by products in their format
  std::int64_t matrices = 0;  ///< one below the other; 0: one if it is of a product, else none
  bool apart = false;         ///< its pieces are matrices of their own
  bool whole = false;         ///< none of its matrices is cut over tensor ranks
  std::optional<Format> stored = std::nullopt;  ///< else in that of activations
};

/// Use of a parameter.
struct ParameterUse {
  std::int64_t unit = kHeadUnit;
  bool of_product = false;
  [[nodiscard]] bool in_layer() const { return unit >= 0; }
};

/// The parameters of one pipeline stage of one rank, by name.
class StageParameters {
 public:
  StageParameters(OpWriter& writer, const Job& job) : writer_(writer), job_(job) {}

  /// Declares the parameters of the next chunk, in the order in which its backward pass finishes
  /// their gradients.
  void declare(std::vector<ParameterSpec> chunk);
  [[nodiscard]] const ProgramBuilder::Parameter& at(const std::string& name) const {
    return parameters_.at(name);
  }
  [[nodiscard]] const std::map<std::string, ParameterUse>& uses() const { return uses_; }

 private:
  [[nodiscard]] std::vector<MatrixBlock> matrices_of(const ParameterSpec& spec) const;

  OpWriter& writer_;
  const Job& job_;
  std::unordered_map<std::string, ProgramBuilder::Parameter> parameters_;
  std::map<std::string, ParameterUse> uses_;
};

}  // namespace stepcast::workloads
