#include <cmath>
#include <map>
#include <set>

#include "interop/embedding_tables/described_tables.h"

// HugeCTR's JSON of a solver, an optimizer and a list of layers (its samples/*/*.json, releases 2
// and 3) -> a job of kind graph.
namespace stepcast::interop {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{1} << 32;
constexpr std::int64_t kMostColumns = 1 << 24;

/// A name of the file: the op that makes it and its shape in a sample.
struct Top {
  std::string op;
  std::int64_t rows = 1, columns = 0;
};

/// A sparse input: lookups of a slot and, where the file says them, the rows of each slot.
struct SparseInput {
  std::int64_t slots = 0;
  double pooling = 1;
  std::vector<std::int64_t> rows;
};

std::vector<std::int64_t> slot_rows(const Value& v) {
  std::vector<std::int64_t> rows;
  for (const char* key : {"slot_size_array", "slot_size"}) {
    if (const auto found = given(v, key)) {
      for (const Value& size : found->items("the rows of each slot", 1)) {
        rows.push_back(size.integer(1, config::kMostRows));
      }
      return rows;
    }
  }
  return rows;
}

class LayerListReader {
 public:
  explicit LayerListReader(const Value& root) : d_(begun(root, "hugectr")) {
    d_.workload["kind"] = "graph";
    d_.workload["ops"] = Json::array();
    solver(root.at("solver", "the batch and the GPUs"));
    if (const auto optimizer = given(root, "optimizer")) {
      read_optimizer(*optimizer);
    }
  }

  Described read(const Value& layers) {
    for (const Value& layer : layers.items("a list of layers", 1)) {
      const Value type = layer.at("type", "the type of the layer");
      const std::string name = type.text("a type of layer");
      if (name == "Data") {
        data(layer);
      } else if (name.find("SparseEmbedding") != std::string::npos) {
        embedding(layer, name.starts_with("Distributed") ? "row_wise" : "table_wise");
      } else if (const auto it = kinds().find(name); it != kinds().end()) {
        (this->*it->second)(layer);
      } else {
        std::vector<std::string> known;
        for (const auto& [kind, read] : kinds()) {
          known.push_back(kind);
        }
        type.reject(fmt::format(
            "found \"{}\", a layer that is not read; {}, or describe the model as a workload of "
            "kind graph (docs/jobs.md)",
            name, suggestion(name, known)));
      }
    }
    if (d_.workload["tables"].empty()) {
      layers.reject("has no sparse embedding; the model is one without tables");
    }
    if (shardings_.size() == 1) {
      d_.job["embedding"]["plan"] = *shardings_.begin();
    }
    if (!approximated_.empty()) {
      d_.workload["approximated"] = approximated_;
    }
    return std::move(d_);
  }

 private:
  using Reader = void (LayerListReader::*)(const Value&);
  static const std::map<std::string, Reader>& kinds() {
    using R = LayerListReader;
    static const std::map<std::string, Reader> all{{"InnerProduct", &R::product},
                                                   {"FusedInnerProduct", &R::product},
                                                   {"Interaction", &R::interaction},
                                                   {"MultiCross", &R::cross},
                                                   {"ReLU", &R::activation},
                                                   {"Sigmoid", &R::activation},
                                                   {"Cast", &R::same},
                                                   {"Dropout", &R::dropout},
                                                   {"Reshape", &R::reshape},
                                                   {"Concat", &R::concatenate},
                                                   {"Slice", &R::slice},
                                                   {"Add", &R::add},
                                                   {"ReduceSum", &R::reduce},
                                                   {"BinaryCrossEntropyLoss", &R::loss}};
    return all;
  }

  void solver(const Value& v) {
    // Keys that change no cost of a step.
    static const std::set<std::string> kPassedOver{
        "lr_policy",       "display",       "max_iter",     "snapshot",
        "snapshot_prefix", "eval_interval", "eval_batches", "batchsize_eval",
        "scaler",          "eval_metrics",  "seed",         "max_eval_batches"};
    for (const auto& [key, value] : v.members()) {
      if (key == "batchsize") {
        add_batch(value.integer(1, kMostSamples), d_);
      } else if (key == "gpu") {
        gpus_ = 0;
        for (const Value& g : value.items("the GPUs, such as [0, 1]", 1)) {
          gpus_ += g.json().is_array() ? static_cast<std::int64_t>(g.json().size()) : 1;
        }
        d_.job["devices"] = gpus_;
      } else if (key == "mixed_precision") {
        d_.job["formats"] = mixed_precision();
      } else if (kPassedOver.count(key) == 0) {
        approximated_.push_back("solver." + key + " (passed over)");
      }
    }
  }

  void read_optimizer(const Value& v) {
    const auto kind =
        v.at("type", "SGD, Adam or AdaGrad")
            .choice<std::string>({{"SGD", "sgd"}, {"Adam", "adam"}, {"AdaGrad", "adagrad"}});
    d_.job["optimizer"] = kind;
    const auto update = given(v, "update_type");
    const auto global = given(v, "global_update");
    if (kind != "sgd" && ((update && update->is("Global")) || (global && global->boolean()))) {
      approximated_.emplace_back("updates of rows without a gradient (left out)");
    }
  }

  void data(const Value& v) {
    const Value label = v.at("label", "the labels");
    if (label.at("label_dim", "the labels of a sample").integer(1, 1 << 20) != 1) {
      label.reject("has several labels; one is read");
    }
    const Value dense = v.at("dense", "the dense features");
    const std::int64_t width = dense.at("dense_dim", "how many").integer(0, kMostColumns);
    if (width > 0) {
      const std::string top = dense.at("top", "its name").name();
      d_.workload["inputs"][top] = {width};
      tops_[top] = {top, 1, width};
    }
    const std::vector<std::int64_t> rows = slot_rows(v);
    std::size_t first = 0;
    for (const Value& s : v.at("sparse", "the sparse inputs").items("a list of inputs", 1)) {
      SparseInput in;
      in.slots = s.at("slot_num", "its slots").integer(1, 1 << 16);
      const auto hot = given(s, "max_nnz");
      const auto all = given(s, "max_feature_num_per_sample");
      const auto slots = static_cast<double>(in.slots);
      in.pooling = hot   ? hot->number(1e-9, 1e9)
                   : all ? std::max(1.0, all->number(1e-9, 1e9) / slots)
                         : 1;
      const std::size_t end = first + static_cast<std::size_t>(in.slots);
      if (rows.size() >= end) {
        in.rows.assign(rows.begin() + static_cast<std::ptrdiff_t>(first),
                       rows.begin() + static_cast<std::ptrdiff_t>(end));
      }
      first = end;
      sparse_[s.at("top", "its name").name()] = in;
    }
  }

  void embedding(const Value& v, const char* sharding) {
    const Value bottom = v.at("bottom", "a sparse input");
    const auto it = sparse_.find(bottom.name());
    if (it == sparse_.end()) {
      bottom.fail("a sparse input of the layer Data");
    }
    const SparseInput& in = it->second;
    const Value p = v.at("sparse_embedding_hparam", "the sizes of the embedding");
    const std::int64_t dim = p.at("embedding_vec_size", "its columns").integer(1, 1 << 16);
    std::vector<std::int64_t> rows = slot_rows(p);
    rows = rows.empty() ? slot_rows(v) : rows;
    rows = rows.empty() ? in.rows : rows;
    if (rows.empty()) {
      rows.assign(static_cast<std::size_t>(in.slots), rows_of_slot(p, in.slots, dim));
      approximated_.push_back(v.at("name", "a name").name() + " (as slots of equal size)");
    }
    if (static_cast<std::int64_t>(rows.size()) != in.slots) {
      p.reject(
          fmt::format("has the rows of {} slots, and its input has {}", rows.size(), in.slots));
    }
    const auto combiner = given(p, "combiner");
    const bool mean = combiner && (combiner->json() == 1 || combiner->is("mean"));
    const std::string name = v.at("name", "its name").name();
    for (std::size_t s = 0; s < rows.size(); ++s) {
      d_.workload["tables"].push_back({{"name", fmt::format("{}.{}", name, s)},
                                       {"rows", rows[s]},
                                       {"dim", dim},
                                       {"pooling", in.pooling},
                                       {"mode", mean ? "mean" : "sum"}});
    }
    shardings_.insert(sharding);
    embeddings_[v.at("top", "its name").name()] = {columns_, in.slots, dim};
    columns_ += in.slots * dim;
  }

  /// Rows of each slot, where the file says them of all together.
  [[nodiscard]] std::int64_t rows_of_slot(const Value& p, std::int64_t slots,
                                          std::int64_t dim) const {
    double rows = 0;
    if (const auto all = given(p, "vocabulary_size")) {
      rows = static_cast<double>(all->integer(1, config::kMostRows));
    } else if (const auto one = given(p, "max_vocabulary_size_per_gpu")) {
      rows = static_cast<double>(one->integer(1, config::kMostRows) * gpus_);
    } else {
      rows = p.at("workspace_size_per_gpu_in_mb", "vocabulary_size or slot_size_array")
                 .number(1e-3, 1e9) *
             1e6 / (4.0 * static_cast<double>(dim)) * static_cast<double>(gpus_);
    }
    return std::max<std::int64_t>(1, std::llround(rows / static_cast<double>(slots)));
  }

  [[nodiscard]] std::vector<Value> names(const Value& layer, const char* key) const {
    const Value v = layer.at(key, "a name, or a list of names");
    return v.is_string() ? std::vector<Value>{v} : v.items("a list of names", 1);
  }

  /// The tensor that a name of the file stands for; tables are read where they are first asked for.
  const Top& top(const Value& name) {
    const std::string text = name.name();
    if (const auto e = embeddings_.find(text); e != embeddings_.end() && !tops_.contains(text)) {
      read_tables("");
      const auto& [first, slots, dim] = e->second;
      tops_[text] = {kTables, slots, dim};
      if (embeddings_.size() > 1) {
        op(text, {{"op", "columns"}, {"in", kTables}, {"first", first}, {"count", slots * dim}});
        tops_[text].op = text;
      }
    }
    const auto it = tops_.find(text);
    if (it == tops_.end()) {
      std::vector<std::string> known;
      for (const auto& [n, t] : tops_) {
        known.push_back(n);
      }
      name.reject(fmt::format("found \"{}\", which no layer before it makes; {}", text,
                              suggestion(text, known)));
    }
    return it->second;
  }
  const Top& bottom(const Value& layer) { return top(names(layer, "bottom").front()); }

  void read_tables(const std::string& before) {
    if (!read_tables_) {
      Json tables{{"op", "tables"}, {"in", before}};
      if (before.empty()) {
        tables["in"] = Json::array();
      }
      op(kTables, std::move(tables));
    }
    read_tables_ = true;
  }

  void op(const std::string& name, Json j) {
    j["name"] = name;
    d_.workload["ops"].push_back(std::move(j));
  }
  /// An op that makes the layer's one output.
  void make(const Value& layer, Json j, std::int64_t columns) {
    const std::string name = layer.at("name", "a name").name();
    op(name, std::move(j));
    tops_[names(layer, "top").front().name()] = {name, 1, columns};
  }
  void alias(const Value& layer, Top t) {
    tops_[names(layer, "top").front().name()] = std::move(t);
  }

  void product(const Value& v) {
    const std::int64_t width =
        v.at("fc_param", "its width").at("num_output", "its width").integer(1, kMostColumns);
    Json j{{"op", "linear"}, {"in", bottom(v).op}, {"width", width}};
    if (v.at("type", "").is("FusedInnerProduct")) {
      j["activation"] = "relu";
    }
    make(v, std::move(j), width);
  }

  void interaction(const Value& v) {
    const auto both = names(v, "bottom");
    const auto e = embeddings_.find(both.back().name());
    if (both.size() != 2 || e == embeddings_.end()) {
      v.reject("expected two bottoms, a dense vector and an embedding");
    }
    const auto& [first, slots, dim] = e->second;
    std::string in = kTables;
    if (!read_tables_ && embeddings_.size() == 1) {
      read_tables(top(both.front()).op);
    } else {
      in = v.at("name", "a name").name() + ".vectors";
      const std::string vector = top(both.front()).op;
      op(in, {{"op", "concatenate"}, {"in", {vector, top(both.back()).op}}});
    }
    make(v, {{"op", "dot"}, {"in", in}, {"dim", dim}}, dim + (slots + 1) * slots / 2);
  }

  void cross(const Value& v) {
    const Value p = v.at("mc_param", "its layers");
    const auto rank = given(p, "projection_dim");
    if (!rank || rank->json() == 0) {
      approximated_.push_back(v.at("name", "a name").name() + " (as cross layers of rank 1)");
    }
    const Top first = bottom(v);
    Top t = first;
    const std::string name = v.at("name", "a name").name();
    for (std::int64_t i = 0; i < p.at("num_layers", "how many").integer(1, 1000); ++i) {
      const std::int64_t width = rank ? std::max<std::int64_t>(1, rank->integer(0, 1 << 20)) : 1;
      op(fmt::format("{}.{}", name, i),
         {{"op", "cross"}, {"in", {first.op, t.op}}, {"rank", width}});
      t.op = fmt::format("{}.{}", name, i);
    }
    alias(v, t);
  }

  void activation(const Value& v) {
    const Top t = bottom(v);
    make(v,
         {{"op", "activation"},
          {"in", t.op},
          {"activation", v.at("type", "").is("ReLU") ? "relu" : "sigmoid"}},
         t.columns);
  }
  void same(const Value& v) { alias(v, bottom(v)); }
  void dropout(const Value& v) {
    approximated_.push_back(v.at("name", "a name").name() + " (left out)");
    alias(v, bottom(v));
  }

  /// Rows of tables stand side by side here, so most reshapes change a shape on paper alone.
  void reshape(const Value& v) {
    const Top t = bottom(v);
    const std::int64_t columns = v.at("leading_dim", "the columns").integer(1, kMostColumns);
    if (t.rows * t.columns % columns != 0) {
      v.reject(fmt::format("makes rows of {} from {} elements", columns, t.rows * t.columns));
    }
    alias(v, {t.op, t.rows * t.columns / columns, columns});
  }

  void concatenate(const Value& v) {
    Json in = Json::array();
    std::int64_t columns = 0;
    for (const Value& name : names(v, "bottom")) {
      const Top& t = top(name);
      in.push_back(t.op);
      columns += t.rows * t.columns;
    }
    make(v, {{"op", "concatenate"}, {"in", in}}, columns);
  }

  void slice(const Value& v) {
    const Top t = bottom(v);
    const auto ranges = v.at("ranges", "[first, end] of each part").items("a list of ranges", 1);
    const auto tops = names(v, "top");
    if (ranges.size() != tops.size() || t.rows != 1) {
      v.reject("expected a range of columns for each top, of one row a sample");
    }
    for (std::size_t i = 0; i < tops.size(); ++i) {
      const auto range = ranges[i].items("[first, end]", 2);
      const std::int64_t first = range[0].integer(0, kMostColumns);
      const std::int64_t count = range[1].integer(first + 1, kMostColumns) - first;
      const std::string name = tops[i].name();
      tops_[name] = {t.op, 1, count};
      if (count < t.columns) {
        op(name, {{"op", "columns"}, {"in", t.op}, {"first", first}, {"count", count}});
        tops_[name].op = name;
      }
    }
  }

  void add(const Value& v) {
    const auto all = names(v, "bottom");
    Top t = top(all.front());
    const std::string name = v.at("name", "a name").name();
    for (std::size_t i = 1; i < all.size(); ++i) {
      const std::string sum = i + 1 == all.size() ? name : fmt::format("{}.{}", name, i);
      op(sum, {{"op", "add"}, {"in", {t.op, top(all[i]).op}}});
      t.op = sum;
    }
    alias(v, t);
  }

  /// A sum costs what a mean does.
  void reduce(const Value& v) {
    const Top t = bottom(v);
    const bool columns = t.rows == 1;
    const std::string name = v.at("name", "a name").name();
    const std::int64_t rows = columns ? t.columns : t.rows;
    const std::int64_t left = columns ? 1 : t.columns;
    op(name + ".rows", {{"op", "reshape"}, {"in", t.op}, {"shape", {rows, left}}});
    make(v, {{"op", "mean_rows"}, {"in", name + ".rows"}}, left);
  }

  void loss(const Value& v) {
    op(v.at("name", "a name").name(),
       {{"op", "binary_cross_entropy"}, {"in", top(names(v, "bottom").front()).op}});
  }

  struct Embedding {
    std::int64_t first = 0, slots = 0, dim = 0;
  };
  static constexpr const char* kTables = "tables";

  Described d_;
  std::int64_t gpus_ = 1;
  std::int64_t columns_ = 0;  ///< of all tables
  bool read_tables_ = false;
  std::map<std::string, Top> tops_;
  std::map<std::string, SparseInput> sparse_;
  std::map<std::string, Embedding> embeddings_;
  std::set<std::string> shardings_;
  std::vector<std::string> approximated_;
};

Described described_by_layers(const Value& v) {
  return LayerListReader(v).read(v.at("layers", "the list of layers"));
}

bool is_layer_list(const Json& root) {
  return describes_tables(root) && root.contains("layers") && root.contains("solver") &&
         root["layers"].is_array();
}

}  // namespace

ForeignFormat hugectr_layers() {
  return tables_format<described_by_layers>("layers and solver of HugeCTR", is_layer_list);
}

}  // namespace stepcast::interop
