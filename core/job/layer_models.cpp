#include <algorithm>

#include "core/error.h"
#include "core/job/layer_builder.h"
#include "core/job/layers.h"

namespace stepcast {
namespace {

std::int64_t table_columns(const LayeredWorkload& w) {
  std::int64_t columns = 0;
  for (const EmbeddingTable& t : w.tables) {
    columns += t.output_columns();
  }
  return columns;
}

int mlp(LayerBuilder& b, const std::string& name, int x, const std::vector<std::int64_t>& widths,
        bool ends_linear) {
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const bool last = ends_linear && i + 1 == widths.size();
    x = b.linear(fmt::format("{}.{}", name, i), x,
                 {.width = widths[i], .activation = last ? Activation::kNone : Activation::kRelu});
  }
  return x;
}

/// Bottom MLP, then the columns [bottom | tables].
int features(LayerBuilder& b, const LayeredWorkload& w) {
  const int dense = b.input("dense", 1, w.dense_features);
  return b.tables("features", mlp(b, "bottom", dense, w.bottom_mlp, false), table_columns(w));
}

int interaction(LayerBuilder& b, const LayeredWorkload& w, int stacked) {
  switch (w.interaction.kind) {
    case InteractionKind::kCat:
      return stacked;
    case InteractionKind::kDot:
      return b.dot("interaction", stacked, w.bottom_mlp.back());
    case InteractionKind::kDcnV2:
      break;
  }
  int x = stacked;
  for (std::int64_t i = 0; i < w.interaction.layers; ++i) {
    x = b.cross(fmt::format("cross.{}", i), stacked, x, w.interaction.rank);
  }
  return x;
}

/// Embeddings of equal width as rows [features, width].
int embeddings(LayerBuilder& b, const LayeredWorkload& w) {
  const std::int64_t width = w.bottom_mlp.back();
  for (const EmbeddingTable& t : w.tables) {
    if (t.dim != width) {
      b.reject(
          fmt::format("table '{}' has dim {}, and the last width of bottom_mlp is {}: the "
                      "interaction layers stack embeddings of one width; make them equal",
                      t.name, t.dim, width));
    }
  }
  const int stacked = features(b, w);
  return b.reshape("embeddings", stacked, table_columns(w) / width + 1, width);
}

/// Linear combinations of the rows of x; `x` as columns of its transpose.
int combine_rows(LayerBuilder& b, const std::string& name, int transposed, std::int64_t rows) {
  return b.linear(name, transposed, {.width = rows, .bias = false});
}

/// One Wukong layer, on X transposed: [width, embeddings].
int wukong_layer(LayerBuilder& b, const WukongModel& m, const std::string& at, int x) {
  const std::int64_t width = b.shape(x).rows;
  const std::int64_t count = b.shape(x).columns;
  // X (X^T Y): the optimised form of section 3.4, linear in the number of embeddings.
  const int projected = combine_rows(b, at + "fmb.project", x, m.rank);
  int f = b.matmul(at + "fmb.interact", x, projected, true);  // [count, rank]
  f = b.reshape(at + "fmb.flat", f, 1, count * m.rank);
  f = b.norm(at + "fmb.norm", f);
  f = mlp(b, at + "fmb.mlp", f, m.mlp, false);
  f = b.linear(at + "fmb.out", f, {.width = m.fmb * width, .activation = Activation::kRelu});
  f = b.reshape(at + "fmb.embeddings", f, width, m.fmb);
  const int l = combine_rows(b, at + "lcb", x, m.lcb);
  const int both = b.concatenate(at + "concatenate", {f, l});
  const int shortcut =
      count == m.fmb + m.lcb ? x : combine_rows(b, at + "shortcut", x, m.fmb + m.lcb);
  int y = b.add(at + "residual", both, shortcut);
  // Layer norm is over the width of each embedding.
  y = b.transpose(at + "rows", y);
  y = b.norm(at + "norm", y);
  return b.transpose(at + "columns", y);
}

LayerList wukong(const WukongModel& m, const LayeredWorkload& w, const std::string& place) {
  LayerBuilder b(place);
  int x = b.transpose("embeddings.transposed", embeddings(b, w));
  for (std::int64_t i = 0; i < m.layers; ++i) {
    x = wukong_layer(b, m, fmt::format("wukong.{}.", i), x);
  }
  x = b.reshape("flat", x, 1, b.shape(x).elements());
  b.loss(LayerKind::kBinaryCrossEntropy, "loss", mlp(b, "top", x, w.top_mlp, true));
  return std::move(b).finish();
}

int dhen_module(LayerBuilder& b, const DhenModel& m, DhenModel::Module module,
                const std::string& at, int x) {
  const std::int64_t width = b.shape(x).columns;
  const std::int64_t count = b.shape(x).rows;
  const std::int64_t flat = count * width;
  const std::int64_t out = m.features * width;
  int y = x;
  switch (module) {
    case DhenModel::Module::kDot:
      y = b.dot(at + "dot", x);
      break;
    case DhenModel::Module::kAttention: {
      const int qkv = b.linear(at + "attention.qkv", x, {.width = 3 * width});
      y = b.attention(at + "attention", qkv, {.heads = m.heads});
      y = b.linear(at + "attention.projection", y, {.width = width});
      y = b.reshape(at + "attention.flat", y, 1, flat);
      break;
    }
    case DhenModel::Module::kLinear:
      y = b.reshape(at + "linear.flat", x, 1, flat);
      break;
    case DhenModel::Module::kCross: {
      const int stacked = b.reshape(at + "cross.flat", x, 1, flat);
      y = b.cross(at + "cross", stacked, stacked, m.rank);
      break;
    }
  }
  constexpr std::array<const char*, 4> kNames{"dot", "attention", "linear", "cross"};
  y = b.linear(at + kNames.at(static_cast<std::size_t>(module)) + ".out", y, {.width = out});
  return b.reshape(at + kNames.at(static_cast<std::size_t>(module)) + ".embeddings", y, m.features,
                   width);
}

LayerList dhen(const DhenModel& m, const LayeredWorkload& w, const std::string& place) {
  LayerBuilder b(place);
  int x = embeddings(b, w);
  for (std::int64_t i = 0; i < m.layers; ++i) {
    const std::string at = fmt::format("dhen.{}.", i);
    const std::int64_t width = b.shape(x).columns;
    const std::int64_t count = b.shape(x).rows;
    int sum = x;
    if (count != m.features) {  // the shortcut in the layer's own size
      sum = b.reshape(at + "shortcut.flat", x, 1, count * width);
      sum = b.linear(at + "shortcut", sum, {.width = m.features * width});
      sum = b.reshape(at + "shortcut.embeddings", sum, m.features, width);
    }
    for (std::size_t k = 0; k < m.modules.size(); ++k) {
      const int y = dhen_module(b, m, m.modules[k], at, x);
      sum = b.add(fmt::format("{}sum.{}", at, k), sum, y);
    }
    x = b.norm(at + "norm", sum);
  }
  x = b.reshape("flat", x, 1, b.shape(x).elements());
  b.loss(LayerKind::kBinaryCrossEntropy, "loss", mlp(b, "top", x, w.top_mlp, true));
  return std::move(b).finish();
}

/// One block of section 3.2, split over `group` as Megatron splits a transformer layer (arXiv
/// 1909.08053): heads and feed-forward columns; the conditioning is computed everywhere.
int dit_block(LayerBuilder& b, const DitModel& m, std::int64_t tensor, int group,
              const std::string& at, int x, int condition) {
  const std::int64_t h = m.hidden;
  const int c = b.linear(at + "modulation", condition, {.width = 6 * h});
  const auto enter = [&](const std::string& name, int y) {
    return group < 0 ? y : b.collective(LayerKind::kCopyToGroup, name, y, group);
  };
  const auto leave = [&](const std::string& name, int y) {
    return group < 0 ? y : b.collective(LayerKind::kAllReduce, name, y, group);
  };
  int y = b.norm(at + "norm1", x, Norm::kLayerNorm, false);
  y = enter(at + "attention.enter", b.modulate(at + "modulate1", y, c, 0));
  y = b.linear(at + "attention.qkv", y, {.width = 3 * h / tensor});
  y = b.attention(at + "attention", y, {.heads = m.heads / tensor});
  y = leave(at + "attention.reduce", b.linear(at + "attention.projection", y, {.width = h}));
  x = b.gate(at + "gate1", x, y, c, 2 * h);
  y = b.norm(at + "norm2", x, Norm::kLayerNorm, false);
  y = enter(at + "mlp.enter", b.modulate(at + "modulate2", y, c, 3 * h));
  y = b.linear(at + "mlp.fc1", y,
               {.width = m.ffn_hidden / tensor, .activation = Activation::kGelu});
  y = leave(at + "mlp.reduce", b.linear(at + "mlp.fc2", y, {.width = h}));
  return b.gate(at + "gate2", x, y, c, 5 * h);
}

LayerList dit(const DitModel& m, std::int64_t tensor, const std::string& place) {
  LayerBuilder b(place);
  if (m.heads % tensor != 0 || m.ffn_hidden % tensor != 0) {
    b.reject(
        fmt::format("parallel.tensor = {} does not divide {} heads and a feed-forward width of "
                    "{}; use a divisor of both",
                    tensor, m.heads, m.ffn_hidden));
  }
  const int group = tensor > 1 ? b.group("tensor", tensor) : -1;
  const std::int64_t pixels = m.patch[0] * m.patch[1] * m.patch[2];
  const int latent = b.input("latent", m.tokens(), pixels * m.channels);
  const int time = b.input("time", 1, m.frequencies);
  int x = b.linear("patches", latent, {.width = m.hidden});
  x = b.positions("positions", x);
  int c = b.linear("time.0", time, {.width = m.hidden, .activation = Activation::kSilu});
  c = b.linear("time.1", c, {.width = m.hidden});
  if (m.classes > 0) {  // one more row for samples without a class
    const int label = b.input("class", 1, 1);
    c = b.add("condition", c, b.embedding("classes", label, m.classes + 1, m.hidden));
  }
  c = b.activation("condition.silu", c, Activation::kSilu);
  for (std::int64_t i = 0; i < m.layers; ++i) {
    x = dit_block(b, m, tensor, group, fmt::format("block.{}.", i), x, c);
  }
  const int last = b.linear("final.modulation", c, {.width = 2 * m.hidden});
  x = b.norm("final.norm", x, Norm::kLayerNorm, false);
  x = b.modulate("final.modulate", x, last, 0);
  x = b.linear("final.patches", x, {.width = pixels * m.channels * (m.learned_variance ? 2 : 1)});
  b.loss(LayerKind::kMeanSquaredError, "loss", x);
  return std::move(b).finish();
}

LayerList rnn_ctc(const RecurrentCtcModel& m, const std::string& place) {
  LayerBuilder b(place);
  std::array<std::int64_t, 2> grid{m.frames, m.frequencies};
  int x = b.input("spectrogram", m.frames * m.frequencies, 1);
  for (std::size_t i = 0; i < m.convolutions.size(); ++i) {
    const auto& c = m.convolutions[i];
    const std::string at = fmt::format("convolution.{}", i);
    x = b.convolution(at, x,
                      {.grid = grid,
                       .kernel = c.kernel,
                       .stride = c.stride,
                       .channels = c.channels,
                       .bias = false});
    for (std::size_t k = 0; k < 2; ++k) {
      grid[k] = (grid[k] + c.stride[k] - 1) / c.stride[k];
    }
    x = b.norm(at + ".norm", x);
    x = b.activation(at + ".relu", x, Activation::kRelu);
  }
  x = b.reshape("frames", x, grid[0], b.shape(x).elements() / grid[0]);
  x = b.time_major("frames.time_major", x);
  for (std::int64_t i = 0; i < m.layers; ++i) {
    const std::string at = fmt::format("recurrent.{}", i);
    // Both directions read one product, normalised over the sequence (section 3.2).
    int y = b.linear(at + ".input", x, {.width = m.hidden, .bias = false});
    y = b.norm(at + ".norm", y);
    x = b.recurrent(at + ".forwards", y, Activation::kRelu, false);
    if (m.bidirectional) {
      x = b.add(at + ".sum", x, b.recurrent(at + ".backwards", y, Activation::kRelu, true));
    }
  }
  x = b.norm("connected.norm", b.linear("connected", x, {.width = m.hidden, .bias = false}));
  x = b.activation("connected.relu", x, Activation::kRelu);
  x = b.linear("symbols", x, {.width = m.symbols});
  b.loss(LayerKind::kConnectionist, "loss", x, m.labels);
  return std::move(b).finish();
}

/// Towers put out vectors of the tables' widths, `compression` times fewer.
LayeredWorkload narrower(const LayeredWorkload& w, std::int64_t compression,
                         const std::string& place) {
  if (compression == 1) {
    return {};
  }
  const auto tables = static_cast<std::int64_t>(w.tables.size());
  const bool listed = w.layers != nullptr && w.layers->as<ListedModel>() != nullptr;
  const bool equal = std::all_of(w.tables.begin(), w.tables.end(), [&](const EmbeddingTable& t) {
    return t.dim == w.tables.front().dim && t.feature_count() == 1;
  });
  if (listed || !equal || tables % compression != 0) {
    throw InputError(
        place + ": tables",
        fmt::format(
            "towers make {} times fewer vectors of one width, which needs a "
            "multiple of {} tables of one dim and one feature in a workload that is not listed "
            "by hand, and there are {}",
            compression, compression, tables));
  }
  LayeredWorkload fewer = w;
  fewer.tables.resize(static_cast<std::size_t>(tables / compression));
  return fewer;
}

}  // namespace

LayerList layers_of(const LayeredWorkload& whole, std::int64_t tensor, const std::string& place,
                    std::int64_t tower_compression) {
  const LayeredWorkload compressed = narrower(whole, tower_compression, place);
  const LayeredWorkload& w = tower_compression > 1 ? compressed : whole;
  if (w.layers == nullptr) {
    LayerBuilder b(place);
    const int x = interaction(b, w, features(b, w));
    b.loss(LayerKind::kBinaryCrossEntropy, "loss", mlp(b, "top", x, w.top_mlp, true));
    return std::move(b).finish();
  }
  const LayerModel& m = *w.layers;
  if (const auto* spec = m.as<WukongModel>()) {
    return wukong(*spec, w, place);
  }
  if (const auto* spec = m.as<DhenModel>()) {
    return dhen(*spec, w, place);
  }
  if (const auto* spec = m.as<DitModel>()) {
    return dit(*spec, tensor, place);
  }
  if (const auto* spec = m.as<RecurrentCtcModel>()) {
    return rnn_ctc(*spec, place);
  }
  return m.as<ListedModel>()->list;
}

}  // namespace stepcast
