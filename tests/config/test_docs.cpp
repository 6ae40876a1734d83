// docs/jobs.md is the reference of what can be written: what it shows loads, and what the loaders
// know it names.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include "core/config/config.h"

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
  const std::regex list("keys\\(?\\s*\\{([^}]*)\\}");
  const std::regex name("\"([a-z0-9_]+)\"");
  std::size_t keys = 0;
  for (const auto& file : std::filesystem::directory_iterator(kRoot / "core/config")) {
    const std::string of = file.path().filename().string();
    const bool of_jobs = of.starts_with("load_") && of != "load_baseline.cpp";
    if (file.path().extension() != ".cpp" || (!of_jobs && of != "flows.cpp")) {
      continue;
    }
    const std::string source = read(file.path());
    for (std::sregex_iterator it(source.begin(), source.end(), list), end; it != end; ++it) {
      const std::string names = (*it)[1];
      for (std::sregex_iterator n(names.begin(), names.end(), name); n != end; ++n) {
        const std::string key = (*n)[1];
        INFO(of << " knows " << key << ", docs/jobs.md does not");
        CHECK((page.find("\"" + key + "\"") != std::string::npos ||
               std::regex_search(page, std::regex("[`.]" + key + "`"))));
        ++keys;
      }
    }
  }
  CHECK(keys > 100);
}
