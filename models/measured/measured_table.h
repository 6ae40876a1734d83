#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/graph/program.h"
#include "core/system.h"
#include "models/fit/fit.h"

namespace stepcast::models {

/// Facts that the rows of one measurement share: the device, the system for collectives, the
/// software framework, and a variant where the kernel only stands in for the op kind it is filed
/// under ("mul" for add, "softmax", "fp8_block").
struct Testbed {
  std::string device, system, framework, variant;
  bool operator==(const Testbed&) const = default;
  bool operator<(const Testbed& other) const {
    return std::tie(device, system, framework, variant) <
           std::tie(other.device, other.system, other.framework, other.variant);
  }
};

/// Measured rows read from tables of the one schema (docs/reference/measurement-tables.md), in the
/// types the fits take. Rows stay in file order; every one knows its file and line.
///
///   const MeasuredTable table = read_measured({"tables/kernels/gemm/x.csv.gz"});
///   const FittedModels fitted = fit_kernels(device, measured_ops(table, rows), options);
struct MeasuredTable {
  struct File {
    std::string path;
    std::int64_t rows = 0;
  };
  struct Origin {
    std::uint32_t file = 0;  ///< index into files
    std::uint32_t line = 0;  ///< 1 is the header
    std::uint32_t testbed = 0;
    std::uint32_t source = 0;  ///< index into sources
  };
  struct OpRow {
    std::uint32_t op = 0;     ///< index into program->ops
    std::uint32_t count = 1;  ///< ops from there on that took `time` together (a layer of experts)
    Seconds time;
    std::int64_t configuration = -1;  ///< rows that a held-out score leaves out together
    std::int64_t samples = 1;
    Origin origin;
    Seconds apart;  ///< measured with it, known from rows of its own and taken off `time`
  };
  struct CollectiveRow {
    OpKind kind = OpKind::kAllReduce;
    double bytes = 0;  ///< NCCL convention of the op
    Format format = Format::kFp32;
    std::int64_t ranks = 0;
    std::int64_t ranks_per_machine = 0;  ///< equal to `ranks` on one machine
    Seconds time;
    Seconds idle_time = Seconds(-1);  ///< as MeasuredCollective
    std::int64_t samples = 1;
    Origin origin;
  };
  /// A measured part of what the host does per op.
  struct HostRow {
    std::vector<double> MeasuredHost::*part = &MeasuredHost::issue;
    std::string workload;
    double seconds = 0;
    Origin origin;
  };
  /// A whole step of a calibration job: what the linear baseline is fitted to.
  struct StepRow {
    std::string workload;
    double flops = 0, bytes = 0;
    Seconds time;
    Origin origin;
  };
  /// A row that is not used, and why.
  struct Skipped {
    Origin origin;
    std::string reason;  ///< the column, what was found, what was expected, the remedy
  };

  std::vector<File> files;
  std::vector<std::string> sources;  ///< what rows were taken from, as their column says; else file
  std::vector<Testbed> testbeds;
  std::unique_ptr<Program> program;  ///< holds the op templates; its address is stable
  std::vector<OpRow> ops;
  std::vector<CollectiveRow> collectives;
  std::vector<HostRow> host;
  std::vector<StepRow> steps;
  std::vector<Skipped> skipped;

  [[nodiscard]] const Op& op(const OpRow& row) const { return program->ops[row.op]; }
  [[nodiscard]] std::span<const Op> ops_of(const OpRow& row) const {
    return std::span(program->ops).subspan(row.op, row.count);
  }
  [[nodiscard]] const Testbed& testbed(const Origin& o) const { return testbeds[o.testbed]; }
  /// "path:line", a place the user can open.
  [[nodiscard]] std::string place(const Origin& o) const;
};

/// Device and system of rows that do not name theirs, as built-in names.
struct ReadOptions {
  std::string device = {}, system = {};
};

/// Reads tables of the schema, plain, gzip or zstd; a folder stands for every CSV file below it, in
/// order of name. A row that cannot be used (time not positive, unknown number format, not a
/// number, a negative size) is listed in `skipped`. Errors: InputError naming the file when it
/// cannot be read, has no rows, or its columns are those of another layout, with the way to convert
/// it.
MeasuredTable read_measured(std::span<const std::filesystem::path> paths,
                            const ReadOptions& options = {});
inline MeasuredTable read_measured(const std::filesystem::path& path,
                                   const ReadOptions& options = {}) {
  return read_measured(std::span(&path, 1), options);
}

/// Rows as the fits take them; pointers stay valid as long as `table` lives (also when it is
/// moved).
std::vector<MeasuredOp> measured_ops(const MeasuredTable& table,
                                     std::span<const std::uint32_t> rows);

/// Indices into table.collectives of rows that say something about `system`: those taken on it, and
/// those taken inside one machine of the same device.
std::vector<std::uint32_t> find_collectives(const MeasuredTable& table, const System& system);
/// Rows as the fits take them: the group's shape on the fabric of `system`, with no sibling groups.
/// Between devices of their own, 16-bit floats count as fp32: a collective moves bytes, and fp32 is
/// the format whose model serves every other.
std::vector<MeasuredCollective> measured_collectives(const MeasuredTable& table,
                                                     const System& system,
                                                     std::span<const std::uint32_t> rows);

/// Host samples of a device. Where whole steps were measured too, of the third of the jobs with the
/// shortest steps: there the host's part matters.
MeasuredHost measured_host(const MeasuredTable& table, std::string_view device);

/// Why a row cannot have been measured on that device: above its peak rate, or, beyond what its
/// caches hold, above its memory bandwidth. Empty when it can.
std::string impossible_on(const Device& device, const Op& op, Seconds time);
/// The same for a collective: above the ports of the group's innermost level. All-reduce counts the
/// buffer once (reduction in the switch), the others what every algorithm must move.
std::string impossible_on(const System& system, const MeasuredCollective& row);

}  // namespace stepcast::models
