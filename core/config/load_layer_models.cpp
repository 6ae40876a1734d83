#include "core/config/internal/layer_loaders.h"

// Workloads of kinds wukong, dhen, dit and rnn_ctc.

namespace stepcast::config {
namespace {

constexpr std::int64_t kMostLayers = 10'000;

/// What all recommendation models share: dense features, both MLPs and tables.
DlrmWorkload recommendation_from(const Value& v) {
  DlrmWorkload w;
  w.dense_features = v.at("dense_features", "the number of dense features").integer(1, kWidest);
  w.bottom_mlp = widths_from(v.at("bottom_mlp", "a list of output widths"));
  const Value top = v.at("top_mlp", "a list of output widths that ends in 1");
  w.top_mlp = widths_from(top);
  if (w.top_mlp.back() != 1) {
    top.fail("a list that ends in 1: the model has one logit");
  }
  w.tables = tables_from(v.at("tables", "a list of tables"), 1);
  return w;
}

/// The finished workload, its shapes checked.
template <class Model>
DlrmWorkload checked(DlrmWorkload w, Model model, const Value& v) {
  w.layers = std::make_shared<const LayerModel>(LayerModel{std::move(model)});
  (void)layers_of(w, 1, v.where());
  return w;
}

std::int64_t positive(const Value& v, const char* key, const char* what,
                      std::int64_t most = kWidest) {
  return v.at(key, what).integer(1, most);
}

template <std::size_t N>
std::array<std::int64_t, N> sizes(const Value& v, const char* expected) {
  const auto items = v.items(expected);
  if (items.size() != N) {
    v.fail(expected);
  }
  std::array<std::int64_t, N> all{};
  for (std::size_t i = 0; i < N; ++i) {
    all.at(i) = items[i].integer(1, kWidest);
  }
  return all;
}

}  // namespace

const std::vector<std::pair<std::string, DhenModel::Module>>& dhen_module_names() {
  static const std::vector<std::pair<std::string, DhenModel::Module>> names{
      {"dot", DhenModel::Module::kDot},
      {"attention", DhenModel::Module::kAttention},
      {"linear", DhenModel::Module::kLinear},
      {"cross", DhenModel::Module::kCross}};
  return names;
}

DlrmWorkload wukong_from(const Value& v) {
  v.keys({"kind", "name", "source", "default_batch", "dense_features", "bottom_mlp", "top_mlp",
          "tables", "layers", "fmb", "lcb", "rank", "mlp"});
  WukongModel m;
  m.layers = positive(v, "layers", "the number of interaction layers", kMostLayers);
  m.fmb = positive(v, "fmb", "embeddings a factorization machine block puts out");
  m.lcb = positive(v, "lcb", "embeddings a linear compress block puts out");
  m.rank = positive(v, "rank", "the rank of the factorization machine's projection");
  m.mlp = widths_from(v.at("mlp", "hidden widths of the block's MLP"));
  return checked(recommendation_from(v), std::move(m), v);
}

DlrmWorkload dhen_from(const Value& v) {
  v.keys({"kind", "name", "source", "default_batch", "dense_features", "bottom_mlp", "top_mlp",
          "tables", "layers", "features", "modules", "heads", "rank"});
  DhenModel m;
  m.layers = positive(v, "layers", "the number of layers", kMostLayers);
  m.features = positive(v, "features", "embeddings a layer puts out");
  const char* expected = "a list of interaction modules, such as [\"dot\", \"linear\"]";
  for (const Value& module : v.at("modules", expected).items(expected, 1)) {
    m.modules.push_back(module.choice(dhen_module_names()));
  }
  const auto has = [&](DhenModel::Module wanted) {
    return std::find(m.modules.begin(), m.modules.end(), wanted) != m.modules.end();
  };
  const auto only_with = [&](const char* key, DhenModel::Module module, std::int64_t& into,
                             const char* what) {
    if (has(module)) {
      into = positive(v, key, what);
    } else if (const auto unused = v.find(key)) {
      unused->refuse(
          fmt::format("found {}, but no module reads it; remove it", shown(unused->json())));
    }
  };
  only_with("heads", DhenModel::Module::kAttention, m.heads, "heads of the attention module");
  only_with("rank", DhenModel::Module::kCross, m.rank, "the rank of the cross module");
  return checked(recommendation_from(v), std::move(m), v);
}

DlrmWorkload dit_from(const Value& v) {
  v.keys({"kind", "name", "source", "default_batch", "layers", "hidden", "heads", "ffn_hidden",
          "latent", "channels", "patch", "classes", "frequencies", "learned_variance"});
  DitModel m;
  m.layers = positive(v, "layers", "the number of blocks", kMostLayers);
  m.hidden = positive(v, "hidden", "the hidden width");
  const Value heads = v.at("heads", "the number of attention heads");
  m.heads = heads.integer(1, 1 << 16);
  if (m.hidden % m.heads != 0) {
    heads.fail(fmt::format("a divisor of hidden = {}", m.hidden));
  }
  m.ffn_hidden = 4 * m.hidden;
  if (const auto f = v.find("ffn_hidden")) {
    m.ffn_hidden = f->integer(1, kWidest);
  }
  const char* grid = "[frames, height, width] of the latent, such as [1, 32, 32]";
  const Value latent = v.at("latent", grid);
  m.latent = sizes<3>(latent, grid);
  m.channels = positive(v, "channels", "channels of the latent");
  if (const auto patch = v.find("patch")) {
    m.patch = sizes<3>(*patch, "[frames, height, width] of a patch, such as [1, 2, 2]");
  }
  for (std::size_t i = 0; i < 3; ++i) {
    if (m.latent.at(i) % m.patch.at(i) != 0) {
      latent.fail(fmt::format("sizes that patch = [{}, {}, {}] divides", m.patch[0], m.patch[1],
                              m.patch[2]));
    }
  }
  if (const auto classes = v.find("classes")) {
    m.classes = classes->integer(0, 1 << 26);
  }
  if (const auto f = v.find("frequencies")) {
    m.frequencies = f->integer(1, kWidest);
  }
  if (const auto variance = v.find("learned_variance")) {
    m.learned_variance = variance->boolean();
  }
  return checked({}, m, v);
}

DlrmWorkload rnn_ctc_from(const Value& v) {
  v.keys({"kind", "name", "source", "default_batch", "frames", "frequencies", "convolutions",
          "layers", "hidden", "bidirectional", "symbols", "labels"});
  RecurrentCtcModel m;
  m.frames = positive(v, "frames", "spectrogram frames of a sample");
  m.frequencies = positive(v, "frequencies", "frequency bins of a frame");
  for (const Value& c : v.at("convolutions", "a list of convolutions over (time, frequency)")
                            .items("a list of convolutions")) {
    c.keys({"channels", "kernel", "stride"});
    RecurrentCtcModel::Convolution layer;
    layer.channels = positive(c, "channels", "output channels");
    layer.kernel = sizes<2>(c.at("kernel", "[time, frequency]"), "[time, frequency]");
    if (const auto stride = c.find("stride")) {
      layer.stride = sizes<2>(*stride, "[time, frequency]");
    }
    m.convolutions.push_back(layer);
  }
  m.layers = positive(v, "layers", "the number of recurrent layers", 1000);
  m.hidden = positive(v, "hidden", "the width of a recurrent layer");
  if (const auto both = v.find("bidirectional")) {
    m.bidirectional = both->boolean();
  }
  m.symbols = positive(v, "symbols", "symbols of the alphabet, the blank included");
  m.labels = positive(v, "labels", "labels of a sample");
  return checked({}, std::move(m), v);
}

}  // namespace stepcast::config
