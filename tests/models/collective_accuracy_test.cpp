#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "models/collective_form.h"
#include "models/fit/fit.h"
#include "tests/models/measured.h"

namespace stepcast::models {
namespace {

System one_node(bool in_switch, BytesPerSecond bandwidth) {
  System s;
  s.device.launch = microseconds(2);
  s.fabric = {{"nvlink", 8, bandwidth, microseconds(1), 1, in_switch}};
  return s;
}

System efa_cluster() {
  System s = one_node(true, GBps(450));
  s.fabric.push_back({"efa", 4096, GBps(50), microseconds(10), 1, false});
  return s;
}

GroupShape first_ranks(const System& system, std::int64_t n) {
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(n));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group_shape(system, ranks, n);
}

std::vector<MeasuredCollective> one_node_rows(const System& system, const std::string& file) {
  std::vector<MeasuredCollective> rows;
  const auto records = test::read_csv(std::string(STEPCAST_SHARED_DATA) + "/collectives/" + file);
  for (const test::Record& r : records.value_or(std::vector<test::Record>{})) {
    const std::string name = r.at("op_name") == "alltoall" ? "all_to_all" : r.at("op_name");
    if (r.at("nccl_dtype") != "half") {
      continue;
    }
    rows.push_back({op_kind_named(name).value(), 2 * std::atof(r.at("message_size").c_str()),
                    first_ranks(system, std::atoll(r.at("num_gpus").c_str())),
                    milliseconds(std::atof(r.at("latency_ms").c_str()))});
  }
  return rows;
}

FitError score(const System& system, const FittedModels& fitted,
               const std::vector<MeasuredCollective>& rows, OpKind kind, bool other_sizes) {
  System with = system;
  with.fitted = fitted;
  const CostModel cost(with, {});
  std::vector<double> predicted;
  std::vector<double> measured;
  for (const MeasuredCollective& row : rows) {
    if (row.kind != kind || (other_sizes && std::llround(std::log2(row.bytes)) % 2 == 0)) {
      continue;
    }
    Op op;
    op.kind = kind;
    op.format = Format::kInt8;
    op.shape[0] = static_cast<std::int64_t>(row.bytes);
    predicted.push_back(cost.collective(op, row.group).time.base());
    measured.push_back(row.time.base());
  }
  return error_of(predicted, measured);
}

}  // namespace

// Reference (kernels-and-collectives 3.1), one curve per op, group and type: alpha-beta 11-13 %
// median, table 2.8-3.4 %.
TEST_CASE("one-node collectives at sizes not fitted", "[models][collective][accuracy]") {
  struct Case {
    std::string file;
    System system;
  };
  const auto c =
      GENERATE(values<Case>({{"nccl__a100_sxm__2.27.3.csv", one_node(false, GBps(300))},
                             {"nccl__h100_sxm__2.27.3.csv", one_node(true, GBps(450))}}));
  const auto rows = one_node_rows(c.system, c.file);
  if (rows.empty()) {
    WARN("skipped: " << c.file << " is not in " << STEPCAST_SHARED_DATA);
    return;
  }
  std::vector<MeasuredCollective> even;
  for (const MeasuredCollective& row : rows) {
    if (std::llround(std::log2(row.bytes)) % 2 == 0) {
      even.push_back(row);
    }
  }
  fmt::print("{}\n", c.file);
  for (const std::size_t points : {std::size_t{0}, std::size_t{200}}) {
    FitOptions options;
    options.folds = 1;
    options.max_points = points;
    const FittedModels fitted = fit_collectives(c.system, even, "collective.fabric", options);
    if (points == 0) {
      test::print_constants(fitted);
    }
    for (const OpKind kind :
         {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllToAll}) {
      const FitError error = score(c.system, fitted, rows, kind, true);
      test::print_error(fmt::format("{}, {} points", name_of(kind), points), error);
      CHECK(error.median <= (points == 0 ? 0.15 : 0.06));
    }
  }
}

// Reference 3.2: 5-10 % median on a left-out GPU count, one four-parameter form per collective.
TEST_CASE("multi-node collectives, one GPU count left out", "[models][collective][accuracy]") {
  const System system = efa_cluster();
  for (const std::string& name :
       {std::string("all_reduce"), std::string("all_gather"), std::string("alltoall")}) {
    const auto records = test::read_csv(std::string(STEPCAST_SHARED_DATA) +
                                        "/collectives/aws_p5_efa__nccl_" + name + ".csv");
    if (!records) {
      WARN("skipped: no multi-node rows in " << STEPCAST_SHARED_DATA);
      return;
    }
    const OpKind kind = op_kind_named(name == "alltoall" ? "all_to_all" : name).value();
    std::vector<MeasuredCollective> rows;
    for (const test::Record& r : *records) {
      const double bytes = std::atof(r.at("size(MB)").c_str()) * 1048576;
      rows.push_back({kind, bytes, first_ranks(system, std::atoll(r.at("GPUs").c_str())),
                      Seconds(bytes / (std::atof(r.at("out algbw(GB/s)").c_str()) * 1e9))});
    }
    fmt::print("aws p5, {}\n", name);
    test::print_error("hardware facts only", score(system, {}, rows, kind, false));
    FitOptions options;
    options.folds = 1;
    options.max_points = 0;
    const FittedModels all = fit_collectives(system, rows, "collective.fabric", options);
    test::print_constants(all);
    test::print_error("constants, fitted rows", score(system, all, rows, kind, false));
    for (const std::int64_t left : {16, 32, 128}) {
      std::vector<MeasuredCollective> kept;
      std::vector<MeasuredCollective> held;
      for (const MeasuredCollective& row : rows) {
        (row.group.size == left ? held : kept).push_back(row);
      }
      if (held.empty()) {
        continue;
      }
      const FitError error = score(
          system, fit_collectives(system, kept, "collective.fabric", options), held, kind, false);
      test::print_error(fmt::format("constants, {} GPUs left out", left), error);
      CHECK(error.median <= 0.5);
    }
  }
}

}  // namespace stepcast::models
