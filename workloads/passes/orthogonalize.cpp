#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "core/job/job_rules.h"
#include "workloads/passes/parameter_buckets.h"

// How Muon updates matrices: which rank orthogonalises which, what it gathers for it, its ops.
//
// Without ZeRO all replicas do all matrices. With ZeRO 1 each has whole ones: those of a bucket are
// dealt out by size, the largest first to the rank that has least (Megatron-LM,
// layer_wise_optimizer.py; NVIDIA, "Advancing Emerging Optimizers", 2026); padding of those that
// have less is not counted. A rank of a program stands for all, so it has the states of the fullest
// and does as much as the one with most to do.
namespace stepcast::workloads {
namespace {

/// Sides of the squares of an orthogonalisation, and the others.
struct Sides {
  std::int64_t square = 0, other = 0;
  [[nodiscard]] double cost() const {  // products of an iteration, in pairs of numbers
    const auto m = static_cast<double>(square);
    return m * m * (2 * static_cast<double>(other) + m);
  }
};

/// Matrices whose parts tensor ranks hold are whole, parts, or squares over what all have of them.
Sides sides_of(const MatrixBlock& b, MuonShards shards) {
  std::int64_t rows = b.rows;
  std::int64_t columns = b.columns;
  if (b.cut() && shards == MuonShards::kDistributed) {
    return b.column_ranks > 1 ? Sides{rows, columns} : Sides{columns, rows};
  }
  if (shards != MuonShards::kBlockwise) {
    rows *= b.row_ranks;
    columns *= b.column_ranks;
  }
  return {std::min(rows, columns), std::max(rows, columns)};
}

bool gathered(const MatrixBlock& b, MuonShards shards) {
  return b.cut() && (shards == MuonShards::kDuplicated || shards == MuonShards::kLayerSharded);
}

std::int64_t whole_elements(const MatrixBlock& b) {
  return b.elements() * b.row_ranks * b.column_ranks;
}

/// Items by rank, if the largest goes to the one that has least.
std::vector<std::vector<std::size_t>> longest_first(const std::vector<double>& sizes,
                                                    std::int64_t ranks) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  using Load = std::pair<double, std::size_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
    least.emplace(0, r);
  }
  std::vector<std::vector<std::size_t>> of_rank(static_cast<std::size_t>(ranks));
  for (const std::size_t item : order) {
    const auto [load, rank] = least.top();
    least.pop();
    of_rank[rank].push_back(item);
    least.emplace(load + sizes[item], rank);
  }
  return of_rank;
}

/// The list with most to do.
template <class Cost>
const std::vector<std::size_t>& dearest_of(const std::vector<std::vector<std::size_t>>& of_rank,
                                           const Cost& cost) {
  const auto all = [&](const std::vector<std::size_t>& items) {
    return std::accumulate(items.begin(), items.end(), 0.0,
                           [&](double sum, std::size_t i) { return sum + cost(i); });
  };
  return *std::max_element(of_rank.begin(), of_rank.end(),
                           [&](const auto& a, const auto& b) { return all(a) < all(b); });
}

/// Adds a matrix to those that are like it.
void add_alike(std::vector<MatrixBlock>& blocks, const MatrixBlock& one) {
  const auto alike = std::find_if(blocks.begin(), blocks.end(), [&](const MatrixBlock& b) {
    return b.rows == one.rows && b.columns == one.columns && b.row_ranks == one.row_ranks &&
           b.column_ranks == one.column_ranks;
  });
  if (alike != blocks.end()) {
    alike->count += one.count;
  } else {
    blocks.push_back(one);
  }
}

}  // namespace

ParameterBuckets::Deal ParameterBuckets::deal(const Group& group, std::int64_t ranks) const {
  std::int64_t most = 0;
  std::vector<MatrixBlock> dearest;
  if (ranks == 1) {
    for (const DeclaredParameter* p : group) {
      most += weight_of(*p).elements();
      dearest.insert(dearest.end(), p->matrices.begin(), p->matrices.end());
    }
    return {most, dearest};
  }
  // Each expert's is a parameter; queries, keys and values stay together.
  std::vector<const DeclaredParameter*> items;
  std::vector<double> sizes;
  for (const DeclaredParameter* p : group) {
    const std::int64_t count = p->matrices.front().count;
    items.insert(items.end(), static_cast<std::size_t>(count), p);
    sizes.insert(sizes.end(), static_cast<std::size_t>(count),
                 static_cast<double>(weight_of(*p).elements() / count));
  }
  const auto of_rank = longest_first(sizes, ranks);
  for (const std::vector<std::size_t>& mine : of_rank) {
    const double elements = std::accumulate(
        mine.begin(), mine.end(), 0.0, [&](double sum, std::size_t i) { return sum + sizes[i]; });
    most = std::max(most, static_cast<std::int64_t>(elements));
  }
  const auto cost = [&](std::size_t i) {
    double sum = 0;
    for (const MatrixBlock& b : items[i]->matrices) {
      sum += sides_of(b, job_.muon.shards).cost();
    }
    return sum;
  };
  for (const std::size_t i : dearest_of(of_rank, cost)) {
    for (MatrixBlock b : items[i]->matrices) {
      b.count = 1;
      add_alike(dearest, b);
    }
  }
  return {most, dearest};
}

/// Deals out a chunk's whole matrices where tensor ranks share them: those of the one with most to
/// do come into the last of its buckets. Then finds room for the largest that are left.
void ParameterBuckets::deal_over_tensor(std::span<Bucket> of_chunk) {
  std::vector<MatrixBlock> shared;
  std::vector<double> costs;
  Bucket* last = nullptr;
  for (Bucket& bucket : of_chunk) {
    for (MatrixBlock& b : bucket.dealt) {
      if (job_.muon.shards == MuonShards::kLayerSharded && b.cut()) {
        MatrixBlock one = b;
        const auto count = static_cast<std::size_t>(std::exchange(one.count, 1));
        shared.insert(shared.end(), count, one);
        costs.insert(costs.end(), count, sides_of(b, job_.muon.shards).cost());
        last = &bucket;
        b.count = 0;
      }
    }
    std::erase_if(bucket.dealt, [](const MatrixBlock& b) { return b.count == 0; });
  }
  if (last != nullptr) {
    const auto of_rank = longest_first(costs, job_.parallel.tensor);
    for (const std::size_t i : dearest_of(of_rank, [&](std::size_t c) { return costs[c]; })) {
      add_alike(last->dealt, shared[i]);
    }
  }
  for (const Bucket& bucket : of_chunk) {
    for (const MatrixBlock& b : bucket.dealt) {
      const Sides s = sides_of(b, job_.muon.shards);
      whole_ = gathered(b, job_.muon.shards) ? std::max(whole_, whole_elements(b)) : whole_;
      iterate_ = std::max(iterate_, s.square * s.other);
      square_ = std::max(square_, s.square * s.square);
    }
  }
}

/// Momentum into gradients, those orthogonalised, a step along them. Source: Liu et al., arXiv
/// 2502.16982 (Moonlight); tensor ranks: NVIDIA, Emerging-Optimizers, newton_schulz_tp, and
/// Megatron-LM issue 6676.
void ParameterBuckets::orthogonalize(const Bucket& bucket) {
  const auto n = static_cast<double>(bucket.shard);
  const auto bytes = [n](Format format) { return Bytes(n * bits_per_element(format) / 8); };
  const Bytes gradients = bytes(job_.formats.gradient);
  const Bytes states = bytes(job_.formats.moments);
  const auto rule = OptimizerAttributes{OptimizerKind::kMuon};
  writer_.await(bucket.synchronised);
  auto momentum = writer_.compute(OpKind::kOptimizer, "optimizer.momentum", {bucket.shard});
  momentum.in({bucket.gradient_shard, bucket.weight_shard})
      .out({bucket.gradient_shard, bucket.states.front()})
      .format(Format::kFp32)
      .attributes(rule);
  momentum.work(momentum.op().flops, gradients + states, gradients + states);
  exchange_parts(bucket);
  std::size_t at = 0;
  for (const DeclaredParameter* p : bucket.parameters) {
    for (const MatrixBlock& b : p->matrices) {
      if (!bucket.spread && job_.muon.shards != MuonShards::kLayerSharded) {
        orthogonalize(b, bucket.gradient_of[at]);
      }
    }
    ++at;
  }
  for (const MatrixBlock& b : bucket.dealt) {
    if (bucket.spread || job_.muon.shards == MuonShards::kLayerSharded) {
      orthogonalize(b, bucket.gradient_shard);
    }
  }
  exchange_parts(bucket);
  // A narrow weight with a master copy is written, and the copy read and written.
  const auto copy = master_copy(job_.formats, bucket.stored);
  const Bytes kept = bytes(copy.value_or(holders_.compute));
  auto step = writer_.compute(OpKind::kOptimizer, "optimizer.step", {bucket.shard});
  step.in({bucket.gradient_shard})
      .out({bucket.weight_shard})
      .format(Format::kFp32)
      .attributes(rule);
  step.work(Flops(2 * n), gradients + kept, kept + (copy ? bytes(holders_.compute) : Bytes(0)));
}

/// Matrices that are cut go to the tensor ranks that do them, or come back.
void ParameterBuckets::exchange_parts(const Bucket& bucket) {
  if (job_.muon.shards != MuonShards::kLayerSharded ||
      std::none_of(bucket.parameters.begin(), bucket.parameters.end(), [](const auto* p) {
        return std::any_of(p->matrices.begin(), p->matrices.end(),
                           [](const MatrixBlock& b) { return b.cut(); });
      })) {
    return;
  }
  OpWriter::Transfer t;
  t.kind = OpKind::kAllToAll;
  t.name = "optimizer.exchange";
  t.elements = bucket.shard;
  t.in = {bucket.gradient_shard};
  t.out = {bucket.gradient_shard};
  t.communicator = holders_.tensor;
  writer_.await(writer_.transfer(Channel::kTensor, t));
}

void ParameterBuckets::orthogonalize(const MatrixBlock& block, TensorId in) {
  const MuonShards shards = job_.muon.shards;
  const Sides sides = sides_of(block, shards);
  const auto send = [&](OpKind kind, std::string_view name, std::int64_t elements, Format format,
                        TensorId from, TensorId to) {
    OpWriter::Transfer t;
    t.kind = kind;
    t.name = name;
    t.elements = elements;
    t.in = {from};
    t.out = {to};
    t.communicator = holders_.tensor;
    t.format = format;
    writer_.await(writer_.transfer(Channel::kTensor, t));
  };
  const TensorId iterate = writer_.workspace("optimizer.iterates", 2, iterate_, Format::kBf16);
  const TensorId square = writer_.workspace("optimizer.squares", 2, square_, Format::kBf16);
  TensorId x = in;
  if (gathered(block, shards)) {
    x = writer_.workspace("optimizer.whole", 1, whole_, Format::kFp32);
  }
  for (std::int64_t i = 0; i < block.count && block.cut(); ++i) {
    if (shards == MuonShards::kDuplicated) {
      send(OpKind::kAllGather, "optimizer.gather", whole_elements(block), Format::kFp32, in, x);
    }
    for (std::int64_t k = 0; shards == MuonShards::kDistributed && k < job_.muon.iterations; ++k) {
      send(OpKind::kAllReduce, "optimizer.squares_sum", sides.square * sides.square, Format::kBf16,
           square, square);
    }
  }
  writer_
      .compute(OpKind::kOrthogonalize, "optimizer.orthogonalize",
               {sides.square, sides.other, block.count, job_.muon.iterations, block.first_column})
      .in({x})
      .out({x, iterate, square})
      .format(Format::kBf16);
}

}  // namespace stepcast::workloads
