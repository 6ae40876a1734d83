#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"

/// Short names of keys and other names of built-in files, wherever one is read: `--set`, options of
/// commands, sweeps, Python, the page.
namespace stepcast::config {

/// A word that stands for a key of a job: "tp" for "parallel.tensor".
struct KeyAlias {
  std::string_view alias, key;
};
std::span<const KeyAlias> key_aliases();
/// The key that a word stands for; the word itself where it stands for none.
std::string_view key_called(std::string_view word);

/// A setting `key=value` with its key in full, and counts such as 8k (8192) or 1m, of devices, a
/// batch or a sequence, in figures; in lists of values, each. "tp=8" is "parallel.tensor=8",
/// "seq=4k,8k" is "batch.sequence=4096,8192". Whatever is no such setting stays as it is.
std::string spelled_out(const std::string& setting);
std::vector<std::string> spelled_out(const std::vector<std::string>& settings);

/// The built-in workload or system called so, in any case, by its name or another one
/// (`root`/workloads/published/aliases.json; of systems also that of a GPU): "Llama-3.1-8B" is
/// llama3-8b, "H100" is dgx-h100. "" where none is.
std::string workload_called(std::string_view name, const Library& library);
std::string system_called(std::string_view name, const Library& library);
/// The framework called so, with the release that is asked for; the name itself where it has no
/// other: "megatron@25.09" is megatron-core@25.09.
std::string framework_called(std::string_view name, const Library& library);

/// Names of built-in files, in order.
std::vector<std::string> built_in_workloads(const Library& library);
std::vector<std::string> built_in_systems(const Library& library);
std::vector<std::string> built_in_devices(const Library& library);
/// Other names of built-in workloads, as the data file has them.
std::vector<std::string> workload_aliases(const Library& library);
/// GPUs whose usual system has their name.
std::vector<std::string> system_aliases(const Library& library);

/// The system of a job that names none.
inline constexpr std::string_view kDefaultSystem = "dgx-h100";

}  // namespace stepcast::config
