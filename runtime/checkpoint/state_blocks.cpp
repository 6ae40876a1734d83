#include "runtime/checkpoint/state_blocks.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "runtime/op_operands.h"

namespace stepcast::runtime {
namespace {

/// Elements [first, last) of a parameter and where they begin in the memory of another tensor.
struct Run {
  TensorId parameter = 0;
  std::int64_t first = 0, last = 0, offset = 0;
};

/// State of one rank's program.
class RankState {
 public:
  RankState(const ExecutionGraph& graph, std::int32_t rank, NarrowWeights weights)
      : program_(graph.program_of(rank)),
        place_(place_of(program_, rank, graph.mesh)),
        weights_(weights) {
    for (std::size_t t = 0; t < program_.tensors.size(); ++t) {
      const Tensor& tensor = program_.tensors[t];
      const auto id = static_cast<TensorId>(t);
      if (!tensor.pieces.empty()) {
        const auto [root, offset] = locate(id);
        runs_[root].push_back({id, 0, tensor.elements(), offset});
      }
      const std::int64_t begin = part_of(tensor, place_.data) * tensor.columns;
      for (const Tensor::Source& s : tensor.sources) {
        const std::int64_t first = std::max(begin, s.offset);
        const std::int64_t last =
            std::min(begin + tensor.columns, s.offset + program_.tensors[s.tensor].elements());
        if (first < last) {
          runs_[id].push_back({s.tensor, first - s.offset, last - s.offset, first - begin});
        }
      }
    }
  }

  std::vector<StateBlock> updated() {
    blocks_.clear();
    std::set<TensorId> done;
    for (const Op& op : program_.ops) {
      if (op.kind == OpKind::kOptimizer) {
        for (const ParameterUpdate& u : parameter_updates(program_, op)) {
          add_update(u, done);
        }
      }
    }
    for (const EmbeddingGroup& group : program_.embeddings) {
      for (const EmbeddingShard& shard : group.shards) {
        if (shard.rows > 0 && done.insert(shard.weights).second) {
          add_shard(shard);
        }
      }
    }
    return std::move(blocks_);
  }

  std::vector<StateBlock> held() {
    std::vector<StateBlock> states = updated();
    std::erase_if(states, [this](const StateBlock& b) {
      return b.id.part == 0 && !masters_.contains(b.tensor);
    });
    for (const auto& [root, runs] : runs_) {
      // Gathered parameters come from shards, which have runs of their own.
      for (const Run& run : runs) {
        if (program_.tensors[root].role != TensorRole::kBuffer) {
          add(run.parameter, 0, run.first, run.last, root, run.offset);
        }
      }
    }
    states.insert(states.end(), blocks_.begin(), blocks_.end());
    return states;
  }

 private:
  /// The tensor whose memory a view is in, and its first element there.
  [[nodiscard]] std::pair<TensorId, std::int64_t> locate(TensorId id) const {
    std::int64_t offset = 0;
    while (program_.tensors[id].is_view()) {
      offset += view_begin(program_.tensors[id], place_.data);
      id = static_cast<TensorId>(program_.tensors[id].view_of);
    }
    return {id, offset};
  }

  void add_update(const ParameterUpdate& u, std::set<TensorId>& done) {
    const Tensor& weight = program_.tensors[u.weight];
    const auto [root, begin] = locate(u.weight);
    for (const Run& run : runs_[root]) {
      const std::int64_t from = std::max(begin, run.offset);
      const std::int64_t to =
          std::min(begin + weight.elements(), run.offset + run.last - run.first);
      if (from >= to) {
        continue;
      }
      done.insert(run.parameter);
      const std::int64_t first = run.first + from - run.offset;
      const std::int64_t last = first + to - from;
      if (weights_ == NarrowWeights::kOfMasters && u.master) {
        const auto [memory, offset] = locate(*u.master);
        masters_.insert(memory);
        add(run.parameter, 0, first, last, memory, offset + from - begin);
      } else {
        add(run.parameter, 0, first, last, root, from);
      }
      for (int s = 0; s < u.states; ++s) {
        const TensorId state = s == 0 ? u.first : u.second;
        const auto [memory, offset] = locate(state);
        if (program_.tensors[state].elements() == weight.elements()) {
          add(run.parameter, s + 1, first, last, memory, offset + from - begin);
        } else {
          const std::int64_t columns = program_.tensors[run.parameter].columns;
          STEPCAST_CHECK(columns == weight.columns && first % columns == 0 && last % columns == 0,
                         "'{}' has a state for each row of '{}', which is cut", weight.name,
                         program_.tensors[run.parameter].name);
          add_of_rows(run.parameter, s + 1, first / columns, (last - first) / columns, memory,
                      offset + (from - begin) / columns);
        }
      }
    }
  }

  void add_shard(const EmbeddingShard& shard) {
    const std::int64_t elements = program_.tensors[shard.weights].elements();
    add(shard.weights, 0, 0, elements, shard.weights, 0);
    if (!shard.has_state) {
      return;
    }
    const Tensor& state = program_.tensors[shard.state];
    for (std::int64_t m = 0; m < state.rows / shard.rows; ++m) {
      const std::int64_t offset = m * shard.rows * state.columns;
      if (state.columns == shard.dim) {
        add(shard.weights, m + 1, 0, elements, shard.state, offset);
      } else {
        add_of_rows(shard.weights, m + 1, 0, shard.rows, shard.state, offset);
      }
    }
  }

  /// Elements [first, last) of a parameter, which stand in `memory` from `offset` on: the end of a
  /// row, whole rows, the beginning of one.
  void add(TensorId parameter, std::int64_t part, std::int64_t first, std::int64_t last,
           TensorId memory, std::int64_t offset) {
    const std::int64_t columns = program_.tensors[parameter].columns;
    while (first < last) {
      const std::int64_t column = first % columns;
      const std::int64_t rows =
          column == 0 ? std::max<std::int64_t>(1, (last - first) / columns) : 1;
      const std::int64_t width = std::min(columns - column, last - first);
      add_rectangle(parameter, part, {first / columns, rows, column, width}, memory, offset);
      first += rows * width;
      offset += rows * width;
    }
  }

  struct Rectangle {
    std::int64_t row, rows, column, columns;
  };
  void add_rectangle(TensorId parameter, std::int64_t part, const Rectangle& r, TensorId memory,
                     std::int64_t offset) {
    const Tensor& tensor = program_.tensors[parameter];
    for (const ParameterPiece& of : tensor.pieces) {
      const ParameterPiece piece = piece_on(tensor, of, place_);
      const std::int64_t begin = std::max(r.column, piece.local_column);
      const std::int64_t end = std::min(r.column + r.columns, piece.local_column + piece.columns);
      if (begin < end) {
        blocks_.push_back({.id = {.key = piece.key,
                                  .part = part,
                                  .rows = rows_of(piece, place_.rank),
                                  .first = r.row,
                                  .count = r.rows,
                                  .column = piece.column + begin - piece.local_column,
                                  .columns = end - begin,
                                  .width = end - begin},
                           .tensor = memory,
                           .offset = offset + begin - r.column,
                           .pitch = tensor.columns});
      }
    }
  }

  void add_of_rows(TensorId parameter, std::int64_t part, std::int64_t row, std::int64_t rows,
                   TensorId memory, std::int64_t offset) {
    const Tensor& tensor = program_.tensors[parameter];
    STEPCAST_CHECK(tensor.pieces.size() == 1, "'{}' has a state for each row of {} parameters",
                   tensor.name, tensor.pieces.size());
    const ParameterPiece piece = piece_on(tensor, tensor.pieces.front(), place_);
    blocks_.push_back({.id = {.key = piece.key,
                              .part = part,
                              .rows = rows_of(piece, place_.rank),
                              .first = row,
                              .count = rows,
                              .column = piece.column,
                              .columns = piece.columns,
                              .width = 1},
                       .tensor = memory,
                       .offset = offset,
                       .pitch = 1});
  }

  const Program& program_;
  const RankPlace place_;
  const NarrowWeights weights_;
  std::set<TensorId> masters_;
  std::map<TensorId, std::vector<Run>> runs_;  ///< by tensor with memory of its own
  std::vector<StateBlock> blocks_;
};

}  // namespace

std::vector<StateBlock> updated_state(const ExecutionGraph& graph, std::int32_t rank,
                                      NarrowWeights weights) {
  return RankState(graph, rank, weights).updated();
}

std::vector<StateBlock> held_state(const ExecutionGraph& graph, std::int32_t rank,
                                   NarrowWeights weights) {
  return RankState(graph, rank, weights).held();
}

std::vector<StateBlock> written_state(const ExecutionGraph& graph, std::int32_t rank,
                                      NarrowWeights weights) {
  struct Holders {
    std::int64_t number = 0, before = 0;  ///< all, and those of lower ranks
  };
  std::vector<StateBlock> own = updated_state(graph, rank, weights);
  std::map<StateId, Holders> holders;
  for (const StateBlock& block : own) {
    holders[block.id] = {};
  }
  for (std::int32_t r = 0; r < graph.ranks(); ++r) {
    for (const StateBlock& block : updated_state(graph, r)) {
      if (const auto at = holders.find(block.id); at != holders.end()) {
        ++at->second.number;
        at->second.before += r < rank ? 1 : 0;
      }
    }
  }
  for (StateBlock& block : own) {
    const Holders& of = holders[block.id];
    const std::int64_t first = block.id.count * of.before / of.number;
    const std::int64_t end = block.id.count * (of.before + 1) / of.number;
    block.id.first += first;
    block.id.count = end - first;
    block.offset += first * block.pitch;
  }
  std::erase_if(own, [](const StateBlock& block) { return block.id.count == 0; });
  return own;
}

}  // namespace stepcast::runtime
