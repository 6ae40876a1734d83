#include "core/config/internal/layer_loaders.h"
#include "core/config/internal/loaders.h"

// Workloads of kinds wukong, dhen, dit and rnn_ctc.

namespace stepcast::config {
namespace {

KeyFacts sized(std::string_view name, std::string_view help, std::int64_t most = kWidest) {
  return needed_fact(name, integer_form(1, most), help);
}
/// A number of sizes.
OrderedJson sizes_form(std::size_t count) {
  return list_form(integer_form(1, kWidest), count, count);
}
KeyTable joined(KeyTable first, const KeyTable& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

KeyTable convolution_table() {
  return {sized("channels", "output channels"),
          needed_fact("kernel", sizes_form(2), "[time, frequency]"),
          open_fact("stride", sizes_form(2), "[time, frequency]", "[1, 1]")};
}

/// Parts that all recommendation models share: dense features, both MLPs and tables.
LayeredWorkload recommendation_from(const Value& v) {
  LayeredWorkload w;
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
LayeredWorkload checked(LayeredWorkload w, Model model, const Value& v) {
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

KeyTable wukong_table() {
  return joined(joined(kind_table("wukong"), recommendation_table()),
                {sized("layers", "interaction layers", kMostLayers),
                 sized("fmb", "embeddings a factorization machine block puts out"),
                 sized("lcb", "embeddings a linear compress block puts out"),
                 sized("rank", "rank of the factorization machine's projection"),
                 needed_fact("mlp", widths_form(), "hidden widths of the block's MLP")});
}

KeyTable dhen_table() {
  return joined(
      joined(kind_table("dhen"), recommendation_table()),
      {sized("layers", "layers", kMostLayers), sized("features", "embeddings a layer puts out"),
       needed_fact("modules", list_form(choice_form(dhen_module_names()), 1),
                   "interaction modules side by side"),
       open_fact("heads", integer_form(1, kWidest), "of the module attention", "required by it"),
       open_fact("rank", integer_form(1, kWidest), "of the module cross", "required by it")});
}

KeyTable dit_table() {
  return joined(kind_table("dit"),
                {sized("layers", "blocks", kMostLayers), sized("hidden", "width"),
                 sized("heads", "attention heads", 1 << 16),
                 open_fact("ffn_hidden", integer_form(1, kWidest),
                           "width of the feed-forward block", "4 hidden"),
                 needed_fact("latent", sizes_form(3), "[frames, height, width]"),
                 sized("channels", "channels of the latent"),
                 open_fact("patch", sizes_form(3), "[frames, height, width]", "[1, 2, 2]"),
                 usual_fact("classes", integer_form(0, 1 << 26),
                            "classes a sample may be of; 0: none", DitModel{}.classes),
                 usual_fact("frequencies", integer_form(1, kWidest), "of the embedding of time",
                            DitModel{}.frequencies),
                 usual_fact("learned_variance", boolean_form(), "the model puts out a variance too",
                            DitModel{}.learned_variance)});
}

KeyTable rnn_ctc_table() {
  return joined(
      kind_table("rnn_ctc"),
      {sized("frames", "spectrogram frames of a sample"),
       sized("frequencies", "frequency bins of a frame"),
       needed_fact("convolutions", list_form(object_form(convolution_table())),
                   "over time and frequency"),
       sized("layers", "recurrent layers", 1000), sized("hidden", "width of a recurrent layer"),
       usual_fact("bidirectional", boolean_form(), "layers run both ways",
                  RecurrentCtcModel{}.bidirectional),
       sized("symbols", "symbols of the alphabet, the blank included"),
       sized("labels", "labels of a sample")});
}

LayeredWorkload wukong_from(const Value& v) {
  expect_keys(v, wukong_table());
  WukongModel m;
  m.layers = positive(v, "layers", "the number of interaction layers", kMostLayers);
  m.fmb = positive(v, "fmb", "embeddings a factorization machine block puts out");
  m.lcb = positive(v, "lcb", "embeddings a linear compress block puts out");
  m.rank = positive(v, "rank", "the rank of the factorization machine's projection");
  m.mlp = widths_from(v.at("mlp", "hidden widths of the block's MLP"));
  return checked(recommendation_from(v), std::move(m), v);
}

LayeredWorkload dhen_from(const Value& v) {
  expect_keys(v, dhen_table());
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
      unused->reject(
          fmt::format("found {}, but no module reads it; remove it", shown(unused->json())));
    }
  };
  only_with("heads", DhenModel::Module::kAttention, m.heads, "heads of the attention module");
  only_with("rank", DhenModel::Module::kCross, m.rank, "the rank of the cross module");
  return checked(recommendation_from(v), std::move(m), v);
}

LayeredWorkload dit_from(const Value& v) {
  expect_keys(v, dit_table());
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

LayeredWorkload rnn_ctc_from(const Value& v) {
  expect_keys(v, rnn_ctc_table());
  RecurrentCtcModel m;
  m.frames = positive(v, "frames", "spectrogram frames of a sample");
  m.frequencies = positive(v, "frequencies", "frequency bins of a frame");
  for (const Value& c : v.at("convolutions", "a list of convolutions over (time, frequency)")
                            .items("a list of convolutions")) {
    expect_keys(c, convolution_table());
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

void add_layer_model(OrderedJson& j, const LayerModel& model) {
  if (const auto* m = model.as<WukongModel>()) {
    j["layers"] = m->layers;
    j["fmb"] = m->fmb;
    j["lcb"] = m->lcb;
    j["rank"] = m->rank;
    j["mlp"] = m->mlp;
  } else if (const auto* d = model.as<DhenModel>()) {
    j["layers"] = d->layers;
    j["features"] = d->features;
    j["modules"] = OrderedJson::array();
    for (const DhenModel::Module module : d->modules) {
      j["modules"].push_back(name_in(dhen_module_names(), module));
      if (module == DhenModel::Module::kAttention) {
        j["heads"] = d->heads;
      } else if (module == DhenModel::Module::kCross) {
        j["rank"] = d->rank;
      }
    }
  } else if (const auto* t = model.as<DitModel>()) {
    j["layers"] = t->layers;
    j["hidden"] = t->hidden;
    j["heads"] = t->heads;
    j["ffn_hidden"] = t->ffn_hidden;
    j["latent"] = t->latent;
    j["channels"] = t->channels;
    j["patch"] = t->patch;
    j["classes"] = t->classes;
    j["frequencies"] = t->frequencies;
    j["learned_variance"] = t->learned_variance;
  } else if (const auto* r = model.as<RecurrentCtcModel>()) {
    j["frames"] = r->frames;
    j["frequencies"] = r->frequencies;
    j["convolutions"] = OrderedJson::array();
    for (const auto& c : r->convolutions) {
      j["convolutions"].push_back(
          {{"channels", c.channels}, {"kernel", c.kernel}, {"stride", c.stride}});
    }
    j["layers"] = r->layers;
    j["hidden"] = r->hidden;
    j["bidirectional"] = r->bidirectional;
    j["symbols"] = r->symbols;
    j["labels"] = r->labels;
  } else {
    const auto listed = OrderedJson::parse(model.as<ListedModel>()->text);
    for (const auto& [key, value] : listed.items()) {
      j[key] = value;
    }
  }
}

}  // namespace stepcast::config
