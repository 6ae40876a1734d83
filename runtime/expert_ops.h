#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/graph/program.h"

namespace stepcast::runtime {

/// The ops on copies of routed tokens (workloads/transformer/moe.cpp), each with the function of a
/// backend that executes it. They work on the rows that the draw of the micro-batch gives, which
/// tensors have room for. Operands (inputs -> outputs):
///   route_forward      logits -> probabilities: softmax over all experts; draws who goes where
///   route_backward     logits, probabilities, gradient of the weights -> gradient of the logits,
///   in
///                      place
///   dispatch_forward   rows, probabilities -> copies; or copies -> the same in another order
///   dispatch_backward  gradients of the copies, probabilities -> gradient of the rows
///   combine_forward    copies, probabilities -> rows: sum of probability * copy
///   combine_backward   gradient of the rows, copies, probabilities -> gradients of the copies, of
///                      the probabilities of the chosen experts (0 elsewhere)
///   grouped_gemm, activation_*  as elsewhere, for each expert held here and for its rows
///   exchange           all-to-all of copies, as many as each member has
///   gather_copies, sum_gathered  all-gather and reduce-scatter of copies over tensor ranks
template <class Function>
struct ExpertFunctions {
  Function route_forward, route_backward;
  Function dispatch_forward, dispatch_backward;
  Function combine_forward, combine_backward;
  Function grouped_gemm, activation_forward, activation_backward;
  Function exchange, gather_copies, sum_gathered;

  /// As an OpFamily lists them.
  [[nodiscard]] std::vector<std::pair<OpKind, Function>> by_kind() const {
    return {{OpKind::kRouteForward, route_forward},
            {OpKind::kRouteBackward, route_backward},
            {OpKind::kDispatchForward, dispatch_forward},
            {OpKind::kDispatchBackward, dispatch_backward},
            {OpKind::kCombineForward, combine_forward},
            {OpKind::kCombineBackward, combine_backward},
            {OpKind::kGemm, grouped_gemm},
            {OpKind::kActivationForward, activation_forward},
            {OpKind::kActivationBackward, activation_backward},
            {OpKind::kAllToAll, exchange},
            {OpKind::kAllToAllV, exchange},
            {OpKind::kAllGather, gather_copies},
            {OpKind::kReduceScatter, sum_gathered}};
  }
};

inline const ExpertRouting& routing_of(const Program& program, const Op& op) {
  return program.routings.at(static_cast<std::size_t>(op.routing));
}

/// What a backend keeps of each layer for each micro-batch; the parts of a layer share it.
template <class Layer>
class ExpertLayers {
 public:
  /// make(routing) -> std::unique_ptr<Layer>.
  template <class Make>
  ExpertLayers(const Program& program, Make make) {
    for (const ExpertRouting& routing : program.routings) {
      if (routing.part == 0) {
        first_.push_back(all.size());
        for (std::int32_t m = 0; m < program.microbatches; ++m) {
          all.push_back(make(routing));
        }
      } else {
        first_.push_back(first_.back());
      }
    }
  }
  [[nodiscard]] Layer& of(const Op& op, std::int32_t microbatch) const {
    return *all.at(first_.at(static_cast<std::size_t>(op.routing)) +
                   static_cast<std::size_t>(microbatch));
  }

  std::vector<std::unique_ptr<Layer>> all;

 private:
  std::vector<std::size_t> first_;  ///< by routing: of its layer's among all
};

}  // namespace stepcast::runtime
