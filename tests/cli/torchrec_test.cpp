// Plans of --export torchrec obey what TorchRec accepts (interop/torchrec/rules.h),
// and the commands that docs/how-to/torchrec.md shows for it run.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "command_line.h"
#include "interop/torchrec/rules.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;
using nlohmann::json;
namespace interop = stepcast::interop;

namespace {

constexpr const char* kUnpooledModule = "sparse_arch.embedding_collection";

/// rows and columns by table.
using Shapes = std::map<std::string, std::pair<std::int64_t, std::int64_t>>;

/// Executes the rules on a plan; each sentence is a rule that it breaks.
class RuleChecker {
 public:
  RuleChecker(const json& plan, const Shapes& shapes, std::int64_t ranks, std::int64_t machine)
      : shapes_(shapes), ranks_(ranks), machine_(machine) {
    std::size_t tables = 0;
    for (const auto& [module, sharded] : plan.items()) {
      for (const auto& [name, table] : sharded.items()) {
        check(name, table, module.starts_with(kUnpooledModule));
        ++tables;
      }
      if (module.starts_with(kUnpooledModule)) {
        check_collection(module, sharded);
      }
    }
    expect(tables == shapes.size(), "", "every table is in one module");
  }
  [[nodiscard]] const std::vector<std::string>& broken() const { return broken_; }

 private:
  void expect(bool good, const std::string& table, const std::string& rule) {
    if (!good) {
      broken_.push_back(table + ": " + rule);
    }
  }

  void check(const std::string& name, const json& table, bool unpooled) {
    const std::string type = table.at("sharding_type");
    const std::string kernel = table.at("compute_kernel");
    const interop::TorchRecSharding* rule = interop::torchrec_sharding(type);
    expect(rule != nullptr, name, "a sharding type of TorchRec");
    if (rule == nullptr) {
      return;
    }
    expect(unpooled ? rule->unpooled : rule->pooled, name, "type " + type + " of its collection");
    expect(std::find(rule->kernels.begin(), rule->kernels.end(), kernel) != rule->kernels.end(),
           name, "kernel " + kernel + " of type " + type);
    const bool cached = table.contains("cache_params") && !table.at("cache_params").is_null();
    expect(cached == (kernel == "fused_uvm_caching"), name, "cache_params with fused_uvm_caching");
    if (cached) {
      const double load_factor = table.at("cache_params").at("load_factor");
      expect(load_factor > 0 && load_factor <= 1, name, "a load factor is a share of the rows");
    }
    const auto [rows, columns] = shapes_.at(name);
    expect(columns % interop::kTorchRecColumnMultiple == 0, name, "columns of the table");
    if (type == "data_parallel") {
      expect(table.at("sharding_spec").is_null(), name, "no shards of copies");
      return;
    }
    shards(name, type, table, rows, columns);
  }

  /// One dim, and one width of column parts.
  void check_collection(const std::string& module, const json& sharded) {
    std::set<std::int64_t> dims, widths;
    for (const auto& [name, table] : sharded.items()) {
      dims.insert(shapes_.at(name).second);
      if (table.at("sharding_type") == "column_wise") {
        for (const json& s : table.at("sharding_spec")) {
          widths.insert(s.at("shard_sizes")[1].get<std::int64_t>());
        }
      }
    }
    expect(dims.size() == 1, module, "tables of a collection have one dim");
    expect(widths.size() <= 1, module, "column parts of a collection have one width");
  }

  void shards(const std::string& name, const std::string& type, const json& table,
              std::int64_t rows, std::int64_t columns) {
    const json& spec = table.at("sharding_spec");
    const json& ranks = table.at("ranks");
    expect(spec.size() == ranks.size(), name, "a rank for each shard");
    std::int64_t area = 0;
    std::set<std::int64_t> machines, first_columns;
    for (std::size_t i = 0; i < spec.size(); ++i) {
      const json& s = spec[i];
      const std::int64_t rank = ranks.at(i);
      const std::int64_t held = s.at("shard_sizes")[0];
      const std::int64_t width = s.at("shard_sizes")[1];
      const std::int64_t row = s.at("shard_offsets")[0];
      area += held * width;
      expect(width % interop::kTorchRecColumnMultiple == 0, name, "columns of a shard");
      expect(row + held <= rows && s.at("shard_offsets")[1].get<std::int64_t>() + width <= columns,
             name, "shards lie in the table");
      std::ostringstream placement;
      placement << "rank:" << rank << "/cuda:" << rank % machine_;
      expect(s.at("placement") == placement.str() && rank < ranks_, name, "placement");
      machines.insert(rank / machine_);
      first_columns.insert(s.at("shard_offsets")[1].get<std::int64_t>());
    }
    expect(area == rows * columns, name, "shards tile the table");
    // calculate_shard_sizes_and_offsets (torchrec/distributed/planner/shard_estimators.py and
    // sharding_plan.py): one shard; one for each column part; one for each rank; one for each rank
    // of one machine.
    const auto count = static_cast<std::int64_t>(spec.size());
    const bool right = type == "table_wise"       ? count == 1
                       : type == "column_wise"    ? std::size(first_columns) == spec.size()
                       : type == "row_wise"       ? count == ranks_
                       : type == "table_row_wise" ? count == machine_ && machines.size() == 1
                                                  : true;
    expect(right, name, "shards of " + type);
  }

  const Shapes& shapes_;
  std::int64_t ranks_, machine_;
  std::vector<std::string> broken_;
};

struct Table {
  std::string name;
  std::int64_t rows = 0, dim = 0;
  double pooling = 1;
  bool unpooled = false;
  double zipf = 1.05;
};

std::string csv_of(const std::vector<Table>& tables) {
  std::ostringstream csv;
  csv << "name,rows,dim,pooling,mode,zipf\n";
  for (const Table& t : tables) {
    csv << t.name << ',' << t.rows << ',' << t.dim << ',' << t.pooling << ','
        << (t.unpooled ? "sequence" : "sum") << ',' << t.zipf << '\n';
  }
  return csv.str();
}

Shapes shapes_of(const std::vector<Table>& tables) {
  Shapes shapes;
  for (const Table& t : tables) {
    shapes[t.name] = {t.rows, t.dim};
  }
  return shapes;
}

/// The exported plan, on `devices` of a system with 8 in a machine.
json exported(const Folder& folder, const std::string& workload, std::int64_t devices,
              const Words& more = {}) {
  const std::string file = folder / "exported.json";
  const Words plan{"plan",     workload,
                   "-n",       std::to_string(devices),
                   "--gbs",    std::to_string(2048 * devices),
                   "--export", "torchrec=" + file};
  const Outcome made = call(plan + "--set system=dgx-h100 --effort quick" + more, "", 300);
  INFO(made.err);
  REQUIRE(made.code == 0);
  return json::parse(text_of(file));
}

void check_rules(const json& plan, const Shapes& shapes, std::int64_t devices) {
  const RuleChecker checked(plan, shapes, devices, std::min<std::int64_t>(8, devices));
  for (const std::string& rule : checked.broken()) {
    UNSCOPED_INFO(rule);
  }
  CHECK(checked.broken().empty());
}

std::set<std::string> kernels_of(const json& plan) {
  std::set<std::string> kernels;
  for (const auto& [module, tables] : plan.items()) {
    for (const auto& [name, table] : tables.items()) {
      kernels.insert(table.at("compute_kernel").get<std::string>());
    }
  }
  return kernels;
}

}  // namespace

TEST_CASE("the rule checker sees what TorchRec refuses", "[cli][torchrec]") {
  const Shapes shapes{{"a", {80, 8}}};
  const auto broken = [&](const char* type, const char* kernel, const char* module,
                          std::int64_t columns, const json& cache = nullptr) {
    json table{{"sharding_type", type}, {"compute_kernel", kernel}, {"ranks", {0}}};
    table["sharding_spec"] = json::array({{{"shard_sizes", {80, columns}},
                                           {"shard_offsets", {0, 0}},
                                           {"placement", "rank:0/cuda:0"}}});
    table["cache_params"] = cache;
    return RuleChecker({{module, {{"a", table}}}}, shapes, 8, 8).broken().size();
  };
  const char* pooled = "sparse_arch.embedding_bag_collection";
  CHECK(broken("table_wise", "fused", pooled, 8) == 0);
  CHECK(broken("table_wise", "fused", kUnpooledModule, 8) == 0);
  CHECK(broken("table_wise", "dense", pooled, 8) == 1);
  CHECK(broken("table_wise", "fused_uvm_caching", pooled, 8) == 1);
  CHECK(broken("table_wise", "fused_uvm_caching", pooled, 8, {{"load_factor", 0.2}}) == 0);
  CHECK(broken("table_wise", "fused_uvm_caching", pooled, 8, {{"load_factor", 2}}) == 1);
  CHECK(broken("table_wise", "fused", pooled, 6) == 2);  // 6 columns; not all of the table
  CHECK(broken("grid_shard", "fused", kUnpooledModule, 8) == 1);
  CHECK(broken("row_wise", "fused", pooled, 8) == 1);  // one shard for 8 ranks
  CHECK(broken("diagonal", "fused", pooled, 8) == 1);
  const json whole{{"sharding_type", "data_parallel"},
                   {"compute_kernel", "dense"},
                   {"ranks", {0}},
                   {"sharding_spec", nullptr}};
  const Shapes two{{"a", {80, 8}}, {"b", {80, 16}}};
  CHECK(RuleChecker({{pooled, {{"a", whole}, {"b", whole}}}}, two, 8, 8).broken().empty());
  CHECK(RuleChecker({{kUnpooledModule, {{"a", whole}, {"b", whole}}}}, two, 8, 8).broken().size() ==
        1);
}

TEST_CASE("plans of unpooled tables go to TorchRec's embedding collection", "[cli][torchrec]") {
  // Groups of a machine would be faster on 32 GPUs: 20 M rows, 10 to 120 lookups.
  std::vector<Table> tables;
  for (int i = 1; i <= 12; ++i) {
    tables.push_back({"h" + std::to_string(i), 20'000'000, 64, 10.0 * i, true});
  }
  const Folder folder;
  const std::string csv = folder.file("unpooled.csv", csv_of(tables));
  const json plan = exported(folder, csv, 32);
  CHECK(plan.contains(kUnpooledModule));
  check_rules(plan, shapes_of(tables), 32);
}

TEST_CASE("tables beyond the GPUs' memory are exported with UVM caching, and come back",
          "[cli][torchrec]") {
  // 1 TB, 256 GB and 77 GB in fp32 on 8 x 80 GB with 2 TB of host memory.
  const std::vector<Table> tables{{"a", 2'000'000'000, 128, 20, false, 1.1},
                                  {"b", 500'000'000, 128, 20, false, 1.05},
                                  {"c", 300'000'000, 64, 20, false, 0.9}};
  const Folder folder;
  const std::string csv = folder.file("big.csv", csv_of(tables));
  const std::string own = folder / "own.json";
  const json plan = exported(folder, csv, 8, {"--out", own});
  check_rules(plan, shapes_of(tables), 8);
  const std::set<std::string> kernels = kernels_of(plan);
  CHECK(kernels.count("fused_uvm") + kernels.count("fused_uvm_caching") > 0);
  const auto step = [&](const std::string& file) {
    const Words predict{csv, "--set", "embedding.plan=" + file};
    return step_of(predict + "--set system=dgx-h100 -n 8 --gbs 16384");
  };
  CHECK(step(folder / "exported.json") == Approx(step(own)).epsilon(1e-9));
}

TEST_CASE("plans of MLPerf's DLRM and of random tasks obey TorchRec's rules", "[cli][torchrec]") {
  const Folder folder;
  const json zoo =
      json::parse(text_of(std::string(STEPCAST_SOURCE_DIR) + "/workloads/zoo/mlperf-dlrm-v2.json"));
  Shapes shapes;
  for (const json& t : zoo.at("tables")) {
    shapes[t.at("name")] = {t.at("rows").get<std::int64_t>(), t.at("dim").get<std::int64_t>()};
  }
  check_rules(exported(folder, "mlperf-dlrm-v2", 16), shapes, 16);
  std::mt19937 rng(20261123);
  for (int task = 0; task < 8; ++task) {
    std::vector<Table> tables;
    const auto count = 2 + rng() % 20;
    for (std::size_t t = 0; t < count; ++t) {
      const auto rows = static_cast<std::int64_t>(
          std::pow(10, 1 + 5.2 * static_cast<double>(rng() % 1000) / 1000));
      tables.push_back({"t" + std::to_string(t), rows,
                        4 * static_cast<std::int64_t>(1 + rng() % 48),
                        1.0 + static_cast<double>(rng() % 60), rng() % 3 == 0,
                        0.1 * static_cast<double>(rng() % 14)});
    }
    const std::int64_t devices = std::int64_t{1} << (rng() % 6);
    const std::string csv = folder.file("task.csv", csv_of(tables));
    CAPTURE(task, devices, text_of(csv));
    check_rules(exported(folder, csv, devices), shapes_of(tables), devices);
  }
}

TEST_CASE("embedding.constraints bound every plan that is searched", "[cli][plan][torchrec]") {
  const Folder folder;
  const std::string out = folder / "plan.json";
  const auto plan = [&](const std::string& constraints) {
    return call(with_sets("plan",
                          {"workload=rm2", "system=dgx-h100", "devices=16", "batch.global=16384",
                           "embedding.constraints=" + constraints},
                          {"--out", out, "--effort", "quick"}));
  };
  const auto table = [&](const char* name) {
    const json tables = json::parse(text_of(out)).at("tables");
    return *std::find_if(tables.begin(), tables.end(),
                         [&](const json& t) { return t.at("name") == name; });
  };
  const Outcome made = plan(
      R"({"t0": {"sharding": ["row_wise"]}, "t1": {"memory": ["ddr"], "cache": true},
          "t2": {"sharding": ["column_wise"], "narrowest_columns": 32}})");
  INFO(made.err);
  REQUIRE(made.code == 0);
  CHECK(table("t0").at("shards")[0].at("sharding") == "row_wise");
  CHECK(table("t1").at("shards")[0].at("tier") == "ddr");
  CHECK(table("t1").at("shards")[0].at("cache").at("bytes") > 0);
  const json parts = table("t2").at("shards");  // 64 columns in two parts of 32
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].at("columns") == json({0, 32}));
  const Outcome none = plan(R"({"t3": {"sharding": ["column_wise"], "narrowest_columns": 64}})");
  CHECK(none.code == 2);
  CHECK_THAT(none.err, Contains("embedding.constraints.t3") && Contains("no placement"));
}

TEST_CASE("the commands from a TorchRec job to a plan that TorchRec loads run",
          "[cli][docs][torchrec]") {
  const std::string page = text_of(std::string(STEPCAST_SOURCE_DIR) + "/docs/how-to/torchrec.md");
  const std::size_t begin = page.find("# From a TorchRec job to a plan that TorchRec loads");
  REQUIRE(begin != std::string::npos);
  const std::string section = page.substr(begin, page.find("\n# ", begin + 1) - begin);
  const auto block = [&](const std::string& fence) {
    const std::size_t at = section.find(fence);
    REQUIRE(at != std::string::npos);
    return section.substr(at + fence.size(),
                          section.find("```", at + fence.size()) - at - fence.size());
  };
  const Folder folder;
  folder.file("ranker.json", block("```json ranker.json\n"));
  std::istringstream lines(block("```sh\nstepcast"));
  std::string script = "set -e\ncd '" + folder.path().string() + "'\n";
  std::size_t commands = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string command = commands == 0 ? "stepcast" + line : line;
    REQUIRE_THAT(command, Catch::Matchers::StartsWith("stepcast "));
    script += "'" STEPCAST_EXECUTABLE "'" + command.substr(8) + " > /dev/null\n";
    ++commands;
  }
  CHECK(commands >= 3);
  const Outcome ran = execute("/bin/sh", {"-c", script}, "", 300);
  INFO(script << ran.err);
  CHECK(ran.code == 0);
  // Its tables: two features share users; history is not pooled.
  const json plan = json::parse(text_of(folder / "plan.json"));
  check_rules(plan,
              {{"t_user", {40'000'000, 128}},
               {"t_item", {10'000'000, 128}},
               {"t_history", {10'000'000, 128}}},
              16);
  CHECK_THAT(text_of(folder / "plan.py"), Contains("cache_params"));
}
