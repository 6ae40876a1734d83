// Arguments of the jobs of Megatron-LM's own continuous integration, as they stand, against the
// dimensions that were read from the same files by others (../shared/data/megatron_ci).
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/error.h"
#include "core/job/parameter_count.h"
#include "interop/import.h"
#include "tests/interop/imports.h"

namespace stepcast::interop {
namespace {

using config::file_source;
using config::load_job;
using config::Source;
using config::text_source;

namespace fs = std::filesystem;
using test::kLibrary;

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  return fields;
}

using Row = std::map<std::string, std::string>;
std::vector<Row> rows_of(const fs::path& csv) {
  std::ifstream in(csv);
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> head = fields_of(line);
  std::vector<Row> rows;
  while (std::getline(in, line)) {
    const std::vector<std::string> fields = fields_of(line);
    Row row;
    for (std::size_t i = 0; i < head.size() && i < fields.size(); ++i) {
      row[head[i]] = fields[i];
    }
    rows.push_back(row);
  }
  return rows;
}

fs::path cases() {
  const fs::path folder = fs::path(STEPCAST_SHARED_DATA) / "megatron_ci";
  if (!fs::is_directory(folder / "cases")) {
    WARN("skipped: no arguments in " << (folder / "cases").string());
    return {};
  }
  return folder;
}

TEST_CASE("arguments of Megatron-LM's own jobs are read as they stand", "[config][import][data]") {
  const fs::path folder = cases();
  if (folder.empty()) {
    return;
  }
  // GPT and mixture-of-experts jobs are those with resolved arguments beside them.
  int all = 0;
  int read = 0;
  std::string rejected;
  for (const auto& entry : fs::directory_iterator(folder / "cases_resolved")) {
    const fs::path file = folder / "cases" / entry.path().filename();
    ++all;
    try {
      // How many devices a job needs is not in its arguments: one replica, as many as experts have
      // ranks. The newest device has every format that these jobs ask for.
      const Source source = file_source(file);
      const auto parallel = nlohmann::json::parse(import_to_json(source)).at("parallel");
      int devices = 1;
      for (const char* axis : {"tensor", "pipeline", "context", "expert"}) {
        devices *= parallel.at(axis).get<int>();
      }
      (void)load_job(source,
                     {"system=gb200-nvl72", "system.fabric[0].size=8", "system.host.devices=8",
                      "devices=" + std::to_string(devices)},
                     kLibrary);
      ++read;
    } catch (const InputError& e) {
      rejected += std::string(e.what()) + "\n";
    }
  }
  CAPTURE(rejected);
  CHECK(all == 167);
  CHECK(read >= 159);  // 95 %
  WARN(read << " of " << all << " argument files are read as they stand; refused:\n" << rejected);
}

TEST_CASE("jobs of encoders are refused as such", "[config][import][data]") {
  const fs::path folder = cases();
  if (folder.empty()) {
    return;
  }
  int rejected = 0;
  for (const auto& entry : fs::directory_iterator(folder / "cases")) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".args" ||
        !(name.starts_with("bert__") || name.starts_with("t5__"))) {
      continue;
    }
    CAPTURE(name);
    CHECK_THROWS_WITH(import_to_json(file_source(entry.path())),
                      Catch::Contains(name.starts_with("t5__") ? "an encoder and a decoder"
                                                               : "as a BERT reads them"));
    ++rejected;
  }
  CHECK(rejected >= 15);
}

TEST_CASE("what is read of Megatron-LM's own jobs is what others read", "[config][import][data]") {
  const fs::path folder = cases();
  if (folder.empty()) {
    return;
  }
  int compared = 0;
  for (const Row& row : rows_of(folder / "golden.csv")) {
    const std::string& type = row.at("type");
    const bool modelled = type == "gpt" || type == "moe" || type == "gpt+mla" || type == "moe+mla";
    const fs::path file = folder / "cases" / row.at("args_file");
    if (!modelled || row.at("gpus").empty() || row.at("args_file").empty() || !fs::exists(file) ||
        !row.at("moe_latent").empty()) {
      continue;
    }
    Job job;
    try {
      job = load_job(file_source(file), {"system=gb200-nvl72", "devices=" + row.at("gpus")},
                     kLibrary);
    } catch (const InputError&) {
      continue;  // counted above
    }
    ++compared;
    CAPTURE(row.at("case"));
    const TransformerWorkload& m = *job.workload.transformer();
    const auto number = [&](const char* column) {
      return row.at(column).empty() ? -1 : std::stoll(row.at(column));
    };
    CHECK(m.hidden == number("hidden"));
    CHECK(m.layers == number("layers"));
    CHECK(m.heads == number("heads"));
    CHECK(m.ffn_hidden == number("ffn_hidden"));
    CHECK(m.vocabulary == number("vocab_padded"));
    CHECK(job.parallel.tensor == number("tp"));
    CHECK(job.parallel.pipeline == number("pp"));
    CHECK(job.parallel.context == number("cp"));
    CHECK(job.parallel.data == number("dp"));
    CHECK(job.batch.micro == number("mbs"));
    if (row.at("batch_schedule").empty()) {  // else the phase that ran, and we take the last
      CHECK(job.batch.global == number("gbs_effective"));
    }
    if (m.moe) {
      CHECK(m.moe->experts == number("num_experts"));
      CHECK(m.moe->per_token == number("moe_topk"));
      CHECK(job.parallel.expert == number("ep"));
    }
  }
  CHECK(compared > 300);
}

}  // namespace
}  // namespace stepcast::interop
