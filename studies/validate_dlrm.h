#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/job.h"
#include "studies/validation.h"

namespace stepcast::studies {

/// One line of a table of MLPerf DLRM step times: a system's median, or one of its runs.
struct DlrmStepTime {
  std::string place;  ///< file:line
  std::string round, organisation, system, benchmark, gpu;
  std::int64_t gpus = 0, nodes = 0, batch = 0;
  int run = -1;          ///< -1: the median over runs
  double seconds = 0;    ///< per step
  double spread = 0;     ///< (slowest run - fastest run) / median; 0 where unknown
  std::string unusable;  ///< why the line does not count, with what was expected
  [[nodiscard]] std::string id() const;
};

/// Reads the tables with the columns of data/dlrm: `path` is a file, or a folder with
/// mlperf_step_times.csv and mlperf_step_times_per_run.csv. Numbers that make no sense mark the
/// line unusable. Errors: InputError for a missing file or column.
std::vector<DlrmStepTime> read_dlrm_step_times(const std::filesystem::path& path);

/// The job a submission ran: zoo workload and system by name, and what is documented of its
/// software stack. HugeCTR: mixed precision fp16 with fp32 tables; input of batch i+1 during batch
/// i (sparse_dist); both exchanges beside the MLPs; its own automatic plan (hugectr_plan). Errors:
/// InputError naming the line for a benchmark, GPU or stack that is not known.
Job job_of(const DlrmStepTime& row, const config::Library& library);

/// Which calibration the rows of the suite show.
enum class DlrmRegime : std::uint8_t {
  kFacts,   ///< hardware facts only
  kModels,  ///< what device and system files carry, no scalar
  kOneRow   ///< and one scalar per round, from one row of it; that row is not scored
};

/// Step times of MLPerf DLRM submissions, predicted. Groups: every regime; within kOneRow each
/// round; the runs one by one. The scalar of a round is measured / predicted of its first NVIDIA
/// row (the authors of the stack), else of its first row. The naive predictor beside kOneRow is a
/// constant rate: the same row's samples/s. Gate: mean |error| of kOneRow <= 0.10 over all rounds.
ValidationSuite validate_dlrm(const std::vector<DlrmStepTime>& rows, const config::Library& library,
                              DlrmRegime regime = DlrmRegime::kOneRow);

}  // namespace stepcast::studies
