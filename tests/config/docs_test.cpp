// docs/jobs.md is the reference of what can be written: what it shows loads, and what the loaders
// know it names.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include "core/config/config.h"
#include "core/config/job_keys.h"

using namespace stepcast;

namespace {

std::string read(const std::filesystem::path& file) {
  std::ifstream in(file);
  REQUIRE(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

const std::filesystem::path kRoot = STEPCAST_SOURCE_DIR;

struct Example {
  std::string kind, text;
};

std::vector<Example> examples() {
  const std::string page = read(kRoot / "docs/jobs.md");
  std::vector<Example> all;
  const std::regex block("```json ([a-z]+)\n([^`]*)```");
  for (std::sregex_iterator it(page.begin(), page.end(), block), end; it != end; ++it) {
    all.push_back({(*it)[1], (*it)[2]});
  }
  return all;
}

/// A whole job around an example.
std::string job_with(const Example& e) {
  if (e.kind == "job") {
    return e.text;
  }
  if (e.kind == "workload") {
    return R"({"system": "dgx-h100", "devices": 8, "workload": )" + e.text + "}";
  }
  if (e.kind == "system") {
    return R"({"workload": "dlrm-default", "devices": 4, "system": )" + e.text + "}";
  }
  if (e.kind == "device") {
    return R"({"workload": "dlrm-default", "devices": 4, "system": {"name": "s", "fabric": [{"name": "l",
      "size": 4, "bandwidth": "1 GB/s", "latency": "1 us"}], "device": )" +
           e.text + "}}";
  }
  return "";
}

}  // namespace

TEST_CASE("what the job reference shows can be loaded", "[config][docs]") {
  const std::vector<Example> all = examples();
  const auto count = [&](const std::string& kind) {
    return std::count_if(all.begin(), all.end(), [&](const Example& e) { return e.kind == kind; });
  };
  CHECK(count("job") == 1);
  CHECK(count("workload") == 3);
  CHECK(count("system") == 1);
  CHECK(count("device") == 1);
  REQUIRE(count("plan") == 1);
  std::string dlrm;
  for (const Example& e : all) {
    INFO(e.text);
    if (e.kind == "plan") {
      const std::string job = R"({"system": "dgx-h100", "devices": 4, "workload": )" + dlrm +
                              R"(, "embedding": {"plan": )" + e.text + "}}";
      CHECK_NOTHROW(config::load_job(config::text_source(job, "docs"), {}, {kRoot}));
    } else {
      CHECK_NOTHROW(config::load_job(config::text_source(job_with(e), "docs"), {}, {kRoot}));
    }
    if (e.kind == "workload" && e.text.find("\"dlrm\"") != std::string::npos) {
      dlrm = e.text;  // the plan is for it
    }
  }
}

TEST_CASE("the job reference names every key that can be written", "[config][docs]") {
  const std::string page = read(kRoot / "docs/jobs.md");
  std::size_t keys = 0;
  for (const config::JobKey& job_key : config::job_keys()) {
    const std::string key = job_key.path.substr(job_key.path.rfind('.') + 1);
    INFO("the table of keys has " << job_key.path << ", docs/jobs.md does not name " << key);
    CHECK((page.find("\"" + key + "\"") != std::string::npos ||
           std::regex_search(page, std::regex("[`.]" + key + "`"))));
    ++keys;
  }
  CHECK(keys > 100);
}
