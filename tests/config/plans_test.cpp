#include <catch2/catch.hpp>

#include "core/access/row_order.h"
#include "core/config/config.h"
#include "core/error.h"
#include "core/job/plan_settings.h"
#include "core/whole_file.h"
#include "tests/folder.h"

using namespace stepcast;
using namespace stepcast::config;
using Catch::Matchers::Contains;

namespace {

const Library kLibrary{STEPCAST_SOURCE_DIR};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

const std::string kPlan =
    R"({"stepcast": 1, "kind": "embedding", "workload": "w", "system": "s", "devices": 4, "predicted_step_s": 0.1,
 "tables": [
  {"name": "a", "row_order": "frequency", "shards": [
    {"rows": [0, 10], "columns": [0, 8], "sharding": "data_parallel", "tier": "hbm", "groups": [[0, 1, 2, 3]], "split": "replicate"},
    {"rows": [10, 100], "columns": [0, 8], "sharding": "row_wise", "groups": [[0, 1], [2, 3]], "split": "stripe"}]},
  {"name": "b", "shards": [
    {"rows": [0, 50], "columns": [0, 4], "sharding": "column_wise", "groups": [[1]]},
    {"rows": [0, 50], "columns": [4, 8], "sharding": "column_wise", "groups": [[2]]}]}],
 "ledger": []})";

Job job_with(const std::string& plan) {
  return load_job(
      text_source(
          R"({"workload": {"kind": "dlrm", "name": "w", "dense_features": 2, "bottom_mlp": [8], "interaction": {"kind": "dot"}, "top_mlp": [1], "default_batch": {"global": 16},
      "tables": [{"name": "a", "rows": 100, "dim": 8}, {"name": "b", "rows": 50, "dim": 8}]}, "system": "dgx-h100", "devices": 4, "embedding": {"plan": )" +
              plan + "}}",
          "job.json"),
      {}, kLibrary);
}

}  // namespace

TEST_CASE("a plan is read, kept in the job and written back", "[config][plan]") {
  const Job job = job_with(kPlan);
  REQUIRE(job.embedding_plan.has_value());
  CHECK(job.embedding_choice == "inline");
  const EmbeddingPlan& p = *job.embedding_plan;
  REQUIRE(p.tables.size() == 2);
  CHECK(p.tables[0].frequency_order);
  CHECK_FALSE(p.tables[1].frequency_order);
  CHECK(p.tables[0].shards[1].split == Split::kStripe);
  CHECK(p.tables[0].shards[1].groups == std::vector<std::vector<std::int32_t>>{{0, 1}, {2, 3}});
  CHECK(p.tables[1].shards[0].tier == "hbm");
  const std::string text = plan_to_json(p);
  CHECK(plan_to_json(read_plan(text_source(text, "plan.json"))) == text);
  const std::string resolved = job_to_json(job);
  CHECK(job_to_json(load_job(text_source(resolved, "again.json"), {}, kLibrary)) == resolved);
}

TEST_CASE("a plan says for how many steps replicas may wait", "[config][plan]") {
  std::string plan = kPlan;
  plan.insert(1, "\"sync_interval\": 4, ");
  const Job job = job_with(plan);
  CHECK(job.sync_interval == 4);
  CHECK(plan_to_json(*job.embedding_plan).find("\"sync_interval\": 4") != std::string::npos);
  const std::string resolved = job_to_json(job);
  CHECK(job_to_json(load_job(text_source(resolved, "again.json"), {}, kLibrary)) == resolved);
  // Jobs say what the plan does not; where both say, they agree.
  CHECK(job_with(std::string(kPlan) + ", \"sync_interval\": 3").sync_interval == 3);
  CHECK(job_with(plan + ", \"sync_interval\": 4").sync_interval == 4);
  CHECK_THROWS_WITH(job_with(plan + ", \"sync_interval\": 2"),
                    Catch::Contains("embedding.sync_interval") && Catch::Contains("4 steps"));
  CHECK_THROWS_WITH(job_with(plan + ", \"sync_interval\": 0"),
                    Catch::Contains("embedding.sync_interval"));
}

TEST_CASE("a plan for deduplicated ids makes a job with them, unless the job says otherwise",
          "[config][plan]") {
  std::string plan = kPlan;
  CHECK_FALSE(job_with(plan).embedding_dedup);
  CHECK(job_with(plan + ", \"dedup\": \"ikjt\"").embedding_dedup);
  plan.insert(1, "\"dedup\": \"ikjt\", ");
  const Job job = job_with(plan);
  CHECK(job.embedding_dedup);
  CHECK(plan_to_json(*job.embedding_plan).find("\"dedup\": \"ikjt\"") != std::string::npos);
  const Job off = job_with(plan + ", \"dedup\": \"off\"");
  CHECK_FALSE(off.embedding_dedup);
  const std::string resolved = job_to_json(off);
  CHECK(job_to_json(load_job(text_source(resolved, "again.json"), {}, kLibrary)) == resolved);
  plan.replace(plan.find("ikjt"), 4, "jkit");
  CHECK_THROWS_WITH(job_with(plan), Catch::Contains("embedding.plan.dedup"));
}

TEST_CASE("a plan says which rows are hot: by id, by a seed or by a recording", "[config][plan]") {
  const auto with = [](const std::string& hot) {
    return replaced(kPlan, "\"row_order\": \"frequency\"",
                    "\"row_order\": \"frequency\", \"hot\": " + hot);
  };
  const auto again = [](const EmbeddingPlan& p) {
    return read_plan(text_source(plan_to_json(p), "plan.json"));
  };
  const EmbeddingPlan listed = *job_with(with("{\"ids\": [7, 3, 99]}")).embedding_plan;
  REQUIRE(listed.tables[0].order);
  CHECK(listed.tables[0].order->ids() == std::vector<std::int64_t>{7, 3, 99});
  CHECK(listed.tables[0].hot_rows() == 10);  // where the last range begins
  CHECK(*again(listed).tables[0].order == *listed.tables[0].order);
  CHECK_FALSE(listed.tables[1].order);
  const EmbeddingPlan seeded = *job_with(with("{\"seed\": 12}")).embedding_plan;
  CHECK(*seeded.tables[0].order == RowOrder::seeded(100, 12));
  CHECK(*again(seeded).tables[0].order == *seeded.tables[0].order);

  // A long list stands in its recording, by name and hash: 70,000 ids, each once but 5 twice.
  const fixtures::Folder folder;
  std::vector<std::int64_t> ids;
  std::string text = "5\n";
  for (std::int64_t id = 0; id < 70'000; ++id) {
    ids.push_back(id);
    text += std::to_string(id) + "\n";
  }
  const std::string file = folder.file("ids.txt", text);
  EmbeddingPlan plan = seeded;
  plan.tables.resize(1);
  plan.tables[0].shards[0].rows = {0, 70'000};
  plan.tables[0].shards[1].rows = {70'000, 100'000};
  std::swap(ids[0], ids[5]);  // the hottest first, ties by id
  std::rotate(ids.begin() + 1, ids.begin() + 5, ids.begin() + 6);
  plan.tables[0].order = std::make_shared<const RowOrder>(RowOrder::listed(100'000, ids));
  plan.tables[0].order_file = file;
  const std::string written = plan_to_json(plan);
  CHECK_THAT(written, Contains("\"indices\": \"" + file + "\"") && Contains("\"hash\""));
  CHECK(written.size() < 2000);
  const EmbeddingPlan read = read_plan(text_source(written, "plan.json"));
  CHECK(*read.tables[0].order == *plan.tables[0].order);
  CHECK(plan_to_json(read) == written);
  // Another recording under that name is not taken for the old one.
  folder.file("ids.txt", "7\n7\n" + text);  // 7 is the hottest now
  CHECK_THROWS_WITH(read_plan(text_source(written, "plan.json")),
                    Contains("tables[0].hot.hash") && Contains("plan again"));

  CHECK_THROWS_WITH(job_with(with("{\"ids\": [7, 100]}")), Contains("tables[0].hot.ids[1]"));
  CHECK_THROWS_WITH(job_with(with("{\"ids\": [7, 7]}")),
                    Contains("hot.ids[1]") && Contains("listed twice"));
  CHECK_THROWS_WITH(job_with(with("{}")), Contains("tables[0].hot") && Contains("seed"));
  CHECK_THROWS_WITH(job_with(with("{\"seed\": 1, \"ids\": []}")), Contains("tables[0].hot.ids"));
  CHECK_THROWS_WITH(
      job_with(replaced(kPlan, "\"name\": \"b\"", "\"name\": \"b\", \"hot\": {\"seed\": 1}")),
      Contains("tables[1].hot") && Contains("row_order is workload"));
}

TEST_CASE("a plan keeps the settings that its step rests on", "[config][plan]") {
  const Job job = job_with(kPlan);
  EmbeddingPlan plan = *job.embedding_plan;
  CHECK(changed_settings(job, plan).empty());  // a plan that does not say
  plan.made_for = plan_settings(job);
  plan.workload = job.workload.name;
  plan.system = job.system.name;
  CHECK(changed_settings(job, plan).empty());
  const std::string written = plan_to_json(plan);
  CHECK_THAT(written, Contains("\"batch.global\": 16"));
  CHECK(read_plan(text_source(written, "plan.json")).made_for == plan.made_for);
  Job other = job;
  other.batch.global = 32;
  other.formats.embedding = Format::kFp16;
  other.parallel.dlrm_pipeline = DlrmPipeline::kSparseDist;
  CHECK(changed_settings(other, plan) ==
        std::vector<std::string>{"batch.global 32 (made for 16)",
                                 "formats.embedding fp16 (made for fp32)",
                                 "parallel.dlrm_pipeline sparse_dist (made for none)"});
  CHECK_THROWS_WITH(job_with(replaced(kPlan, "\"devices\": 4",
                                      "\"devices\": 4, \"made_for\": {\"batch.globul\": 4}")),
                    Contains("made_for") && Contains("batch.global"));
}

TEST_CASE("the cache of a shard is an amount or a number of bytes", "[config][plan]") {
  const auto cached = [](const std::string& bytes) {
    return job_with(replaced(kPlan, "\"groups\": [[1]]",
                             "\"groups\": [[1]], \"tier\": \"ddr\", \"cache\": {\"bytes\": " +
                                 bytes + "}"))
        .embedding_plan->tables[1]
        .shards[0]
        .cache_bytes;
  };
  CHECK(cached("\"2 GB\"") == 2e9);
  CHECK(cached("2000") == 2000);
  CHECK_THROWS_WITH(cached("\"2\""), Contains("cache.bytes") && Contains("unit"));
  CHECK_THROWS_WITH(cached("[2]"), Contains("cache.bytes") && Contains("20 GB"));
}

TEST_CASE("an object given with --set replaces what the job says", "[config][overrides]") {
  const std::string job =
      R"({"workload": "rm1", "system": "dgx-h100", "parallel": {"dlrm_pipeline": "fused",
          "overlap": {"input_all_to_all": true, "dense_all_reduce": true}}})";
  const auto overlap = [&](const std::string& value) {
    return load_job(text_source(job, "job.json"), {"parallel.overlap=" + value}, kLibrary);
  };
  const Job none = overlap("{}");
  CHECK_FALSE(none.parallel.overlap.input_all_to_all);
  CHECK_FALSE(none.parallel.overlap.dense_all_reduce);
  CHECK(none.parallel.dlrm_pipeline == DlrmPipeline::kFused);
  const Job one = overlap("{\"output_all_to_all\": true}");
  CHECK_FALSE(one.parallel.overlap.input_all_to_all);
  CHECK(one.parallel.overlap.output_all_to_all);
}

TEST_CASE("a plan that does not fit its tables is refused", "[config][plan]") {
  struct Case {
    const char* from;
    const char* to;
    const char* place;
    const char* message;
  };
  const std::vector<Case> cases{
      {"[10, 100]", "[11, 100]", "embedding.plan.tables[0].shards",
       "cover 792 of the 800"},  // one row of 8 is missing
      {"[10, 100]", "[9, 100]", "tables[0].shards[1]", "overlap shards[0]"},
      {"[4, 8]", "[4, 7]", "embedding.plan.tables[1].shards", "cover 350 of the 400"},
      {"[10, 100]", "[10, 101]", "tables[0].shards[1].rows", "beyond the 100 rows"},
      {"[10, 100]", "[100, 10]", "tables[0].shards[1].rows", "first below end"},
      {"[10, 100]", "[10]", "tables[0].shards[1].rows", "two integers"},
      {"[4, 8]", "[4, 9]", "tables[1].shards[1].columns", "beyond the 8 columns"},
      {"[[0, 1], [2, 3]]", "[[0, 1], [2, 4]]", "groups[1][1]", "integer from 0 to 3"},
      {"[[0, 1], [2, 3]]", "[[0, 1], [1, 3]]", "groups[1][0]", "rank 1 appears twice"},
      {"[[0, 1], [2, 3]]", "[]", "shards[1].groups", "list of groups"},
      {"[[1]]", "[[1, 3]]", "tables[1].shards[0].groups", "on one rank"},
      {"\"split\": \"stripe\"", "\"split\": \"replicate\"", "shards[1].split", "block or stripe"},
      {"\"split\": \"replicate\"", "\"split\": \"block\"", "shards[0].split", "use replicate"},
      {"\"split\": \"stripe\"", "\"split\": \"strip\"", "shards[1].split",
       "did you mean \"stripe\""},
      {"row_wise", "row-wise", "shards[1].sharding", "did you mean \"row_wise\""},
      {"\"hbm\"", "\"ddr\"", "shards[0].tier", "stay in device memory"},
      {"\"hbm\"", "\"dram\"", "shards[0].tier", "system dgx-h100 has no tier \"dram\""},
      {"\"groups\": [[1]]", "\"groups\": [[1]], \"cache\": {\"bytes\": 1}", "shards[0].cache",
       "only rows of a slower tier"},
      {"\"groups\": [[1]]", "\"groups\": [[1]], \"tier\": \"ddr\", \"cache\": {\"bytes\": 1e15}",
       "shards[0].cache.bytes", "more than"},
      {"\"groups\": [[1]]", "\"groups\": [[1]], \"tier\": \"ddr\", \"cache\": {\"bytes\": 0}",
       "shards[0].cache.bytes", "number"},
      {"\"groups\": [[1]]",
       "\"groups\": [[1]], \"tier\": \"ddr\", \"cache\": {\"bytes\": 9, \"policy\": \"fifo\"}",
       "shards[0].cache.policy", "lru"},
      {"\"name\": \"b\"", "\"name\": \"c\"", "tables[1].name", "no table \"c\""},
      {"\"name\": \"b\"", "\"name\": \"a\"", "tables[1].name", "list each table once"},
      {"\"devices\": 4", "\"devices\": 8", "embedding.plan.devices",
       "for 8 devices, the job has 4"},
      {"\"kind\": \"embedding\"", "\"kind\": \"parallel\"", "embedding.plan.kind",
       "only an embedding plan"},
      {"\"stepcast\": 1", "\"stepcast\": 2", "stepcast", "expected 1"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.from, c.to);
    const std::string plan = replaced(kPlan, c.from, c.to);
    CHECK_THROWS_AS(job_with(plan), InputError);
    CHECK_THROWS_WITH(job_with(plan),
                      Contains("job.json") && Contains(c.place) && Contains(c.message));
  }
  const std::string only_a = kPlan.substr(0, kPlan.find(",\n  {\"name\": \"b\"")) + "]}";
  CHECK_THROWS_WITH(job_with(only_a),
                    Contains("embedding.plan.tables") &&
                        Contains("table \"b\" of the workload is not in the plan"));
}

TEST_CASE("a plan file is named by path, and a wrong name gets suggestions", "[config][plan]") {
  CHECK_THROWS_WITH(job_with("\"row_wize\""),
                    Contains("embedding.plan") && Contains("did you mean \"row_wise\""));
  CHECK_THROWS_WITH(job_with("\"missing/plan.json\""),
                    Contains("embedding.plan") && Contains("no file"));
  CHECK(job_with("\"tiered\"").embedding_choice == "tiered");
}
