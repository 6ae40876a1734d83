#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/graph/program.h"

namespace stepcast::runtime {

inline const ExpertRouting& routing_of(const Program& program, const Op& op) {
  return program.routings.at(static_cast<std::size_t>(op.routing));
}

/// State that a backend keeps of each layer for each micro-batch; the parts of a layer share it.
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
