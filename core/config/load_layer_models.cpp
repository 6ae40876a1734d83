#include "core/config/internal/keys.h"
#include "core/config/internal/layer_loaders.h"

// Workloads of kinds wukong, dhen, dit and rnn_ctc.

namespace stepcast::config {
namespace {

template <class S>
Key<S> sized(std::string_view name, std::int64_t S::*member, std::string_view help,
             std::string_view expected = {}, std::int64_t most = kWidest) {
  return integer_key(name, member, 1, most, help).needed(expected.empty() ? help : expected);
}
/// A number of sizes.
template <class S, std::size_t N>
Key<S> sizes_key(std::string_view name, std::array<std::int64_t, N> S::*member,
                 std::string_view help, const char* expected) {
  return custom_key<S>(
      name, list_form(integer_form(1, kWidest), N, N), help,
      [=](const Value& v, S& into, const Reading&) {
        const auto items = v.items(expected);
        if (items.size() != N) {
          v.fail(expected);
        }
        for (std::size_t i = 0; i < N; ++i) {
          (into.*member).at(i) = items[i].integer(1, kWidest);
        }
      },
      [=](const S& of, const Writing&) { return OrderedJson(of.*member); });
}

template <class M>
KeyTable table_of(std::string_view kind, const Keys<M>& keys, bool recommends) {
  KeyTable table = kind_table(kind);
  for (const KeyTable& more : {recommends ? recommendation_table() : KeyTable{}, facts_of(keys)}) {
    table.insert(table.end(), more.begin(), more.end());
  }
  return table;
}

/// The finished workload, its shapes checked.
template <class Model>
LayeredWorkload checked(LayeredWorkload w, Model model, const Value& v) {
  w.layers = std::make_shared<const LayerModel>(LayerModel{std::move(model)});
  (void)layers_of(w, 1, v.where());
  return w;
}

const Keys<WukongModel>& wukong_keys() {
  using M = WukongModel;
  static const Keys<M> keys{
      sized("layers", &M::layers, "interaction layers", "the number of interaction layers",
            kMostLayers),
      sized("fmb", &M::fmb, "embeddings a factorization machine block puts out"),
      sized("lcb", &M::lcb, "embeddings a linear compress block puts out"),
      sized("rank", &M::rank, "rank of the factorization machine's projection",
            "the rank of the factorization machine's projection"),
      custom_key<M>(
          "mlp", widths_form(), "hidden widths of the block's MLP",
          [](const Value& v, M& m, const Reading&) { m.mlp = widths_from(v); },
          [](const M& m, const Writing&) { return OrderedJson(m.mlp); })
          .needed("hidden widths of the block's MLP")};
  return keys;
}

/// A size of one interaction module.
Key<DhenModel> module_key(std::string_view name, std::int64_t DhenModel::*member,
                          DhenModel::Module module, std::string_view help) {
  const auto has = [module](const DhenModel& m) {
    return std::find(m.modules.begin(), m.modules.end(), module) != m.modules.end();
  };
  return custom_key<DhenModel>(
             name, integer_form(1, kWidest), help,
             [=](const Value& v, DhenModel& m, const Reading&) {
               if (!has(m)) {
                 v.reject(
                     fmt::format("found {}, but no module reads it; remove it", shown(v.json())));
               }
               m.*member = v.integer(1, kWidest);
             },
             [=](const DhenModel& m, const Writing&) {
               return has(m) ? OrderedJson(m.*member) : OrderedJson();
             })
      .otherwise("required by it");
}

const Keys<DhenModel>& dhen_keys() {
  using M = DhenModel;
  static constexpr const char* kExpected =
      "a list of interaction modules, such as [\"dot\", \"linear\"]";
  static const Keys<M> keys{
      sized("layers", &M::layers, "layers", "the number of layers", kMostLayers),
      sized("features", &M::features, "embeddings a layer puts out"),
      custom_key<M>(
          "modules", list_form(choice_form(dhen_module_names()), 1),
          "interaction modules side by side",
          [](const Value& v, M& m, const Reading&) {
            for (const Value& module : v.items(kExpected, 1)) {
              m.modules.push_back(module.choice(dhen_module_names()));
            }
          },
          [](const M& m, const Writing&) {
            OrderedJson all = OrderedJson::array();
            for (const M::Module module : m.modules) {
              all.push_back(name_in(dhen_module_names(), module));
            }
            return all;
          })
          .needed(kExpected),
      module_key("heads", &M::heads, M::Module::kAttention, "of the module attention"),
      module_key("rank", &M::rank, M::Module::kCross, "of the module cross")};
  return keys;
}

const Keys<DitModel>& dit_keys() {
  using M = DitModel;
  static constexpr const char* kLatent =
      "[frames, height, width] of the latent, such as [1, 32, 32]";
  static const Keys<M> keys{
      sized("layers", &M::layers, "blocks", "the number of blocks", kMostLayers),
      sized("hidden", &M::hidden, "width", "the hidden width"),
      custom_key<M>(
          "heads", integer_form(1, 1 << 16), "attention heads",
          [](const Value& v, M& m, const Reading&) {
            m.heads = v.integer(1, 1 << 16);
            if (m.hidden % m.heads != 0) {
              v.fail(fmt::format("a divisor of hidden = {}", m.hidden));
            }
          },
          [](const M& m, const Writing&) { return OrderedJson(m.heads); })
          .needed("the number of attention heads"),
      integer_key("ffn_hidden", &M::ffn_hidden, 1, kWidest, "width of the feed-forward block")
          .otherwise("4 hidden"),
      sizes_key("latent", &M::latent, "[frames, height, width]", kLatent).needed(kLatent),
      sized("channels", &M::channels, "channels of the latent"),
      sizes_key("patch", &M::patch, "[frames, height, width]",
                "[frames, height, width] of a patch, such as [1, 2, 2]")
          .otherwise("[1, 2, 2]"),
      integer_key("classes", &M::classes, 0, 1 << 26, "classes a sample may be of; 0: none")
          .usual(M{}.classes),
      integer_key("frequencies", &M::frequencies, 1, kWidest, "of the embedding of time")
          .usual(M{}.frequencies),
      boolean_key("learned_variance", &M::learned_variance, "the model puts out a variance too")
          .usual(M{}.learned_variance)};
  return keys;
}

const Keys<RecurrentCtcModel::Convolution>& convolution_keys() {
  using C = RecurrentCtcModel::Convolution;
  constexpr const char* kAxes = "[time, frequency]";
  static const Keys<C> keys{sized("channels", &C::channels, "output channels"),
                            sizes_key("kernel", &C::kernel, kAxes, kAxes).needed(kAxes),
                            sizes_key("stride", &C::stride, kAxes, kAxes).otherwise("[1, 1]")};
  return keys;
}

const Keys<RecurrentCtcModel>& rnn_ctc_keys() {
  using M = RecurrentCtcModel;
  static const Keys<M> keys{
      sized("frames", &M::frames, "spectrogram frames of a sample"),
      sized("frequencies", &M::frequencies, "frequency bins of a frame"),
      custom_key<M>(
          "convolutions", list_form(object_form(facts_of(convolution_keys()))),
          "over time and frequency",
          [](const Value& v, M& m, const Reading& reading) {
            for (const Value& c : v.items("a list of convolutions")) {
              read_keys(c, convolution_keys(), m.convolutions.emplace_back(), reading);
            }
          },
          [](const M& m, const Writing& writing) {
            OrderedJson all = OrderedJson::array();
            for (const auto& c : m.convolutions) {
              all.push_back(write_keys(convolution_keys(), c, writing));
            }
            return all;
          })
          .needed("a list of convolutions over (time, frequency)"),
      sized("layers", &M::layers, "recurrent layers", "the number of recurrent layers", 1000),
      sized("hidden", &M::hidden, "width of a recurrent layer", "the width of a recurrent layer"),
      boolean_key("bidirectional", &M::bidirectional, "layers run both ways")
          .usual(M{}.bidirectional),
      sized("symbols", &M::symbols, "symbols of the alphabet, the blank included"),
      sized("labels", &M::labels, "labels of a sample")};
  return keys;
}

template <class M>
M model_from(const Value& v, const KeyTable& table, const Keys<M>& keys) {
  expect_keys(v, table);
  M model;
  read_values(v, keys, model, {});
  return model;
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

KeyTable wukong_table() { return table_of("wukong", wukong_keys(), true); }
KeyTable dhen_table() { return table_of("dhen", dhen_keys(), true); }
KeyTable dit_table() { return table_of("dit", dit_keys(), false); }
KeyTable rnn_ctc_table() { return table_of("rnn_ctc", rnn_ctc_keys(), false); }

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

LayeredWorkload wukong_from(const Value& v) {
  WukongModel m = model_from(v, wukong_table(), wukong_keys());
  return checked(recommendation_from(v), std::move(m), v);
}

LayeredWorkload dhen_from(const Value& v) {
  DhenModel m = model_from(v, dhen_table(), dhen_keys());
  for (const DhenModel::Module module : m.modules) {
    if (module == DhenModel::Module::kAttention) {
      (void)v.at("heads", "heads of the attention module");
    } else if (module == DhenModel::Module::kCross) {
      (void)v.at("rank", "the rank of the cross module");
    }
  }
  return checked(recommendation_from(v), std::move(m), v);
}

LayeredWorkload dit_from(const Value& v) {
  DitModel m = model_from(v, dit_table(), dit_keys());
  m.ffn_hidden = m.ffn_hidden > 0 ? m.ffn_hidden : 4 * m.hidden;
  for (std::size_t i = 0; i < 3; ++i) {
    if (m.latent.at(i) % m.patch.at(i) != 0) {
      v.at("latent", "")
          .fail(fmt::format("sizes that patch = [{}, {}, {}] divides", m.patch[0], m.patch[1],
                            m.patch[2]));
    }
  }
  return checked({}, m, v);
}

LayeredWorkload rnn_ctc_from(const Value& v) {
  return checked({}, model_from(v, rnn_ctc_table(), rnn_ctc_keys()), v);
}

void add_layer_model(OrderedJson& j, const LayerModel& model) {
  const auto* wukong = model.as<WukongModel>();
  const auto* dhen = model.as<DhenModel>();
  const auto* dit = model.as<DitModel>();
  const auto* ctc = model.as<RecurrentCtcModel>();
  j.update(wukong != nullptr ? write_keys(wukong_keys(), *wukong, {})
           : dhen != nullptr ? write_keys(dhen_keys(), *dhen, {})
           : dit != nullptr  ? write_keys(dit_keys(), *dit, {})
           : ctc != nullptr  ? write_keys(rnn_ctc_keys(), *ctc, {})
                             : OrderedJson::parse(model.as<ListedModel>()->text));
}

}  // namespace stepcast::config
