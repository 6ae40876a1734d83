#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/program.h"
#include "traces/events/recording.h"

namespace stepcast::studies {

/// Operator of the framework, by its recorded shapes.
struct SeenOp {
  Op op;
  std::optional<EmbeddingGroup> tables;
  bool backward = false;  ///< called by autograd
};

struct SeenCollective {
  OpKind kind = OpKind::kCount;
  std::int64_t bytes = -1;
  std::int32_t size = 0;  ///< ranks of its group; 0: not said
  bool backward = false;
  bool integers = false;  ///< moves indices or lengths
  bool halves = false;    ///< of two bytes each
  std::size_t after = 0;  ///< ops seen before it
};

/// The operators one rank called in its last step, in order. If a call consists of others with
/// a shape of their own the inner ones count; for attention and embedding lookups the outer.
struct SeenRank {
  std::int32_t rank = 0;
  std::vector<SeenOp> ops;
  std::vector<SeenCollective> collectives;
  std::string optimizer;  ///< the class of torch.optim that stepped: "Adagrad"; empty: none did
};

/// For timelines and execution graphs. Steps are those of traces/graph/step_marks.h; of a graph
/// without times the operators between its last two optimizer steps.
std::vector<SeenRank> inferred_workload(const traces::Recording& recording, std::string_view mark);

}  // namespace stepcast::studies
