#include "runtime/tensor_layout.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/access/row_order.h"
#include "core/error.h"
#include "core/graph/embedding_placement.h"
#include "core/graph/op_traits.h"
#include "core/graph/temporaries.h"
#include "core/split_mix.h"
#include "runtime/initial_value.h"

namespace stepcast::runtime {
namespace {

constexpr std::size_t kLarge = std::size_t{2}
                               << 20;  // a huge page: tensors from here on stand alone

/// One row of hashed values: 32-bit arithmetic only, so that the loop vectorises.
__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3"))) void fill_row(
    std::uint64_t row, std::uint32_t first_column, std::int64_t columns, float scale, float* out) {
  for (std::int64_t j = 0; j < columns; ++j) {
    out[j] = initial_value(row, first_column + static_cast<std::uint32_t>(j), scale);
  }
}

/// Which streams and calls touch a tensor's instances.
struct Use {
  int stream = -1;
  bool shareable = true;
};

std::vector<Use> uses_of(const Program& program) {
  std::vector<Use> uses(program.tensors.size());
  for (const Op& op : program.ops) {
    const auto* first = program.operands.data() + op.first_operand;
    for (const auto* id = first; id != first + op.inputs + op.outputs; ++id) {
      Use& use = uses[*id];
      if (op.kind == OpKind::kSend || (use.stream >= 0 && use.stream != op.stream)) {
        use.shareable = false;
      }
      use.stream = op.stream;
    }
  }
  return uses;
}

/// Life of one microbatch's instance, as positions in the program's calls.
struct Life {
  std::size_t first = SIZE_MAX;
  std::size_t last = 0;
  std::int32_t microbatch = 0;
};

/// Assigns slots so that lives sharing one do not overlap; returns the number of slots.
std::int32_t colour(std::vector<Life>& lives, std::vector<std::int32_t>& slot_of) {
  std::sort(lives.begin(), lives.end(),
            [](const Life& a, const Life& b) { return a.first < b.first; });
  std::vector<std::size_t> busy_until;
  for (const Life& life : lives) {
    std::size_t slot = 0;
    while (slot < busy_until.size() && busy_until[slot] >= life.first) {
      ++slot;
    }
    if (slot == busy_until.size()) {
      busy_until.push_back(0);
    }
    busy_until[slot] = life.last;
    slot_of[static_cast<std::size_t>(life.microbatch)] = static_cast<std::int32_t>(slot);
  }
  return static_cast<std::int32_t>(std::max<std::size_t>(1, busy_until.size()));
}

bool is_buffer_collective(OpKind kind) {
  const CollectiveTraits* c = traits_of(kind).collective;
  return c != nullptr &&
         (c->pattern == CollectivePattern::kRing || c->pattern == CollectivePattern::kRooted);
}

std::size_t rounded(std::size_t bytes, std::size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// The distinct tensors each segment touches.
std::vector<std::vector<TensorId>> touched_by_segment(const Program& program) {
  std::vector<std::vector<TensorId>> touched(program.segments.size());
  for (std::size_t s = 0; s < program.segments.size(); ++s) {
    auto& ids = touched[s];
    for (const Op& op : program.ops_of(program.segments[s])) {
      const auto* first = program.operands.data() + op.first_operand;
      ids.insert(ids.end(), first, first + op.inputs + op.outputs);
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  }
  return touched;
}

struct Slots {
  std::vector<std::int32_t> count;
  std::vector<std::vector<std::int32_t>> of;
};

Slots plan_slots(const Program& program) {
  const auto tensors = program.tensors.size();
  const auto microbatches = static_cast<std::size_t>(std::max(1, program.microbatches));
  Slots slots{std::vector<std::int32_t>(tensors, 1),
              std::vector<std::vector<std::int32_t>>(tensors)};
  const auto touched = touched_by_segment(program);
  const auto uses = uses_of(program);
  std::vector<std::vector<Life>> lives(tensors);
  for (std::size_t c = 0; c < program.calls.size(); ++c) {
    const auto m = static_cast<std::size_t>(program.calls[c].microbatch);
    for (const TensorId id : touched[program.calls[c].segment]) {
      if (!program.tensors[id].per_microbatch) {
        continue;
      }
      lives[id].resize(microbatches);
      lives[id][m].microbatch = static_cast<std::int32_t>(m);
      lives[id][m].first = std::min(lives[id][m].first, c);
      lives[id][m].last = std::max(lives[id][m].last, c);
    }
  }
  for (std::size_t t = 0; t < tensors; ++t) {
    if (!program.tensors[t].per_microbatch) {
      continue;
    }
    slots.of[t].assign(microbatches, 0);
    std::erase_if(lives[t], [](const Life& life) { return life.first == SIZE_MAX; });
    if (uses[t].shareable) {
      slots.count[t] = colour(lives[t], slots.of[t]);
    } else {
      slots.count[t] = static_cast<std::int32_t>(microbatches);
      for (std::size_t m = 0; m < microbatches; ++m) {
        slots.of[t][m] = static_cast<std::int32_t>(m);
      }
    }
  }
  return slots;
}

/// Places the tensors of one program, region by region.
class Placement {
 public:
  Placement(const Program& program, const StorageRules& rules, TensorLayout& layout)
      : program_(program), rules_(rules), layout_(layout), slots_(plan_slots(program)) {
    layout_.slot_of = std::move(slots_.of);
    layout_.instances.resize(program.tensors.size());
  }

  void place() {
    for (const Op& op : program_.ops) {
      if (is_buffer_collective(op.kind)) {
        for (const auto ids : {program_.inputs(op), program_.outputs(op)}) {
          if (ids.size() > 1) {
            side_by_side(ids);
          }
        }
      }
    }
    place_temporaries();
    const std::size_t shared = layout_.regions.size();
    std::size_t small = 0;
    for (std::size_t t = 0; t < program_.tensors.size(); ++t) {
      const Tensor& tensor = program_.tensors[t];
      if (tensor.is_view() || !layout_.instances[t].empty()) {
        continue;
      }
      const std::size_t size = rounded(bytes_of(tensor), rules_.alignment);
      for (std::int32_t s = 0; s < slots_.count[t]; ++s) {
        if (tensor.tier == 0) {
          count(tensor, size);
        }
        if (size < kLarge && tensor.tier == 0) {
          layout_.instances[t].push_back({shared, small});
          small += size;
        } else {
          large_.push_back({t, size});
          layout_.instances[t].push_back({});  // set below
        }
      }
    }
    if (small > 0) {
      layout_.regions.push_back(small);
    }
    std::vector<std::size_t> next(program_.tensors.size(), 0);
    layout_.tier_of.assign(layout_.regions.size(), 0);
    for (const auto& [t, size] : large_) {
      layout_.instances[t][next[t]++] = {layout_.regions.size(), 0};
      layout_.regions.push_back(std::max(size, rules_.alignment));
      layout_.tier_of.push_back(program_.tensors[t].tier);
    }
  }

  void place_views(std::int32_t data_coordinate) {
    for (std::size_t t = 0; t < program_.tensors.size(); ++t) {
      const Tensor& tensor = program_.tensors[t];
      if (!tensor.is_view()) {
        continue;
      }
      const auto of = static_cast<std::size_t>(tensor.view_of);
      STEPCAST_CHECK(
          rules_.element_bytes(tensor.format) == rules_.element_bytes(program_.tensors[of].format),
          "'{}' is {}, but a view of '{}', which is {}", tensor.name, name_of(tensor.format),
          program_.tensors[of].name, name_of(program_.tensors[of].format));
      TensorLayout::Place place = layout_.instances[of].front();
      place.offset += static_cast<std::size_t>(view_begin(tensor, data_coordinate)) *
                      rules_.element_bytes(tensor.format);
      layout_.instances[t] = {place};
    }
  }

 private:
  [[nodiscard]] std::size_t bytes_of(const Tensor& t) const {
    return static_cast<std::size_t>(t.elements()) * rules_.element_bytes(t.format);
  }
  void count(const Tensor& t, std::size_t bytes) {
    layout_.by_role.at(static_cast<std::size_t>(t.role)) += static_cast<double>(bytes);
  }
  void side_by_side(std::span<const TensorId> ids) {
    std::size_t total = 0;
    for (const TensorId id : ids) {
      const Tensor& t = program_.tensors[id];
      // One copy each, not placed yet, not named twice: else the collective packs instead.
      if (slots_.count[id] != 1 || t.per_microbatch || t.is_view() ||
          !layout_.instances[id].empty() || std::count(ids.begin(), ids.end(), id) != 1) {
        return;
      }
      total += bytes_of(t);
    }
    std::size_t next = 0;
    for (const TensorId id : ids) {
      layout_.instances[id] = {{layout_.regions.size(), next}};
      next += bytes_of(program_.tensors[id]);
      count(program_.tensors[id], bytes_of(program_.tensors[id]));
    }
    layout_.regions.push_back(std::max(rules_.alignment, rounded(total, rules_.alignment)));
  }

  /// In one region, those that live at once apart: the largest first, each at the lowest place that
  /// is free.
  void place_temporaries() {
    const Temporaries temporaries(program_);
    struct Held {
      TensorId id = 0;
      std::size_t size = 0;
      std::set<TensorId> together;  ///< with it at some op
    };
    std::map<TensorId, Held> held;
    for (const Segment& segment : program_.segments) {
      std::vector<Temporaries::Life> open;
      for (const Temporaries::Life& life : temporaries.lives_in(segment)) {
        if (!layout_.instances[life.tensor].empty()) {
          continue;
        }
        std::erase_if(open, [&](const Temporaries::Life& l) { return l.last < life.first; });
        Held& h = held[life.tensor];
        h.id = life.tensor;
        for (const Temporaries::Life& l : open) {
          h.together.insert(l.tensor);
          held[l.tensor].together.insert(life.tensor);
        }
        open.push_back(life);
      }
    }
    std::vector<Held*> order;
    for (auto& [id, h] : held) {
      h.size = rounded(bytes_of(program_.tensors[id]), rules_.alignment);
      order.push_back(&h);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const Held* a, const Held* b) { return a->size > b->size; });
    std::size_t region = 0;
    for (const Held* h : order) {
      std::vector<std::pair<std::size_t, std::size_t>> taken;  // begin, end
      for (const TensorId other : h->together) {
        for (const TensorLayout::Place& p : layout_.instances[other]) {
          taken.emplace_back(p.offset, p.offset + held.at(other).size);
        }
      }
      std::sort(taken.begin(), taken.end());
      std::size_t at = 0;
      for (const auto& [begin, end] : taken) {
        if (at + h->size <= begin) {
          break;
        }
        at = std::max(at, end);
      }
      layout_.instances[h->id] = {{layout_.regions.size(), at}};
      region = std::max(region, at + h->size);
    }
    if (region > 0) {
      layout_.by_role.at(static_cast<std::size_t>(TensorRole::kActivation)) +=
          static_cast<double>(region);
      layout_.regions.push_back(region);
    }
  }

  const Program& program_;
  const StorageRules& rules_;
  TensorLayout& layout_;
  Slots slots_;
  std::vector<std::pair<std::size_t, std::size_t>> large_;  ///< tensor, bytes
};

}  // namespace

Bytes TensorLayout::bytes(std::uint8_t tier) const {
  Bytes sum;
  for (std::size_t r = 0; r < regions.size(); ++r) {
    sum += tier_of[r] == tier ? Bytes(static_cast<double>(regions[r])) : Bytes{};
  }
  return sum;
}

std::int64_t part_of(const Tensor& tensor, std::int32_t data_coordinate) {
  const std::int64_t place = data_coordinate / tensor.data_ranks;
  return tensor.data_parts > 0 ? place % tensor.data_parts : place;
}

std::int64_t view_begin(const Tensor& view, std::int32_t data_coordinate) {
  return view.view_offset + part_of(view, data_coordinate) * view.view_data_step;
}

TensorLayout tensor_layout(const Program& program, std::int32_t data_coordinate,
                           const StorageRules& rules) {
  TensorLayout layout;
  Placement placement(program, rules, layout);
  placement.place();
  placement.place_views(data_coordinate);
  return layout;
}

TensorTable::TensorTable(const Program& program, const TensorLayout& layout,
                         const std::vector<std::byte*>& regions)
    : by_microbatch_(program.tensors.size()),
      tables_(program.tensors.size()),
      per_microbatch_(program.tensors.size()) {
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    per_microbatch_[t] = program.tensors[t].per_microbatch;
    const auto address = [&](std::size_t slot) {
      const TensorLayout::Place& place = layout.instances[t].at(slot);
      // A tensor without elements may stand where no region is.
      return place.region < regions.size() ? regions[place.region] + place.offset : nullptr;
    };
    if (layout.slot_of[t].empty()) {
      by_microbatch_[t] = {address(0)};
    }
    for (const std::int32_t slot : layout.slot_of[t]) {
      by_microbatch_[t].push_back(address(static_cast<std::size_t>(slot)));
    }
    tables_[t] = by_microbatch_[t].data();
  }
}

void TensorTable::begin_next_batch(const Program& program) {
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    if (program.tensors[t].next_of >= 0) {
      std::swap(tables_[t], tables_[static_cast<std::size_t>(program.tensors[t].next_of)]);
    }
  }
}

std::int64_t RowSequence::at(std::int64_t i) const {
  const std::int64_t group_of = group > 0 ? i / group : 0;
  const std::int64_t row = first + group_of * group_step + (i - group_of * group) * stride;
  return row_order != nullptr ? row_order->row_at(row)
         : order != nullptr   ? order->row_of_rank(row)
                              : row;
}

RowSequence rows_of(const ParameterPiece& piece, std::int32_t rank) {
  const std::int64_t place = piece.row_ranks > 0 ? rank % piece.row_ranks : rank;
  return {piece.row + place * piece.row_per_rank,         piece.row_stride,      piece.row_group,
          piece.row_group > 0 ? piece.row_group_step : 0, piece.row_order.get(), piece.order.get()};
}

std::uint64_t row_hash(const ParameterPiece& piece, std::int32_t rank, std::int64_t i) {
  const auto row = static_cast<std::uint64_t>(rows_of(piece, rank).at(i));
  return split_mix(piece.key ^ split_mix(row));
}

void fill_piece(const ParameterPiece& piece, std::int32_t rank, std::int64_t rows,
                std::int64_t pitch, float* matrix) {
  for (std::int64_t i = 0; i < rows; ++i) {
    float* out = matrix + i * pitch + piece.local_column;
    if (piece.scale == 0) {
      std::fill_n(out, piece.columns, static_cast<float>(piece.constant));
      continue;
    }
    fill_row(row_hash(piece, rank, i), static_cast<std::uint32_t>(piece.column), piece.columns,
             static_cast<float>(piece.scale), out);
  }
}

RankPlace place_of(const Program& program, std::int32_t rank, const Mesh& mesh) {
  RankPlace place{rank, mesh.coordinate(rank, Axis::kTensor), mesh.coordinate(rank, Axis::kData)};
  if (!program.routings.empty()) {
    place.expert = expert_place(mesh, program.routings.front().split, rank);
  }
  return place;
}

ParameterPiece piece_on(const Tensor& tensor, ParameterPiece piece, const RankPlace& place) {
  const std::int32_t tensor_coordinate = place.tensor;
  piece.row += tensor_coordinate * piece.tensor_row_step + place.expert * piece.expert_row_step;
  piece.column += tensor_coordinate / piece.tensor_column_ranks * piece.tensor_column_step;
  STEPCAST_CHECK(piece.local_column + piece.columns <= tensor.columns,
                 "a piece of '{}' covers columns [{}, {}) of {}", tensor.name, piece.local_column,
                 piece.local_column + piece.columns, tensor.columns);
  return piece;
}

std::vector<float> shard_values(const Program& program, const Tensor& shard,
                                const RankPlace& place) {
  const std::int64_t begin = part_of(shard, place.data) * shard.columns;
  std::vector<float> values(static_cast<std::size_t>(shard.columns), 0.0F);
  std::vector<float> whole;
  for (const Tensor::Source& source : shard.sources) {
    const Tensor& parameter = program.tensors[source.tensor];
    const std::int64_t first = std::max(begin, source.offset);
    const std::int64_t last = std::min(begin + shard.columns, source.offset + parameter.elements());
    if (first >= last) {
      continue;
    }
    whole.assign(static_cast<std::size_t>(parameter.elements()), 0.0F);
    for (const ParameterPiece& piece : parameter.pieces) {
      fill_piece(piece_on(parameter, piece, place), place.rank, parameter.rows, parameter.columns,
                 whole.data());
    }
    std::copy(whole.begin() + (first - source.offset), whole.begin() + (last - source.offset),
              values.begin() + (first - begin));
  }
  return values;
}

}  // namespace stepcast::runtime
