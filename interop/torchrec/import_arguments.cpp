#include <charconv>

#include "interop/embedding_tables/described_tables.h"

// Arguments of the reference DLRM on TorchRec (facebookresearch/dlrm, torchrec_dlrm/dlrm_main.py)
// as JSON, as MLPerf's rounds give them -> workload, and the batch of its job. Lists may be texts
// joined by commas, as on its command line.
namespace stepcast::interop {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{1} << 32;

/// The first of several names that is given.
std::optional<Value> one_of(const Value& v, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (auto found = given(v, key)) {
      return found;
    }
  }
  return std::nullopt;
}

std::vector<std::int64_t> whole_numbers(const Value& v) {
  const char* expected = "whole numbers, such as [512, 256] or \"512,256\"";
  std::vector<std::int64_t> all;
  if (!v.is_string()) {
    for (const Value& n : v.items(expected, 1)) {
      all.push_back(n.integer(1, config::kMostRows));
    }
    return all;
  }
  const std::string text = v.text(expected);
  for (const char *at = text.data(), *end = at + text.size(); at <= end;) {
    std::int64_t n = 0;
    const auto [stop, error] = std::from_chars(at, end, n);
    if (error != std::errc() || n < 1 || (stop != end && *stop != ',')) {
      v.fail(expected);
    }
    all.push_back(n);
    at = stop + 1;
  }
  return all;
}

Described described_by_arguments(const Value& v) {
  static const std::vector<std::string> kRead{"num_embeddings_per_feature",
                                              "multi_hot_sizes",
                                              "embedding_dim",
                                              "dense_features",
                                              "dense_in_features",
                                              "dense_arch",
                                              "dense_arch_layer_sizes",
                                              "over_arch",
                                              "over_arch_layer_sizes",
                                              "interaction",
                                              "interaction_type",
                                              "dcn_num_layers",
                                              "dcn_low_rank_dim",
                                              "optimizer",
                                              "adagrad",
                                              "global_batch",
                                              "global_batch_size",
                                              "name",
                                              "model"};
  Described d = begun(v, "dlrm");
  Json& w = d.workload;
  for (const auto& [key, value] : v.members()) {
    pass_over(v.where(), "key", key, kRead, w);
  }
  const Value rows = v.at("num_embeddings_per_feature", "the rows of each table");
  const Json dim = v.at("embedding_dim", "columns of a table").integer(1, config::kWidestTable);
  const auto hot = given(v, "multi_hot_sizes");
  const auto pooling = hot ? whole_numbers(*hot) : std::vector<std::int64_t>();
  for (const std::int64_t n : whole_numbers(rows)) {
    const std::size_t t = w["tables"].size();
    if (hot && t >= pooling.size()) {
      hot->fail("as many numbers as there are tables");
    }
    w["tables"].push_back({{"name", fmt::format("t_cat_{}", t)},
                           {"rows", n},
                           {"dim", dim},
                           {"pooling", hot ? pooling[t] : 1}});
  }
  const auto features = one_of(v, {"dense_features", "dense_in_features"});
  w["dense_features"] = features ? features->integer(1, 1 << 20) : 13;
  const auto bottom = one_of(v, {"dense_arch", "dense_arch_layer_sizes"});
  w["bottom_mlp"] = whole_numbers(
      bottom ? *bottom : v.at("dense_arch_layer_sizes", "the widths of the bottom MLP"));
  const auto top = one_of(v, {"over_arch", "over_arch_layer_sizes"});
  w["top_mlp"] =
      whole_numbers(top ? *top : v.at("over_arch_layer_sizes", "the widths of the top MLP"));
  const auto interaction = one_of(v, {"interaction", "interaction_type"});
  if (interaction &&
      interaction->choice<bool>({{"dcn", true}, {"original", false}, {"dot", false}})) {
    w["interaction"] = {{"kind", "dcnv2"},
                        {"layers", v.at("dcn_num_layers", "the cross layers").integer(1, 10'000)},
                        {"rank", v.at("dcn_low_rank_dim", "their rank").integer(1, 1 << 20)}};
  } else {
    w["interaction"] = {{"kind", "dot"}};
  }
  if (const auto optimizer = given(v, "optimizer")) {
    d.job["optimizer"] =
        optimizer->choice<std::string>({{"adagrad", "adagrad"}, {"sgd", "sgd"}, {"adam", "adam"}});
  } else if (const auto adagrad = given(v, "adagrad")) {
    d.job["optimizer"] = adagrad->boolean() ? "adagrad" : "sgd";
  }
  if (const auto batch = one_of(v, {"global_batch", "global_batch_size"})) {
    add_batch(batch->integer(1, kMostSamples), d);
  }
  return d;
}

bool is_arguments(const Json& root) {
  return describes_tables(root) && root.contains("num_embeddings_per_feature");
}

}  // namespace

ForeignFormat dlrm_arguments() {
  return tables_format<described_by_arguments>("arguments of the reference DLRM", is_arguments);
}

}  // namespace stepcast::interop
