#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "models/collectives/collective_form.h"
#include "models/fit/fit.h"

namespace stepcast::models {

TEST_CASE("collective constants are recovered", "[models][fit][collective]") {
  System system;
  system.fabric = {{"memory", 2, GBps(8), microseconds(1), 1, false}};
  const CollectiveForm& form = *collective_form_named("collective.knee");
  const std::map<std::string, double> truth{
      {"start", 2e-6},   {"member", 1e-6},     {"near", 1.2e10},   {"far", 4e9},
      {"capacity", 4e6}, {"rendezvous", 3e-6}, {"threshold", 9e3}, {"self", 1e-10}};
  std::vector<double> c;
  for (const Constant& k : form.constants(system)) {
    const auto known = truth.find(std::string(k.name));
    c.push_back(known == truth.end() ? k.ideal : known->second);
  }
  const GroupShape pair = group_shape(system, std::vector<std::int32_t>{0, 1});
  std::vector<MeasuredCollective> rows;
  for (double bytes = 4; bytes < 3e8; bytes *= 2) {
    rows.push_back({OpKind::kAllReduce, bytes, pair,
                    form.predict(OpKind::kAllReduce, bytes, pair, system, c).time});
  }
  FitOptions options;
  options.max_points = 0;
  const FittedModel model =
      fit_collectives(system, rows, "collective.knee", options).at("all_reduce");
  CHECK(model.constants.at("near") == Approx(1.2e10).epsilon(0.1));
  CHECK(model.constants.at("far") == Approx(4e9).epsilon(0.1));
  CHECK(model.constants.at("start") + model.constants.at("member") == Approx(3e-6).epsilon(0.05));
  CHECK(model.error.p90 < 0.05);
}

TEST_CASE("the cost of a rest is told apart from size", "[models][fit][collective][rest]") {
  System system;
  system.fabric = {{"memory", 2, GBps(8), microseconds(1), 1, false}};
  const CollectiveForm& form = *collective_form_named("collective.knee");
  std::map<std::string, double> truth{
      {"start", 2e-6},   {"member", 1e-6},     {"near", 1.2e10},    {"far", 4e9},
      {"capacity", 4e6}, {"rendezvous", 3e-6}, {"threshold", 9e3},  {"self", 1e-10},
      {"cold", 8e-6},    {"cold_byte", 4e-11}, {"cold_after", 2e-3}};
  std::vector<double> c;
  for (const Constant& k : form.constants(system)) {
    c.push_back(truth.at(std::string(k.name)));
  }
  const GroupShape pair = group_shape(system, std::vector<std::int32_t>{0, 1});
  std::vector<MeasuredCollective> rows;
  for (double bytes = 4; bytes < 3e7; bytes *= 2) {
    for (const double rest : {0.0, 3e-5, 1e-3, 2e-2}) {
      rows.push_back({OpKind::kAllReduce, bytes, pair,
                      form.predict(OpKind::kAllReduce, bytes, pair, system, c).time +
                          form.after_rest(bytes, Seconds(rest), c),
                      Format::kFp32, Seconds(rest)});
    }
  }
  FitOptions options;
  options.max_points = 0;
  const FittedModel model =
      fit_collectives(system, rows, "collective.knee", options).at("all_reduce");
  CHECK(model.constants.at("cold") == Approx(8e-6).epsilon(0.1));
  CHECK(model.constants.at("cold_after") == Approx(2e-3).epsilon(0.2));
  CHECK(model.error.p90 < 0.02);
  // Rows that do not know their rest keep the term out of the way.
  for (MeasuredCollective& row : rows) {
    row.idle_time = Seconds(-1);
  }
  const FittedModel blind =
      fit_collectives(system, rows, "collective.knee", options).at("all_reduce");
  CHECK(blind.constants.at("cold") <= 1.1e-7);
  CHECK(blind.error.mean > 3 * model.error.mean);
}

}  // namespace stepcast::models
