#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <stdexcept>

#include "core/error.h"
#include "core/graph/op_codes.h"
#include "core/graph/op_traits.h"
#include "core/input/csv.h"
#include "core/portable.h"
#include "models/measured/measured_table.h"
#include "models/measured/op_text.h"

namespace stepcast::models {
namespace {

/// A row cannot be used; the message says what was found, what was expected and the remedy.
class RowError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The columns of the schema; others are passed over.
// clang-format off
constexpr std::array<std::string_view, 27> kColumns{
    "kind", "format", "s0", "s1", "s2", "s3", "s4", "s5", "flags", "variant", "window", "flops", "bytes", "seconds",
    "apart", "samples", "configuration", "device", "system", "stack", "kernel", "ranks", "ranks_per_machine",
    "since_use", "operands", "embedding", "source"};
// clang-format on

/// A column by its name.
struct Column {
  std::size_t index = 0;
  constexpr Column(const char* name) {  // NOLINT(google-explicit-constructor)
    while (kColumns.at(index) != name) {
      ++index;
    }
  }
  constexpr Column(const char* first, std::size_t further) : Column(first) { index += further; }
};

/// One line of a file, its fields by column.
struct TableRow {
  std::array<int, kColumns.size()> at{};  ///< position in the line, -1 absent
  std::span<const std::string_view> fields;

  [[nodiscard]] std::string_view text(Column c) const {
    return at[c.index] < 0 ? std::string_view() : fields[static_cast<std::size_t>(at[c.index])];
  }
  /// A finite number from `least` on; `missing` where the field is empty.
  [[nodiscard]] double number(Column c, double least, std::optional<double> missing = {}) const {
    const std::string_view field = text(c);
    if (field.empty() && missing) {
      return *missing;
    }
    double value = 0;
    const auto [end, error] = read_decimal(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size() || !std::isfinite(value)) {
      fail(c, "a number");
    }
    if (value < least) {
      fail(c, fmt::format("{} or more", least));
    }
    return value;
  }
  [[nodiscard]] std::int64_t count(Column c, std::int64_t least,
                                   std::optional<double> missing = {}) const {
    const double value = number(c, static_cast<double>(least), missing);
    if (value != std::floor(value) || value > 9e15) {
      fail(c, fmt::format("an integer from {}", least));
    }
    return static_cast<std::int64_t>(value);
  }
  [[noreturn]] void fail(Column c, std::string_view expected) const {
    throw RowError(fmt::format("column {} holds \"{}\", expected {}; mend or remove the row",
                               kColumns[c.index], text(c), expected));
  }
};

struct HostPart {
  std::string_view kind;
  std::vector<double> MeasuredHost::*part;
};
constexpr std::array kHostParts{HostPart{"host_issue", &MeasuredHost::issue},
                                HostPart{"host_dispatch", &MeasuredHost::dispatch},
                                HostPart{"host_step", &MeasuredHost::step}};

/// The kind, with a routing where it is one of rows routed to experts ("grouped_gemm").
void set_kind(Op& op, const TableRow& row) {
  const std::string_view name = row.text("kind");
  const auto named = op_kind_named(name);
  for (std::size_t k = 0; !named && k < static_cast<std::size_t>(OpKind::kCount); ++k) {
    if (traits_of(static_cast<OpKind>(k)).fitted_routed == name && !name.empty()) {
      op.kind = static_cast<OpKind>(k);
      op.routing = 0;
      return;
    }
  }
  if (!named) {
    row.fail("kind", "an op kind of docs/reference/measurement-tables.md");
  }
  op.kind = *named;
}

/// Sizes and attributes. The variant is the name of what tells constants of a kind apart ("gelu",
/// "layer_norm", "adam") or its code (core/graph/op_codes.h).
void set_attributes(Op& op, const TableRow& row) {
  OpCodes codes;
  for (std::size_t i = 0; i < codes.sizes.size(); ++i) {
    codes.sizes[i] = row.count(Column("s0", i), 0, 0);
  }
  const std::string_view variant = row.text("variant");
  const auto name = traits_of(op.kind).fitted_by;
  const bool named = name != nullptr && !variant.empty() && std::isdigit(variant[0]) == 0;
  codes.variant = static_cast<std::uint8_t>(named ? 0 : row.count("variant", 0, 0));
  set_codes(op, codes);
  for (; named && name(op) != variant; set_codes(op, codes)) {
    ++codes.variant;
  }
  const std::int64_t window = row.count("window", 0, 0);
  if (auto* attention = std::get_if<AttentionAttributes>(&op.attributes)) {
    attention->window = static_cast<std::int32_t>(window);
  } else if (window > 0) {
    row.fail("window", "nothing, as only attention has one");
  }
}

/// FLOPs and bytes as the row states them, else as ops of this kind count them. Products narrower
/// than 16 bits write bf16.
void set_work(Op& op, const TableRow& row) {
  fill_work(op);
  if (op.kind == OpKind::kGemm && bits_per_element(op.format, 1024) < 16) {
    op.bytes_written = format_bytes(
        Format::kBf16, op.shape[0] * std::max<std::int64_t>(op.shape[3], 1), op.shape[1]);
  }
  op.flops = Flops(row.number("flops", 0, op.flops.base()));
  const double counted = (op.bytes_read + op.bytes_written).base();
  if (const double bytes = row.number("bytes", 0, counted); bytes != counted) {
    op.bytes_read = Bytes(bytes);  // forms look at the sum
    op.bytes_written = Bytes{};
  }
}

class Reader {
 public:
  Reader(MeasuredTable& table, const ReadOptions& options) : table_(table), options_(options) {
    table_.program = std::make_unique<Program>();
  }

  void read_file(const std::filesystem::path& path) {
    CsvReader lines(path);
    if (!lines.next()) {
      throw InputError(path.string(), "is empty; expected a header line and rows");
    }
    const std::size_t width = lines.fields().size();
    TableRow row;
    row.at = columns_in(lines);
    table_.files.push_back({path.string(), 0});
    whole_ = false;
    while (lines.next()) {
      row.fields = lines.fields();
      origin_ = {static_cast<std::uint32_t>(table_.files.size() - 1), lines.line(), kUnread, 0};
      try {
        if (row.fields.size() != width) {
          throw RowError(fmt::format("{} fields, expected {}; mend or remove the line",
                                     row.fields.size(), width));
        }
        read_row(row);
      } catch (const RowError& e) {
        skip(e.what());
      } catch (const InputError& e) {
        skip(e.what());
      }
    }
    if (table_.files.back().rows == 0) {
      throw InputError(path.string(), "has a header but no rows");
    }
  }

 private:
  static std::array<int, kColumns.size()> columns_in(const CsvReader& lines) {
    std::array<int, kColumns.size()> at{};
    const auto header = lines.fields();
    for (std::size_t c = 0; c < kColumns.size(); ++c) {
      const auto found = std::find(header.begin(), header.end(), kColumns[c]);
      at[c] = found == header.end() ? -1 : static_cast<int>(found - header.begin());
    }
    if (at[Column("kind").index] < 0 || at[Column("seconds").index] < 0) {
      throw InputError(
          lines.place(),
          fmt::format("found the columns \"{}\", expected kind, seconds and others of "
                      "docs/reference/measurement-tables.md; benchmark tables in layouts of others "
                      "are converted first: scripts/data/convert FOLDER OUT",
                      fmt::join(header, ",")));
    }
    return at;
  }

  void skip(std::string reason) {
    ++table_.files.back().rows;
    whole_ = false;
    if (origin_.testbed == kUnread) {
      origin_.testbed = index_of(table_.testbeds, testbeds_, Testbed{});
    }
    table_.skipped.push_back({origin_, std::move(reason)});
  }

  template <class Value>
  static std::uint32_t index_of(std::vector<Value>& all, std::map<Value, std::uint32_t>& known,
                                const Value& value) {
    const auto [it, fresh] = known.try_emplace(value, static_cast<std::uint32_t>(all.size()));
    if (fresh) {
      all.push_back(value);
    }
    return it->second;
  }

  void set_origin(const TableRow& row) {
    const bool own = !row.text("device").empty();
    const Testbed testbed{
        std::string(own ? row.text("device") : options_.device),
        std::string(own || !row.text("system").empty() ? row.text("system") : options_.system),
        std::string(row.text("stack")), std::string(row.text("kernel"))};
    origin_.testbed = index_of(table_.testbeds, testbeds_, testbed);
    std::string source(row.text("source"));
    if (source.empty()) {
      source = std::filesystem::path(table_.files.back().path).filename().string();
    }
    origin_.source = index_of(table_.sources, sources_, source);
  }

  void read_row(const TableRow& row) {
    const std::string_view kind = row.text("kind");
    const std::string_view job = row.text("configuration");
    if (row.text("seconds").empty()) {
      add_to_row_above(row);
      return;
    }
    set_origin(row);
    const Seconds time(row.number("seconds", 0));
    if (time <= Seconds{}) {
      row.fail("seconds", "a number above 0");
    }
    whole_ = false;
    const auto part = std::find_if(kHostParts.begin(), kHostParts.end(),
                                   [kind](const HostPart& p) { return p.kind == kind; });
    if (part != kHostParts.end()) {
      table_.host.push_back({part->part, std::string(job), time.base(), origin_});
    } else if (kind == "step") {
      table_.steps.push_back(
          {std::string(job), row.number("flops", 0), row.number("bytes", 0), time, origin_});
    } else {
      read_measured_op(row, time);
    }
    ++table_.files.back().rows;
  }

  void read_measured_op(const TableRow& row, Seconds time) {
    Op op = op_of(row);
    const std::int64_t samples = row.count("samples", 1, 1);
    if (is_collective(op.kind)) {
      const std::int64_t ranks = row.count("ranks", 2);
      table_.collectives.push_back({op.kind, row.number("bytes", 0), op.format, ranks,
                                    row.count("ranks_per_machine", 1, static_cast<double>(ranks)),
                                    time, Seconds(row.number("since_use", -1, -1)), samples,
                                    origin_});
      return;
    }
    set_attributes(op, row);
    set_work(op, row);
    if (looks_up(op.kind)) {
      if (row.text("embedding").empty()) {
        throw RowError(
            "no embedding tables: only uniform and zipf laws have a text; measure one of them");
      }
      auto lookup = op.as<EmbeddingAttributes>();
      lookup.group = static_cast<std::int32_t>(table_.program->embeddings.size());
      op.attributes = lookup;
      table_.program->embeddings.push_back(embedding_from(row.text("embedding"), op.format));
    }
    const double apart = row.number("apart", 0, 0);
    auto& ops = table_.program->ops;
    const auto first = static_cast<std::uint32_t>(ops.size());
    whole_ = row.text("operands").empty();
    if (whole_) {
      ops.push_back(op);
    }
    const std::uint32_t at =
        whole_ ? first : add_with_reuse(*table_.program, op, row.text("operands"));
    table_.ops.push_back(
        {at, 1, time, configuration(row.text("configuration")), samples, origin_, Seconds(apart)});
  }

  /// A line without a time: another op of the row above.
  void add_to_row_above(const TableRow& row) {
    if (!whole_) {
      row.fail("seconds", "a time, or a row of one op above that took it together with this one");
    }
    Op op = op_of(row);
    set_attributes(op, row);
    set_work(op, row);
    table_.program->ops.push_back(op);
    ++table_.ops.back().count;
  }

  static Op op_of(const TableRow& row) {
    Op op;
    set_kind(op, row);
    const auto format =
        row.text("format").empty() ? Format::kFp32 : format_named(row.text("format"));
    if (!format) {
      row.fail("format", "a name of `stepcast list formats`");
    }
    op.format = *format;
    op.flags = static_cast<std::uint8_t>(row.count("flags", 0, 0));
    return op;
  }

  std::int64_t configuration(std::string_view name) {
    return name.empty() ? -1
                        : configurations_
                              .try_emplace(std::string(name),
                                           static_cast<std::int64_t>(configurations_.size()))
                              .first->second;
  }

  MeasuredTable& table_;
  const ReadOptions& options_;
  std::map<Testbed, std::uint32_t> testbeds_;
  std::map<std::string, std::uint32_t> sources_;
  std::map<std::string, std::int64_t> configurations_;
  static constexpr std::uint32_t kUnread =
      UINT32_MAX;  ///< testbed of a row rejected before it is read
  MeasuredTable::Origin origin_;
  bool whole_ = false;  ///< the last line was an op, or one of several, that a line may be added to
};

std::vector<std::filesystem::path> files_of(std::span<const std::filesystem::path> paths) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& path : paths) {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) {
      throw InputError(path.string(), "no such file; check the path");
    }
    if (!std::filesystem::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    const std::size_t first = files.size();
    for (std::filesystem::recursive_directory_iterator it(path, error), end; !error && it != end;
         it.increment(error)) {
      if (it->is_regular_file(error) && is_csv_name(it->path())) {
        files.push_back(it->path());
      }
    }
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(first), files.end());
    if (files.size() == first) {
      throw InputError(path.string(),
                       "holds no .csv, .csv.gz or .csv.zst file; name a folder of measurements");
    }
  }
  return files;
}

}  // namespace

MeasuredTable read_measured(std::span<const std::filesystem::path> paths,
                            const ReadOptions& options) {
  MeasuredTable table;
  Reader reader(table, options);
  for (const std::filesystem::path& file : files_of(paths)) {
    reader.read_file(file);
  }
  return table;
}

}  // namespace stepcast::models
