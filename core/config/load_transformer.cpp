// Workloads of kind transformer.
#include "core/config/internal/access_reader.h"
#include "core/config/internal/job_tables.h"
#include "core/config/internal/layer_loaders.h"
#include "core/config/internal/layer_pattern.h"

namespace stepcast::config {
namespace {

/// A number that is written where it is above `least`.
template <class S>
Key<S> written_above(std::int64_t least, Key<S> key) {
  key.write = [least, write = key.write](const S& of, const Writing& w) {
    OrderedJson value = write(of, w);
    return value > OrderedJson(least) ? value : OrderedJson();
  };
  return key;
}

const Keys<MixtureOfExperts>& experts_keys() {
  using M = MixtureOfExperts;
  static const Keys<M> keys{
      integer_key("experts", &M::experts, 1, 1 << 16, "experts of a layer")
          .needed("the number of experts of a layer"),
      custom_key<M>(
          "per_token", integer_form(1, 1 << 16), "experts a token is sent to",
          [](const Value& v, M& m, const Reading&) { m.per_token = v.integer(1, m.experts); },
          [](const M& m, const Writing&) { return OrderedJson(m.per_token); })
          .needed("the number of experts a token is sent to"),
      integer_key("shared", &M::shared, 0, 1 << 10, "experts that every token is sent to").usual(0),
      integer_key("ffn_hidden", &M::ffn_hidden, 1, kWidest, "width of an expert")
          .needed("the width of one expert"),
      written_above(0, integer_key("latent", &M::latent, 0, kWidest,
                                   "width of the vectors that routed experts read and make"))
          .otherwise("hidden"),
      integer_key("first_dense_layers", &M::first_dense_layers, 0, kMostLayers,
                  "layers without experts")
          .usual(0),
      written_above(0,
                    number_key("capacity_factor", &M::capacity_factor, 1e-3, 1e3,
                               "room of an expert over its even share; tokens beyond are dropped"))
          .otherwise("no token is dropped")
          .written_after("groups_per_token"),
      written_above(
          1, custom_key<M>(
                 "groups", integer_form(1, 1 << 16), "groups of neighbouring experts",
                 [](const Value& v, M& m, const Reading&) { m.groups = v.integer(1, m.experts); },
                 [](const M& m, const Writing&) { return OrderedJson(m.groups); }))
          .usual(1),
      known_key<M>("groups_per_token", integer_form(1, 1 << 16),
                   "with groups: in how many of them a token's experts lie at most",
                   [](const M& m, const Writing&) {
                     return m.groups > 1 ? OrderedJson(m.groups_per_token) : OrderedJson();
                   }),
      custom_key<M>(
          "routing", named_form("access"), "which experts are chosen how often",
          [](const Value& v, M& m, const Reading&) {
            for (const char* key : {"session", "remap"}) {
              if (const auto k = v.find(key)) {
                k->reject(fmt::format("{} is for embedding tables; remove it", key));
              }
            }
            EmbeddingTable popularity;
            popularity.rows = m.experts;
            AccessReader().read(v, popularity);
            m.routing = popularity.access;
            m.routing_file = popularity.access_file;
          },
          [](const M& m, const Writing&) {
            EmbeddingTable popularity;
            popularity.access = m.routing;
            popularity.access_file = m.routing_file;
            return m.routing ? access_json(popularity) : OrderedJson();
          })
          .otherwise("all alike")};
  return keys;
}

MixtureOfExperts experts_from(const Value& v, std::int64_t layers) {
  MixtureOfExperts m;
  read_keys(v, experts_keys(), m, {});
  if (const auto dense = v.find("first_dense_layers")) {
    (void)dense->integer(0, layers - 1);
  }
  if (v.find("groups")) {
    m.groups_per_token =
        v.at("groups_per_token", "groups that a token's experts may lie in").integer(1, m.groups);
  } else if (const auto limit = v.find("groups_per_token")) {
    limit->reject("found without groups, of which it limits the number; use groups too");
  }
  return m;
}

/// Columns of a head that rotary positions turn.
template <class S>
Key<S> rope_key(std::int64_t least) {
  Key<S> rope = integer_key("rope_dim", &S::rope_dim, least, 1 << 16, "rotary columns of a head")
                    .needed("the rotary columns of a head");
  rope.read = [read = rope.read](const Value& v, S& s, const Reading& reading) {
    read(v, s, reading);
    if (s.rope_dim % 2 != 0) {
      v.fail("an even width: rotary positions turn pairs");
    }
  };
  return rope;
}

const Keys<LatentAttention>& latent_keys() {
  using A = LatentAttention;
  static const Keys<A> keys{
      integer_key("q_rank", &A::q_rank, 0, kWidest,
                  "width of compressed queries; 0: they are not compressed")
          .usual(0),
      integer_key("kv_rank", &A::kv_rank, 1, kWidest, "width of compressed keys and values")
          .needed("the width of the compressed keys and values"),
      rope_key<A>(0),
      integer_key("nope_dim", &A::nope_dim, 1, 1 << 16, "other columns of a head's query")
          .needed("the other columns of a head's query"),
      integer_key("v_dim", &A::v_dim, 1, 1 << 16, "width of a head's value")
          .needed("the width of a head's value")};
  return keys;
}

const Keys<SparseAttention>& sparse_keys() {
  using A = SparseAttention;
  static const Keys<A> keys{
      integer_key("top_k", &A::top_k, 1, 1 << 26, "keys a query sees").needed("keys of a query"),
      integer_key("index_heads", &A::index_heads, 1, 1 << 16, "heads that score keys")
          .needed("heads of the indexer"),
      integer_key("index_head_dim", &A::index_head_dim, 1, 1 << 16, "their width")
          .needed("the width of the indexer's heads")};
  return keys;
}

const Keys<CompressedAttention>& compressed_keys() {
  using A = CompressedAttention;
  static const Keys<A> keys{
      integer_key("q_rank", &A::q_rank, 1, kWidest, "width that queries are projected up from")
          .needed("the width of compressed queries"),
      rope_key<A>(2),
      integer_key("groups", &A::groups, 1, 1 << 16, "groups of heads in the output projection")
          .needed("the groups of the output projection"),
      integer_key("output_rank", &A::output_rank, 1, kWidest, "columns that each projects to")
          .needed("the columns that a group projects to"),
      integer_key("ratio", &A::ratio, 1, 1 << 20, "tokens of a key in layers csa").usual(4),
      integer_key("heavy_ratio", &A::heavy_ratio, 1, 1 << 20, "tokens of a key in layers hca")
          .usual(128)};
  return keys;
}

/// A number that is written where it is given.
template <class S>
Key<S> optional_number(std::string_view name, std::optional<double> S::*member, double high,
                       std::string_view help) {
  Key<S> key =
      known_key<S>(name, number_form(0, high), help, [member](const S& of, const Writing&) {
        return of.*member ? plain(*(of.*member)) : OrderedJson();
      });
  key.read = [=](const Value& v, S& into, const Reading&) { into.*member = v.number(0, high); };
  return key;
}

const Keys<ModelDetails>& detail_keys() {
  using D = ModelDetails;
  Key<D> scaling = name_key("rope_scaling", &D::rope_scaling, "their scaling: llama3, yarn");
  scaling.facts.form = text_form("a kind of scaling");
  scaling.write = [](const D& d, const Writing&) {
    return d.rope_scaling.empty() ? OrderedJson() : OrderedJson(d.rope_scaling);
  };
  static const Keys<D> keys{
      optional_number("rotary_base", &D::rotary_base, 1e12, "theta of rotary positions"),
      optional_number("rotary_share", &D::rotary_share, 1, "share of a head that turns"),
      std::move(scaling),
      optional_number("rope_factor", &D::rope_factor, 1e6, "its factor"),
      optional_number("norm_epsilon", &D::norm_epsilon, 1, "added to variances"),
      boolean_key("qk_norms", &D::qk_norms, "norms of queries and keys").terse_usual(false),
      boolean_key("qkv_biases", &D::qkv_biases, "biases of their projections").terse_usual(false)};
  return keys;
}

/// The table of a transformer; of keys that depend on one another the reader follows.
const Keys<TransformerWorkload>& transformer_keys() {
  using T = TransformerWorkload;
  using W = const Writing&;
  static const Keys<T> keys = [] {
    Keys<T> all{
        integer_key("layers", &T::layers, 1, kMostLayers, "layers").needed("the number of layers"),
        integer_key("hidden", &T::hidden, 1, kWidest, "width").needed("the hidden width"),
        integer_key("heads", &T::heads, 1, 1 << 16, "attention heads")
            .needed("the number of attention heads"),
        known_key<T>("kv_heads", integer_form(1, 1 << 16), "heads of keys and values",
                     [](const T& t, W) { return t.mla ? OrderedJson() : OrderedJson(t.kv_heads); })
            .otherwise("heads"),
        known_key<T>("head_dim", integer_form(1, 1 << 16), "width of a head",
                     [](const T& t, W) { return t.mla ? OrderedJson() : OrderedJson(t.head_dim); })
            .otherwise("hidden / heads"),
        known_key<T>("ffn_hidden", integer_form(1, kWidest),
                     "width of the feed-forward block of layers without experts",
                     [](const T& t, W) { return OrderedJson(t.ffn_hidden); })
            .otherwise("required where a layer has it"),
        choice_key("activation", &T::activation, activation_names(),
                   "gelu: LayerNorm, biases, learned positions; others: RMSNorm, rotary positions")
            .needed("gelu, squared_relu, swiglu or geglu"),
        integer_key("vocabulary", &T::vocabulary, 2, std::int64_t{1} << 32, "tokens that there are")
            .needed("the vocabulary size"),
        boolean_key("tied_embeddings", &T::tied_embeddings, "the head is the embedding")
            .usual(false),
        boolean_key("parallel_block", &T::parallel_block,
                    "attention and feed-forward block read the same input")
            .terse_usual(false)
            .written_after("dropout"),
        boolean_key("output_gate", &T::output_gate,
                    "attention's output is multiplied by a gate, a projection of its input")
            .terse_usual(false)
            .written_after("dropout"),
        boolean_key("dropout", &T::dropout,
                    "probabilities, both branches and the embedding lose values in training")
            .terse_usual(false)
            .written_after("full_attention_every"),
        written_above(0, integer_key("window", &T::window, 1, 1 << 26, "keys a query sees"))
            .otherwise("all"),
        boolean_key("chunked", &T::chunked,
                    "with window: a query sees its own chunk of so many tokens, not the last ones")
            .terse_usual(false)
            .written_after("window"),
        written_above(0, integer_key("full_attention_every", &T::full_attention_every, 1,
                                     kMostLayers, "with window: every n-th layer sees all keys")),
        written_above(0, integer_key("mtp", &T::predictions, 0, 8,
                                     "layers of multi-token prediction, trained with the model"))
            .otherwise("0"),
        known_key<T>("moe", object_form(facts_of(experts_keys())), "experts",
                     [](const T& t, W) {
                       return t.moe ? write_keys(experts_keys(), *t.moe, {}) : OrderedJson();
                     })
            .written_after("mla"),
        known_key<T>("mla", object_form(facts_of(latent_keys())), "latent attention",
                     [](const T& t, W) {
                       return t.mla ? write_keys(latent_keys(), *t.mla, {}) : OrderedJson();
                     }),
        known_key<T>("sparse", object_form(facts_of(sparse_keys())),
                     "with mla or compressed: an indexer chooses keys",
                     [](const T& t, W) {
                       return t.sparse ? write_keys(sparse_keys(), *t.sparse, {}) : OrderedJson();
                     })
            .written_after("moe"),
        known_key<T>("compressed", object_form(facts_of(compressed_keys())),
                     "attention to keys that stand for several tokens (DeepSeek-V4)",
                     [](const T& t, W) {
                       return t.compressed ? write_keys(compressed_keys(), *t.compressed, {})
                                           : OrderedJson();
                     })
            .written_after("sparse"),
        written_above(1, integer_key("residual_streams", &T::residual_streams, 1, 64,
                                     "streams of the residual path (hyper-connections)"))
            .usual(1),
        custom_key<T>(
            "details", object_form(facts_of(detail_keys())), "for launch scripts alone",
            [](const Value& v, T& t, const Reading& reading) {
              read_keys(v, detail_keys(), t.details.emplace(), reading);
            },
            [](const T& t, W w) {
              return t.details ? write_keys(detail_keys(), *t.details, w) : OrderedJson();
            }),
        custom_key<T>(
            "approximated", list_form(text_form("a phrase")),
            "what the description leaves out; predictions repeat it",
            [](const Value& v, T& t, const Reading&) {
              for (const Value& what : v.items("a list of phrases")) {
                t.approximated.push_back(what.text("what the description leaves out"));
              }
            },
            [](const T& t, W) {
              return t.approximated.empty() ? OrderedJson() : OrderedJson(t.approximated);
            })};
    const Keys<T> pattern = layer_pattern_keys();
    all.insert(all.end() - 1, pattern.begin(), pattern.end());
    return all;
  }();
  return keys;
}

/// Heads of keys and values, and the width of a head.
void read_heads(const Value& v, TransformerWorkload& w) {
  w.kv_heads = v.find("compressed") ? 1 : w.heads;
  if (const auto mla = v.find("mla")) {
    read_keys(*mla, latent_keys(), w.mla.emplace(), {});
    for (const char* key : {"kv_heads", "head_dim"}) {
      if (const auto k = v.find(key)) {
        k->reject(fmt::format("found {}: latent attention takes its widths from mla; remove it",
                              shown(k->json())));
      }
    }
  }
  if (const auto compressed = v.find("compressed")) {
    read_keys(*compressed, compressed_keys(), w.compressed.emplace(), {});
    if (w.mla) {
      compressed->reject("found with mla, another attention of all layers; give one of the two");
    }
    if (w.heads % w.compressed->groups != 0) {
      compressed->at("groups", "").fail(fmt::format("a divisor of heads = {}", w.heads));
    }
  }
  if (const auto sparse = v.find("sparse")) {
    read_keys(*sparse, sparse_keys(), w.sparse.emplace(), {});
    if (!w.compressed && (!w.mla || w.mla->q_rank == 0)) {
      sparse->reject(
          "found without compressed queries, which its indexer reads; give mla with a q_rank, or "
          "compressed");
    }
  }
  if (const auto kv = v.find("kv_heads")) {
    w.kv_heads = kv->integer(1, w.compressed ? 1 : w.heads);
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
    v.at("heads", "").fail(fmt::format("a divisor of hidden = {}, or set head_dim", w.hidden));
  } else {
    w.head_dim = w.hidden / w.heads;
  }
  if (w.compressed && w.compressed->rope_dim > w.head_dim) {
    v.at("compressed", "")
        .at("rope_dim", "")
        .fail(fmt::format("at most head_dim = {}", w.head_dim));
  }
}

}  // namespace

const std::vector<std::pair<std::string, Activation>>& activation_names() {
  static const std::vector<std::pair<std::string, Activation>> names{
      {"gelu", Activation::kGelu},
      {"squared_relu", Activation::kSquaredRelu},
      {"swiglu", Activation::kSwiGlu},
      {"geglu", Activation::kGeGlu}};
  return names;
}

KeyTable transformer_table() {
  KeyTable table = kind_table("transformer");
  const KeyTable own = facts_of(transformer_keys());
  table.insert(table.end(), own.begin(), own.end());
  return table;
}

TransformerWorkload transformer_from(const Value& v) {
  static const KeyTable known = transformer_table();
  expect_keys(v, known);
  TransformerWorkload w;
  read_values(v, transformer_keys(), w, {});
  read_heads(v, w);
  if (const auto moe = v.find("moe")) {
    w.moe = experts_from(*moe, w.layers);
  }
  check_pattern(v, w);
  const auto dense = [](const BlockKind& kind) {
    return kind.feed_forward == FeedForwardKind::kDense;
  };
  const bool has_dense = w.pattern.empty() ? !w.moe || w.moe->first_dense_layers > 0
                                           : std::any_of(w.pattern.begin(), w.pattern.end(), dense);
  if (v.find("ffn_hidden") || has_dense || !w.moe) {
    w.ffn_hidden = v.at("ffn_hidden", "the width of the feed-forward layer").integer(1, kWidest);
  } else {
    w.ffn_hidden = w.moe->ffn_hidden;  // no layer has it
  }
  if ((w.mla || w.compressed) && !w.llama_style()) {
    throw InputError(v.where(w.mla ? "mla" : "compressed"),
                     "this attention has rotary positions and no biases, a gelu model the "
                     "opposite; use activation swiglu, geglu or squared_relu");
  }
  if (w.recurrent && !w.recurrent->scans()) {  // each column of the residual stream by itself
    w.recurrent->heads = w.hidden;
    w.recurrent->value_dim = 1;
  }
  if (w.chunked && w.window == 0) {
    v.at("chunked", "").reject("found true without window; give window, the tokens of a chunk");
  }
  if (w.full_attention_every > 0 && w.window == 0) {
    v.at("full_attention_every", "")
        .reject("found without window: all layers see all keys; remove it, or give window");
  }
  if (w.parallel_block && (w.moe || w.mla)) {
    v.at("parallel_block", "")
        .reject(
            "found true: a parallel block has one dense feed-forward block and multi-head or "
            "grouped "
            "attention; use false, or remove moe and mla");
  }
  if (w.output_gate && (w.mla || w.compressed || w.parallel_block || !w.llama_style())) {
    v.at("output_gate", "")
        .reject(
            "found true: a gate is modelled beside multi-head or grouped attention without "
            "biases; use false, or leave out mla, compressed, parallel_block and gelu");
  }
  if (w.predictions > 0) {
    if (!w.llama_style() || w.dropout || w.parallel_block) {
      v.at("mtp", "").reject(
          "multi-token prediction is modelled for layers without biases, dropout and parallel "
          "blocks; use 0, or another activation");
    }
    w.predict_further(w.predictions);
  }
  if (w.llama_style() && !w.mla && w.head_dim % 2 != 0) {
    throw InputError(v.where("head_dim"),
                     fmt::format("{} is odd, and rotary positions turn pairs; use {}", w.head_dim,
                                 w.head_dim + 1));
  }
  return w;
}

void add_transformer(OrderedJson& j, const TransformerWorkload& w) {
  j.update(write_keys(transformer_keys(), w, {}));
}

}  // namespace stepcast::config
