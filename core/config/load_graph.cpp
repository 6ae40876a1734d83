#include <algorithm>
#include <functional>
#include <map>

#include "core/config/internal/layer_loaders.h"
#include "core/job/layer_builder.h"

// Workloads of kind graph: ops of the forward pass listed by hand.

namespace stepcast::config {

namespace {

constexpr std::int64_t kLongestAxis = 1 << 24;
constexpr std::size_t kMostOps = 100'000;

KeyTable group_table() {
  return {needed_fact("name", text_form("a name"), "of the group"),
          needed_fact("size", integer_form(1, 1 << 20), "ranks that share a sample")};
}

/// Keys of an op are those of its kind.
OrderedJson ops_form() {
  OrderedJson op{{"type", "object"}, {"required", {"op"}}};
  return list_form(any_form({op, named_form("repeat")}), 1);
}

/// Ops as they are read: names in scope, the latest output, the list so far.
class GraphReader {
 public:
  explicit GraphReader(const Value& v) : builder_(v.where()) {}

  void inputs(const Value& v) {
    for (const auto& [name, shape] : v.members()) {
      const auto size = sizes(shape, 1, 2, "[columns] or [rows, columns] of a sample");
      builder_.at(shape.where());
      latest_ = declare(shape, name,
                        size.size() == 1 ? builder_.input(name, 1, size[0])
                                         : builder_.input(name, size[0], size[1]));
    }
  }

  void groups(const Value& v) {
    for (const Value& g : v.items("a list of groups {\"name\": .., \"size\": ..}")) {
      expect_keys(g, group_table());
      if (groups_.size() == 3) {
        g.reject("is the fourth group, and ranks have three ways to share a sample; use fewer");
      }
      const std::string name = g.at("name", "the group's name").name();
      const std::int64_t size = g.at("size", "its number of ranks").integer(1, 1 << 20);
      if (!groups_.emplace(name, builder_.group(name, size)).second) {
        g.reject(fmt::format("is called \"{}\" as another; use another name", name));
      }
    }
  }

  void tables(std::int64_t columns) { table_columns_ = columns; }

  void ops(const Value& list, const std::string& prefix) {
    const std::vector<Value> all = list.items("a list of ops such as {\"op\": \"linear\", ...}", 1);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].find("repeat")) {
        repeat(all[i], prefix, i);
      } else {
        op(all[i], prefix, i);
      }
    }
  }

  [[nodiscard]] std::int64_t input_width() const { return builder_.list().input_width(); }
  [[nodiscard]] bool read_tables() const { return read_tables_; }
  LayerList finish(const Value& v) && {
    builder_.at(v.where("ops"));
    return std::move(builder_).finish();
  }

 private:
  static std::vector<std::int64_t> sizes(const Value& v, std::size_t least, std::size_t most,
                                         const char* expected) {
    const auto items = v.items(expected, least);
    if (items.size() > most) {
      v.fail(expected);
    }
    std::vector<std::int64_t> all;
    for (const Value& i : items) {
      all.push_back(i.integer(1, kLongestAxis));
    }
    return all;
  }
  static std::array<std::int64_t, 2> pair(const Value& v, const char* expected) {
    const auto two = sizes(v, 2, 2, expected);
    return {two[0], two[1]};
  }

  int declare(const Value& v, const std::string& name, int tensor) {
    if (!names_.emplace(name, tensor).second) {
      v.reject(fmt::format("is called \"{}\" as another op or input; use another name", name));
    }
    return tensor;
  }

  void repeat(const Value& v, const std::string& prefix, std::size_t index) {
    expect_keys(v, repeat_table());
    const std::int64_t times = v.at("repeat", "").integer(1, 10'000);
    const auto given = v.find("name");
    const std::string name = prefix + (given ? given->name() : fmt::format("repeat{}", index));
    if (latest_ < 0) {
      v.reject("repeats ops, but nothing comes before them; name an input or an op first");
    }
    const auto outer = names_.find("repeat_input");
    const int before = outer == names_.end() ? -1 : outer->second;
    for (std::int64_t i = 0; i < times; ++i) {
      names_["repeat_input"] = latest_;
      ops(v.at("ops", "the list of ops to repeat"), fmt::format("{}.{}.", name, i));
    }
    names_.erase("repeat_input");
    if (before >= 0) {
      names_["repeat_input"] = before;
    }
    names_[name] = latest_;
  }

  /// Tensor that a name means inside blocks: the innermost op of that name.
  int tensor_named(const Value& v, const std::string& prefix) {
    const std::string name = v.text("the name of an op or input");
    for (std::string at = prefix;;) {
      if (const auto it = names_.find(at + name); it != names_.end()) {
        return it->second;
      }
      if (at.empty()) {
        break;
      }
      at.pop_back();
      at.resize(at.find_last_of('.') == std::string::npos ? 0 : at.find_last_of('.') + 1);
    }
    std::vector<std::string> known;
    for (const auto& [n, t] : names_) {
      known.push_back(n.rfind(prefix, 0) == 0 ? n.substr(prefix.size()) : n);
    }
    v.reject(
        fmt::format("found \"{}\", which nothing listed before it is called ({}); ops read what "
                    "comes before them, so a list has no cycles",
                    name, suggestion(name, known)));
  }

  std::vector<int> read_from(const Value& v, const std::string& prefix, std::size_t least,
                             std::size_t most) {
    std::vector<int> in;
    const auto given = v.find("in");
    if (!given) {
      if (latest_ < 0 && least > 0) {
        v.reject("has no \"in\", and nothing comes before it; name an input");
      }
      if (least > 1) {
        v.reject(fmt::format("reads {} tensors; name them: \"in\": [\"a\", \"b\"]", least));
      }
      return latest_ < 0 ? in : std::vector<int>{latest_};
    }
    if (given->is_string()) {
      in.push_back(tensor_named(*given, prefix));
    } else {
      for (const Value& name : given->items("a name or a list of names")) {
        in.push_back(tensor_named(name, prefix));
      }
    }
    if (in.size() < least || in.size() > most) {
      given->fail(least == most ? fmt::format("{} name{}", least, least == 1 ? "" : "s")
                                : fmt::format("{} to {} names", least, most));
    }
    return in;
  }

  struct Kind {
    std::size_t least, most;  ///< tensors read
    std::vector<std::string_view> keys;
    std::function<int(GraphReader&, const Value&, const std::string&, const std::vector<int>&)>
        make;
  };
  static const std::map<std::string, Kind>& kinds();

  void op(const Value& v, const std::string& prefix, std::size_t index) {
    if (!v.is_object()) {
      v.fail("an op such as {\"op\": \"linear\", \"width\": 512}");
    }
    const Value which = v.at("op", "the kind of op");
    const std::string kind_name = which.text("the kind of op");
    const auto it = kinds().find(kind_name);
    if (it == kinds().end()) {
      std::vector<std::string> names{"repeat"};
      for (const auto& [n, k] : kinds()) {
        names.push_back(n);
      }
      which.reject(fmt::format("found \"{}\"; {}", kind_name, suggestion(kind_name, names)));
    }
    const Kind& kind = it->second;
    std::vector<std::string_view> keys{"op", "name", "in"};
    keys.insert(keys.end(), kind.keys.begin(), kind.keys.end());
    v.keys(keys);
    if (builder_.list().layers.size() >= kMostOps) {
      v.reject(fmt::format("is op {} of the list; the most is {}", kMostOps + 1, kMostOps));
    }
    const auto given = v.find("name");
    const std::string name =
        prefix + (given ? given->name() : fmt::format("{}{}", kind_name, index));
    builder_.at(v.where());
    const int made = kind.make(*this, v, name, read_from(v, prefix, kind.least, kind.most));
    if (made >= 0) {
      latest_ = declare(v, name, made);
    }
  }

  int group_of(const Value& v) {
    const Value g = v.at("group", "the name of a group");
    const std::string name = g.text("the name of a group");
    const auto it = groups_.find(name);
    if (it == groups_.end()) {
      std::vector<std::string> names;
      for (const auto& [n, i] : groups_) {
        names.push_back(n);
      }
      g.reject(names.empty()
                   ? "the workload has no groups; declare them: \"groups\": [{\"name\": \"" + name +
                         "\", \"size\": 8}]"
                   : fmt::format("found \"{}\"; {}", name, suggestion(name, names)));
    }
    return it->second;
  }

  static std::int64_t size(const Value& v, const char* key, const char* what) {
    return v.at(key, what).integer(1, kLongestAxis);
  }
  static std::int64_t size_or(const Value& v, const char* key, std::int64_t otherwise) {
    const auto found = v.find(key);
    return found ? found->integer(0, kLongestAxis) : otherwise;
  }
  static bool flag(const Value& v, const char* key, bool otherwise = false) {
    const auto found = v.find(key);
    return found ? found->boolean() : otherwise;
  }
  static Norm norm_of(const Value& v) {
    const auto which = v.find("norm");
    return which ? which->choice<Norm>(
                       {{"layer_norm", Norm::kLayerNorm}, {"rms_norm", Norm::kRmsNorm}})
                 : Norm::kLayerNorm;
  }
  static LayerHeads heads_of(const Value& v) {
    const auto activation = v.find("activation");
    return {.heads = size(v, "heads", "the number of heads"),
            .kv_heads = size_or(v, "kv_heads", 0),
            .causal = flag(v, "causal"),
            .window = size_or(v, "window", 0),
            .lengths = lengths_of(v),
            .targets = size_or(v, "targets", 0),
            .silu = activation && activation->choice<bool>({{"softmax", false}, {"silu", true}})};
  }
  static std::optional<LengthLaw> lengths_of(const Value& v) {
    const char* expected =
        "one of {\"fixed\": 64}, {\"uniform\": [1, 128]}, {\"geometric\": 40}, "
        "{\"lognormal\": [30, 1.2]}";
    const auto given = v.find("lengths");
    if (!given) {
      return std::nullopt;
    }
    const auto laws = given->is_object() ? given->members() : decltype(given->members()){};
    if (laws.size() != 1) {
      given->fail(expected);
    }
    const auto& [name, value] = laws.front();
    if (name == name_of(LengthKind::kFixed)) {
      return LengthLaw{LengthKind::kFixed, static_cast<float>(value.integer(1, kLongestAxis))};
    }
    if (name == name_of(LengthKind::kUniform)) {
      const auto items = sizes(value, 2, 2, "[least, longest]");
      if (items[0] > items[1]) {
        value.fail("[least, longest], the longest no shorter than the least");
      }
      return LengthLaw{LengthKind::kUniform, static_cast<float>(items[0]),
                       static_cast<float>(items[1])};
    }
    if (name == name_of(LengthKind::kGeometric)) {
      return LengthLaw{LengthKind::kGeometric, static_cast<float>(value.number(1, kLongestAxis))};
    }
    if (name == name_of(LengthKind::kLogNormal)) {
      const auto items = value.items("[median, standard deviation of the logarithm]", 2);
      if (items.size() != 2) {
        value.fail("[median, standard deviation of the logarithm]");
      }
      return LengthLaw{LengthKind::kLogNormal, static_cast<float>(items[0].number(1, kLongestAxis)),
                       static_cast<float>(items[1].number(0.01, 10))};
    }
    given->fail(expected);
  }

  LayerBuilder builder_;
  std::map<std::string, int> names_;
  std::map<std::string, int> groups_;
  std::int64_t table_columns_ = 0;
  bool read_tables_ = false;
  int latest_ = -1;
};

using Names = const std::vector<int>&;

const std::map<std::string, GraphReader::Kind>& GraphReader::kinds() {
  using R = GraphReader;
  using V = const Value;
  using S = const std::string;
  static const auto all = [] {
    std::map<std::string, Kind> k;
    k["linear"] = {1, 1, {"width", "bias", "activation"}, [](R& r, V& v, S& n, Names in) {
                     const auto a = v.find("activation");
                     return r.builder_.linear(n, in[0],
                                              {.width = size(v, "width", "the output width"),
                                               .bias = flag(v, "bias", true),
                                               .activation = a ? a->choice(layer_activation_names())
                                                               : Activation::kNone});
                   }};
    k["activation"] = {1, 1, {"activation"}, [](R& r, V& v, S& n, Names in) {
                         return r.builder_.activation(
                             n, in[0],
                             v.at("activation", "which one").choice(layer_activation_names()));
                       }};
    k["norm"] = {1, 1, {"norm", "affine"}, [](R& r, V& v, S& n, Names in) {
                   return r.builder_.norm(n, in[0], norm_of(v), flag(v, "affine", true));
                 }};
    k["add"] = {2, 2, {}, [](R& r, V&, S& n, Names in) { return r.builder_.add(n, in[0], in[1]); }};
    k["multiply"] = {
        2, 2, {}, [](R& r, V&, S& n, Names in) { return r.builder_.multiply(n, in[0], in[1]); }};
    k["concatenate"] = {
        2, 10'000, {}, [](R& r, V&, S& n, Names in) { return r.builder_.concatenate(n, in); }};
    k["columns"] = {1, 1, {"first", "count"}, [](R& r, V& v, S& n, Names in) {
                      return r.builder_.columns(n, in[0], size_or(v, "first", 0),
                                                size(v, "count", "the number of columns"));
                    }};
    k["reshape"] = {1, 1, {"shape"}, [](R& r, V& v, S& n, Names in) {
                      const auto s = pair(v.at("shape", "[rows, columns]"), "[rows, columns]");
                      return r.builder_.reshape(n, in[0], s[0], s[1]);
                    }};
    k["transpose"] = {
        1, 1, {}, [](R& r, V&, S& n, Names in) { return r.builder_.transpose(n, in[0]); }};
    k["matmul"] = {2, 2, {"transpose_a", "transpose_b"}, [](R& r, V& v, S& n, Names in) {
                     return r.builder_.matmul(n, in[0], in[1], flag(v, "transpose_a"),
                                              flag(v, "transpose_b"));
                   }};
    k["tables"] = {
        0, 1, {}, [](R& r, V& v, S& n, Names in) {
          if (r.table_columns_ == 0) {
            v.reject("reads embedding tables, and the workload has none; list \"tables\"");
          }
          r.read_tables_ = true;
          return r.builder_.tables(n, in.empty() ? -1 : in[0], r.table_columns_);
        }};
    k["dot"] = {1, 1, {"dim"}, [](R& r, V& v, S& n, Names in) {
                  return r.builder_.dot(n, in[0], size_or(v, "dim", 0));
                }};
    k["cross"] = {2, 2, {"rank"}, [](R& r, V& v, S& n, Names in) {
                    return r.builder_.cross(n, in[0], in[1],
                                            size(v, "rank", "the rank of the cross layer"));
                  }};
    k["attention"] = {
        1,
        1,
        {"heads", "kv_heads", "causal", "window", "lengths", "targets", "activation"},
        [](R& r, V& v, S& n, Names in) { return r.builder_.attention(n, in[0], heads_of(v)); }};
    k["gated_attention"] = {
        1,
        1,
        {"heads", "kv_heads", "causal", "lengths", "targets", "activation", "norm"},
        [](R& r, V& v, S& n, Names in) {
          return r.builder_.gated_attention(n, in[0], heads_of(v), norm_of(v));
        }};
    k["rope"] = {1, 1, {"heads", "kv_heads"}, [](R& r, V& v, S& n, Names in) {
                   return r.builder_.rope(n, in[0], heads_of(v));
                 }};
    k["embedding"] = {1, 1, {"vocabulary", "width"}, [](R& r, V& v, S& n, Names in) {
                        return r.builder_.embedding(n, in[0],
                                                    size(v, "vocabulary", "the number of ids"),
                                                    size(v, "width", "the width of a row"));
                      }};
    k["softmax"] = {
        1, 1, {}, [](R& r, V&, S& n, Names in) { return r.builder_.softmax(n, in[0]); }};
    k["mean_rows"] = {1, 1, {"rows"}, [](R& r, V& v, S& n, Names in) {
                        return r.builder_.mean_rows(
                            n, in[0], size_or(v, "rows", r.builder_.shape(in[0]).rows));
                      }};
    k["modulate"] = {2, 2, {"first"}, [](R& r, V& v, S& n, Names in) {
                       return r.builder_.modulate(n, in[0], in[1], size_or(v, "first", 0));
                     }};
    k["gate"] = {3, 3, {"first"}, [](R& r, V& v, S& n, Names in) {
                   return r.builder_.gate(n, in[0], in[1], in[2], size_or(v, "first", 0));
                 }};
    k["positions"] = {
        1, 1, {}, [](R& r, V&, S& n, Names in) { return r.builder_.positions(n, in[0]); }};
    k["convolution"] = {
        1, 1, {"grid", "kernel", "stride", "channels", "bias"}, [](R& r, V& v, S& n, Names in) {
          const char* two = "[height, width]";
          LayerBuilder::Convolution c;
          c.grid = pair(v.at("grid", two), two);
          c.kernel = pair(v.at("kernel", two), two);
          if (const auto stride = v.find("stride")) {
            c.stride = pair(*stride, two);
          }
          c.channels = size(v, "channels", "output channels");
          c.bias = flag(v, "bias", true);
          return r.builder_.convolution(n, in[0], c);
        }};
    k["time_major"] = {
        1, 1, {}, [](R& r, V&, S& n, Names in) { return r.builder_.time_major(n, in[0]); }};
    k["sample_major"] = {
        1, 1, {}, [](R& r, V&, S& n, Names in) { return r.builder_.sample_major(n, in[0]); }};
    k["recurrent"] = {1, 1, {"activation", "reverse"}, [](R& r, V& v, S& n, Names in) {
                        const auto a = v.find("activation");
                        return r.builder_.recurrent(
                            n, in[0], a ? a->choice(layer_activation_names()) : Activation::kRelu,
                            flag(v, "reverse"));
                      }};
    for (const LayerKind kind :
         {LayerKind::kAllReduce, LayerKind::kCopyToGroup, LayerKind::kAllGather,
          LayerKind::kReduceScatter, LayerKind::kAllToAll}) {
      k[std::string(name_of(kind))] = {1, 1, {"group"}, [kind](R& r, V& v, S& n, Names in) {
                                         return r.builder_.collective(kind, n, in[0],
                                                                      r.group_of(v));
                                       }};
    }
    for (const LayerKind kind :
         {LayerKind::kBinaryCrossEntropy, LayerKind::kMeanSquaredError, LayerKind::kCrossEntropy}) {
      k[std::string(name_of(kind))] = {1, 1, {}, [kind](R& r, V&, S& n, Names in) {
                                         r.builder_.loss(kind, n, in[0]);
                                         return -1;
                                       }};
    }
    k["in_batch_softmax"] = {2, 3, {"log_q"}, [](R& r, V& v, S& n, Names in) {
                               r.builder_.in_batch_softmax(n, in, flag(v, "log_q", true));
                               return -1;
                             }};
    k["connectionist"] = {1, 1, {"labels"}, [](R& r, V& v, S& n, Names in) {
                            r.builder_.loss(LayerKind::kConnectionist, n, in[0],
                                            size(v, "labels", "labels of a sample"));
                            return -1;
                          }};
    return k;
  }();
  return all;
}

}  // namespace

const std::vector<std::pair<std::string, Activation>>& layer_activation_names() {
  static const std::vector<std::pair<std::string, Activation>> names{
      {"none", Activation::kNone},      {"relu", Activation::kRelu},
      {"gelu", Activation::kGelu},      {"squared_relu", Activation::kSquaredRelu},
      {"swiglu", Activation::kSwiGlu},  {"geglu", Activation::kGeGlu},
      {"silu", Activation::kSilu},      {"tanh", Activation::kTanh},
      {"sigmoid", Activation::kSigmoid}};
  return names;
}

KeyTable repeat_table() {
  return {needed_fact("repeat", integer_form(1, 10'000), "times"),
          open_fact("name", text_form("a name"), "of the block"),
          needed_fact("ops", ops_form(), "the ops to repeat")};
}

KeyTable graph_table() {
  KeyTable table = kind_table("graph");
  table.push_back(open_fact("inputs", map_form(list_form(integer_form(1, kLongestAxis), 1, 2)),
                            "by name: [columns] or [rows, columns] of a sample"));
  table.push_back(open_fact("groups", list_form(object_form(group_table()), 0, 3),
                            "ranks that share a sample"));
  table.push_back(open_fact("tables", tables_form(0), "embedding tables"));
  table.push_back(
      needed_fact("ops", ops_form(), "of the forward pass, each reading what comes before it"));
  return table;
}

LayeredWorkload graph_from(const Value& v) {
  expect_keys(v, graph_table());
  LayeredWorkload w;
  GraphReader reader(v);
  Json text = Json::object();
  if (const auto inputs = v.find("inputs")) {
    reader.inputs(*inputs);
    text["inputs"] = inputs->json();
  }
  if (const auto groups = v.find("groups")) {
    reader.groups(*groups);
    text["groups"] = groups->json();
  }
  if (const auto tables = v.find("tables")) {
    w.tables = tables_from(*tables, 0);
    std::int64_t columns = 0;
    for (const EmbeddingTable& t : w.tables) {
      columns += t.output_columns();
    }
    reader.tables(columns);
  }
  w.dense_features = reader.input_width();
  const Value ops = v.at("ops", "a list of ops such as {\"op\": \"linear\", ...}");
  reader.ops(ops, "");
  text["ops"] = ops.json();
  if (!w.tables.empty() && !reader.read_tables()) {
    throw InputError(v.where("tables"),
                     "no op reads them; put {\"op\": \"tables\"} where their columns go");
  }
  w.layers = std::make_shared<const LayerModel>(
      LayerModel{ListedModel{std::move(reader).finish(v), text.dump()}});
  return w;
}

}  // namespace stepcast::config
