#include <charconv>

#include "interop/embedding_tables/described_tables.h"

// Configurations of DeepRecSys (Gupta et al., arXiv 2001.02772; files configs/*.json of
// harvard-acc/DeepRecSys) -> workload. Widths are joined by '-'; the first of arch_mlp_bot is the
// number of dense features.
namespace stepcast::interop {
namespace {

std::vector<std::int64_t> numbers(const Value& v, std::int64_t most) {
  const char* expected = "whole numbers joined by '-', such as \"128-64-32\"";
  const std::string text = v.text(expected);
  std::vector<std::int64_t> all;
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

Described described_by_deeprecsys(const Value& v) {
  const std::string type = v.at("model_type", "dlrm").text("a model type of DeepRecSys");
  if (type != "dlrm") {
    v.at("model_type", "")
        .reject(fmt::format(
            "found \"{}\": of DeepRecSys's models only dlrm is read (bottom MLP, tables, "
            "interaction, top MLP); describe this one as a workload of kind graph "
            "(docs/jobs.md)",
            type));
  }
  v.keys({"arch_mlp_bot", "arch_mlp_top", "arch_embedding_size", "arch_sparse_feature_size",
          "num_indices_per_lookup_fixed", "num_indices_per_lookup", "arch_interaction_op",
          "model_type", "model_name"});
  Described d;
  Json& w = d.workload;
  const auto name = given(v, "model_name");
  w["kind"] = "dlrm";
  w["name"] = name ? name->name() : "deeprecsys";
  const Value bottom = v.at("arch_mlp_bot", "the dense features and the bottom MLP");
  std::vector<std::int64_t> widths = numbers(bottom, 1 << 20);
  if (widths.size() < 2) {
    bottom.fail("the dense features and at least one layer, such as \"128-64\"");
  }
  w["dense_features"] = widths.front();
  widths.erase(widths.begin());
  w["bottom_mlp"] = widths;
  w["top_mlp"] = numbers(v.at("arch_mlp_top", "the widths of the top MLP"), 1 << 20);
  w["interaction"] = {{"kind", v.at("arch_interaction_op", "cat or dot")
                                   .choice<std::string>({{"cat", "cat"}, {"dot", "dot"}})}};
  if (const auto fixed = given(v, "num_indices_per_lookup_fixed"); fixed && !fixed->boolean()) {
    fixed->reject(
        "found false: numbers of lookups drawn evenly up to a limit are not modelled; "
        "use true with their mean");
  }
  const Json pooling =
      v.at("num_indices_per_lookup", "lookups per sample of a table").integer(1, 1'000'000);
  const Json dim = v.at("arch_sparse_feature_size", "columns of a table").integer(1, 1 << 16);
  w["tables"] = Json::array();
  for (const std::int64_t rows :
       numbers(v.at("arch_embedding_size", "the rows of the tables"), config::kMostRows)) {
    w["tables"].push_back({{"name", fmt::format("t{}", w["tables"].size())},
                           {"rows", rows},
                           {"dim", dim},
                           {"pooling", pooling}});
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
