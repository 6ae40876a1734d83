#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "models/collectives/collective_form.h"
#include "models/fit/fit.h"

namespace stepcast::models {
namespace {

/// All-reduces of two ranks that take what these constants say, idle for each of `rests` before.
struct Knee {
  System system;
  std::vector<MeasuredCollective> rows;

  Knee(const std::map<std::string, double>& truth, double most, const std::vector<double>& rests) {
    system.fabric = {{"memory", 2, GBps(8), microseconds(1), 1, false}};
    const CollectiveForm& form = *collective_form_named("collective.knee");
    std::vector<double> c;
    for (const Constant& k : form.constants(system)) {
      const auto known = truth.find(std::string(k.name));
      c.push_back(known == truth.end() ? k.ideal : known->second);
    }
    const GroupShape pair = group_shape(system, std::vector<std::int32_t>{0, 1});
    for (double bytes = 4; bytes < most; bytes *= 2) {
      const Seconds time = form.predict(OpKind::kAllReduce, bytes, pair, system, c).time;
      if (rests.empty()) {
        rows.push_back({OpKind::kAllReduce, bytes, pair, time});
      }
      for (const double rest : rests) {
        rows.push_back({OpKind::kAllReduce, bytes, pair,
                        time + form.after_rest(bytes, Seconds(rest), c), Format::kFp32,
                        Seconds(rest)});
      }
    }
  }
  [[nodiscard]] FittedModel fitted() const {
    FitOptions options;
    options.max_points = 0;
    return fit_collectives(system, rows, "collective.knee", options).at("all_reduce");
  }
};

const std::map<std::string, double> kTruth{
    {"start", 2e-6},   {"member", 1e-6},     {"near", 1.2e10},   {"far", 4e9},
    {"capacity", 4e6}, {"rendezvous", 3e-6}, {"threshold", 9e3}, {"self", 1e-10}};

}  // namespace

TEST_CASE("collective constants are recovered", "[models][fit][collective]") {
  const FittedModel model = Knee(kTruth, 3e8, {}).fitted();
  CHECK(model.constants.at("near") == Approx(1.2e10).epsilon(0.1));
  CHECK(model.constants.at("far") == Approx(4e9).epsilon(0.1));
  CHECK(model.constants.at("start") + model.constants.at("member") == Approx(3e-6).epsilon(0.05));
  CHECK(model.error.p90 < 0.05);
}

TEST_CASE("the cost of a rest is told apart from size", "[models][fit][collective][rest]") {
  auto truth = kTruth;
  truth.insert({{"cold", 8e-6}, {"cold_byte", 4e-11}, {"cold_after", 2e-3}});
  Knee knee(truth, 3e7, {0.0, 3e-5, 1e-3, 2e-2});
  const FittedModel model = knee.fitted();
  CHECK(model.constants.at("cold") == Approx(8e-6).epsilon(0.1));
  CHECK(model.constants.at("cold_after") == Approx(2e-3).epsilon(0.2));
  CHECK(model.error.p90 < 0.02);
  // Rows that do not know their rest keep the term out of the way.
  for (MeasuredCollective& row : knee.rows) {
    row.idle_time = Seconds(-1);
  }
  const FittedModel blind = knee.fitted();
  CHECK(blind.constants.at("cold") <= 1.1e-7);
  CHECK(blind.error.mean > 3 * model.error.mean);
}

}  // namespace stepcast::models
