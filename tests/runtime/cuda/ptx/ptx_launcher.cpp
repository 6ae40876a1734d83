#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include "tests/runtime/cuda/ptx/ptx_launcher.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "tests/runtime/cuda/ptx/symbols.h"
#include "tests/runtime/cuda/standin/device_memory.h"

namespace stepcast::test {
namespace {

using models::ptx::Counts;
using models::ptx::Kernel;

/// What cudaMalloc and cudaMallocHost of the stand-in hand out.
class StandinMemory final : public models::ptx::GlobalMemory {
 public:
  [[nodiscard]] Piece piece_of(std::uint64_t address) const override {
    const auto [begin, bytes] = standin::piece_around(reinterpret_cast<const void*>(address));
    const auto first = reinterpret_cast<std::uint64_t>(begin);
    return {first, first + bytes};
  }
};

const std::unordered_map<const void*, Symbol>& symbols() {
  static const auto all = program_symbols();
  return all;
}

std::array<std::uint32_t, 3> sizes(dim3 d) { return {d.x, d.y, d.z}; }

}  // namespace

PtxLauncher::PtxLauncher(const std::string& list) {
  std::istringstream files(file_text(list));
  for (std::string file; std::getline(files, file);) {
    const std::filesystem::path path(file);
    modules_.push_back(
        std::make_unique<models::ptx::Module>(file_text(file), path.filename().string()));
    for (const std::string& entry : modules_.back()->entries()) {
      entries_.emplace(readable(entry),
                       Entry{modules_.back().get(), entry, path.stem().stem().string()});
    }
  }
}

const Kernel& PtxLauncher::kernel_of(const emulation::KernelLaunch& launch) {
  const auto known = kernels_.find(launch.function);
  if (known != kernels_.end()) {
    return known->second;
  }
  const auto symbol = symbols().find(launch.function);
  STEPCAST_CHECK(symbol != symbols().end(), "kernel {} has no symbol", launch.name);
  const std::string source = std::filesystem::path(symbol->second.source).stem().string();
  const auto [first, end] = entries_.equal_range(symbol->second.name);
  for (auto e = first; e != end; ++e) {
    if (source.empty() || e->second.source == source) {
      names_[launch.function] = symbol->second.name;
      return kernels_.emplace(launch.function, e->second.module->kernel(e->second.name))
          .first->second;
    }
  }
  throw RunError(fmt::format("kernel {}: no PTX file has an entry point {} of {}", launch.name,
                             symbol->second.name, source));
}

void PtxLauncher::run(const emulation::KernelLaunch& launch) {
  const Kernel& kernel = kernel_of(launch);
  const Counts counts = models::ptx::run(
      kernel, {sizes(launch.blocks), sizes(launch.threads), launch.shared, launch.parameters()},
      StandinMemory());
  done_[names_.at(launch.function)] += counts;
}

Counts PtxLauncher::total() const {
  Counts sum;
  for (const auto& [name, counts] : done_) {
    sum += counts;
  }
  return sum;
}

void PtxLauncher::write_table(const std::string& file) const {
  std::ofstream out(file);
  out << "source,entry,blocks,instructions,divergent,branches,global bytes,sectors,conflicts,mma\n";
  for (const auto& [name, entry] : entries_) {
    const auto done = done_.find(name);
    const Counts c = done == done_.end() ? Counts{} : done->second;
    out << fmt::format("{},\"{}\",{},{},{},{},{},{},{},{}\n", entry.source, name, c.blocks,
                       c.instructions, c.divergent, c.branches, c.loads.bytes + c.stores.bytes,
                       c.loads.sectors + c.stores.sectors, c.shared_conflicts, c.tensor_products);
  }
}

PtxLauncher& PtxLauncher::current() {
  static PtxLauncher one(PTX_FILES);
  return one;
}

void use_ptx() {
  emulation::set_launcher(
      [](const emulation::KernelLaunch& launch) { PtxLauncher::current().run(launch); });
}

namespace {

/// Sets the launcher before the first test and says at the end what ran.
struct Listener : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testRunStarting(const Catch::TestRunInfo&) override { use_ptx(); }
  void testRunEnded(const Catch::TestRunStats&) override {
    const PtxLauncher& l = PtxLauncher::current();
    Counts sum = l.total();
    if (const char* const table = std::getenv("PTX_TABLE")) {
      l.write_table(table);
    }
    stream << fmt::format("{} of {} entry points run, {:.1f} million instructions of warps\n",
                          l.done().size(), l.entries(),
                          static_cast<double>(sum.instructions) * 1e-6);
  }
};
CATCH_REGISTER_LISTENER(Listener)

}  // namespace
}  // namespace stepcast::test
