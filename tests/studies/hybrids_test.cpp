// Hybrids: predictions beside steps that others measured, and plans.
#include <catch2/catch.hpp>
#include <map>

#include "studies/predict/predict.h"
#include "tests/jobs.h"
#include "tests/studies/recent_rows.h"

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
  return fixtures::loaded({}, text);
}

}  // namespace

TEST_CASE("steps of delta hybrids on MI300X are within their interval", "[studies][pattern]") {
  std::map<std::string, double> measured;
  for (const auto& row : fixtures::recent_rows("hybrids.csv", "primus_")) {
    measured[row[0]] = std::stod(row.at(6));
  }
  if (measured.empty()) {
    return;
  }
  const auto error = [&](const char* row, const char* delta) {
    const studies::StepPrediction p = studies::predict(primus(delta), {.intervals = true});
    CHECK(p.interval->p5.base() < measured.at(row));
    CHECK(p.interval->p95.base() > measured.at(row));
    return p.iteration.base() / measured.at(row) - 1;
  };
  const double gdn =
      error("primus_gdn", R"({"heads": 8, "key_heads": 4, "key_dim": 64, "value_dim": 64})");
  const double kda =
      error("primus_kda",
            R"({"heads": 8, "key_heads": 8, "key_dim": 64, "value_dim": 64, "gate_rank": 64})");
  INFO("gated delta " << gdn << ", Kimi delta " << kda);
  // No row of a hybrid or of MI300X is in any fit: short, as devices without measurements are.
  CHECK(std::abs(gdn) < 0.25);
  CHECK(std::abs(kda) < 0.25);
  CHECK(std::abs(gdn - kda) < 0.05);  // what tells the two apart is the mixer
}
