#include "core/job/layer_builder.h"

#include <algorithm>

#include "core/error.h"
#include "core/graph/length_law.h"

namespace stepcast {
namespace {

// Far beyond anything built; products of shapes stay exact in doubles.
constexpr std::int64_t kMostElements = std::int64_t{1} << 40;

std::string text(const LayerTensor& t) {
  return fmt::format("'{}' [{}, {}]", t.name, t.rows, t.columns);
}

}  // namespace

void LayerBuilder::reject(const std::string& message) const { throw InputError(place_, message); }

int LayerBuilder::group(std::string name, std::int64_t size) {
  list_.groups.push_back({std::move(name), size});
  return static_cast<int>(list_.groups.size()) - 1;
}

int LayerBuilder::input(std::string name, std::int64_t rows, std::int64_t columns) {
  list_.tensors.push_back({.name = std::move(name), .rows = rows, .columns = columns});
  list_.inputs.push_back(static_cast<std::int32_t>(list_.tensors.size()) - 1);
  return list_.inputs.back();
}

Layer& LayerBuilder::add_layer(LayerKind kind, const std::string& name,
                               const std::vector<int>& in) {
  Layer l;
  l.kind = kind;
  l.name = name;
  for (const int t : in) {
    STEPCAST_CHECK(t >= 0 && static_cast<std::size_t>(t) < list_.tensors.size(),
                   "layer '{}' reads tensor {}", name, t);
    l.in.push_back(t);
    // Only the ops between time_major and sample_major know the other order of rows.
    const bool knows = kind == LayerKind::kLinear || kind == LayerKind::kRecurrent ||
                       kind == LayerKind::kSampleMajor || kind == LayerKind::kAdd ||
                       kind == LayerKind::kNorm || kind == LayerKind::kActivation ||
                       kind == LayerKind::kConnectionist || kind == LayerKind::kConcatenate ||
                       kind == LayerKind::kMultiply;
    if (shape(t).time_major && !knows) {
      reject(
          fmt::format("{} has its rows frame by frame, which {} does not read; put a "
                      "sample_major before it",
                      text(shape(t)), name_of(kind)));
    }
  }
  list_.layers.push_back(std::move(l));
  places_.push_back(place_);
  return list_.layers.back();
}

int LayerBuilder::out(Layer& l, std::int64_t rows, std::int64_t columns) {
  if (rows < 1 || columns < 1 || rows > kMostElements / columns) {
    reject(
        fmt::format("'{}' would be [{}, {}] for each sample; use sizes from 1 on and below 2^40 "
                    "elements",
                    l.name, rows, columns));
  }
  LayerTensor t{.name = l.name, .rows = rows, .columns = columns};
  for (const std::int32_t i : l.in) {
    t.needs_gradient = t.needs_gradient || list_.tensor(i).needs_gradient;
    t.time_major = t.time_major || list_.tensor(i).time_major;
  }
  list_.tensors.push_back(std::move(t));
  l.out = static_cast<std::int32_t>(list_.tensors.size()) - 1;
  auto& made = list_.tensors.back();
  made.needs_gradient =
      made.needs_gradient || l.kind == LayerKind::kTables || !parameters_of(list_, l).empty();
  return l.out;
}

void LayerBuilder::same_shape(const std::string& name, int a, int b) const {
  const LayerTensor& x = shape(a);
  const LayerTensor& y = shape(b);
  if (x.rows != y.rows || x.columns != y.columns || x.time_major != y.time_major) {
    reject(
        fmt::format("'{}' takes two tensors of one shape, and {} differs from {}; bring one to "
                    "the other's with linear or reshape",
                    name, text(x), text(y)));
  }
}

void LayerBuilder::one_row(const std::string& name, int x) const {
  if (shape(x).rows != 1) {
    reject(fmt::format("'{}' takes one row a sample, and {} has {}; reshape it to [1, {}]", name,
                       text(shape(x)), shape(x).rows, shape(x).elements()));
  }
}

int LayerBuilder::linear(const std::string& name, int x, const Linear& l) {
  if (is_gated(l.activation) && l.width % 2 != 0) {
    reject(fmt::format("'{}' has an odd width {}, and a gated activation halves it; use {}", name,
                       l.width, l.width + 1));
  }
  const bool fused = l.activation == Activation::kRelu && l.bias;
  Layer& layer = add_layer(LayerKind::kLinear, name, {x});
  layer.bias = l.bias;
  layer.activation = fused ? l.activation : Activation::kNone;
  const int y = out(layer, shape(x).rows, l.width);
  return fused || l.activation == Activation::kNone
             ? y
             : activation(name + "." + std::string(name_of(l.activation)), y, l.activation);
}

int LayerBuilder::activation(const std::string& name, int x, Activation a) {
  const std::int64_t columns = shape(x).columns;
  if (is_gated(a) && columns % 2 != 0) {
    reject(fmt::format("'{}' halves the columns of {}, which are odd", name, text(shape(x))));
  }
  Layer& layer = add_layer(LayerKind::kActivation, name, {x});
  layer.activation = a;
  return out(layer, shape(x).rows, is_gated(a) ? columns / 2 : columns);
}

int LayerBuilder::norm(const std::string& name, int x, Norm kind, bool affine) {
  Layer& layer = add_layer(LayerKind::kNorm, name, {x});
  layer.norm = kind;
  layer.affine = affine;
  return out(layer, shape(x).rows, shape(x).columns);
}

int LayerBuilder::add(const std::string& name, int a, int b) {
  same_shape(name, a, b);
  return out(add_layer(LayerKind::kAdd, name, {a, b}), shape(a).rows, shape(a).columns);
}

int LayerBuilder::multiply(const std::string& name, int a, int b) {
  same_shape(name, a, b);
  return out(add_layer(LayerKind::kMultiply, name, {a, b}), shape(a).rows, shape(a).columns);
}

int LayerBuilder::concatenate(const std::string& name, const std::vector<int>& parts) {
  std::int64_t columns = 0;
  for (const int p : parts) {
    if (shape(p).rows != shape(parts.front()).rows) {
      reject(
          fmt::format("'{}' puts columns side by side, and {} has other rows than {}; reshape or "
                      "transpose one",
                      name, text(shape(p)), text(shape(parts.front()))));
    }
    columns += shape(p).columns;
  }
  return out(add_layer(LayerKind::kConcatenate, name, parts), shape(parts.front()).rows, columns);
}

int LayerBuilder::columns(const std::string& name, int x, std::int64_t first, std::int64_t count) {
  if (first < 0 || count < 1 || first + count > shape(x).columns) {
    reject(fmt::format("'{}' takes columns {} to {} of {}; stay inside", name, first, first + count,
                       text(shape(x))));
  }
  Layer& layer = add_layer(LayerKind::kColumns, name, {x});
  layer.first = first;
  return out(layer, shape(x).rows, count);
}

int LayerBuilder::reshape(const std::string& name, int x, std::int64_t rows, std::int64_t columns) {
  if (rows * columns != shape(x).elements()) {
    reject(fmt::format("'{}' makes [{}, {}] of {}, which has {} elements, not {}", name, rows,
                       columns, text(shape(x)), shape(x).elements(), rows * columns));
  }
  return out(add_layer(LayerKind::kReshape, name, {x}), rows, columns);
}

int LayerBuilder::transpose(const std::string& name, int x) {
  return out(add_layer(LayerKind::kTranspose, name, {x}), shape(x).columns, shape(x).rows);
}

int LayerBuilder::matmul(const std::string& name, int a, int b, bool transpose_a,
                         bool transpose_b) {
  const LayerTensor& x = shape(a);
  const LayerTensor& y = shape(b);
  const std::int64_t m = transpose_a ? x.columns : x.rows;
  const std::int64_t inner = transpose_a ? x.rows : x.columns;
  const std::int64_t other = transpose_b ? y.columns : y.rows;
  const std::int64_t n = transpose_b ? y.rows : y.columns;
  if (inner != other) {
    reject(
        fmt::format("'{}' multiplies [{}, {}] by [{}, {}] (from {} and {}); the inner sizes {} "
                    "and {} must agree: check transpose_a and transpose_b",
                    name, m, inner, other, n, text(x), text(y), inner, other));
  }
  Layer& layer = add_layer(LayerKind::kMatmul, name, {a, b});
  layer.transpose_a = transpose_a;
  layer.transpose_b = transpose_b;
  return out(layer, m, n);
}

int LayerBuilder::tables(const std::string& name, int before, std::int64_t columns) {
  if (before >= 0) {
    one_row(name, before);
    columns += shape(before).columns;
  }
  for (const Layer& l : list_.layers) {
    if (l.kind == LayerKind::kTables) {
      reject(fmt::format("'{}' reads the tables again after '{}'; use that one's output", name,
                         l.name));
    }
  }
  return out(add_layer(LayerKind::kTables, name,
                       before >= 0 ? std::vector<int>{before} : std::vector<int>{}),
             1, columns);
}

int LayerBuilder::dot(const std::string& name, int x, std::int64_t dim) {
  dim = dim > 0 ? dim : shape(x).columns;
  if (shape(x).elements() % dim != 0) {
    reject(fmt::format("'{}' reads vectors of width {}, which does not divide {}", name, dim,
                       text(shape(x))));
  }
  const std::int64_t vectors = shape(x).elements() / dim;
  Layer& layer = add_layer(LayerKind::kDot, name, {x});
  layer.dim = dim;
  return out(layer, 1, dim + vectors * (vectors - 1) / 2);
}

int LayerBuilder::cross(const std::string& name, int first, int x, std::int64_t rank) {
  same_shape(name, first, x);
  Layer& layer = add_layer(LayerKind::kCross, name, {first, x});
  layer.rank = rank;
  return out(layer, shape(x).rows, shape(x).columns);
}

Layer& LayerBuilder::add_heads(LayerKind kind, const std::string& name, int qkv,
                               const LayerHeads& a) {
  const std::int64_t kv = a.kv_heads > 0 ? a.kv_heads : a.heads;
  const bool gated = kind == LayerKind::kGatedAttention;
  const std::int64_t all = a.heads * (gated ? 2 : 1) + 2 * kv;
  const std::int64_t columns = shape(qkv).columns;
  const std::int64_t dim = columns / all;
  if (a.heads % kv != 0) {
    reject(fmt::format("'{}' has {} heads and {} kv_heads; use a divisor", name, a.heads, kv));
  }
  if (dim < 1 || dim * all != columns) {
    reject(
        fmt::format("'{}' reads {}query, key and value side by side: {} heads and {} kv_heads make "
                    "{} equal parts, but {} has {} columns; give the linear before it a multiple "
                    "of {}",
                    name, gated ? "gate, " : "", a.heads, kv, all, text(shape(qkv)), columns, all));
  }
  Layer& layer = add_layer(kind, name, {qkv});
  layer.heads = a;
  layer.heads.kv_heads = kv;
  layer.heads.dim = dim;
  return layer;
}

/// Pairs are counted once for layers of one law.
void LayerBuilder::count_pairs(Layer& layer) {
  LayerHeads& a = layer.heads;
  const std::int64_t rows = list_.input(layer).rows;
  if (!a.lengths) {
    if (a.silu || a.targets > 0 || layer.kind == LayerKind::kGatedAttention) {
      reject(
          fmt::format("'{}' has no lengths, which silu, targets and gates need; for sequences "
                      "as long as a sample say \"lengths\": {{\"fixed\": {}}}",
                      layer.name, rows));
    }
    return;
  }
  if (rows > kLongestJagged) {
    reject(fmt::format("'{}' draws lengths over {} rows of a sample; the most is {}", layer.name,
                       rows, kLongestJagged));
  }
  if (a.window > 0) {
    reject(fmt::format("'{}' has lengths and a window; leave one of them out", layer.name));
  }
  if (a.targets > 0 && !a.causal) {
    reject(fmt::format("'{}' has targets, which see the rows before them; say \"causal\": true",
                       layer.name));
  }
  const auto like =
      std::find_if(list_.layers.begin(), list_.layers.end() - 1, [&](const Layer& other) {
        return other.heads.lengths == a.lengths && other.heads.causal == a.causal &&
               other.heads.targets == a.targets && list_.input(other).rows == rows;
      });
  a.pairs =
      &*like != &layer ? like->heads.pairs : expected_pairs(*a.lengths, rows, a.causal, a.targets);
}

int LayerBuilder::attention(const std::string& name, int qkv, const LayerHeads& a) {
  Layer& layer = add_heads(LayerKind::kAttention, name, qkv, a);
  count_pairs(layer);
  return out(layer, shape(qkv).rows, layer.heads.heads * layer.heads.dim);
}

int LayerBuilder::gated_attention(const std::string& name, int gqkv, const LayerHeads& a,
                                  Norm norm) {
  Layer& layer = add_heads(LayerKind::kGatedAttention, name, gqkv, a);
  layer.norm = norm;
  count_pairs(layer);
  return out(layer, shape(gqkv).rows, layer.heads.heads * layer.heads.dim);
}

int LayerBuilder::rope(const std::string& name, int qkv, const LayerHeads& a) {
  Layer& layer = add_heads(LayerKind::kRope, name, qkv, a);
  if (layer.heads.dim % 2 != 0) {
    reject(
        fmt::format("'{}' turns pairs of columns, and heads of {} are {} wide; use an even width",
                    name, text(shape(qkv)), layer.heads.dim));
  }
  return out(layer, shape(qkv).rows, shape(qkv).columns);
}

int LayerBuilder::embedding(const std::string& name, int ids, std::int64_t vocabulary,
                            std::int64_t width) {
  if (shape(ids).columns != 1) {
    reject(
        fmt::format("'{}' looks up one id a row, and {} has {} columns; declare the ids as "
                    "[rows, 1]",
                    name, text(shape(ids)), shape(ids).columns));
  }
  Layer& layer = add_layer(LayerKind::kTokenEmbedding, name, {ids});
  layer.vocabulary = vocabulary;
  return out(layer, shape(ids).rows, width);
}

int LayerBuilder::softmax(const std::string& name, int x) {
  return out(add_layer(LayerKind::kSoftmax, name, {x}), shape(x).rows, shape(x).columns);
}

int LayerBuilder::mean_rows(const std::string& name, int x, std::int64_t rows) {
  if (rows < 1 || shape(x).rows % rows != 0) {
    reject(
        fmt::format("'{}' takes the mean of {} rows at a time, which does not divide the rows of "
                    "{}",
                    name, rows, text(shape(x))));
  }
  return out(add_layer(LayerKind::kMeanRows, name, {x}), shape(x).rows / rows, shape(x).columns);
}

int LayerBuilder::modulate(const std::string& name, int x, int c, std::int64_t first) {
  one_row(name, c);
  if (first < 0 || first + 2 * shape(x).columns > shape(c).columns) {
    reject(fmt::format("'{}' reads shift and scale from columns {} to {} of {}; make it wider",
                       name, first, first + 2 * shape(x).columns, text(shape(c))));
  }
  Layer& layer = add_layer(LayerKind::kModulate, name, {x, c});
  layer.first = first;
  return out(layer, shape(x).rows, shape(x).columns);
}

int LayerBuilder::gate(const std::string& name, int x, int branch, int c, std::int64_t first) {
  same_shape(name, x, branch);
  one_row(name, c);
  if (first < 0 || first + shape(x).columns > shape(c).columns) {
    reject(fmt::format("'{}' reads its gate from columns {} to {} of {}; make it wider", name,
                       first, first + shape(x).columns, text(shape(c))));
  }
  Layer& layer = add_layer(LayerKind::kGate, name, {x, branch, c});
  layer.first = first;
  return out(layer, shape(x).rows, shape(x).columns);
}

int LayerBuilder::positions(const std::string& name, int x) {
  return out(add_layer(LayerKind::kPositions, name, {x}), shape(x).rows, shape(x).columns);
}

int LayerBuilder::convolution(const std::string& name, int x, const Convolution& c) {
  if (c.grid[0] * c.grid[1] != shape(x).rows) {
    reject(fmt::format("'{}' sees a grid of {} x {} positions, but {} has {} rows", name, c.grid[0],
                       c.grid[1], text(shape(x)), shape(x).rows));
  }
  Layer& layer = add_layer(LayerKind::kConvolution, name, {x});
  layer.bias = c.bias;
  layer.grid = c.grid;
  layer.kernel = c.kernel;
  layer.stride = c.stride;
  const auto positions = [&](std::size_t i) { return (c.grid[i] + c.stride[i] - 1) / c.stride[i]; };
  return out(layer, positions(0) * positions(1), c.channels);
}

int LayerBuilder::time_major(const std::string& name, int x) {
  const int y = out(add_layer(LayerKind::kTimeMajor, name, {x}), shape(x).rows, shape(x).columns);
  list_.tensors.back().time_major = true;
  return y;
}

int LayerBuilder::sample_major(const std::string& name, int x) {
  if (!shape(x).time_major) {
    reject(
        fmt::format("'{}' undoes time_major, which {} has not been through", name, text(shape(x))));
  }
  const int y = out(add_layer(LayerKind::kSampleMajor, name, {x}), shape(x).rows, shape(x).columns);
  list_.tensors.back().time_major = false;
  return y;
}

int LayerBuilder::recurrent(const std::string& name, int x, Activation a, bool reverse) {
  if (!shape(x).time_major) {
    reject(
        fmt::format("'{}' goes from frame to frame of {}, whose rows are sample by sample; put a "
                    "time_major before it",
                    name, text(shape(x))));
  }
  if (is_gated(a) || (a != Activation::kRelu && a != Activation::kNone)) {
    reject(
        fmt::format("'{}' has activation {}; a recurrence takes relu or none", name, name_of(a)));
  }
  Layer& layer = add_layer(LayerKind::kRecurrent, name, {x});
  layer.activation = a;
  layer.reverse = reverse;
  return out(layer, shape(x).rows, shape(x).columns);
}

int LayerBuilder::collective(LayerKind kind, const std::string& name, int x, int group) {
  const std::int64_t ranks = list_.groups[static_cast<std::size_t>(group)].size;
  std::int64_t columns = shape(x).columns;
  if (kind == LayerKind::kReduceScatter || kind == LayerKind::kAllToAll) {
    if (columns % ranks != 0) {
      reject(fmt::format("'{}' deals the columns of {} out to {} ranks, which does not divide them",
                         name, text(shape(x)), ranks));
    }
    columns = kind == LayerKind::kReduceScatter ? columns / ranks : columns;
  } else if (kind == LayerKind::kAllGather) {
    columns *= ranks;
  }
  Layer& layer = add_layer(kind, name, {x});
  layer.group = group;
  return out(layer, shape(x).rows, columns);
}

void LayerBuilder::loss(LayerKind kind, const std::string& name, int x, std::int64_t labels) {
  if (kind == LayerKind::kBinaryCrossEntropy && shape(x).elements() != 1) {
    reject(
        fmt::format("'{}' takes one logit a sample, and {} has {} elements; end in a linear of "
                    "width 1",
                    name, text(shape(x)), shape(x).elements()));
  }
  if (!shape(x).needs_gradient) {
    reject(fmt::format("'{}' is a loss of {}, which depends on no parameter; train something", name,
                       text(shape(x))));
  }
  Layer& layer = add_layer(kind, name, {x});
  layer.labels = labels;
}

void LayerBuilder::in_batch_softmax(const std::string& name, const std::vector<int>& in,
                                    bool corrected) {
  same_shape(name, in[0], in[1]);
  for (const int x : in) {
    if (shape(x).columns != shape(in[0]).columns || !shape(x).needs_gradient) {
      reject(fmt::format("'{}' scores {} against {}; give vectors of one width, all trained", name,
                         text(shape(in[0])), text(shape(x))));
    }
  }
  Layer& layer = add_layer(LayerKind::kInBatchSoftmax, name, in);
  layer.labels = corrected ? scored_items(list_, layer) : 0;
}

LayerList LayerBuilder::finish() && {
  if (std::none_of(list_.layers.begin(), list_.layers.end(),
                   [](const Layer& l) { return is_loss(l.kind); })) {
    reject(
        "there is no loss, so nothing would be trained; end in binary_cross_entropy, "
        "mean_squared_error, cross_entropy, in_batch_softmax or connectionist");
  }
  std::vector<bool> used(list_.tensors.size(), false);
  for (const Layer& l : list_.layers) {
    for (const std::int32_t t : l.in) {
      used[static_cast<std::size_t>(t)] = true;
    }
  }
  for (std::size_t i = 0; i < list_.layers.size(); ++i) {
    const Layer& l = list_.layers[i];
    if (l.out >= 0 && !used[static_cast<std::size_t>(l.out)]) {
      throw InputError(places_[i], fmt::format("nothing reads '{}'; use it or remove it", l.name));
    }
  }
  for (const std::int32_t t : list_.inputs) {
    if (!used[static_cast<std::size_t>(t)]) {
      reject(
          fmt::format("nothing reads the input '{}'; use it or remove it", list_.tensor(t).name));
    }
  }
  return std::move(list_);
}

}  // namespace stepcast
