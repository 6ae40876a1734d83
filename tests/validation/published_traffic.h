#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/access/access.h"
#include "core/config/config.h"
#include "planner/embedding/traffic_cut.h"

namespace stepcast::validation {

/// How often the rows of one recorded batch were looked up, all tables together. Source of the
/// published ones: facebookresearch/dlrm_datasets, shares rounded to three decimals.
struct ReuseHistogram {
  std::string file;
  std::int64_t samples = 0;  ///< of the batch, from the file's name ("..._bs65536...")
  double lookups = 0;
  std::vector<ReuseBin> bins;
  /// Rounding leaves some bins fewer rows than their accesses need: they get the fewest possible.
  [[nodiscard]] Access law() const;
  /// Such bins stand for one row, which is what the published table of cuts took (it counts none).
  [[nodiscard]] Access law_as_published() const;
};

/// Reads a table with the columns of dlrm_datasets/locality_parsed.csv. Errors: InputError naming
/// file and line.
std::vector<ReuseHistogram> read_reuse_histograms(const std::filesystem::path& file);

/// One line of a published table of what copies of hot rows cut, against planner::traffic_cut of
/// the same histogram. Rows are 128 fp16 numbers.
struct PublishedCut {
  std::string place;  ///< file:line
  std::string file;
  planner::TrafficQuestion question;
  double saved = 0, net = 0;  ///< published shares of the all-to-all
  planner::TrafficCut ours;
};
/// Errors: InputError naming file and line, also for a histogram that is not there.
std::vector<PublishedCut> compare_traffic_cuts(const std::filesystem::path& table,
                                               const std::vector<ReuseHistogram>& histograms);

/// Cut that the planner makes of a histogram at the memory of flat row-wise sharding. Bytes are
/// those the graphs of both steps send between machines; the plan minimises time, not these.
struct EqualMemoryCut {
  std::string file;
  std::int64_t nodes = 0, devices = 0;
  bool dedup = false;          ///< each distinct row travels once per rank and batch, in both
  double flat_step = 0;        ///< seconds, simulated
  double step = 0;             ///< of the fastest plan that fits where the flat one does
  double saved = 0, sync = 0;  ///< shares of the flat plan's bytes between machines
  [[nodiscard]] double net() const { return saved - sync; }
  double flat_bytes = 0, bytes = 0;  ///< fullest rank, by the planner's ledger
  double rows_everywhere = 0, rows_unit = 0;
};

/// The published histogram as one unpooled table of 128 fp16 columns on `nodes` machines of the
/// zoo's dgx-h100, row-wise Adagrad, planned with as much device memory as the flat plan takes.
/// Errors: InputError.
EqualMemoryCut cut_at_equal_memory(const ReuseHistogram& histogram, std::int64_t nodes, bool dedup,
                                   const config::Library& library);

}  // namespace stepcast::validation
