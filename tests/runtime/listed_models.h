#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"
#include "core/job/job.h"

namespace stepcast::runtime::test {

constexpr std::int64_t kGlobal = 12;  ///< samples of a step

/// Small models given as lists of layers: all kinds of layers that a backend executes.
inline const std::vector<std::string>& listed_models() {
  static const std::vector<std::string> models = [] {
    const std::string tables =
        R"("tables": [{"name": "a", "rows": 31, "dim": 8}, {"name": "b", "rows": 47, "dim": 8, "pooling": 3},
                  {"name": "c", "rows": 20, "dim": 8}])";
    const std::string ends =
        R"("name": "w", "dense_features": 5, "bottom_mlp": [8], "top_mlp": [6, 1], )" + tables;

    return std::vector<std::string>{
        R"({"kind": "wukong", "layers": 2, "fmb": 2, "lcb": 3, "rank": 2, "mlp": [7], )" + ends +
            "}",
        R"({"kind": "dhen", "layers": 2, "features": 3, "modules": ["dot", "attention", "linear", "cross"],
        "heads": 2, "rank": 3, )" +
            ends + "}",
        R"({"kind": "graph", "name": "w", "inputs": {"dense": [5]}, )" + tables + R"(, "ops": [
        {"op": "linear", "name": "bottom", "width": 8, "activation": "tanh"}, {"op": "tables"},
        {"op": "reshape", "shape": [4, 8]}, {"op": "positions", "name": "rows"},
        {"op": "linear", "width": 12, "activation": "swiglu"}, {"op": "linear", "name": "up", "width": 8},
        {"op": "softmax", "name": "weights"}, {"op": "multiply", "name": "weighted", "in": ["up", "weights"]},
        {"op": "mean_rows", "name": "mean", "in": "rows"},
        {"op": "linear", "name": "c", "width": 24, "activation": "silu"},
        {"op": "modulate", "name": "modulated", "in": ["weighted", "c"]},
        {"op": "gate", "name": "gated", "in": ["rows", "modulated", "c"], "first": 16},
        {"op": "norm", "name": "n", "norm": "rms_norm"}, {"op": "add", "name": "sum", "in": ["n", "gated"]},
        {"op": "columns", "name": "some", "first": 2, "count": 4},
        {"op": "matmul", "name": "scores", "in": ["some", "sum"], "transpose_a": true},
        {"op": "transpose"}, {"op": "reshape", "name": "flat", "shape": [1, 32]},
        {"op": "concatenate", "in": ["flat", "mean"]}, {"op": "linear", "width": 9, "activation": "gelu"},
        {"op": "linear", "width": 5, "activation": "sigmoid"}, {"op": "linear", "width": 1},
        {"op": "binary_cross_entropy"}]})",
        R"({"kind": "graph", "name": "w", "inputs": {"dense": [5]}, )" + tables + R"(, "ops": [
        {"op": "linear", "name": "bottom", "width": 8, "activation": "tanh"}, {"op": "tables"},
        {"op": "linear", "width": 96, "activation": "tanh"}, {"op": "reshape", "name": "events", "shape": [12, 8]},
        {"op": "linear", "width": 24},
        {"op": "attention", "name": "causal", "heads": 2, "causal": true, "lengths": {"uniform": [1, 6]}},
        {"op": "add", "name": "sum", "in": ["causal", "events"]}, {"op": "linear", "width": 16},
        {"op": "attention", "heads": 2, "kv_heads": 1, "lengths": {"geometric": 4}},
        {"op": "mean_rows"}, {"op": "linear", "width": 1}, {"op": "binary_cross_entropy"}]})"};
  }();
  return models;
}

/// Wukong and the graph of layers: no attention over whole samples, which CUDA leaves to cuDNN.
inline std::vector<std::string> listed_without_attention() {
  return {listed_models()[0], listed_models()[2]};
}
/// DHEN with a head that cuDNN takes: 8 columns.
inline std::string listed_with_attention() {
  std::string model = listed_models()[1];
  const std::string heads = "\"heads\": 2";
  return model.replace(model.find(heads), heads.size(), "\"heads\": 1");
}

inline Job listed_job(const std::string& workload, std::int64_t devices,
                      std::string_view compute = "fp32") {
  return config::load_job(
      config::text_source(
          fmt::format(R"({{"system": "dgx-h100", "devices": {}, "batch": {{"global": {}}},
             "formats": {{"compute": "{}"}}, "optimizer": "sgd",
             "embedding": {{"plan": "table_wise"}}, "workload": )",
                      devices, kGlobal, compute) +
              workload + "}",
          "test"),
      {}, {STEPCAST_SOURCE_DIR});
}

}  // namespace stepcast::runtime::test
