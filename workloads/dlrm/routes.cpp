#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/graph/optimizer_state.h"
#include "workloads/dlrm/step.h"
#include "workloads/embedding_plan/embedding_tiers.h"

#include "core/numbers.h"

namespace stepcast::workloads {

Bytes LayeredStep::row_bytes(const EmbeddingSlice& s) const {
  return format_bytes(job_.row_format(table(s)), 1, s.dim);
}

Format LayeredStep::format_of(const std::vector<std::int32_t>& slices) const {
  std::optional<Format> same;
  for (const std::int32_t id : slices) {
    const Format f = job_.row_format(table(slice(id)));
    if (same && *same != f) {
      return job_.formats.embedding;
    }
    same = f;
  }
  return same.value_or(job_.formats.embedding);
}

double LayeredStep::state_bytes(std::int64_t dim) const {
  return state_row_bytes(job_.embedding_optimizer, dim);
}

EmbeddingShard LayeredStep::shard_of(std::int32_t id, double samples) {
  const EmbeddingSlice& s = slice(id);
  const EmbeddingTable& t = table(s);
  const HeldRows held = held_rows(s, rank_);
  const bool local = is_local(s.route);
  EmbeddingShard shard;
  shard.table = s.table;
  shard.first_row = held.first;
  shard.rows = held.rows;
  shard.row_stride = held.stride;
  shard.first_column = s.first_column;
  shard.dim = s.dim;
  shard.table_rows = t.rows;
  shard.lookups = travelling(id, rank_, samples);
  shard.drawn = lookups_of(id, rank_, samples);
  shard.bags = samples * s.list_share * real(s.features);
  shard.mean = t.mode == PoolingMode::kMean || (local && t.mode == PoolingMode::kSequence);
  shard.sequence = is_sequence(s.route) && !s.pools_lists_once();
  shard.access = laws_.access(id, rank_);
  if (const Format f = job_.row_format(t); f != route(s.route).format) {
    shard.format = f;
  }
  const std::int64_t step =
      shared_ && s.row_split() ? s.row_rule().part(1).first - s.row_rule().part(0).first : 0;
  const std::string name =
      s.first_row > 0 ? fmt::format("embedding.{}.{}.from_{}", t.name, s.first_column, s.first_row)
                      : fmt::format("embedding.{}.{}", t.name, s.first_column);
  const std::int64_t place = has_copies(s.route) ? s.position(rank_) : rank_;
  ParameterPiece piece{.key = parameter_key("embedding." + t.name),
                       .row = held.first - place * step,
                       .row_stride = held.stride,
                       .column = s.first_column,
                       .columns = s.dim,
                       .scale = 1 / std::sqrt(real(t.rows))};
  piece.row_per_rank = step;
  piece.row_ranks = has_copies(s.route) ? s.members() : 0;
  if (s.remapped()) {
    piece.order = t.access;
    piece.row_order = s.order;
  }
  const std::uint8_t tier = s.in_slow_tier() ? b_.tier(s.tier) : std::uint8_t{0};
  shard.weights = b_.tensor({.name = name,
                             .role = TensorRole::kEmbedding,
                             .format = job_.row_format(t),
                             .rows = held.rows,
                             .columns = s.dim,
                             .per_microbatch = false,
                             .pieces = {piece},
                             .tier = tier});
  if (t.keyed()) {
    b_.tensor({.name = name + ".keys",
               .role = TensorRole::kEmbedding,
               .format = Format::kInt64,
               .rows = held.rows,
               .columns = 2,
               .per_microbatch = false,
               .pieces = {},
               .tier = 0});
  }
  if (!is_synchronised(s.route) && job_.embedding_optimizer != OptimizerKind::kSgd) {
    const auto [rows, columns] = state_shape(job_.embedding_optimizer, held.rows, s.dim);
    shard.has_state = true;
    shard.state = b_.tensor({.name = name + ".state",
                             .role = TensorRole::kOptimizerState,
                             .format = Format::kFp32,
                             .rows = rows,
                             .columns = columns,
                             .per_microbatch = false,
                             .pieces = {},
                             .tier = tier});
  }
  if (s.in_slow_tier()) {
    shard.cache = declare_cache(shard, s);
  }
  return shard;
}

double LayeredStep::samples_of(EmbeddingRoute r) const {
  const auto [first, end] = layout_.peers(r, rank_);
  return real(batch_ * (end - first));
}

std::int32_t LayeredStep::order_of(EmbeddingRoute r) const {
  return is_local(r)         ? 0
         : is_node_reduce(r) ? static_cast<std::int32_t>(layout_.group_of(r))
         : in_towers(r)      ? static_cast<std::int32_t>(layout_.node)
                             : 1;
}

void LayeredStep::declare_routes() {
  for (const EmbeddingRoute r : kAllRoutes) {
    Route& route_r = route(r);
    route_r.present = layout_.uses(r);
    if (!route_r.present) {
      continue;
    }
    const auto held = layout_.held_by(rank_, r);
    route_r.slices.assign(held.begin(), held.end());
    const double samples = samples_of(r);
    route_r.format = format_of(route_r.slices);
    EmbeddingGroup group{
        .shards = {}, .format = route_r.format, .optimizer = job_.embedding_optimizer};
    double sequence_elements = 0;
    for (const std::int32_t s : route_r.slices) {
      group.shards.push_back(shard_of(s, samples));
      const EmbeddingShard& shard = group.shards.back();
      route_r.weights.push_back(shard.weights);
      route_r.width += slice(s).width();
      route_r.lookups += shard.lookups;
      route_r.bags += shard.bags;
      sequence_elements += rows_back(s, rank_, samples) * real(shard.dim);
      if (shard.cache) {
        const std::uint8_t tier = b_.tensor_at(shard.weights).tier;
        auto at = std::find_if(route_r.fetches.begin(), route_r.fetches.end(),
                               [tier](const Fetch& f) { return f.tier == tier; });
        if (at == route_r.fetches.end()) {
          at = route_r.fetches.insert(at, {tier, {}});
        }
        at->expected += shard.cache->expected;
      }
    }
    if (!group.shards.empty()) {
      route_r.group = b_.embedding_group(std::move(group));
    }
    const Format forward = is_local(r) ? compute_ : job_.formats.all_to_all_forward;
    const Format backward = is_local(r) ? compute_ : job_.formats.all_to_all_backward;
    std::int64_t arriving = 0;
    for (const Place& p : places(r)) {
      arriving += slice(p.slice).width();
    }
    arriving = in_towers(r) ? arriving / compression_ : arriving;
    const auto declare = [&](bool gradient) {
      const Format f = gradient ? backward : forward;
      const std::string name =
          fmt::format("embedding.{}.{}", name_of(r), gradient ? "gradient" : "pooled");
      const bool sequence = is_sequence(r);
      const TensorId output = sequence
                                  ? b_.activation(name + ".rows", rounded(sequence_elements), 1, f)
                                  : b_.activation(name, rounded(samples), route_r.width, f);
      const TensorId arrived =
          is_local(r) ? output
                      : b_.activation(name + ".local", batch_, arriving, sequence ? compute_ : f);
      TensorId between = 0;
      if (in_towers(r)) {
        between = b_.activation(name + ".node", global_batch_ / layout_.node,
                                tower_width(rank_ / layout_.node), f);
      } else if (is_node_reduce(r)) {
        between =
            b_.activation(name + ".node", global_batch_ / layout_.group_of(r), route_r.width, f);
      } else if (sequence) {
        between =
            b_.activation(name + ".local_rows", rounded(sequence_sizes(r).row_elements), 1, f);
      }
      (gradient ? route_r.d_output : route_r.output) = output;
      (gradient ? route_r.d_arrived : route_r.arrived) = arrived;
      (gradient ? route_r.d_between : route_r.between) = between;
    };
    declare(false);
    declare(true);
  }
}

double LayeredStep::lookups_of(std::int32_t id, std::int32_t holder, double samples) {
  return samples * table(slice(id)).pooling * laws_.mass(id, holder);
}

double LayeredStep::distinct_rows(std::int32_t id, std::int32_t holder, double samples) {
  const EmbeddingTable& t = table(slice(id));
  const double repeats = t.session ? dedup_factor(t.session->samples, t.session->keep) : 1;
  const double lookups = samples * t.pooling * laws_.even_mass(id, holder);
  return laws_.unique(id, holder, lookups / repeats);
}

double LayeredStep::travelling(std::int32_t id, std::int32_t holder, double samples) {
  const EmbeddingSlice& s = slice(id);
  if (s.pools_lists_once() || !job_.embedding_dedup || !is_sequence(s.route)) {
    return s.id_share * lookups_of(id, holder, samples);
  }
  return samples / real(batch_) * distinct_rows(id, holder, real(batch_));
}

double LayeredStep::rows_back(std::int32_t id, std::int32_t holder, double samples) {
  const EmbeddingSlice& s = slice(id);
  return s.pools_lists_once() ? s.list_share * samples : travelling(id, holder, samples);
}

LayeredStep::SequenceSizes LayeredStep::sequence_sizes(EmbeddingRoute r) {
  SequenceSizes n;
  for (const Place& p : places(r)) {
    const EmbeddingSlice& s = slice(p.slice);
    // Rows that the receiver reads for its samples: each row, or each holder's sum.
    const double lookups = s.pools_lists_once()
                               ? real(batch_ * s.members())
                               : real(batch_) * table(s).pooling * laws_.range_mass(p.slice);
    n.lookups += lookups;
    n.bags += real(batch_ * s.features);
    n.looked_up_elements += lookups * real(s.dim);
    double rows = lookups;
    if (job_.embedding_dedup) {
      rows = 0;
      for (std::int64_t i = 0; i < s.members(); ++i) {
        rows += rows_back(p.slice, s.ranks[static_cast<std::size_t>(i)], real(batch_));
      }
    }
    n.row_elements += rows * real(s.dim);
    n.bag_elements += real(batch_ * s.width());
  }
  return n;
}

std::vector<LayeredStep::Place> LayeredStep::places(EmbeddingRoute r) const {
  std::vector<Place> all;
  if (r == EmbeddingRoute::kExchange || is_node_reduce(r)) {
    // One block per sender: the local samples' rows of its slices, side by side.
    const bool towers = in_towers(r);
    const std::int64_t senders = towers              ? devices() / layout_.node
                                 : is_node_reduce(r) ? devices() / layout_.group_of(r)
                                                     : devices();
    std::int64_t base = 0;
    for (std::int64_t sender = 0; sender < senders; ++sender) {
      const auto rank = static_cast<std::int32_t>(sender * (devices() / senders));
      const auto own = layout_.held_by(rank, r);
      std::vector<std::int32_t> held(own.begin(), own.end());
      for (std::int64_t i = 1; towers && i < layout_.node; ++i) {
        const auto more = layout_.held_by(rank + static_cast<std::int32_t>(i), r);
        held.insert(held.end(), more.begin(), more.end());
      }
      std::int64_t width = 0;
      for (const std::int32_t s : held) {
        width += slice(s).width();
      }
      std::int64_t column = 0;
      for (const std::int32_t s : held) {
        all.push_back({s, base + column, width});
        column += slice(s).width();
      }
      base += batch_ * width;
    }
    return all;
  }
  std::int64_t column = 0;
  for (std::size_t s = 0; s < layout_.slices.size(); ++s) {
    if (layout_.slices[s].route == r) {
      all.push_back({static_cast<std::int32_t>(s), column, 0});
      column += layout_.slices[s].width();
    }
  }
  for (Place& p : all) {
    p.pitch = column;
  }
  return all;
}

/// Moves between a route's columns (operand number `operand`) and the assembled features (operand
/// 0 of the other side).
std::vector<ColumnBlock> LayeredStep::column_blocks(EmbeddingRoute r, std::int32_t operand,
                                                    bool forward, std::optional<bool> first) const {
  if (in_towers(r) && compression_ > 1) {
    return !first || *first ? tower_blocks(operand, forward) : std::vector<ColumnBlock>{};
  }
  std::vector<ColumnBlock> blocks;
  for (const Place& p : places(r)) {
    if (first && *first != (slice(p.slice).first_row == 0)) {
      continue;
    }
    const EmbeddingSlice& s = slice(p.slice);
    for (std::int64_t f = 0; f < s.features; ++f) {
      const std::int64_t column = before_tables_ + s.feature_column + f * s.feature_pitch;
      ColumnBlock block{.columns = s.dim};
      (forward ? block.input : block.output) = operand;
      (forward ? block.from_offset : block.to_offset) = p.offset + f * s.dim;
      (forward ? block.from_pitch : block.to_pitch) = p.pitch;
      (forward ? block.to_offset : block.from_offset) = column;
      (forward ? block.to_pitch : block.from_pitch) = stack_width_;
      blocks.push_back(block);
    }
  }
  return blocks;
}

}  // namespace stepcast::workloads
