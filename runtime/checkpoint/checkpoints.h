#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/graph/program.h"
#include "core/units.h"
#include "runtime/checkpoint/checkpoint_file.h"
#include "runtime/mpi/session.h"
#include "runtime/step_executor.h"

namespace stepcast::runtime {

struct CheckpointOptions {
  std::filesystem::path folder;  ///< empty: none; ranks of all machines see the same
  std::int64_t every = 1;        ///< steps of the run from one to the next
  std::int64_t keep = 0;         ///< whole ones that stay, the latest; 0: all
  /// Text of the file that says what a folder is, written last, by rank 0.
  std::function<std::string(std::int64_t step)> manifest;
};

/// Name of that file: a folder without it is no checkpoint.
constexpr const char* kCheckpointManifest = "checkpoint.json";

/// Cost of the checkpoints of a run.
struct CheckpointUse {
  std::int64_t count = 0;
  Bytes bytes;                  ///< of numbers, each time, all ranks together
  std::vector<Seconds> stalls;  ///< each: the copy that training waits for, of the slowest rank
  Seconds waited;               ///< all: for the one before to be written
  Seconds written;              ///< from the copy until the file was on the disk; the longest
};

/// Saves the state of a run, step by step, in folder/step-NNNNNNNN: a file of each rank. Numbers
/// are copied while training waits, and written while it goes on. A folder gets its name when all
/// of it is on the disk, and loses it before any of it is deleted. All ranks make the same calls.
/// Errors: RunError when a file cannot be written, or another run saves in the folder.
class Checkpoints {
 public:
  /// The executor outlives it.
  Checkpoints(const CheckpointOptions& options, const ExecutionGraph& graph, MpiSession& session,
              StepExecutor& executor);
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  /// Whether this rank still writes.
  [[nodiscard]] bool writes() const { return running_.load(); }
  /// After `done` steps of the run. `anyone_writes`: of the ranks, after the step.
  void after_step(std::int64_t done, bool last, bool anyone_writes);
  /// Waits for what is being written.
  CheckpointUse finish();

 private:
  void take(std::int64_t done);
  void join();
  void publish();
  void retire() const;
  void delete_retired() const;
  [[nodiscard]] std::filesystem::path path(const char* suffix) const;

  const CheckpointOptions& options_;
  const std::int64_t interval_;
  MpiSession& session_;
  StepExecutor& executor_;
  CheckpointImage image_;
  CheckpointUse use_;
  int lock_ = -1;           ///< file that keeps other runs out
  std::int64_t step_ = -1;  ///< of what is not published yet
  double written_ = 0;
  std::atomic<bool> running_{false};
  std::exception_ptr failure_;
  std::thread thread_;
};

/// Continues from a checkpoint: puts its state into the executor's memory. Returns its step.
std::int64_t resume(const std::filesystem::path& checkpoint, const ExecutionGraph& graph,
                    std::int32_t rank, StepExecutor& executor);

/// The checkpoint that a folder is, else the latest that is in it. Errors: InputError without one.
std::filesystem::path latest_checkpoint(const std::filesystem::path& folder);

/// Bytes of memory that saving a rank's state takes besides.
Bytes checkpoint_bytes(const ExecutionGraph& graph, std::int32_t rank);

}  // namespace stepcast::runtime
