#pragma once
#include <string>
#include <vector>

#include "validation/published/published.h"

namespace stepcast::validation::testing {

/// At most 40 published runs, simulated in 1 s on plans that fit.
struct Runs {
  std::vector<PublishedRow> rows = std::vector<PublishedRow>(40);
  std::vector<PublishedPrediction> predictions;
  void add(const std::string& source, const std::string& device, const std::string& framework,
           const std::string& plan, double measured, const std::string& hours_of = "") {
    PublishedPrediction p;
    p.row = &rows.at(predictions.size());
    rows.at(predictions.size()).id = source;
    rows.at(predictions.size()).hours_of = hours_of;
    p.source = source;
    p.device = device;
    p.framework = framework;
    p.plan = plan;
    p.family = plan == "experts" || plan == "adapters" ? plan : "dense";
    p.generation = device.substr(0, 1);  // a100, h100, b200
    p.maker = framework;
    p.measured = measured;
    p.at_peak = 0.5;
    p.curve = {1};
    p.capacity = 1;
    predictions.push_back(p);
  }
};

}  // namespace stepcast::validation::testing
