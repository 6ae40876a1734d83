#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "core/access/access.h"
#include "core/config/config.h"
#include "core/error.h"
#include "core/graph/embedding_placement.h"
#include "core/graph/memory_use.h"
#include "core/graph/step_traffic.h"
#include "core/temporary_folder.h"
#include "interop/import.h"
#include "models/cost_model.h"
#include "studies/predict/simulated_step.h"
#include "traces/native/graph_json.h"
#include "traces/native/native_trace.h"
#include "workloads/build_graph.h"

using namespace stepcast;
namespace fs = std::filesystem;

namespace {

const fs::path kSource = STEPCAST_SOURCE_DIR;
const config::Library kLibrary = interop::library(STEPCAST_SOURCE_DIR);

struct GoldenJob {
  std::string file;  ///< empty: told by the settings alone
  std::vector<std::string> settings;
};

std::vector<std::string> words_of(const std::string& line) {
  static const std::regex kWord(R"('([^']*)'|"([^"]*)\"|(\S+))");
  std::vector<std::string> words;
  for (std::sregex_iterator w(line.begin(), line.end(), kWord), end; w != end; ++w) {
    words.push_back((*w)[1].matched ? (*w)[1] : (*w)[2].matched ? (*w)[2] : (*w)[3]);
  }
  return words;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from)) {
    text.replace(at, from.size(), to);
  }
  return text;
}

/// The jobs that the golden scenarios predict, but for those of files that a scenario writes
/// itself, and one with rows in a slower tier.
std::vector<GoldenJob> golden_jobs() {
  std::vector<fs::path> scenarios;
  for (const fs::directory_entry& e : fs::directory_iterator(kSource / "tests" / "golden")) {
    const std::string name = e.path().filename().string();
    if (name.starts_with("predict-") && name != "predict-errors" &&
        fs::exists(e.path() / "scenario")) {
      scenarios.push_back(e.path() / "scenario");
    }
  }
  std::sort(scenarios.begin(), scenarios.end());
  std::vector<GoldenJob> jobs;
  for (const fs::path& scenario : scenarios) {
    std::ifstream in(scenario);
    std::string variable;
    std::vector<std::string> values{""};
    for (std::string line; std::getline(in, line);) {
      std::vector<std::string> words = words_of(line);
      if (!words.empty() && words[0] == "for") {
        variable = "$" + words[1];
        values.assign(words.begin() + 3, words.end() - 1);
        values.back() = replaced(values.back(), ";", "");
      } else if (!words.empty() && words[0] == "done") {
        values = {""};
      } else if (words.size() > 2 && words[0] == "stepcast" && words[1] == "predict") {
        for (const std::string& v : values) {
          GoldenJob job;
          for (std::size_t i = 2; i < words.size(); ++i) {
            if (words[i] == "--set") {
              job.settings.push_back(v.empty() ? words[i + 1]
                                               : replaced(words[i + 1], variable, v));
              ++i;
            } else if (i == 2) {
              job.file = replaced(words[i], "$source", kSource.string());
            }
          }
          if (job.file.empty() ? line.find("gemma.json") == std::string::npos
                               : job.file[0] == '/') {
            jobs.push_back(std::move(job));
          }
        }
      }
    }
  }
  const fs::path examples = kSource / "docs" / "examples";
  jobs.push_back({(examples / "tiered-sequence.json").string(),
                  {"system=" + (examples / "two-nodes.json").string(), "devices=4",
                   "embedding.plan=" + (examples / "cached-tables.plan.json").string()}});
  return jobs;
}

Job loaded(const GoldenJob& job) {
  return config::load_job(job.file.empty() ? config::text_source("{\"stepcast\": 1}", "golden job")
                                           : config::file_source(job.file),
                          job.settings, kLibrary);
}

std::string text_of(const ExecutionGraph& graph) { return traces::graph_to_json(graph).dump(); }

ExecutionGraph read_again(const std::string& text) {
  return traces::graph_from_json(nlohmann::json::parse(text), "graph");
}

}  // namespace

TEST_CASE("A graph that was written and read is the same in every field and in all that is asked") {
  const std::vector<GoldenJob> jobs = golden_jobs();
  REQUIRE(jobs.size() >= 25);
  std::map<std::string, int> seen;
  for (const GoldenJob& golden : jobs) {
    CAPTURE(golden.file, golden.settings);
    const Job job = loaded(golden);
    const ExecutionGraph graph = workloads::build_graph(job);
    const std::string text = text_of(graph);
    const ExecutionGraph again = read_again(text);
    // The writer leaves out no field: one that has no name does not compile (graph_fields.h).
    REQUIRE(text_of(again) == text);
    const models::CostModel model(job.system, job.calibration);
    CHECK(studies::simulate_step(again, model).result.makespan ==
          studies::simulate_step(graph, model).result.makespan);
    CHECK(memory_use(again.programs[0]).total().base() ==
          memory_use(graph.programs[0]).total().base());
    const LinkLevels levels(job.system);
    CHECK(expected_traffic(again, levels, 4).bytes == expected_traffic(graph, levels, 4).bytes);
    for (const Program& p : graph.programs) {
      seen["tiers"] += p.tiers.empty() ? 0 : 1;
      seen["exchanges"] += p.exchanges.empty() ? 0 : 1;
      seen["experts"] += p.routings.empty() ? 0 : 1;
    }
    seen["pipeline"] += graph.mesh.pipeline > 1 ? 1 : 0;
    seen["placement"] += graph.placement ? 1 : 0;
  }
  for (const char* kind : {"tiers", "exchanges", "experts", "pipeline", "placement"}) {
    CAPTURE(kind);
    CHECK(seen[kind] > 0);
  }
}

TEST_CASE("A law that was written and read answers alike, whatever it was derived from") {
  const Access zipf = Access::zipf(1'000'000, 1.05, 7);
  const Access counted = Access::histogram(
      1000, {{0, 1, 100, 100}, {1, 2, 50, 100}, {2, 10, 20, 120}, {10, 100, 3, 90}}, 410);
  const Access recorded = Access::indices(50, {3, 4, 3, 3, 9, 4, 40, 41, 3});
  std::vector<Access> laws{Access::uniform(10), zipf, counted, recorded};
  for (const Access& law : std::vector<Access>(laws)) {
    laws.push_back(law.random_subset(7));
    laws.push_back(law.ranks(2, 9).first);
    laws.push_back(law.ranks(2, 9).first.random_subset(3));
    laws.push_back(law.remapped(5, Access::Remap::kMod));
    laws.push_back(law.remapped(5, Access::Remap::kFrequency));
    const std::vector<std::int64_t> ranks{0, 2};
    laws.push_back(law.chosen(ranks, 3, 4).first);
  }
  ExecutionGraph graph;
  for (const Access& law : laws) {
    EmbeddingTable table;
    table.rows = law.rows();
    table.access = std::make_shared<const Access>(law);
    graph.inputs.tables.push_back(std::move(table));
  }
  graph.programs.emplace_back();
  graph.classes.push_back({0, {0}});
  const ExecutionGraph again = read_again(text_of(graph));
  REQUIRE(again.inputs.tables.size() == laws.size());
  for (std::size_t i = 0; i < laws.size(); ++i) {
    CAPTURE(i);
    const Access& law = *again.inputs.tables[i].access;
    CHECK(law.kind() == laws[i].kind());
    CHECK(law.rows() == laws[i].rows());
    CHECK(law.sample_lookups() == laws[i].sample_lookups());
    CHECK(law.unique(6).value == laws[i].unique(6).value);
    CHECK(law.cdf(2).value == laws[i].cdf(2).value);
    CHECK(law.hit_rate(2, CachePolicy::kLru).value == laws[i].hit_rate(2, CachePolicy::kLru).value);
    for (std::int64_t k = 0; k < law.rows() && k < 5; ++k) {
      CHECK(law.row_of_rank(k) == laws[i].row_of_rank(k));
    }
  }
}

TEST_CASE("A graph with a broken reference is refused with its place") {
  const Job job = loaded({(kSource / "docs/examples/dlrm.json").string(),
                          {"system=dgx-a100-80gb", "devices=4", "embedding.plan=row_wise"}});
  const nlohmann::json good = traces::graph_to_json(workloads::build_graph(job));
  const auto told = [&good](const nlohmann::json::json_pointer& at, nlohmann::json value) {
    nlohmann::json bad = good;
    bad[at] = std::move(value);
    try {
      traces::graph_from_json(bad, "trace.json: graph");
      return std::string("nothing");
    } catch (const InputError& e) {
      return std::string(e.what());
    }
  };
  using Catch::Contains;
  using Pointer = nlohmann::json::json_pointer;
  CHECK_THAT(told(Pointer("/programs/0/events"), -1), Contains("programs[0]"));
  CHECK_THAT(told(Pointer("/programs/0/operands/0"), 1 << 20),
             Contains("no tensor of the program"));
  CHECK_THAT(told(Pointer("/inputs/tables/rows/0/0"), 7), Contains("inputs.tables[0]"));
  CHECK_THAT(told(Pointer("/laws/0/rows"), -1), Contains("laws[0]"));
  CHECK_THAT(told(Pointer("/mesh/data"), 3), Contains("rank"));
  CHECK_THAT(told(Pointer("/mesh/sideways"), 3), Contains("'sideways' is no field"));
  CHECK_THAT(told(Pointer("/placement/held/0/0"), 900), Contains("placement.held"));
}
