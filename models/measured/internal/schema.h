#pragma once
#include <array>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/access/access.h"
#include "models/measured/measured_table.h"

namespace stepcast::models {

/// A row cannot be used; the message says what was found, what was expected and the remedy. Caught
/// by the reader, which lists the row as skipped.
class RowError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Schema;

/// One line of a file, its fields by column name.
class Row {
 public:
  Row(const Schema& schema, std::span<const int> positions,
      std::span<const std::string_view> fields)
      : schema_(schema), positions_(positions), fields_(fields) {}
  [[nodiscard]] std::string_view text(std::string_view column) const;  ///< "" of an absent optional
  [[nodiscard]] double number(std::string_view column) const;          ///< finite
  [[nodiscard]] double positive(std::string_view column) const;        ///< finite and above 0
  /// An integer from `least` on. Errors: RowError.
  [[nodiscard]] std::int64_t count(std::string_view column, std::int64_t least = 1) const;

 private:
  const Schema& schema_;
  std::span<const int> positions_;  ///< by column of the schema, -1 absent
  std::span<const std::string_view> fields_;
};

/// What is to be said of a row's testbed beyond its file's: its own device, a variant, a stack.
struct RowTestbed {
  std::string_view device = {}, variant = {}, stack = {};
};

/// Collects what the schemas read from one file after another.
class TableBuilder {
 public:
  TableBuilder(MeasuredTable& table, const ReadOptions& options);
  /// A file found in a folder is only taken to be of the assumed device where nothing else writes
  /// such files.
  void begin_file(const Schema& schema, const std::string& path, std::string sha, bool named);
  void begin_line(std::uint32_t line) { line_ = line; }
  void skip(std::string reason);

  /// `key` tells configurations of one kind apart (MeasuredTable::OpRow::configuration).
  void op(Op op, Seconds time, std::initializer_list<std::int64_t> key,
          const RowTestbed& where = {}, std::int64_t samples = 1);
  /// As above, with flops and bytes as the row or its builder knows them.
  void op_with_work(Op op, Seconds time, std::initializer_list<std::int64_t> key,
                    const RowTestbed& where = {}, std::int64_t samples = 1);
  /// Ops that took `time` together, the one that the row is about first; work as the ops say.
  void ops_with_work(std::span<const Op> ops, Seconds time, std::initializer_list<std::int64_t> key,
                     const RowTestbed& where = {}, std::int64_t samples = 1);
  /// The last product added was timed with the quantisation of its left operand [m, k]: `search` of
  /// the largest value or not, and `bytes` an element written. Taken off when all files are read
  /// (`take_off_quantisation`).
  void quantises(std::int64_t m, std::int64_t k, bool search, double bytes);
  /// What quantising [m, k] to fp8 costs on this testbed: the search of the maximum, or the cast.
  void quantisation(std::int64_t m, std::int64_t k, bool search, Seconds time);
  void take_off_quantisation();
  /// As above, behind ops that touch its operands (models/measured/op_text.h).
  void op_with_reuse(const Op& op, std::string_view operands, Seconds time,
                     std::int64_t configuration, std::int64_t samples);
  void collective(MeasuredTable::CollectiveRow row, const RowTestbed& where = {});
  void host(MeasuredTable::HostRow row);
  void step(MeasuredTable::StepRow row);
  /// Index of a group of `tables` equal tables of one uniform or other law, for
  /// EmbeddingAttributes.
  std::int32_t embedding_group(std::int64_t tables, std::int64_t rows, std::int64_t dim,
                               double bags, double lookups, Format format, OptimizerKind optimizer,
                               const Access& law);
  /// Number of the configuration named so in this file.
  std::int64_t configuration(std::string_view name);
  [[nodiscard]] Program& program() { return *table_.program; }
  [[nodiscard]] MeasuredTable& table() { return table_; }

 private:
  struct Quantised {
    std::size_t row;
    std::int64_t m, k;
    bool search;
    double bytes;
  };
  using QuantisedShape = std::tuple<std::string, std::string, std::int64_t, std::int64_t>;
  [[nodiscard]] QuantisedShape quantised_shape(const Testbed& t, std::int64_t m,
                                               std::int64_t k) const {
    return {t.device, t.stack, m, k};
  }
  MeasuredTable::Origin origin(const RowTestbed& where);
  std::uint32_t testbed(const Testbed& t);
  MeasuredTable& table_;
  ReadOptions options_;
  std::map<Testbed, std::uint32_t> testbeds_;
  std::map<std::vector<std::int64_t>, std::int64_t> configurations_;
  std::map<std::string, std::int64_t, std::less<>> named_configurations_;
  std::vector<Quantised> quantised_;
  std::map<QuantisedShape, std::array<Seconds, 2>> quantisation_;  ///< cast, search
  Testbed file_testbed_;
  std::uint32_t file_ = 0, line_ = 0;
};

/// One kind of file: the columns that make it up, and how a row becomes a measurement.
struct Schema {
  std::string_view name;
  std::string_view stack;  ///< "" where the file's name tells it (KIND__DEVICE__STACK)
  std::vector<std::string_view> columns;
  std::vector<std::string_view> optional;
  void (*read)(const Row& row, TableBuilder& to);
  /// After the last row of a file; may be null.
  void (*finish)(TableBuilder& to, std::size_t first_collective) = nullptr;
};

/// All schemas. A new one = one function and one line here.
const std::vector<Schema>& measured_schemas();

// The readers, by source file.
void read_gemm(const Row& row, TableBuilder& to);
void read_attention(const Row& row, TableBuilder& to);
void read_latent_attention(const Row& row, TableBuilder& to);
void read_quantisation(const Row& row, TableBuilder& to);
void read_experts(const Row& row, TableBuilder& to);
void read_row_wise(const Row& row, TableBuilder& to);
void read_embedding(const Row& row, TableBuilder& to);
void read_torch_kernel(const Row& row, TableBuilder& to);
void read_nccl(const Row& row, TableBuilder& to);
void read_nccl_bandwidth(const Row& row, TableBuilder& to);
void read_plotted_collective(const Row& row, TableBuilder& to);
void read_send_recv(const Row& row, TableBuilder& to);
void keep_fastest_rank(TableBuilder& to, std::size_t first_collective);
void read_gap_between_ops(const Row& row, TableBuilder& to);
void read_gap_before_launch(const Row& row, TableBuilder& to);
void read_calibration(const Row& row, TableBuilder& to);

/// The format named in a field. Errors: RowError with the names there are.
struct NamedFormat {
  Format format;
  std::string_view variant;
};
NamedFormat format_in(std::string_view text);

}  // namespace stepcast::models
