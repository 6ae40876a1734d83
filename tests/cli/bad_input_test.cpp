// Malformed jobs, workloads, systems and plans, end to end: exit code 2, nothing on standard
// output, and a message that names the file, the place in it, the value found and a remedy. What
// each loader rejects, and in which words: tests/config/malformed_test.cpp and plans_test.cpp.
#include <catch2/catch.hpp>

#include "command_line.h"

using namespace stepcast::cli_test;
using Catch::Matchers::Contains;

TEST_CASE("malformed input exits with 2", "[cli][malformed]") {
  struct Case {
    std::string job;
    const char* place;
    const char* value;
    const char* remedy;
  };
  const std::vector<Case> cases{
      {R"({"workload": "gpt3-175b", "system": "dgx-h1)", "line 1", "end of the text", "truncated"},
      {R"({"workload": "gpt3-175b", "system": "dgx-h100", "parallel": {"tensr": 8}})",
       "parallel.tensr", "unknown key", "\"tensor\""},
      {R"({"workload": {"kind": "transformer", "name": "w", "layers": 0}, "system": "dgx-h100"})",
       "workload.layers", "found 0", "from 1"},
      {R"({"workload": "rm1", "system": {"name": "s", "device": "h10-sxm-80gb", "fabric": []}})",
       "system.device", "h10-sxm-80gb", "h100-sxm-80gb"}};
  const Folder folder;
  for (const Case& c : cases) {
    INFO(c.job);
    rejected({"predict", folder.file("job.json", c.job), "--format", "json"}, "job.json", c.place,
             c.value, c.remedy);
  }
}

TEST_CASE("a file named in a job is the one the message names", "[cli][malformed]") {
  const Folder folder;
  const auto refused = [&folder](const std::string& job, const char* place, const char* why) {
    rejected({"predict", folder.file("job.json", job)}, place, why);
  };
  folder.file("machine.json", R"({"name": "s", "device": "h100-sxm-80gb", "fabrik": []})");
  refused(R"({"workload": "rm1", "system": "machine.json"})", "machine.json: fabrik", "\"fabric\"");
  folder.file("model.json", R"({"kind": "dlrm", "name": "x")");
  refused(R"({"workload": "model.json", "system": "dgx-h100"})", "model.json: line 1", "truncated");
  const auto plan = [&](const std::string& shard, const char* why) {
    folder.file("plan.json", R"({"kind": "embedding", "workload": "one", "system": "dgx-h100",
      "devices": 2, "tables": [{"name": "t0", "shards": [{"columns": [0, 16], )" +
                                 shard + "}]}]}");
    refused(R"({"system": "dgx-h100", "devices": 2, "batch": {"global": 64},
      "workload": {"kind": "dlrm", "name": "one", "dense_features": 4, "bottom_mlp": [16],
        "interaction": {"kind": "dot"}, "top_mlp": [8, 1],
        "tables": [{"name": "t0", "rows": 100, "dim": 16}]}, "embedding": {"plan": "plan.json"}})",
            "plan.json: tables[0]", why);
  };
  plan(R"("rows": [0, 50], "sharding": "table_wise", "groups": [[0]])", "800 of the 1600");
  plan(R"("rows": [0, 100], "sharding": "row_wise", "groups": [[1]])", "all ranks in order");
}
