#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "workloads/dlrm_step.h"
#include "workloads/embedding_tiers.h"

namespace stepcast::workloads {
namespace {

double real(std::int64_t v) { return static_cast<double>(v); }
std::int64_t rounded(double v) { return std::llround(v); }

}  // namespace

bool ShardLaws::placed(const EmbeddingSlice& s) const {
  if (!s.row_split() && (s.frequency_order || !s.row_range())) {
    return false;
  }
  const EmbeddingTable& t = workload_.tables[static_cast<std::size_t>(s.table)];
  const bool skewed = t.access && t.access->kind() != AccessKind::kUniform &&
                      (t.access->kind() != AccessKind::kZipf || t.access->exponent() > 0);
  return skewed && (devices_ <= kPlacedRanks || (s.frequency_order && s.split == Split::kBlock));
}

ShardLaws::Key ShardLaws::key_of(const EmbeddingSlice& s, const HeldRows& held) const {
  return {s.table, s.first_row, s.rows, held.rows, placed(s) ? held.first : -1};
}

double ShardLaws::mass(const EmbeddingSlice& s) {
  if (!s.row_range()) {
    return 1;
  }
  if (!s.row_split()) {
    return law(s, held_rows(s, s.ranks.front())).mass;
  }
  double sum = 0;
  for (std::int64_t i = 0; i < s.members(); ++i) {
    const std::int32_t rank = s.ranks[static_cast<std::size_t>(i)];
    sum += law(s, held_rows(s, rank)).mass;
  }
  return sum;
}

const ShardLaws::Law& ShardLaws::law(const EmbeddingSlice& s, const HeldRows& held) {
  const auto [it, fresh] = laws_.try_emplace(key_of(s, held));
  if (fresh) {
    it->second = make(s, held);
  }
  return it->second;
}

const std::vector<std::pair<std::int64_t, double>>& ShardLaws::hottest(const EmbeddingSlice& s,
                                                                       const Access& access) {
  const auto [it, fresh] = hottest_.try_emplace(s.table);
  for (std::int64_t k = 0; fresh && k < std::min(kHottest, s.table_rows); ++k) {
    it->second.emplace_back(s.frequency_order ? k : access.row_of_rank(k),
                            access.probability(real(k)));
  }
  return it->second;
}

/// The rows of a slice's range: ranks of the order of popularity, or random rows.
ShardLaws::Law ShardLaws::make_range(const EmbeddingSlice& s) const {
  const EmbeddingTable& t = workload_.tables[static_cast<std::size_t>(s.table)];
  std::shared_ptr<const Access> whole =
      t.access ? t.access : std::make_shared<Access>(Access::uniform(t.rows));
  if (!s.row_range()) {
    return {std::move(whole), 1, 1};
  }
  if (s.frequency_order) {
    auto [access, mass] = whole->ranks(s.first_row, s.first_row + s.rows);
    return {std::make_shared<Access>(std::move(access)), mass, mass};
  }
  const double share = real(s.rows) / real(t.rows);
  return {std::make_shared<Access>(whole->random_subset(s.rows)), share, share};
}

const ShardLaws::Law& ShardLaws::range(const EmbeddingSlice& s) {
  const auto [it, fresh] = ranges_.try_emplace(Key{s.table, s.first_row, s.rows, 0, 0});
  if (fresh) {
    it->second = make_range(s);
  }
  return it->second;
}

ShardLaws::Law ShardLaws::make(const EmbeddingSlice& s, const HeldRows& held) {
  if (held.rows == 0) {
    return {std::make_shared<Access>(Access::uniform(1)), 0, 0};
  }
  const Law& all = range(s);
  if (held.rows == s.rows && (s.frequency_order || !s.row_range())) {
    return all;
  }
  if (s.frequency_order && s.split == Split::kBlock) {
    const auto first = held.first - s.first_row;
    auto [access, share] = all.access->ranks(first, first + held.rows);
    const double mass = all.mass * share;
    return {std::make_shared<Access>(std::move(access)), mass, mass};
  }
  Law& subset = subsets_[Key{s.table, s.first_row, s.rows, held.rows, 0}];
  if (!subset.access) {
    const double mass = all.mass * real(held.rows) / real(s.rows);
    subset = {held.rows == s.rows ? all.access
                                  : std::make_shared<Access>(all.access->random_subset(held.rows)),
              mass, mass};
  }
  Law law = subset;
  if (placed(s)) {
    law.mass = placed_mass(s, held, all.mass);
  }
  return law;
}

/// The hottest rows one by one, the others spread evenly: over the range in order of popularity,
/// else over the table.
double ShardLaws::placed_mass(const EmbeddingSlice& s, const HeldRows& held, double range_mass) {
  const EmbeddingTable& t = workload_.tables[static_cast<std::size_t>(s.table)];
  const std::int64_t end = s.frequency_order ? s.first_row + s.rows : t.rows;
  const std::int64_t begin = s.frequency_order ? s.first_row : 0;
  double here = 0;
  double hot = 0;
  std::int64_t rows_here = 0;
  std::int64_t hot_rows = 0;
  for (const auto& [row, popularity] : hottest(s, *t.access)) {
    if (row < begin || row >= end) {
      continue;
    }
    hot += popularity;
    ++hot_rows;
    const std::int64_t offset = row - held.first;
    if (offset >= 0 && offset < held.rows * held.stride && offset % held.stride == 0) {
      here += popularity;
      ++rows_here;
    }
  }
  const double others = std::max(0.0, (s.frequency_order ? range_mass : 1) - hot);
  const std::int64_t rows_left = end - begin - hot_rows;
  return here + (rows_left > 0 ? others * real(held.rows - rows_here) / real(rows_left) : 0);
}

double ShardLaws::unique(const EmbeddingSlice& s, const HeldRows& held, double lookups) {
  const auto [it, fresh] = unique_.try_emplace({key_of(s, held), lookups}, 0.0);
  if (fresh && held.rows > 0) {
    it->second = law(s, held).access->unique(lookups).value;
  }
  return it->second;
}

Bytes DlrmStep::row_bytes(std::int64_t dim) const {
  return format_bytes(job_.formats.embedding, 1, dim);
}

double DlrmStep::state_bytes(std::int64_t dim) const {
  return state_row_bytes(job_.embedding_optimizer, dim);
}

EmbeddingShard DlrmStep::shard_of(std::int32_t id, double samples) {
  const EmbeddingSlice& s = slice(id);
  const EmbeddingTable& t = table(s);
  const HeldRows held = held_rows(s, rank_);
  const ShardLaws::Law& law = laws_.law(s, held);
  const bool local = is_local(s.route);
  EmbeddingShard shard;
  shard.table = s.table;
  shard.first_row = held.first;
  shard.rows = held.rows;
  shard.row_stride = held.stride;
  shard.first_column = s.first_column;
  shard.dim = s.dim;
  shard.table_rows = t.rows;
  shard.lookups = travelling(s, held, samples);
  shard.drawn = lookups_of(s, held, samples);
  shard.bags = samples * s.list_share;
  shard.mean = t.mode == PoolingMode::kMean || (local && t.mode == PoolingMode::kSequence);
  shard.sequence = is_sequence(s.route) && !s.pools_lists_once();
  shard.access = law.access;
  const std::int64_t step = !shared_ || !s.row_split()  ? 0
                            : s.split == Split::kStripe ? 1
                                                        : s.block();
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
  }
  const std::uint8_t tier = s.in_slow_tier() ? b_.tier(s.tier) : std::uint8_t{0};
  shard.weights = b_.tensor({.name = name,
                             .role = TensorRole::kEmbedding,
                             .format = job_.formats.embedding,
                             .rows = held.rows,
                             .columns = s.dim,
                             .per_microbatch = false,
                             .pieces = {piece},
                             .tier = tier});
  if (!is_synchronised(s.route) && job_.embedding_optimizer != OptimizerKind::kSgd) {
    const bool adam = job_.embedding_optimizer == OptimizerKind::kAdam;
    const bool by_row = job_.embedding_optimizer == OptimizerKind::kRowwiseAdagrad;
    shard.has_state = true;
    shard.state = b_.tensor({.name = name + ".state",
                             .role = TensorRole::kOptimizerState,
                             .format = Format::kFp32,
                             .rows = adam ? 2 * held.rows : held.rows,
                             .columns = by_row ? 1 : s.dim,
                             .per_microbatch = false,
                             .pieces = {},
                             .tier = tier});
  }
  if (s.in_slow_tier()) {
    shard.cache = declare_cache(shard, s);
  }
  return shard;
}

double DlrmStep::samples_of(EmbeddingRoute r) const {
  const auto [first, end] = layout_.peers(r, rank_);
  return real(batch_ * (end - first));
}

std::int64_t DlrmStep::order_of(EmbeddingRoute r) const {
  return is_local(r)         ? 0
         : is_node_reduce(r) ? layout_.group_of(r)
         : in_towers(r)      ? layout_.node
                             : 1;
}

void DlrmStep::declare_routes() {
  for (const EmbeddingRoute r : kAllRoutes) {
    Route& route_r = route(r);
    route_r.present = layout_.uses(r);
    if (!route_r.present) {
      continue;
    }
    route_r.slices = layout_.held_by(rank_, r);
    const double samples = samples_of(r);
    EmbeddingGroup group{
        .shards = {}, .format = job_.formats.embedding, .optimizer = job_.embedding_optimizer};
    double sequence_elements = 0;
    for (const std::int32_t s : route_r.slices) {
      group.shards.push_back(shard_of(s, samples));
      const EmbeddingShard& shard = group.shards.back();
      route_r.weights.push_back(shard.weights);
      route_r.width += shard.dim;
      route_r.lookups += shard.lookups;
      route_r.bags += shard.bags;
      sequence_elements +=
          rows_back(slice(s), held_rows(slice(s), rank_), samples) * real(shard.dim);
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
      arriving += slice(p.slice).dim;
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

double DlrmStep::lookups_of(const EmbeddingSlice& s, const HeldRows& held, double samples) {
  return samples * table(s).pooling * laws_.law(s, held).mass;
}

double DlrmStep::distinct_rows(const EmbeddingSlice& s, const HeldRows& held, double samples) {
  const auto& session = table(s).session;
  const double repeats = session ? dedup_factor(session->samples, session->keep) : 1;
  const double lookups = samples * table(s).pooling * laws_.law(s, held).even_mass;
  return laws_.unique(s, held, lookups / repeats);
}

double DlrmStep::travelling(const EmbeddingSlice& s, const HeldRows& held, double samples) {
  if (s.pools_lists_once() || !job_.embedding_dedup || !is_sequence(s.route)) {
    return s.id_share * lookups_of(s, held, samples);
  }
  return samples / real(batch_) * distinct_rows(s, held, real(batch_));
}

double DlrmStep::rows_back(const EmbeddingSlice& s, const HeldRows& held, double samples) {
  return s.pools_lists_once() ? s.list_share * samples : travelling(s, held, samples);
}

DlrmStep::SequenceSizes DlrmStep::sequence_sizes(EmbeddingRoute r) {
  SequenceSizes n;
  for (const Place& p : places(r)) {
    const EmbeddingSlice& s = slice(p.slice);
    // What the receiver reads for its samples: their rows, or each holder's sum.
    const double lookups = s.pools_lists_once() ? real(batch_ * s.members())
                                                : real(batch_) * table(s).pooling * laws_.mass(s);
    n.lookups += lookups;
    n.bags += real(batch_);
    n.looked_up_elements += lookups * real(s.dim);
    double rows = lookups;
    if (job_.embedding_dedup) {
      rows = 0;
      for (std::int64_t i = 0; i < s.members(); ++i) {
        rows += rows_back(s, held_rows(s, s.ranks[static_cast<std::size_t>(i)]), real(batch_));
      }
    }
    n.row_elements += rows * real(s.dim);
    n.bag_elements += real(batch_) * real(s.dim);
  }
  return n;
}

std::vector<DlrmStep::Place> DlrmStep::places(EmbeddingRoute r) const {
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
      std::vector<std::int32_t> held = layout_.held_by(rank, r);
      for (std::int64_t i = 1; towers && i < layout_.node; ++i) {
        const auto more = layout_.held_by(rank + static_cast<std::int32_t>(i), r);
        held.insert(held.end(), more.begin(), more.end());
      }
      std::int64_t width = 0;
      for (const std::int32_t s : held) {
        width += slice(s).dim;
      }
      std::int64_t column = 0;
      for (const std::int32_t s : held) {
        all.push_back({s, base + column, width});
        column += slice(s).dim;
      }
      base += batch_ * width;
    }
    return all;
  }
  std::int64_t column = 0;
  for (std::size_t s = 0; s < layout_.slices.size(); ++s) {
    if (layout_.slices[s].route == r) {
      all.push_back({static_cast<std::int32_t>(s), column, 0});
      column += layout_.slices[s].dim;
    }
  }
  for (Place& p : all) {
    p.pitch = column;
  }
  return all;
}

/// Moves between a route's columns (operand number `operand`) and the assembled stack (operand 0 of
/// the other side).
std::vector<ColumnBlock> DlrmStep::column_blocks(EmbeddingRoute r, std::int32_t operand,
                                                 bool forward, std::optional<bool> first) const {
  if (in_towers(r) && compression_ > 1) {
    return !first || *first ? tower_blocks(operand, forward) : std::vector<ColumnBlock>{};
  }
  std::vector<ColumnBlock> blocks;
  for (const Place& p : places(r)) {
    if (first && *first != (slice(p.slice).first_row == 0)) {
      continue;
    }
    const std::int64_t column = before_tables_ + slice(p.slice).feature_column;
    ColumnBlock block{.columns = slice(p.slice).dim};
    (forward ? block.input : block.output) = operand;
    (forward ? block.from_offset : block.to_offset) = p.offset;
    (forward ? block.from_pitch : block.to_pitch) = p.pitch;
    (forward ? block.to_offset : block.from_offset) = column;
    (forward ? block.to_pitch : block.from_pitch) = stack_width_;
    blocks.push_back(block);
  }
  return blocks;
}

}  // namespace stepcast::workloads
