#include "validation/memory.h"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "core/error.h"
#include "core/graph/program.h"
#include "core/input/csv.h"
#include "core/statistics.h"
#include "simulator/reports/memory_ledger.h"
#include "workloads/build_graph.h"

namespace stepcast::validation {
namespace {

/// Runs of the same arguments on the same devices.
struct Measured {
  std::string platform, type;
  double devices = 0;
  bool pipelined = false, large = false;
  bool unfused = false;    ///< attention, by the software of the time
  bool captures = false;   ///< CUDA graphs, whose memory is not modelled
  bool held_out = false;   ///< by the table's own split
  bool new_shape = false;  ///< and no row of the other part has its shape
  std::vector<double> bytes;
};

/// Names that the repositories' continuous integration gives the machines, with our systems' names.
const std::map<std::string, const char*, std::less<>> kSystems{
    {"dgx_a100", "dgx-a100-80gb"},
    {"dgx_h100", "dgx-h100"},
    {"dgx_gb200", "gb200-nvl72"},
    {"unknown", "dgx-a100-80gb"}};  // files without a platform are of A100, by their times

/// With "auto", the fused kernels of the containers for long-term support were not deterministic on
/// A100 until November 2025, so that a run that asks for that had unfused attention.
bool fell_back(const CsvTable& row) {
  const std::string platform = row.text("platform");
  return (platform == "dgx_a100" || platform == "unknown") &&
         row.text("attention_backend") == "auto" && row.text("nvte_nondet") == "0" &&
         row.text("environment") == "lts" && row.text("origin_date") < "2025-11";
}

bool is_modelled(const std::string& type) {
  return type == "gpt" || type == "moe" || type == "gpt+mla" || type == "moe+mla";
}

using Key = std::tuple<std::string, std::string, bool>;  ///< arguments, platform, fell back

std::map<Key, Measured> read(const std::filesystem::path& folder) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  if (!std::filesystem::exists(folder / "golden.csv")) {
    throw InputError("--data", fmt::format("{} has no golden.csv; expected the folder of golden.csv "
                                           "and cases/",
                                           folder.string()));
  }
  CsvTable table(folder / "golden.csv", "golden.csv of Megatron-LM's continuous integration");
  std::map<Key, Measured> all;
  while (table.next()) {
    if (table.text("memory_usable") != "1" || !is_modelled(table.text("type"))) {
      continue;
    }
    std::string unusable;
    const auto positive = [&](std::string_view column) {
      return positive_or_say(column, table.text(column), unusable);
    };
    const double peak = positive("mem_max_allocated_GiB");
    const bool unfused = fell_back(table);
    Measured& m = all[{table.text("args_file"), table.text("platform"), unfused}];
    m.unfused = unfused;
    m.captures = m.captures || !table.text("cuda_graph").empty();
    m.platform = table.text("platform");
    m.type = table.text("type");
    m.devices = positive("gpus");
    m.pipelined = table.text("pp") != "1";
    m.large = table.text("large") == "1";
    m.held_out = table.text("heldout") == "1";
    m.new_shape = m.held_out && table.text("shape_in_shared") == "no";
    if (unusable.empty()) {
      m.bytes.push_back(peak * kGiB);
    }
  }
  return all;
}

/// For the rank that holds the end of the model: what the allocator counts, and the states alone.
std::pair<Bytes, Bytes> last_rank(const Job& job) {
  const ExecutionGraph graph = workloads::build_graph(job);
  const auto last = static_cast<std::int32_t>(job.devices - 1);
  for (std::size_t c = 0; c < graph.classes.size(); ++c) {
    const auto& ranks = graph.classes[c].ranks;
    if (std::find(ranks.begin(), ranks.end(), last) != ranks.end()) {
      const simulator::MemoryLedger l = simulator::memory_ledger(graph, c, job.system.device);
      return {l.total() - (l.context - l.workspaces) - l.communicators - l.fragmentation,
              l.weights + l.gradients + l.optimizer};
    }
  }
  throw InputError("devices", "no class of ranks has the last one");
}

}  // namespace

Suite validate_memory(const std::filesystem::path& folder, const config::Library& library) {
  Suite suite{.name = "memory",
              .bound = "median <= 0.03, p90 <= 0.10 of peak allocated bytes",
              .notes = {"figures are bytes of the last rank, as PyTorch's allocator counts them"},
              .in_bytes = true};
  std::map<std::string, std::vector<Row>> groups;
  for (const auto& [key, m] : read(folder)) {
    const auto& [arguments, platform, fell_back] = key;
    Row row{arguments + " on " + platform + (fell_back ? ", unfused" : "")};
    const auto system = kSystems.find(m.platform);
    if (m.bytes.empty() || system == kSystems.end()) {
      row.skipped = m.bytes.empty() ? "no number of GPUs" : "no system is known as " + m.platform;
    } else if (m.captures) {
      row.skipped = "captures CUDA graphs, whose memory is not modelled";
    } else {
      row.measured = median_of(m.bytes);
      try {
        const config::Source source = config::file_source(folder / "cases" / arguments);
        std::vector<std::string> settings{std::string("system=") + system->second,
                                          fmt::format("devices={:.0f}", m.devices)};
        if (m.unfused) {
          settings.emplace_back("attention=unfused");
        }
        if (source.text.find("CUBLAS_WORKSPACE_CONFIG=:4096:8") != std::string::npos) {
          settings.emplace_back(
              "system.device.fitted.memory.constants.blas_workspace=33554432");  // 8 x 4096 KiB
        }
        const auto [allocated, state] = last_rank(config::load_job(source, settings, library));
        row.predicted = allocated.base();
        row.naive = state.base();
      } catch (const InputError& e) {
        row.skipped = e.what();
      }
    }
    groups["all"].push_back(row);
    for (const char* name :
         {m.type.starts_with("moe") ? "experts" : "dense", m.pipelined ? "pipelines" : "one stage",
          m.held_out ? "cases left out" : "cases to tune on",
          m.new_shape ? "shapes left out" : nullptr,
          m.large ? "above 10 GiB or 1 G parameters" : "small models"}) {
      if (name != nullptr && !row.skipped) {
        groups[name].push_back(row);
      }
    }
  }
  suite.rows = groups["all"];
  for (const auto& [name, rows] : groups) {
    Group& g = suite.groups.emplace_back(group_of(name, rows, name == "all" ? "states alone" : ""));
    if (name == "all") {
      g.hold_to({.median = 0.03, .p90 = 0.10});
      g.bound = suite.bound;
      suite.pass = g.pass;
    }
  }
  return suite;
}

}  // namespace stepcast::validation
