#include "traces/nsys/nsys_reader.h"

#include <sqlite3.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "traces/events/profiler_records.h"
#include "traces/input/whole_input.h"

namespace stepcast::traces {
namespace {

using Span = ProfilerRecords::Span;

constexpr std::size_t kNsysLargest = std::size_t{1} << 34U;
constexpr std::string_view kNsysKernels = "CUPTI_ACTIVITY_KIND_KERNEL";
constexpr std::string_view kNsysGraphs = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
constexpr std::string_view kNsysCalls = "CUPTI_ACTIVITY_KIND_RUNTIME";
constexpr std::string_view kNsysCopies = "CUPTI_ACTIVITY_KIND_MEMCPY";
constexpr std::string_view kNsysFills = "CUPTI_ACTIVITY_KIND_MEMSET";
constexpr std::string_view kNsysWaits = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION";
constexpr std::string_view kNsysRanges = "NVTX_EVENTS";

/// A row of an answer; a column that is NULL is -1 or no text.
class NsysRow {
 public:
  explicit NsysRow(sqlite3_stmt* statement) : statement_(statement) {}
  [[nodiscard]] std::int64_t number(int column) const {
    return sqlite3_column_type(statement_, column) == SQLITE_NULL
               ? -1
               : sqlite3_column_int64(statement_, column);
  }
  [[nodiscard]] std::int32_t small(int column) const {
    const std::int64_t value = number(column);
    return std::in_range<std::int32_t>(value) ? static_cast<std::int32_t>(value) : -1;
  }
  [[nodiscard]] std::string_view text(int column) const {
    const auto* const bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column));
    const int size = sqlite3_column_bytes(statement_, column);
    return bytes == nullptr ? std::string_view{}
                            : std::string_view(bytes, static_cast<std::size_t>(size));
  }
  /// Its first four columns.
  [[nodiscard]] Span span() const {
    return {number(0), number(1), text(2), std::max<std::int64_t>(0, number(3))};
  }
  /// Device, context and stream from a column on.
  [[nodiscard]] ProfilerRecords::Stream stream(int first) const {
    return {number(first), number(first + 1), number(first + 2)};
  }

 private:
  sqlite3_stmt* statement_;
};

/// A database in memory: the file may come out of an archive, and is never written to.
class NsysDatabase {
 public:
  explicit NsysDatabase(Input& input)
      : label_(input.label()), bytes_(whole_input(input, kNsysLargest)) {
    sqlite3* opened = nullptr;
    check(sqlite3_open_v2(":memory:", &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOFOLLOW,
                          nullptr));
    database_.reset(opened);
    check(sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr));
    const auto length = static_cast<sqlite3_int64>(bytes_.size());
    check(sqlite3_deserialize(opened, "main", reinterpret_cast<unsigned char*>(bytes_.data()),
                              length, length, SQLITE_DESERIALIZE_READONLY));
    // Views could be made to compute for ever.
    each("SELECT name FROM sqlite_master WHERE type = 'table'",
         [this](const NsysRow& row) { tables_.emplace(row.text(0)); });
  }

  [[nodiscard]] bool has(std::string_view table) const { return tables_.contains(table); }
  [[nodiscard]] bool any_starts_with(std::string_view prefix) const {
    const auto first = tables_.lower_bound(prefix);
    return first != tables_.end() && first->starts_with(prefix);
  }
  /// A column of table t to select, or NULL where the version that wrote the export lacks it.
  [[nodiscard]] std::string column(std::string_view table, std::string_view column) {
    bool found = false;
    each(fmt::format("SELECT name FROM pragma_table_info('{}')", table),
         [&](const NsysRow& row) { found = found || row.text(0) == column; });
    return found ? fmt::format("t.{}", column) : "NULL";
  }
  [[nodiscard]] std::string columns(std::string_view table,
                                    std::initializer_list<std::string_view> names) {
    std::string all;
    for (const std::string_view name : names) {
      all += (all.empty() ? "" : ", ") + column(table, name);
    }
    return all;
  }

  template <typename Use>
  void each(const std::string& sql, Use use) {
    sqlite3_stmt* statement = nullptr;
    check(sqlite3_prepare_v2(database_.get(), sql.c_str(), -1, &statement, nullptr));
    const std::unique_ptr<sqlite3_stmt, decltype(&sqlite3_finalize)> owned(statement,
                                                                           sqlite3_finalize);
    int state = sqlite3_step(statement);
    for (; state == SQLITE_ROW; state = sqlite3_step(statement)) {
      use(NsysRow(statement));
    }
    check(state);
  }

 private:
  void check(int state) const {
    if (state != SQLITE_OK && state != SQLITE_DONE) {
      throw InputError(
          label_, fmt::format("cannot be read as an export of Nsight Systems: {}; export the "
                              "report anew with `nsys export --type sqlite`",
                              database_ ? sqlite3_errmsg(database_.get()) : sqlite3_errstr(state)));
    }
  }

  std::string label_;
  std::string bytes_;  ///< outlives the database that reads it
  std::unique_ptr<sqlite3, decltype(&sqlite3_close)> database_{nullptr, sqlite3_close};
  std::set<std::string, std::less<>> tables_;
};

void expect_nsys(const NsysDatabase& data, const std::string& label) {
  if (data.any_starts_with("rocpd_")) {
    throw InputError(label,
                     "is a database of rocprofv3; expected its JSON: record with "
                     "`rocprofv3 --output-format json`");
  }
  if (!data.has(kNsysKernels) && !data.has(kNsysGraphs) && !data.has(kNsysCalls) &&
      !data.has(kNsysRanges)) {
    throw InputError(label, fmt::format("is a database without tables {}, {} and {}; expected an "
                                        "export of Nsight Systems",
                                        kNsysKernels, kNsysCalls, kNsysRanges));
  }
}

/// Both globalPid and globalTid hold the process in bits 24 to 47; above are the machine's.
constexpr std::int64_t kNsysPart = 0x1000000;

/// Processes with device work, each a rank: by the first device they use, as launchers number them.
std::vector<std::int64_t> processes_of(NsysDatabase& data) {
  std::map<std::int64_t, std::int64_t> device;  // by process
  for (const std::string_view table : {kNsysKernels, kNsysGraphs}) {
    if (data.has(table)) {
      data.each(
          fmt::format("SELECT {0} / {1}, MIN({2}) FROM {3} t WHERE {0} IS NOT NULL GROUP BY 1",
                      data.column(table, "globalPid"), kNsysPart, data.column(table, "deviceId"),
                      table),
          [&device](const NsysRow& row) {
            const auto at = device.try_emplace(row.number(0), row.number(1)).first;
            at->second = std::min(at->second, row.number(1));
          });
    }
  }
  std::vector<std::int64_t> processes;
  for (const auto& [process, first] : device) {
    processes.push_back(process);
  }
  std::stable_sort(processes.begin(), processes.end(),
                   [&device](std::int64_t a, std::int64_t b) { return device[a] < device[b]; });
  return processes;
}

/// The records of one process, or of all.
class NsysRank {
 public:
  NsysRank(NsysDatabase& data, Names& names, const std::string& source, std::int64_t process,
           bool alone)
      : data_(data), records_(names, source), process_(process), alone_(alone) {}

  RankRecording read() && {
    devices();
    kernels();
    graphs();
    copies();
    calls();
    waits();
    ranges();
    std::int64_t base = 0;
    if (data_.has("TARGET_INFO_SESSION_START_TIME")) {
      data_.each("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1",
                 [&base](const NsysRow& row) { base = row.number(0); });
    }
    constexpr std::int64_t kLatest = std::int64_t{1} << 62;
    return std::move(records_).finish(base > 0 && base < kLatest ? base : 0);
  }

 private:
  /// Begin, end, name, correlation, then columns of a table t.
  std::string with_span(std::string_view table, std::string_view name, std::string_view columns) {
    return fmt::format("SELECT t.start, t.end, {}, {}, {} FROM {} t WHERE {}", name,
                       data_.column(table, "correlationId"), columns, table, ours(table));
  }
  /// Condition on a row of a table t: that it is of this process.
  std::string ours(std::string_view table) {
    for (const std::string_view key : {"globalPid", "globalTid"}) {
      if (const std::string column = data_.column(table, key); !alone_ && column != "NULL") {
        return fmt::format("{} / {} = {}", column, kNsysPart, process_);
      }
    }
    return "1";
  }

  /// Names by the number that the process gives a device, which CUDA_VISIBLE_DEVICES may change.
  void devices() {
    const auto named = [this](const NsysRow& row) {
      records_.rank().devices.emplace_back(row.text(0));
    };
    if (!data_.has("TARGET_INFO_GPU")) {
      return;
    }
    constexpr std::string_view kDevices = "TARGET_INFO_CUDA_DEVICE";
    if (data_.columns(kDevices, {"gpuId", "cudaId", "pid"}) == "t.gpuId, t.cudaId, t.pid") {
      data_.each(fmt::format("SELECT g.name FROM {} t JOIN TARGET_INFO_GPU g ON g.id = t.gpuId "
                             "WHERE t.pid = {} GROUP BY t.cudaId ORDER BY t.cudaId",
                             kDevices, process_ % kNsysPart),
                 named);
    }
    if (records_.rank().devices.empty()) {
      data_.each("SELECT name FROM TARGET_INFO_GPU ORDER BY id", named);
    }
  }

  void kernels() {
    if (!data_.has(kNsysKernels)) {
      return;
    }
    data_.each(
        with_span(kNsysKernels,
                  fmt::format("(SELECT value FROM StringIds WHERE id = COALESCE({}, {}))",
                              data_.column(kNsysKernels, "demangledName"),
                              data_.column(kNsysKernels, "shortName")),
                  data_.columns(kNsysKernels, {"deviceId", "contextId", "streamId", "gridX",
                                               "gridY", "gridZ", "blockX", "blockY", "blockZ",
                                               "registersPerThread", "staticSharedMemory",
                                               "dynamicSharedMemory", "graphId", "graphNodeId"})),
        [this](const NsysRow& r) {
          const auto size = [&r](int column) { return std::max(0, r.small(column)); };
          const std::int64_t shared = std::int64_t{r.small(14)} + r.small(15);
          const bool known = r.small(14) >= 0 && r.small(15) >= 0 && shared <= INT32_MAX;
          records_.kernel(r.span(), r.stream(4),
                          {.grid = {size(7), size(8), size(9)},
                           .block = {size(10), size(11), size(12)},
                           .registers = r.small(13),
                           .shared_memory = known ? static_cast<std::int32_t>(shared) : -1,
                           .graph = r.number(16),
                           .graph_node = r.number(17)});
        });
  }

  /// Launches of CUDA graphs that were recorded as a whole, which is what nsys does unless asked.
  void graphs() {
    if (!data_.has(kNsysGraphs)) {
      return;
    }
    data_.each(
        with_span(
            kNsysGraphs,
            fmt::format("'CUDA graph ' || COALESCE({}, 0)", data_.column(kNsysGraphs, "graphId")),
            data_.columns(kNsysGraphs, {"deviceId", "contextId", "streamId", "graphId"})),
        [this](const NsysRow& r) {
          records_.kernel(r.span(), r.stream(4), {.graph = r.number(7)});
          records_.rank().oddities.add(ParseWarning::kDownsampled, [this] {
            return fmt::format(
                "{}: CUDA graphs without their kernels, which `nsys profile "
                "--cuda-graph-trace=node` records",
                records_.rank().source);
          });
        });
  }

  void copies() {
    const auto columns = {std::string_view("deviceId"), std::string_view("contextId"),
                          std::string_view("streamId"), std::string_view("bytes")};
    if (data_.has(kNsysCopies)) {
      // CUpti_ActivityMemcpyKind.
      data_.each(
          with_span(kNsysCopies,
                    fmt::format("CASE {} WHEN 1 THEN 'Memcpy HtoD' WHEN 2 THEN 'Memcpy DtoH' "
                                "WHEN 8 THEN 'Memcpy DtoD' WHEN 10 THEN 'Memcpy PtoP' "
                                "ELSE 'Memcpy' END",
                                data_.column(kNsysCopies, "copyKind")),
                    data_.columns(kNsysCopies, columns)),
          [this](const NsysRow& r) {
            records_.copy(r.span(), r.stream(4), EventCategory::kMemcpy, r.number(7));
          });
    }
    if (data_.has(kNsysFills)) {
      data_.each(with_span(kNsysFills, "'Memset'", data_.columns(kNsysFills, columns)),
                 [this](const NsysRow& r) {
                   records_.copy(r.span(), r.stream(4), EventCategory::kMemset, r.number(7));
                 });
    }
  }

  static ProfilerRecords::Thread thread_of(std::int64_t global) {
    return {global / kNsysPart % kNsysPart, global % kNsysPart};
  }

  void calls() {
    if (data_.has(kNsysCalls)) {
      data_.each(
          with_span(kNsysCalls, "(SELECT value FROM StringIds WHERE id = t.nameId)", "t.globalTid"),
          [this](const NsysRow& r) { records_.call(r.span(), thread_of(r.number(4))); });
    }
  }

  void waits() {
    if (data_.has(kNsysWaits)) {  // CUpti_ActivitySynchronizationType: 3 a stream, 4 a context
      data_.each(
          with_span(kNsysWaits, "CASE t.syncType WHEN 3 THEN 'Stream Sync' ELSE 'Context Sync' END",
                    "t.deviceId, t.contextId, "
                    "CASE t.syncType WHEN 3 THEN t.streamId ELSE -1 END") +
              " AND t.syncType IN (3, 4)",
          [this](const NsysRow& r) { records_.synchronisation(r.span(), r.stream(4)); });
    }
  }

  void ranges() {
    if (!data_.has(kNsysRanges)) {
      return;
    }
    constexpr int kPushed = 59;  // NvtxPushPopRange: those nest
    const std::string registered = data_.column(kNsysRanges, "textId");
    data_.each(
        fmt::format("SELECT t.start, t.end, COALESCE({}, {}), 0, t.globalTid FROM {} t "
                    "WHERE t.eventType = {} AND t.end IS NOT NULL AND {}",
                    data_.column(kNsysRanges, "text"),
                    registered == "NULL"
                        ? registered
                        : fmt::format("(SELECT value FROM StringIds WHERE id = {})", registered),
                    kNsysRanges, kPushed, ours(kNsysRanges)),
        [this](const NsysRow& r) { records_.range(r.span(), thread_of(r.number(4))); });
  }

  NsysDatabase& data_;
  ProfilerRecords records_;
  std::int64_t process_;  ///< whose device work it is
  bool alone_;            ///< no other process has any: then calls and ranges of all are its
};

}  // namespace

std::vector<RankRecording> read_nsys(Input& input, Names& names) {
  NsysDatabase data(input);
  expect_nsys(data, input.label());
  std::vector<std::int64_t> processes = processes_of(data);
  if (processes.empty()) {
    processes.push_back(0);
  }
  const bool alone = processes.size() == 1;
  std::vector<RankRecording> ranks;
  for (const std::int64_t process : processes) {
    const std::string source =
        alone ? input.label() : fmt::format("{}: process {}", input.label(), process % kNsysPart);
    ranks.push_back(NsysRank(data, names, source, process, alone).read());
  }
  return ranks;
}

}  // namespace stepcast::traces
