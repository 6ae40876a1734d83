#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/graph/program.h"

namespace stepcast::runtime::cuda {

/// Which fp8 copies the quantising casts of a step make, which products read them, and where they
/// stand. A cast serves every product that reads its values before they change; of its two layouts
/// (rows as they are, and columns as rows, for products that sum over the rows) it makes those that
/// are read. Memory is given to a copy from its cast to its last product, then to others.
///
/// A product's operand without a copy is quantised by the product itself: where its values changed
/// since they were cast, on another stream, or where the cast's format is not the operand's.
struct QuantisedPlan {
  static constexpr std::int32_t kNone = -1;
  /// A layout: `rows` rows of `pitch` bytes, zeros behind the last element.
  struct Copy {
    std::int64_t rows = 0, pitch = 0;
    std::size_t offset = 0;  ///< into the memory of all copies
    std::int32_t cast = 0;   ///< into `casts`
  };
  struct Cast {
    bool gradient = false;                       ///< e5m2 instead of e4m3
    std::int32_t plain = kNone, turned = kNone;  ///< into `copies`
    std::size_t scales = 0;                      ///< offset of kQuantiseWorkspace bytes
  };
  /// By issue: of a cast its number, of a product the copies of A and B.
  struct Use {
    std::int32_t cast = kNone;
    std::int32_t a = kNone, b = kNone;
  };
  std::vector<Copy> copies;
  std::vector<Cast> casts;   ///< those that a product reads
  std::vector<Use> uses;     ///< one per issue
  std::size_t in_graph = 0;  ///< offsets below it are in the graph's own buffer for copies
  std::size_t bytes = 0;     ///< of all copies and scales, those included
};

/// An op of the step, in the order in which the host issues them.
struct IssuedOp {
  const Op* op = nullptr;
  std::int32_t microbatch = 0;
};
/// Place of a tensor: its address and its bytes.
using TensorPlace =
    std::function<std::pair<std::uintptr_t, std::size_t>(TensorId, std::int32_t microbatch)>;

/// `in_graph`: bytes of the buffer that the graph keeps for copies; no copy straddles its end.
QuantisedPlan quantised_plan(const Program& program, const std::vector<IssuedOp>& issues,
                             const TensorPlace& place, std::size_t in_graph = 0);

/// The graph's buffer for copies, where it has one: fp8 memory that no op names.
std::optional<TensorId> quantised_buffer(const Program& program);

}  // namespace stepcast::runtime::cuda
