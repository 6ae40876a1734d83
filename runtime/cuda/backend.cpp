#include "runtime/cuda/backend.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "core/error.h"
#include "core/fnv1a.h"
#include "runtime/loaded_module.h"

namespace stepcast::runtime::cuda {

std::filesystem::path module_of(const std::filesystem::path& executable) {
  return executable.parent_path().parent_path() / "lib" / "libstepcast_cuda.so";
}

const Module& loaded_module(const std::filesystem::path& file) {
  const LoadedModule library(file);  // stays loaded
  const Module* module = library.function<ModuleEntry>(kModuleEntry)(Stamp{});
  if (module == nullptr) {
    throw EnvironmentError(fmt::format(
        "{} was built from other sources than this program; build both together", file.string()));
  }
  return *module;
}

const Module& usable_module(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) {
    throw EnvironmentError(
        fmt::format("--backend cuda: {} is not there: this build has no CUDA part; configure with "
                    "-DSTEPCAST_CUDA=ON where the CUDA Toolkit and NCCL are installed "
                    "(scripts/setup --cuda says "
                    "what is missing), or use --backend cpu",
                    file.string()));
  }
  const Module& module = loaded_module(file);
  const Probe probe = module.probe();
  if (probe.devices == 0) {
    throw EnvironmentError(fmt::format("--backend cuda: {} ({}); or use --backend cpu",
                                       probe.missing, probe.versions));
  }
  return module;
}

double device_key(const Probe& probe, int local_rank) {
  // Containers of different machines may bear one name: a boot of one machine has an id of its own.
  std::string machine;
  if (!std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), machine)) {
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    machine = name.data();
  }
  const std::string& device =
      probe.identities.at(static_cast<std::size_t>(local_rank) % probe.identities.size());
  return static_cast<double>(fnv1a(machine + ' ' + device) >> 12);
}

std::vector<std::string> shared_device_environment(int nccl, int rank, int local_ranks,
                                                   std::vector<double> keys) {
  const auto ranks = static_cast<int>(keys.size());
  std::sort(keys.begin(), keys.end());
  if (std::adjacent_find(keys.begin(), keys.end()) == keys.end()) {
    return {};
  }
  if (local_ranks != ranks) {
    throw InputError("--ranks", fmt::format("{} ranks on this machine share devices: that works "
                                            "only when all {} ranks are on one machine; start as "
                                            "many ranks as there are devices",
                                            local_ranks, ranks));
  }
  std::vector<std::string> environment{"NCCL_SOCKET_IFNAME=lo", "NCCL_IB_DISABLE=1",
                                       "NCCL_NET=Socket",       "NCCL_NVLS_ENABLE=0",
                                       "NCCL_MNNVL_ENABLE=0",   "NCCL_MAX_CTAS=2"};
  constexpr int kHasSwitch = 23000;
  environment.push_back(nccl >= kHasSwitch ? "NCCL_MULTI_RANK_GPU_ENABLE=1"
                                           : fmt::format("NCCL_HOSTID=stepcast-rank-{}", rank));
  return environment;
}

ExecutorFactory executors(const Module& module, Options options) {
  return [&module, options](const ExecutionGraph& graph, MpiSession& session, std::int64_t epoch_ns,
                            Observer* observer) {
    Ranks ranks;
    ranks.rank = session.rank();
    ranks.size = session.size();
    ranks.local_rank = session.local_rank();
    ranks.local_size = session.local_size();
    ranks.broadcast = [&session](void* data, std::size_t bytes) {
      session.broadcast_bytes(data, bytes);
    };
    ranks.abort = [&session](const std::exception& e) { session.abort(e); };
    Options own = options;
    own.epoch_ns = epoch_ns;
    return module.executor(graph, std::move(ranks), own, observer);
  };
}

}  // namespace stepcast::runtime::cuda
