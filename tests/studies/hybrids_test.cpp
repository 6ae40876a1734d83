// Hybrids: predictions beside steps that others measured, and plans.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "core/config/config.h"
#include "studies/predict/predict.h"

using namespace stepcast;

namespace {

/// 12 delta layers and 12 feed-forward blocks on 8 MI300X, 1,024 samples of 2,048 tokens, as
/// AMD-AGI/Primus describes them: docs/04-technical-guides/hybrid-models/{gdn,kda}-guide.md.
Job primus(const char* delta) {
  const std::string text = std::string(R"({"system": "mi300x-8", "framework": "primus",
      "devices": 8, "parallel": {"data": 8}, "loss": {"kind": "fused", "chunks": 32},
      "workload": {"kind": "transformer", "name": "delta", "layers": 24, "hidden": 1024,
      "heads": 16, "ffn_hidden": 4096, "activation": "swiglu", "vocabulary": 128256,
      "tied_embeddings": true, "pattern": "delta mlp",
      "default_batch": {"global": 1024, "micro": 128, "sequence": 2048}, "delta": )") +
                           delta + "}}";
  return config::load_job(config::text_source(text, "test"), {}, {STEPCAST_SOURCE_DIR});
}

std::map<std::string, double> measured_steps(const std::filesystem::path& file) {
  std::ifstream rows(file);
  std::map<std::string, double> seconds;
  for (std::string line; std::getline(rows, line);) {
    std::istringstream cells(line);
    std::vector<std::string> row;
    for (std::string cell; std::getline(cells, cell, ',');) {
      row.push_back(cell);
    }
    if (row.size() > 6 && row[0].starts_with("primus_")) {
      seconds[row[0]] = std::stod(row[6]);
    }
  }
  return seconds;
}

}  // namespace

TEST_CASE("steps of delta hybrids on MI300X are within their interval", "[studies][pattern]") {
  const std::filesystem::path file =
      std::filesystem::path(STEPCAST_SHARED_DATA) / "recent" / "hybrids.csv";
  if (!std::filesystem::exists(file)) {
    WARN("skipped: no " << file);
    return;
  }
  const std::map<std::string, double> measured = measured_steps(file);
  const auto error = [&](const char* row, const char* delta) {
    const studies::StepPrediction p =
        studies::predict(primus(delta), {.intervals = true});
    CHECK(p.interval->p5.base() < measured.at(row));
    CHECK(p.interval->p95.base() > measured.at(row));
    return p.iteration.base() / measured.at(row) - 1;
  };
  const double gdn =
      error("primus_gdn", R"({"heads": 8, "key_heads": 4, "key_dim": 64, "value_dim": 64})");
  const double kda = error(
      "primus_kda",
      R"({"heads": 8, "key_heads": 8, "key_dim": 64, "value_dim": 64, "gate_rank": 64})");
  INFO("gated delta " << gdn << ", Kimi delta " << kda);
  // No row of a hybrid or of MI300X is in any fit: short, as devices without measurements are.
  CHECK(std::abs(gdn) < 0.25);
  CHECK(std::abs(kda) < 0.25);
  CHECK(std::abs(gdn - kda) < 0.05);  // what tells the two apart is the mixer
}
