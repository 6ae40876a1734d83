#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/ptx/machine.h"
#include "tests/runtime/cuda/emulation/launcher.h"

namespace stepcast::test {

/// Launches of the tests through the PTX that nvcc makes of the same kernels, instead of through
/// the code that the host compiler makes of them.
class PtxLauncher {
 public:
  /// `list`: a file that names PTX files, one a line.
  explicit PtxLauncher(const std::string& list);
  void run(const emulation::KernelLaunch& launch);

  /// Entry points of all files, and what those that ran did, by readable name.
  [[nodiscard]] std::size_t entries() const { return entries_.size(); }
  [[nodiscard]] const std::map<std::string, models::ptx::Counts>& done() const { return done_; }
  /// What each entry point did, or zeros, as CSV.
  void write_table(const std::string& file) const;
  void forget() { done_.clear(); }
  [[nodiscard]] models::ptx::Counts total() const;

  /// The one that launches go through.
  static PtxLauncher& current();

 private:
  struct Entry {
    const models::ptx::Module* module;
    std::string name;
    std::string source;  ///< "norm" of norm.ptx
  };
  const models::ptx::Kernel& kernel_of(const emulation::KernelLaunch& launch);

  std::vector<std::unique_ptr<models::ptx::Module>> modules_;
  std::multimap<std::string, Entry> entries_;  ///< by readable name
  std::map<const void*, models::ptx::Kernel> kernels_;
  std::map<const void*, std::string> names_;
  std::map<std::string, models::ptx::Counts> done_;
};

/// Sends launches through PtxLauncher::current().
void use_ptx();

}  // namespace stepcast::test
