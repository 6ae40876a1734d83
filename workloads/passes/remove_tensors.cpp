#include "workloads/passes/remove_tensors.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/graph/op.h"
#include "core/graph/program.h"

namespace stepcast::workloads {

void renumber(Tensor& tensor, const std::vector<TensorId>& now) {
  for (std::int32_t* id : {&tensor.view_of, &tensor.next_of, &tensor.master}) {
    *id = *id < 0 ? *id : static_cast<std::int32_t>(now[static_cast<std::size_t>(*id)]);
  }
  for (Tensor::Source& source : tensor.sources) {
    source.tensor = now[source.tensor];
  }
}

void remove_tensors(Program& program, const std::vector<bool>& gone) {
  std::vector<TensorId> now(program.tensors.size());  // of an old id
  std::vector<Tensor> tensors;
  for (TensorId id = 0; id < program.tensors.size(); ++id) {
    now[id] = static_cast<TensorId>(tensors.size());
    if (!gone[id]) {
      tensors.push_back(std::move(program.tensors[id]));
    }
  }
  for (Tensor& t : tensors) {
    renumber(t, now);
  }
  std::vector<TensorId> operands;  // without those of ops that are gone
  for (Op& op : program.ops) {
    const auto* first = program.operands.data() + op.first_operand;
    op.first_operand = static_cast<std::uint32_t>(operands.size());
    std::transform(first, first + op.inputs + op.outputs, std::back_inserter(operands),
                   [&now](TensorId id) { return now[id]; });
  }
  for (EmbeddingGroup& group : program.embeddings) {
    for (EmbeddingShard& shard : group.shards) {
      shard.weights = now[shard.weights];
      shard.state = now[shard.state];
      if (shard.cache) {
        shard.cache->rows = now[shard.cache->rows];
        shard.cache->state = now[shard.cache->state];
      }
    }
  }
  program.operands = std::move(operands);
  program.tensors = std::move(tensors);
}

}  // namespace stepcast::workloads
