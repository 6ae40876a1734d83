#include <charconv>
#include <set>

#include "interop/embedding_tables/described_tables.h"

// Configurations of DeepRecSys (Gupta et al., arXiv 2001.02772; files models/configs/*.json of
// harvard-acc/DeepRecSys, and models/*.py for what each type computes) -> workload. Widths are
// joined by '-'; the first of arch_mlp_bot is the number of dense features, where there are any.
namespace stepcast::interop {
namespace {

using Widths = std::vector<std::int64_t>;

Widths numbers(const Value& v, std::int64_t most) {
  const char* expected = "whole numbers joined by '-', such as \"128-64-32\"";
  const std::string text = v.text(expected);
  Widths all;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at <= end) {
    std::int64_t n = 0;
    const auto [stop, error] = std::from_chars(at, end, n);
    if (error != std::errc() || n < 1 || n > most || (stop != end && *stop != '-')) {
      v.fail(expected);
    }
    all.push_back(n);
    at = stop + 1;
  }
  return all;
}

constexpr std::int64_t kWidest = 1 << 20;

/// Ops of a model of kind graph, one after another.
class Ops {
 public:
  Ops(const Value& v, Json& workload)
      : v_(v),
        w_(workload),
        tables_(static_cast<std::int64_t>(w_["tables"].size())),
        dim_(w_["tables"].front()["dim"]),
        top_(numbers(v.at("arch_mlp_top", "the widths of the top MLP"), kWidest)) {
    w_["kind"] = "graph";
    w_["ops"] = Json::array();
  }

  /// [dense | tables], MLP, and one MLP for each task where there are some.
  void wide_and_deep() {
    w_["inputs"]["dense"] = {numbers(v_.at("arch_mlp_bot", "the dense features"), kWidest).front()};
    op("tables", {{"op", "tables"}, {"in", "dense"}});
    const auto tasks = given(v_, "arch_mlp_tasks");
    const std::string shared = mlp("top", "tables", top_, tasks.has_value());
    if (!tasks) {
      loss("loss", shared, top_.back());
      return;
    }
    Widths widths = numbers(*tasks, kWidest);
    if (widths.size() < 2 || widths.front() != top_.back()) {
      tasks->fail("the width of the top MLP and those of a task, such as \"512-256-1\"");
    }
    widths.erase(widths.begin());
    const auto count = given(v_, "num_multi_tasks");
    for (std::int64_t t = 0; t < (count ? count->integer(1, 10'000) : 1); ++t) {
      loss(fmt::format("loss{}", t), mlp(fmt::format("task{}", t), shared, widths, false),
           widths.back());
    }
  }

  /// The sum of two vectors beside an MLP of two others.
  void collaborative_filtering() {
    four_tables();
    op("tables", {{"op", "tables"}});
    op("factors", {{"op", "add"}, {"in", {columns(0), columns(1)}}});
    op("pair", {{"op", "concatenate"}, {"in", {columns(2), columns(3)}}});
    const Widths inner(top_.begin(), top_.end() - 1);
    const std::string deep = inner.empty() ? "pair" : mlp("top", "pair", inner, true);
    op("both", {{"op", "concatenate"}, {"in", {"factors", deep}}});
    loss("loss", mlp("final", "both", {top_.back()}, false), top_.back());
  }

  /// One small MLP for each behaviour of a user and the advertisement; their sum.
  void interest() {
    four_tables();
    op("tables", {{"op", "tables"}});
    Widths widths = numbers(v_.at("arch_mlp_bot", "the MLP of a behaviour"), kWidest);
    widths.push_back(dim_);
    const std::string candidate = columns(tables_ - 2);
    std::string sum;
    for (std::int64_t t = 1; t < tables_ - 2; ++t) {
      const std::string behaviour = columns(t);
      const std::string name = fmt::format("unit{}", t);
      op(name + "_sum", {{"op", "add"}, {"in", {behaviour, candidate}}});
      op(name + "_in", {{"op", "concatenate"}, {"in", {behaviour, candidate, name + "_sum"}}});
      const std::string made = mlp(name, name + "_in", widths, true);
      if (!sum.empty()) {
        op(name + "_total", {{"op", "add"}, {"in", {sum, made}}});
      }
      sum = sum.empty() ? made : name + "_total";
    }
    finish(sum);
  }

  /// Two recurrent layers over the behaviours, with weights between them; the last state.
  void interest_evolution() {
    four_tables();
    const auto given_hidden = given(v_, "hidden_size");
    const std::int64_t hidden = given_hidden ? given_hidden->integer(1, kWidest) : 64;
    const std::int64_t count = tables_ - 3;
    w_["approximated"] = {"tanh of recurrent layers (as relu)"};
    op("tables", {{"op", "tables"}});
    op("behaviours",
       {{"op", "columns"}, {"in", "tables"}, {"first", dim_}, {"count", count * dim_}});
    op("sequence", {{"op", "reshape"}, {"in", "behaviours"}, {"shape", {count, dim_}}});
    recurrent("first", "sequence", hidden);
    op("scores", {{"op", "linear"}, {"in", "first"}, {"width", hidden}});
    op("weights", {{"op", "softmax"}, {"in", "scores"}});
    op("weighted", {{"op", "add"}, {"in", {"first", "weights"}}});
    recurrent("second", "weighted", hidden);
    op("states", {{"op", "reshape"}, {"in", "second"}, {"shape", {1, count * hidden}}});
    op("last",
       {{"op", "columns"}, {"in", "states"}, {"first", (count - 1) * hidden}, {"count", hidden}});
    finish("last");
  }

 private:
  void op(const std::string& name, Json j) {
    j["name"] = name;
    w_["ops"].push_back(std::move(j));
  }

  void four_tables() const {
    if (tables_ < 4) {
      v_.at("arch_embedding_size", "").fail("the rows of at least four tables");
    }
  }

  std::string columns(std::int64_t table) {
    std::string name = fmt::format("vector{}", table);
    if (made_.insert(table).second) {
      op(name, {{"op", "columns"}, {"in", "tables"}, {"first", table * dim_}, {"count", dim_}});
    }
    return name;
  }

  /// Name of the last layer; `all`: it has an activation too.
  std::string mlp(const std::string& name, std::string in, const Widths& widths, bool all) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      Json j{{"op", "linear"}, {"in", in}, {"width", widths[i]}};
      if (all || i + 1 < widths.size()) {
        j["activation"] = "relu";
      }
      in = fmt::format("{}_{}", name, i);
      op(in, std::move(j));
    }
    return in;
  }

  void recurrent(const std::string& name, const std::string& in, std::int64_t hidden) {
    op(name + "_frames", {{"op", "time_major"}, {"in", in}});
    op(name + "_in", {{"op", "linear"}, {"in", name + "_frames"}, {"width", hidden}});
    op(name + "_states", {{"op", "recurrent"}, {"in", name + "_in"}});
    op(name, {{"op", "sample_major"}, {"in", name + "_states"}});
  }

  /// The user's profile, what was made of the behaviours, the advertisement and its context.
  void finish(const std::string& behaviours) {
    op("top_in", {{"op", "concatenate"},
                  {"in", {columns(0), behaviours, columns(tables_ - 2), columns(tables_ - 1)}}});
    loss("loss", mlp("top", "top_in", top_, false), top_.back());
  }

  void loss(const std::string& name, const std::string& in, std::int64_t width) {
    op(name, {{"op", width == 1 ? "binary_cross_entropy" : "cross_entropy"}, {"in", in}});
  }

  const Value& v_;
  Json& w_;
  std::int64_t tables_, dim_;
  Widths top_;
  std::set<std::int64_t> made_;  ///< tables whose columns are cut out
};

void add_dlrm(const Value& v, Json& w) {
  const Value bottom = v.at("arch_mlp_bot", "the dense features and the bottom MLP");
  Widths widths = numbers(bottom, kWidest);
  if (widths.size() < 2) {
    bottom.fail("the dense features and at least one layer, such as \"128-64\"");
  }
  w["dense_features"] = widths.front();
  widths.erase(widths.begin());
  w["bottom_mlp"] = widths;
  w["top_mlp"] = numbers(v.at("arch_mlp_top", "the widths of the top MLP"), kWidest);
  w["interaction"] = {{"kind", v.at("arch_interaction_op", "cat or dot")
                                   .choice<std::string>({{"cat", "cat"}, {"dot", "dot"}})}};
}

Described described_by_deeprecsys(const Value& v) {
  v.keys({"arch_mlp_bot", "arch_mlp_top", "arch_mlp_tasks", "num_multi_tasks", "hidden_size",
          "user_behavior_tables", "arch_embedding_size", "arch_sparse_feature_size",
          "num_indices_per_lookup_fixed", "num_indices_per_lookup", "arch_interaction_op",
          "model_type", "model_name"});
  using Build = void (Ops::*)();
  const auto build = v.at("model_type", "dlrm")
                         .choice<Build>({{"dlrm", nullptr},
                                         {"wnd", &Ops::wide_and_deep},
                                         {"mtwnd", &Ops::wide_and_deep},
                                         {"ncf", &Ops::collaborative_filtering},
                                         {"din", &Ops::interest},
                                         {"dien", &Ops::interest_evolution}});
  Described d;
  Json& w = d.workload;
  const auto name = given(v, "model_name");
  w["kind"] = "dlrm";
  w["name"] = name ? name->name() : "deeprecsys";
  if (const auto fixed = given(v, "num_indices_per_lookup_fixed"); fixed && !fixed->boolean()) {
    fixed->reject(
        "found false: numbers of lookups drawn evenly up to a limit are not modelled; "
        "use true with their mean");
  }
  const Json pooling =
      v.at("num_indices_per_lookup", "lookups per sample of a table").integer(1, 1'000'000);
  const Json dim = v.at("arch_sparse_feature_size", "columns of a table").integer(1, 1 << 16);
  Widths rows = numbers(v.at("arch_embedding_size", "the rows of the tables"), config::kMostRows);
  if (const auto behaviours = given(v, "user_behavior_tables"); behaviours && rows.size() > 1) {
    rows.insert(rows.begin() + 1, static_cast<std::size_t>(behaviours->integer(1, 100'000) - 1),
                rows[1]);
  }
  w["tables"] = Json::array();
  for (const std::int64_t n : rows) {
    w["tables"].push_back({{"name", fmt::format("t{}", w["tables"].size())},
                           {"rows", n},
                           {"dim", dim},
                           {"pooling", pooling}});
  }
  if (build == nullptr) {
    add_dlrm(v, w);
  } else {
    (Ops(v, w).*build)();
  }
  return d;
}

bool is_deeprecsys(const Json& root) {
  return describes_tables(root) && root.contains("arch_embedding_size");
}

}  // namespace

ForeignFormat deeprecsys_config() {
  return tables_format<described_by_deeprecsys>("a configuration of DeepRecSys", is_deeprecsys);
}

}  // namespace stepcast::interop
