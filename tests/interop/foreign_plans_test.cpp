// Plans of TorchRec and HugeCTR: round trips, and what has no form there.
#include <catch2/catch.hpp>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/config/config.h"
#include "core/error.h"
#include "interop/hugectr/plan.h"
#include "interop/import.h"
#include "interop/torchrec/plan.h"
#include "tests/folder.h"

using namespace stepcast;
using Catch::Matchers::Contains;

namespace {

const config::Library kLibrary = interop::library(STEPCAST_SOURCE_DIR);

struct PlanFile : private fixtures::Folder {
  explicit PlanFile(const std::string& text) { file("plan.json", text); }
  [[nodiscard]] std::string path() const { return *this / "plan.json"; }
};

/// Five tables, 20 rows x 8 columns each, on 4 ranks in two machines of 2.
Job job_with(const std::string& plan) {
  std::string tables;
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    tables += std::string(tables.empty() ? "" : ", ") + R"({"name": ")" + name +
              R"(", "rows": 21, "dim": 8, "pooling": 2, "mode": ")" +
              (std::string(name) == "e" ? "sequence" : "sum") + R"("})";
  }
  return config::load_job(
      config::text_source(
          R"({"workload": {"kind": "dlrm", "name": "w", "dense_features": 4, "bottom_mlp": [8],
            "top_mlp": [1], "interaction": {"kind": "cat"}, "tables": [)" +
              tables + R"(]}, "system": "dgx-h100", "devices": 4, "batch": {"global": 8},
            "embedding": {"plan": )" +
              plan + "}}",
          "job"),
      {"system.host.devices=2"}, kLibrary);
}

std::string whole(const char* name, int rank) {
  return fmt::format(
      R"({{"name": "{}", "shards": [{{"rows": [0, 21], "columns": [0, 8], "sharding": "table_wise",
          "groups": [[{}]]}}]}})",
      name, rank);
}

std::string of_tables(const std::string& tables) {
  return R"({"kind": "embedding", "workload": "w", "system": "dgx-h100", "devices": 4,
             "tables": [)" +
         tables + "]}";
}

/// Every kind that TorchRec has a form for; `row_split` for rows.
std::string mixed(const std::string& split, bool columns) {
  const auto rows = [&](const char* name, const char* kind, const char* group) {
    return fmt::format(
        R"({{"name": "{}", "shards": [{{"rows": [0, 21], "columns": [0, 8], "sharding": "{}",
            "groups": [{}], "split": "{}"}}]}})",
        name, kind, group, split);
  };
  return of_tables((columns ? std::string(
                                  R"({"name": "a", "shards": [
              {"rows": [0, 21], "columns": [0, 4], "sharding": "column_wise", "groups": [[3]]},
              {"rows": [0, 21], "columns": [4, 8], "sharding": "column_wise", "groups": [[1]]}]})")
                            : whole("a", 3)) +
                   ", " + rows("b", "row_wise", "[0, 1, 2, 3]") + ", " +
                   rows("c", "table_row_wise", "[2, 3]") +
                   R"(, {"name": "d", "shards": [{"rows": [0, 21], "columns": [0, 8], "sharding":
            "data_parallel", "groups": [[0, 1, 2, 3]]}]}, )" +
                   whole("e", 0));
}

std::string tables_of(const EmbeddingPlan& plan) {
  EmbeddingPlan only = plan;
  only.workload = only.system = "";
  return config::plan_to_json(only);
}

std::string rejection(const std::function<void()>& act) {
  try {
    act();
  } catch (const InputError& e) {
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a plan goes to TorchRec and back", "[config][torchrec]") {
  const Job job = job_with(mixed("block", true));
  const std::string text = interop::plan_to_torchrec(job, *job.embedding_plan);
  // 21 rows in blocks of ceil(21 / 4) = 6: 6, 6, 6, 3.
  CHECK_THAT(text, Contains("\"shard_sizes\": [3, 8], \"shard_offsets\": [18, 0], \"placement\": "
                            "\"rank:3/cuda:1\""));
  CHECK_THAT(text, Contains("sparse_arch.embedding_collection"));  // the sequence table
  const PlanFile file(text);
  const Job back = job_with("\"" + file.path() + "\"");
  CHECK(tables_of(*back.embedding_plan) == tables_of(*job.embedding_plan));
}

TEST_CASE("rows in host memory go to TorchRec and back with their cache", "[config][torchrec]") {
  Job job = job_with(mixed("block", true));
  // Row-wise Adagrad: 8 columns of 4 B, a state of 4 B, a directory of 32 B: 68 B a cached row.
  for (PlanShard* s :
       {&job.embedding_plan->tables[1].shards[0], &job.embedding_plan->tables[4].shards[0]}) {
    s->tier = "ddr";
  }
  job.embedding_plan->tables[1].shards[0].cache_bytes = 3 * 68;  // of blocks of 6 rows
  job.embedding_plan->tables[1].shards[0].cache_policy = RowCachePolicy::kLfu;
  const std::string text = interop::plan_to_torchrec(job, *job.embedding_plan);
  CHECK_THAT(text, Contains("\"cache_params\": {\"algorithm\": \"LFU\", \"load_factor\": 0.5}"));
  CHECK_THAT(text, Contains("\"compute_kernel\": \"fused_uvm\","));
  const PlanFile file(text);
  const Job back = job_with("\"" + file.path() + "\"");
  CHECK(tables_of(*back.embedding_plan) == tables_of(*job.embedding_plan));
  // A CPU's ranks have no memory behind their own.
  job.system.host.shares_core = true;
  CHECK_THAT(rejection([&] { (void)interop::plan_to_torchrec(job, *job.embedding_plan); }),
             Contains("table \"b\"") && Contains("\"ddr\""));
}

TEST_CASE("a table that no kernel of TorchRec takes is refused before any plan",
          "[config][torchrec]") {
  Job job = job_with(mixed("block", true));
  CHECK_NOTHROW(interop::expect_torchrec_tables(job));
  std::get<LayeredWorkload>(job.workload.model).tables[2].dim = 10;
  CHECK_THAT(rejection([&] { interop::expect_torchrec_tables(job); }),
             Contains("table \"c\"") && Contains("has dim 10") && Contains("multiples of 4") &&
                 Contains("pad it to 12"));
}

TEST_CASE("a plan goes to HugeCTR and back", "[config][hugectr]") {
  const Job job = job_with(mixed("stripe", false));
  const std::string text = interop::plan_to_hugectr(job, *job.embedding_plan);
  const PlanFile file(text);
  const Job back = job_with("\"" + file.path() + "\"");
  CHECK(tables_of(*back.embedding_plan) == tables_of(*job.embedding_plan));
  CHECK_THAT(text, Contains("\"vvgpu\": [[0, 1], [0, 1]]"));
}

TEST_CASE("what another system has no form for is refused by the table's name",
          "[config][torchrec][hugectr]") {
  const auto torchrec = [](const std::string& plan,
                           const std::function<void(EmbeddingPlan&)>& change = {}) {
    Job job = job_with(plan);
    if (change) {
      change(*job.embedding_plan);
    }
    return rejection([&] { (void)interop::plan_to_torchrec(job, *job.embedding_plan); });
  };
  const auto hugectr = [](const std::string& plan,
                          const std::function<void(EmbeddingPlan&)>& change = {}) {
    Job job = job_with(plan);
    if (change) {
      change(*job.embedding_plan);
    }
    return rejection([&] { (void)interop::plan_to_hugectr(job, *job.embedding_plan); });
  };
  CHECK_THAT(torchrec(mixed("stripe", true)), Contains("table \"b\"") && Contains("striped"));
  CHECK_THAT(hugectr(mixed("block", false)), Contains("table \"b\"") && Contains("row mod n"));
  CHECK_THAT(hugectr(mixed("stripe", true)), Contains("table \"a\"") && Contains("columns"));
  const auto tiered = [](EmbeddingPlan& p) {
    PlanShard hot = p.tables[1].shards.front();
    hot.rows = {0, 2};
    p.tables[1].shards.front().rows = {2, 21};
    p.tables[1].shards.insert(p.tables[1].shards.begin(), hot);
  };
  CHECK_THAT(torchrec(mixed("block", true), tiered),
             Contains("table \"b\"") && Contains("row tiers"));
  CHECK_THAT(hugectr(mixed("stripe", false), tiered),
             Contains("table \"b\"") && Contains("row tiers"));
  const auto slow = [](EmbeddingPlan& p) { p.tables[4].shards.front().tier = "ssd"; };
  CHECK_THAT(torchrec(mixed("block", true), slow), Contains("table \"e\"") && Contains("\"ssd\""));
  const auto ordered = [](EmbeddingPlan& p) { p.tables[2].frequency_order = true; };
  CHECK_THAT(torchrec(mixed("block", true), ordered),
             Contains("table \"c\"") && Contains("popularity"));
  const auto nodes = [](EmbeddingPlan& p) { p.tables[1].shards.front().groups = {{0, 1}, {2, 3}}; };
  CHECK_THAT(torchrec(mixed("block", true), nodes), Contains("table \"b\"") && Contains("copies"));
  // Not pooled: a group of ranks is for pooled tables only.
  const auto unpooled = [](EmbeddingPlan& p) { p.tables[4].shards = p.tables[2].shards; };
  CHECK_THAT(torchrec(mixed("block", true), unpooled),
             Contains("table \"e\"") && Contains("table_row_wise of a table that is not pooled"));
  const auto narrow = [](EmbeddingPlan& p) {
    p.tables[0].shards[0].columns = {0, 6};
    p.tables[0].shards[1].columns = {6, 8};
  };
  CHECK_THAT(torchrec(mixed("block", true), narrow),
             Contains("table \"a\"") && Contains("a part of 6 columns"));
  const auto odd = [](EmbeddingPlan& p) { p.tables[2].shards.front().groups = {{1, 2}}; };
  CHECK_THAT(torchrec(mixed("block", true), odd),
             Contains("table \"c\"") && Contains("one machine"));
  CHECK_THAT(hugectr(of_tables(whole("a", 0) + "," + whole("b", 1) + "," + whole("c", 2) + "," +
                               whole("d", 0) + "," + whole("e", 0))),
             Contains("rank 3 holds no table"));
}

TEST_CASE("a TorchRec plan as dataclasses.asdict dumps it is read", "[config][torchrec]") {
  const Job job = job_with(mixed("block", true));
  const std::string text = interop::plan_to_torchrec(job, *job.embedding_plan);
  auto modules = nlohmann::json::parse(text);
  for (auto& module : modules) {
    for (auto& table : module) {
      if (auto& spec = table["sharding_spec"]; !spec.is_null()) {
        spec = {{"shards", spec}};
      }
    }
  }
  for (const nlohmann::json& file : {modules, nlohmann::json{{"plan", modules}}}) {
    const PlanFile plan(file.dump());
    const Job again = job_with("\"" + plan.path() + "\"");
    CHECK(interop::plan_to_torchrec(again, *again.embedding_plan) == text);
  }
}

TEST_CASE("malformed plans of other systems name the place", "[config][torchrec][hugectr]") {
  const auto loaded = [](const std::string& text) {
    const PlanFile file(text);
    return rejection([&] { (void)job_with("\"" + file.path() + "\""); });
  };
  const auto table = [](const std::string& name, const std::string& fields) {
    return R"({"m": {")" + name + R"(": {)" + fields + "}}}";
  };
  const std::string shards = R"("sharding_type": "row_wise", "sharding_spec": [)";
  CHECK_THAT(loaded(table("x", R"("sharding_type": "table_wise")")), Contains("no table \"x\""));
  CHECK_THAT(loaded(table("a", R"("sharding_type": "row")")), Contains("m.a.sharding_type"));
  CHECK_THAT(loaded(table("a", R"("sharding_type": "table_wise")")),
             Contains("sharding_spec") && Contains("is missing"));
  CHECK_THAT(loaded(table("a", shards + R"({"shard_sizes": [21, 8], "shard_offsets": [0, 0],
                                   "placement": "rank:9/cuda:1"}])")),
             Contains("placement") && Contains("ranks end at 3"));
  CHECK_THAT(loaded(table("a", shards + R"({"shard_sizes": [21, 8], "shard_offsets": [0, 0],
                                   "placement": "cuda:1"}])")),
             Contains("rank:3/cuda:3"));
  CHECK_THAT(loaded(table("a", shards + R"(
      {"shard_sizes": [20, 8], "shard_offsets": [0, 0], "placement": "rank:0/cuda:0"},
      {"shard_sizes": [1, 8], "shard_offsets": [20, 0], "placement": "rank:1/cuda:1"}])")),
             Contains("blocks of ceil(21 / 2) = 11 rows"));
  CHECK_THAT(loaded(table("a", R"("compute_kernel": "key_value", "sharding_type": "table_wise")")),
             Contains("compute_kernel") && Contains("fused_uvm"));
  CHECK_THAT(loaded(table("a", R"("compute_kernel": "fused_uvm_caching",
                                  "sharding_type": "data_parallel")")),
             Contains("compute_kernel") && Contains("use dense"));
  const std::string whole_table = R"(, "sharding_type": "table_wise", "sharding_spec": [
      {"shard_sizes": [21, 8], "shard_offsets": [0, 0], "placement": "rank:0/cuda:0"}])";
  CHECK_THAT(
      loaded(table(
          "a", R"("compute_kernel": "fused", "cache_params": {"load_factor": 0.1})" + whole_table)),
      Contains("cache_params") && Contains("has no cache"));
  CHECK_THAT(loaded(table("a", R"("compute_kernel": "fused_uvm_caching", "cache_params":
                                  {"reserved_memory": 8})" +
                                   whole_table)),
             Contains("cache_params.reserved_memory") && Contains("not modelled"));
  CHECK_THAT(loaded(R"({"m": {"a": {"sharding_type": "data_parallel"}}})"),
             Contains("table \"b\""));

  const auto matrix = [](const std::string& m, const std::string& s) {
    return R"({"shard_matrix": )" + m + R"(, "shard_strategy": )" + s + "}";
  };
  CHECK_THAT(loaded(matrix(R"([["a"]])", R"([["mp", ["a"]]])")), Contains("4 devices"));
  CHECK_THAT(loaded(matrix(R"([["a"], ["q"], ["a"], ["a"]])", R"([["mp", ["a"]]])")),
             Contains("shard_matrix[1][0]") && Contains("no table \"q\""));
  CHECK_THAT(loaded(matrix(R"([["a"], ["b"], ["a"], ["a"]])", R"([["mp", ["a"]]])")),
             Contains("not in shard_strategy"));
  CHECK_THAT(loaded(matrix(R"([["a"], [], ["a"], ["a"]])", R"([["dp", ["a"]]])")),
             Contains("data-parallel on 3 of 4"));
  CHECK_THAT(loaded(matrix(R"([["a"], [], [], []])", R"([["mp", [["a", 2]]]])")),
             Contains("column parts"));
  CHECK_THAT(loaded(matrix(R"([["a"], ["b"], ["c"], ["d"]])", R"([["mp", ["a", "b", "c", "d"]]])")),
             Contains("\"e\""));
}
