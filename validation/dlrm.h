#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/access/access.h"
#include "core/config/config.h"
#include "core/job/efficiency.h"
#include "core/job/job.h"
#include "validation/suite.h"

namespace stepcast::validation {

/// One line of a table of MLPerf DLRM step times: a system's median, or one of its runs.
struct DlrmStepTime {
  std::string place;  ///< file:line
  std::string round, organisation, system, benchmark, gpu;
  std::string framework = "hugectr", precision;  ///< precision: "tf32", "amp"; empty: its recipe's
  std::int64_t gpus = 0, nodes = 0, batch = 0;
  int run = -1;          ///< -1: the median over runs
  double seconds = 0;    ///< per step
  double spread = 0;     ///< (slowest run - fastest run) / median; 0 where unknown
  std::string unusable;  ///< why the line does not count, with what was expected
  [[nodiscard]] std::string id() const;
  /// "H100", "H200", "Blackwell" (B200 and GB200), "A100"; the GPU as written where it is no other.
  [[nodiscard]] std::string generation() const;
};

/// Reads the tables with the columns of data/dlrm and data/recent: `path` is a file, or a folder
/// with some of mlperf_step_times.csv, mlperf_step_times_v4.1_v5.0.csv, mlperf_dlrm_v6.0.csv,
/// mlperf_step_times_per_run.csv and dlrm_recent.csv, or one with those in its folders dlrm and
/// recent. Numbers that make no sense mark the line unusable. Errors: InputError for a missing file
/// or column.
std::vector<DlrmStepTime> read_dlrm_step_times(const std::filesystem::path& path);

/// The job a submission ran: zoo workload and system by name, the framework HugeCTR
/// (workloads/published/names.json), its own automatic plan with the settings of its submissions
/// (workloads::hugectr_rule), and for dlrm_dcnv2 lookups as its multi-hot data have them
/// (multi_hot_access). Errors: InputError naming the line for a benchmark or GPU that is not known.
Job job_of(const DlrmStepTime& row, const config::Library& library);

/// Lookups of MLPerf's multi-hot data: every id of the one-hot data has a fixed list of
/// `ids_per_bag` ids, itself and others drawn once, uniformly from the table; a sample looks up the
/// whole list of its id. The share p of an id is so spread over ids_per_bag rows, p / ids_per_bag
/// each: flatter at its head than the law of the one-hot ids, and as many times more distinct rows.
/// `one_hot` is that law; `samples` how many were drawn of it. Ids whose lists would not fit the
/// table any more add to its coldest rows. One id a bag leaves the law as it is.
/// Source: facebookresearch/dlrm torchrec_dlrm/multi_hot.py, --multi_hot_distribution_type uniform.
Access multi_hot_access(const Access& one_hot, double ids_per_bag, double samples);

/// Which calibration the rows of the suite show.
enum class DlrmRegime : std::uint8_t {
  kFacts,   ///< hardware facts only
  kModels,  ///< what device and system files carry, no scalar
  kOneRow   ///< and a scalar: of dlrm_dcnv2 from the other generations of GPUs, else per round from
            ///< one row of it, which is not scored
};

/// Step times of MLPerf DLRM submissions, predicted.
/// Steps as printed: every median is predicted with the efficiency that fit_dlrm_efficiencies makes
/// of the rows of other generations of GPUs. Where dlrm_dcnv2 rows of several generations of GPUs
/// are there, each generation is predicted with one scalar: the median of measured / predicted over
/// the rows of the others. Naive predictor: one rate of samples per byte/s of device memory, by
/// their median too. Gate: recorded bounds of the median and worst |error| and the bias over all
/// generations. Rounds of one GPU: the scalar is measured / predicted of the first NVIDIA row (the
/// authors of the framework), else of the first row. Naive predictor: that row's samples/s. Gate:
/// mean |error| <= 0.10 over those rounds. The runs one by one, and every regime, are further
/// groups.
Suite validate_dlrm(const std::vector<DlrmStepTime>& rows, const config::Library& library,
                    DlrmRegime regime = DlrmRegime::kOneRow);

/// The efficiencies of recommenders that ship, by framework (models/stacks/recommender_paces.json),
/// from the medians of the rows.
std::map<std::string, EfficiencyTable> fit_dlrm_efficiencies(const std::vector<DlrmStepTime>& rows,
                                                             const config::Library& library);

}  // namespace stepcast::validation
