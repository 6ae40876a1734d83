#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "workloads/passes/draft.h"

namespace stepcast::workloads {

/// An op that is written once more, with operands of its own.
struct CopiedOp {
  Op op;
  std::vector<TensorId> in, out;
  std::uint32_t from = 0;  ///< op that it is a copy of
};
CopiedOp copied(const Program& program, std::uint32_t op);

/// Products that the forward pass of a layer keeps if recomputation goes op by op
/// (workloads/passes/recompute.h), and the ops that recompute the rest.
class SavedActivations {
 public:
  /// `instances`: a layer in each forward segment that it stands in. Declares the tensors that the
  /// forward pass keeps of products and sums whose results are temporaries; its rotary op, which
  /// takes the products apart, writes them.
  SavedActivations(Program& program, const DependencyInfo& order,
                   const std::vector<const DependencyInfo::Part*>& instances);
  [[nodiscard]] std::vector<CopiedOp> rest() const;
  /// Values of the layer that stay as they are.
  [[nodiscard]] const std::set<TensorId>& kept() const { return kept_; }

 private:
  struct Choice {
    const DependencyInfo::Product* product = nullptr;
    std::vector<const DependencyInfo::Product::Matrix*> kept, again;
    [[nodiscard]] bool whole() const { return again.empty(); }
  };

  void choose_products();
  void keep_products();
  void keep_attention();
  void keep_sums();
  void keep_exchanges();
  void write_kept(const std::vector<const DependencyInfo::Part*>& instances);
  TensorId declare(const std::string& what, std::int64_t rows, std::int64_t columns,
                   const Tensor& like);
  [[nodiscard]] const Choice* choice_of(std::uint32_t op) const;
  [[nodiscard]] bool is_kept(std::uint32_t op) const;
  [[nodiscard]] CopiedOp narrowed(std::uint32_t op, const Choice& choice) const;
  void join_pieces(std::vector<CopiedOp>& ops) const;
  [[nodiscard]] std::uint32_t name(const std::string& text) const;

  Program& p_;
  const DependencyInfo& order_;
  const DependencyInfo::Part& layer_;
  std::vector<Choice> choices_;
  std::set<TensorId> kept_;                        ///< values
  std::vector<TensorId> beside_;                   ///< declared here
  std::set<std::uint32_t> attention_;              ///< ops of its core
  std::set<std::uint32_t> sums_;                   ///< ops that sum over tensor ranks
  std::set<std::uint32_t> exchanges_;              ///< ops that move copies of tokens
  std::map<std::uint32_t, TensorId> sum_kept_in_;  ///< by the op that reads it: what is kept
};

}  // namespace stepcast::workloads
