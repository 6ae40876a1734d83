#include <algorithm>
#include <cmath>
#include <map>

#include "core/config/access_files.h"
#include "core/config/internal/layer_loaders.h"
#include "core/config/internal/loaders.h"

namespace stepcast::config {
namespace {

// Bounds far beyond anything built, so that later products stay exact in 64 bits and in doubles.
constexpr std::int64_t kMostLayers = 10'000;
constexpr std::int64_t kLargestBatch = std::int64_t{1} << 32;

/// Errors inside a file say which table asked for it.
template <class Read>
auto named(const Value& v, const Read& read) {
  try {
    return read();
  } catch (const InputError& e) {
    if (std::string_view(e.what()).starts_with(v.where())) {
      throw;
    }
    v.refuse(e.what());
  }
}

/// Laws shared by tables that ask for the same one: hundreds of tables often have a handful of
/// laws.
class AccessReader {
 public:
  /// Mean lookups per sample, where a recording with bags tells.
  std::optional<double> read(const Value& v, EmbeddingTable& table) {
    v.keys({"uniform", "zipf", "seed", "histogram", "indices", "session", "remap"});
    std::vector<std::string> laws;
    for (const char* law : {"uniform", "zipf", "histogram", "indices"}) {
      if (v.find(law)) {
        laws.emplace_back(law);
      }
    }
    if (laws.size() != 1) {
      v.fail("exactly one of uniform, zipf, histogram or indices");
    }
    if (v.find("seed") && laws[0] != "zipf") {
      v.refuse("seed belongs to zipf; remove it");
    }
    table.access = law(v, laws[0], table);
    std::optional<double> pooling;
    if (const auto ids = v.find("indices")) {
      const auto lookups = static_cast<std::int64_t>(table.access->recorded().size());
      pooling =
          named(*ids, [&] { return recorded_pooling(table.access_file, lookups, ids->where()); });
    }
    if (const auto session = v.find("session")) {
      session->keys({"samples", "keep"});
      table.session =
          Session{session->at("samples", "the samples per session").number(1, 1e9),
                  session->at("keep", "the probability that a value is kept").number(0, 1)};
    }
    if (const auto remap = v.find("remap")) {
      remap->keys({"buckets", "kind"});
      const std::int64_t buckets =
          remap->at("buckets", "the number of buckets").integer(1, table.rows);
      const auto kind = remap->at("kind", "mod or frequency")
                            .choice<Access::Remap>({{"mod", Access::Remap::kMod},
                                                    {"frequency", Access::Remap::kFrequency}});
      table.remapped = Remapping{table.rows, table.access, kind};
      table.access = std::make_shared<const Access>(table.access->remapped(buckets, kind));
      table.rows = buckets;
    }
    return pooling;
  }

 private:
  std::shared_ptr<const Access> law(const Value& v, const std::string& name,
                                    EmbeddingTable& table) {
    const Value value = v.at(name, "a law");
    std::string key = fmt::format("{} {}", name, table.rows);
    if (name == "uniform") {
      if (!value.boolean()) {
        value.fail("true; to have another law name zipf, histogram or indices instead");
      }
      return shared(key, [&] { return Access::uniform(table.rows); });
    }
    if (name == "zipf") {
      const double exponent = value.number(0, 10);
      const auto seed_value = v.find("seed");
      const auto seed =
          static_cast<std::uint64_t>(seed_value ? seed_value->integer(0, INT64_MAX) : 0);
      return shared(fmt::format("{} {} {}", key, exponent, seed),
                    [&] { return Access::zipf(table.rows, exponent, seed); });
    }
    std::filesystem::path file = value.text(name == "histogram" ? "the path of a CSV file"
                                                                : "the path of a file of row ids");
    if (file.is_relative()) {
      file = value.folder() / file;
    }
    table.access_file = std::filesystem::absolute(file).lexically_normal().string();
    key += " " + table.access_file;
    return shared(key, [&] {
      return name == "histogram" ? histogram(value, file, table.rows)
                                 : indices(value, file, table.rows);
    });
  }

  static Access histogram(const Value& v, const std::filesystem::path& file, std::int64_t rows) {
    ReuseHistogram h = named(v, [&] { return read_histogram(file, v.where()); });
    double unique = 0;
    for (const ReuseBin& b : h.bins) {
      unique += b.unique_rows;
    }
    if (unique > static_cast<double>(rows) * 1.001) {
      v.refuse(fmt::format(
          "{} counts {} rows, more than the table's {}; raise rows or use another histogram",
          file.string(), unique, rows));
    }
    return Access::histogram(rows, std::move(h.bins), h.sample_lookups);
  }

  static Access indices(const Value& v, const std::filesystem::path& file, std::int64_t rows) {
    std::vector<std::int64_t> ids = named(v, [&] { return read_indices(file, v.where(), rows); });
    if (const auto bad =
            std::find_if(ids.begin(), ids.end(), [&](std::int64_t i) { return i >= rows; });
        bad != ids.end()) {
      v.refuse(fmt::format("{} names row {} at position {}, but the table has {} rows; raise rows",
                           file.string(), *bad, bad - ids.begin(), rows));
    }
    return Access::indices(rows, std::move(ids));
  }

  template <class Make>
  std::shared_ptr<const Access> shared(const std::string& key, Make&& make) {
    auto& law = laws_[key];
    if (!law) {
      law = std::make_shared<const Access>(make());
    }
    return law;
  }

  std::map<std::string, std::shared_ptr<const Access>> laws_;
};

Interaction interaction_from(const Value& v) {
  v.keys({"kind", "layers", "rank"});
  Interaction i;
  i.kind = v.at("kind", "dot, cat or dcnv2").choice(interaction_names());
  const bool cross = i.kind == InteractionKind::kDcnV2;
  for (const char* key : {"layers", "rank"}) {
    if (const auto k = v.find(key); k && !cross) {
      k->refuse(fmt::format("found {}: only dcnv2 has {}; remove it", shown(k->json()), key));
    }
  }
  if (cross) {
    i.layers = v.at("layers", "the number of cross layers").integer(1, 1000);
    i.rank = v.at("rank", "the rank of a cross layer").integer(1, kWidest);
  }
  return i;
}

double lookups_per_sample(const Value& v) {
  const double lookups = v.number(0, 1e6);
  if (lookups <= 0) {
    v.fail("more than 0 lookups per sample");
  }
  return lookups;
}

/// A number of features alike, or one by one with their names; `t.pooling` of one becomes that of
/// all.
void read_features(const Value& v, EmbeddingTable& t, bool has_pooling) {
  constexpr std::int64_t kMostFeatures = 4096;
  if (v.json().is_array()) {
    double all = 0;
    for (const Value& f : v.items("a number of features, or a list of them", 1)) {
      f.keys({"name", "pooling"});
      const auto pooling = f.find("pooling");
      t.features.push_back(
          {f.at("name", "a name in quotes").name(), pooling ? lookups_per_sample(*pooling) : 1});
      all += t.features.back().pooling;
    }
    if (has_pooling) {
      v.refuse("found a list of features and pooling; give each feature its own pooling");
    }
    t.pooling = all;
  } else {
    const std::int64_t count = v.integer(1, kMostFeatures);
    if (count > 1) {
      t.features.assign(static_cast<std::size_t>(count), {"", t.pooling});
      t.pooling *= static_cast<double>(count);
    }
  }
  if (t.feature_count() > 1 && t.session) {
    v.refuse(
        "found several features, but sessions are modelled for tables of one feature; "
        "remove access.session");
  }
}

EmbeddingTable table_from(const Value& v, AccessReader& laws) {
  v.keys({"name", "rows", "dim", "pooling", "mode", "access", "features", "format", "weighted"});
  EmbeddingTable t;
  t.name = v.at("name", "a name in quotes").name();
  t.rows = v.at("rows", "the number of rows").integer(1, kMostRows);
  t.dim = v.at("dim", "the embedding dimension").integer(1, kWidestTable);
  if (const auto pooling = v.find("pooling")) {
    t.pooling = lookups_per_sample(*pooling);
  }
  if (const auto mode = v.find("mode")) {
    t.mode = mode->choice(pooling_names());
  }
  if (const auto access = v.find("access")) {
    const auto recorded = laws.read(*access, t);
    const auto pooling = v.find("pooling");
    if (recorded && pooling && std::abs(*recorded / t.pooling - 1) > 0.01) {
      pooling->refuse(
          fmt::format("found {}, but {} has {:.6g} ids per bag; leave pooling out to take that",
                      t.pooling, t.access_file, *recorded));
    }
    t.pooling = recorded && !pooling ? *recorded : t.pooling;
  } else {
    t.access = std::make_shared<const Access>(Access::uniform(t.rows));
  }
  if (const auto features = v.find("features")) {
    read_features(*features, t, v.find("pooling").has_value());
  }
  if (const auto format = v.find("format")) {
    t.format = format->choice(row_format_names());
  }
  if (const auto weighted = v.find("weighted")) {
    t.weighted = weighted->boolean();
    if (t.weighted && t.mode == PoolingMode::kSequence) {
      weighted->refuse("found true: rows that are not pooled have no weights; use mode sum");
    }
  }
  return t;
}

/// `dot` multiplies vectors of one width; the bottom output is one of them.
void check_interaction(const DlrmWorkload& w, const Value& v) {
  if (w.interaction.kind != InteractionKind::kDot) {
    return;
  }
  for (std::size_t i = 0; i < w.tables.size(); ++i) {
    if (w.tables[i].dim != w.bottom_mlp.back()) {
      throw InputError(
          v.where(fmt::format("tables[{}].dim", i)),
          fmt::format("{} differs from the last width of bottom_mlp = {}, and interaction dot "
                      "needs them equal; make them equal or use cat or dcnv2",
                      w.tables[i].dim, w.bottom_mlp.back()));
    }
  }
}

DlrmWorkload dlrm_from(const Value& v) {
  v.keys({"kind", "name", "source", "default_batch", "dense_features", "bottom_mlp", "interaction",
          "top_mlp", "tables"});
  DlrmWorkload w;
  w.dense_features = v.at("dense_features", "the number of dense features").integer(1, kWidest);
  w.bottom_mlp = widths_from(v.at("bottom_mlp", "a list of output widths"));
  w.interaction =
      interaction_from(v.at("interaction", "{\"kind\": \"dot\"}, \"cat\" or \"dcnv2\""));
  const Value top = v.at("top_mlp", "a list of output widths that ends in 1");
  w.top_mlp = widths_from(top);
  if (w.top_mlp.back() != 1) {
    top.fail("a list that ends in 1: the model has one logit");
  }
  w.tables = tables_from(v.at("tables", "a list of tables"), 1);
  check_interaction(w, v);
  return w;
}

MixtureOfExperts experts_from(const Value& v, std::int64_t layers) {
  v.keys({"experts", "per_token", "shared", "ffn_hidden", "first_dense_layers", "capacity_factor",
          "groups", "groups_per_token", "routing"});
  MixtureOfExperts m;
  m.experts = v.at("experts", "the number of experts of a layer").integer(1, 1 << 16);
  m.per_token = v.at("per_token", "the number of experts a token is sent to").integer(1, m.experts);
  m.ffn_hidden = v.at("ffn_hidden", "the width of one expert").integer(1, kWidest);
  if (const auto shared = v.find("shared")) {
    m.shared = shared->integer(0, 1 << 10);
  }
  if (const auto dense = v.find("first_dense_layers")) {
    m.first_dense_layers = dense->integer(0, layers - 1);
  }
  if (const auto groups = v.find("groups")) {
    m.groups = groups->integer(1, m.experts);
    m.groups_per_token =
        v.at("groups_per_token", "groups that a token's experts may lie in").integer(1, m.groups);
  } else if (const auto limit = v.find("groups_per_token")) {
    limit->refuse("found without groups, of which it limits the number; use groups too");
  }
  if (const auto factor = v.find("capacity_factor")) {
    m.capacity_factor = factor->number(1e-3, 1e3);
  }
  if (const auto routing = v.find("routing")) {
    for (const char* key : {"session", "remap"}) {
      if (const auto k = routing->find(key)) {
        k->refuse(fmt::format("{} is for embedding tables; remove it", key));
      }
    }
    EmbeddingTable popularity;
    popularity.rows = m.experts;
    AccessReader().read(*routing, popularity);
    m.routing = popularity.access;
    m.routing_file = popularity.access_file;
  }
  return m;
}

LatentAttention latent_attention_from(const Value& v) {
  v.keys({"q_rank", "kv_rank", "rope_dim", "nope_dim", "v_dim"});
  LatentAttention a;
  if (const auto rank = v.find("q_rank")) {
    a.q_rank = rank->integer(0, kWidest);
  }
  a.kv_rank = v.at("kv_rank", "the width of the compressed keys and values").integer(1, kWidest);
  a.rope_dim = v.at("rope_dim", "the rotary columns of a head").integer(0, 1 << 16);
  if (a.rope_dim % 2 != 0) {
    v.at("rope_dim", "").fail("an even width: rotary positions turn pairs");
  }
  a.nope_dim = v.at("nope_dim", "the other columns of a head's query").integer(1, 1 << 16);
  a.v_dim = v.at("v_dim", "the width of a head's value").integer(1, 1 << 16);
  return a;
}

TransformerWorkload transformer_from(const Value& v) {
  v.keys({"kind",
          "name",
          "source",
          "default_batch",
          "layers",
          "hidden",
          "heads",
          "kv_heads",
          "head_dim",
          "ffn_hidden",
          "activation",
          "vocabulary",
          "tied_embeddings",
          "parallel_block",
          "dropout",
          "window",
          "full_attention_every",
          "moe",
          "mla",
          "approximated"});
  TransformerWorkload w;
  if (const auto list = v.find("approximated")) {
    for (const Value& what : list->items("a list of phrases")) {
      w.approximated.push_back(what.text("what the description leaves out"));
    }
  }
  w.layers = v.at("layers", "the number of layers").integer(1, kMostLayers);
  w.hidden = v.at("hidden", "the hidden width").integer(1, kWidest);
  const Value heads = v.at("heads", "the number of attention heads");
  w.heads = heads.integer(1, 1 << 16);
  w.kv_heads = w.heads;
  if (const auto mla = v.find("mla")) {
    w.mla = latent_attention_from(*mla);
    for (const char* key : {"kv_heads", "head_dim"}) {
      if (const auto k = v.find(key)) {
        k->refuse(fmt::format("found {}: latent attention has widths of its own in mla; remove it",
                              shown(k->json())));
      }
    }
  }
  if (const auto kv = v.find("kv_heads")) {
    w.kv_heads = kv->integer(1, w.heads);
    if (w.heads % w.kv_heads != 0) {
      std::int64_t down = w.kv_heads;
      std::int64_t up = w.kv_heads;
      while (w.heads % down != 0) {
        --down;
      }
      while (w.heads % up != 0) {
        ++up;
      }
      kv->fail(fmt::format("a divisor of heads = {}, such as {} or {}", w.heads, down, up));
    }
  }
  if (const auto dim = v.find("head_dim")) {
    w.head_dim = dim->integer(1, 1 << 16);
  } else if (w.mla) {
    w.head_dim = w.mla->query_dim();
  } else if (w.hidden % w.heads != 0) {
    heads.fail(fmt::format("a divisor of hidden = {}, or head_dim beside it", w.hidden));
  } else {
    w.head_dim = w.hidden / w.heads;
  }
  if (const auto moe = v.find("moe")) {
    w.moe = experts_from(*moe, w.layers);
  }
  if (const auto width = v.find("ffn_hidden"); width || !w.moe || w.moe->first_dense_layers > 0) {
    w.ffn_hidden = v.at("ffn_hidden", "the width of the feed-forward layer").integer(1, kWidest);
  } else {
    w.ffn_hidden = w.moe->ffn_hidden;  // no layer has it
  }
  w.activation = v.at("activation", list_of({"gelu", "squared_relu", "swiglu", "geglu"}))
                     .choice(activation_names());
  w.vocabulary = v.at("vocabulary", "the vocabulary size").integer(2, std::int64_t{1} << 32);
  if (w.mla && !w.llama_style()) {
    throw InputError(v.where("mla"),
                     "latent attention has rotary positions and no biases, a gelu model the "
                     "opposite; use activation swiglu, geglu or squared_relu");
  }
  if (const auto window = v.find("window")) {
    w.window = window->integer(1, 1 << 26);
  }
  if (const auto every = v.find("full_attention_every")) {
    w.full_attention_every = every->integer(1, kMostLayers);
    if (w.window == 0) {
      every->refuse("found without window: all layers see all keys; remove it, or give window");
    }
  }
  if (const auto dropout = v.find("dropout")) {
    w.dropout = dropout->boolean();
  }
  if (const auto block = v.find("parallel_block")) {
    w.parallel_block = block->boolean();
    if (w.parallel_block && (w.moe || w.mla)) {
      block->refuse(
          "found true: a parallel block has one dense feed-forward block and multi-head or grouped "
          "attention; use false, or remove moe and mla");
    }
  }
  if (w.llama_style() && !w.mla && w.head_dim % 2 != 0) {
    throw InputError(v.where("head_dim"),
                     fmt::format("{} is odd, and rotary positions turn pairs; use {}", w.head_dim,
                                 w.head_dim + 1));
  }
  if (const auto tied = v.find("tied_embeddings")) {
    w.tied_embeddings = tied->boolean();
  }
  return w;
}

Batch default_batch_from(const Value& v, bool transformer) {
  Batch b;
  if (transformer) {
    v.keys({"global", "micro", "sequence"});
    b.micro = v.at("micro", "sequences per micro-batch").integer(1, kLargestBatch);
    b.sequence = v.at("sequence", "tokens per sequence").integer(1, 1 << 26);
  } else {
    v.keys({"global"});
  }
  b.global = v.at("global", "samples per optimizer step").integer(1, kLargestBatch);
  return b;
}

}  // namespace

std::vector<std::int64_t> widths_from(const Value& v) {
  std::vector<std::int64_t> all;
  for (const Value& w :
       v.items("a list of at least one output width, such as [512, 256, 128]", 1)) {
    all.push_back(w.integer(1, kWidest));
  }
  if (all.size() > 1000) {
    v.fail("at most 1000 layers");
  }
  return all;
}

std::vector<EmbeddingTable> tables_from(const Value& v, std::size_t least) {
  std::vector<EmbeddingTable> tables;
  AccessReader laws;
  std::map<std::string, std::size_t> seen;
  for (const Value& t :
       v.items(least > 0 ? "a list of at least one table" : "a list of tables", least)) {
    tables.push_back(table_from(t, laws));
    if (const auto [first, fresh] = seen.emplace(tables.back().name, tables.size() - 1); !fresh) {
      throw InputError(
          t.where("name"),
          fmt::format("\"{}\" is also the name of tables[{}]; plans need names that differ",
                      first->first, first->second));
    }
  }
  return tables;
}

const std::vector<std::pair<std::string, Activation>>& activation_names() {
  static const std::vector<std::pair<std::string, Activation>> names{
      {"gelu", Activation::kGelu},
      {"squared_relu", Activation::kSquaredRelu},
      {"swiglu", Activation::kSwiGlu},
      {"geglu", Activation::kGeGlu}};
  return names;
}
const std::vector<std::pair<std::string, PoolingMode>>& pooling_names() {
  static const std::vector<std::pair<std::string, PoolingMode>> names{
      {"sum", PoolingMode::kSum},
      {"mean", PoolingMode::kMean},
      {"sequence", PoolingMode::kSequence}};
  return names;
}
const std::vector<std::pair<std::string, Format>>& row_format_names() {
  static const auto names = [] {
    std::vector<std::pair<std::string, Format>> all;
    for (const Format f : {Format::kFp32, Format::kBf16, Format::kFp16, Format::kFp8,
                           Format::kInt8Row, Format::kInt4Row}) {
      all.emplace_back(name_of(f), f);
    }
    return all;
  }();
  return names;
}
const std::vector<std::pair<std::string, InteractionKind>>& interaction_names() {
  static const std::vector<std::pair<std::string, InteractionKind>> names{
      {"dot", InteractionKind::kDot},
      {"cat", InteractionKind::kCat},
      {"dcnv2", InteractionKind::kDcnV2}};
  return names;
}

Workload workload_from(const Value& v) {
  if (!v.is_object()) {
    v.fail("a workload {\"kind\": ..., ...}");
  }
  const Value kind = v.at("kind", "transformer, dlrm, wukong, dhen, dit, rnn_ctc or graph");
  using Reader = DlrmWorkload (*)(const Value&);
  const auto reader = kind.choice<Reader>({{"transformer", nullptr},
                                           {"dlrm", dlrm_from},
                                           {"wukong", wukong_from},
                                           {"dhen", dhen_from},
                                           {"dit", dit_from},
                                           {"rnn_ctc", rnn_ctc_from},
                                           {"graph", graph_from}});
  const bool transformer = reader == nullptr;
  Workload w;
  if (transformer) {
    w.model = transformer_from(v);
  } else {
    w.model = reader(v);
  }
  w.name = v.at("name", "a name in quotes").name();
  if (const auto source = v.find("source")) {
    (void)source->text("where the facts come from");
  }
  if (const auto batch = v.find("default_batch")) {
    w.default_batch = default_batch_from(*batch, transformer);
  }
  return w;
}

}  // namespace stepcast::config
