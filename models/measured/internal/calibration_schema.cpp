// What `stepcast calibrate --rows` records: ops of real steps where they occur, collectives, host
// samples and whole steps. Base units throughout.
#include <fmt/format.h>

#include <array>

#include "core/error.h"
#include "core/graph/op_codes.h"
#include "core/graph/op_traits.h"
#include "models/measured/internal/schema.h"
#include "models/measured/op_text.h"

namespace stepcast::models {
namespace {

using Part = MeasuredTable::HostRow::Part;
constexpr std::array<std::pair<std::string_view, Part>, 3> kHostParts{
    {{"host_issue", Part::kIssue}, {"host_dispatch", Part::kDispatch}, {"host_step", Part::kStep}}};

void read_op(const Row& row, TableBuilder& to, OpKind kind, Format format, Seconds time,
             std::int64_t samples) {
  Op op;
  op.kind = kind;
  op.format = format;
  op.flags = static_cast<std::uint8_t>(row.count("flags", 0));
  OpCodes codes;
  codes.variant = static_cast<std::uint8_t>(row.count("variant", 0));
  constexpr std::array<std::string_view, 6> kShape{"s0", "s1", "s2", "s3", "s4", "s5"};
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    codes.sizes[i] = row.count(kShape[i], 0);
  }
  try {
    set_codes(op, codes);
  } catch (const InputError& e) {
    throw RowError(e.what());
  }
  fill_work(op);
  op.flops = Flops(row.number("flops"));
  if (const double bytes = row.number("bytes");
      bytes != (op.bytes_read + op.bytes_written).base()) {
    op.bytes_read = Bytes(bytes);  // what the step's builder counted; forms look at the sum
    op.bytes_written = Bytes{};
  }
  if (looks_up(kind) && row.text("embedding").empty()) {
    throw RowError(
        "no embedding tables: only uniform and zipf laws have a text; measure one of them");
  }
  try {
    if (const std::string_view tables = row.text("embedding"); !tables.empty()) {
      auto lookup = op.as<EmbeddingAttributes>();
      lookup.group = static_cast<std::int32_t>(to.program().embeddings.size());
      op.attributes = lookup;
      to.program().embeddings.push_back(embedding_from(tables, format));
    }
    to.op_with_reuse(op, row.text("operands"), time, to.configuration(row.text("configuration")),
                     samples);
  } catch (const InputError& e) {
    throw RowError(e.what());
  }
}

}  // namespace

void read_calibration(const Row& row, TableBuilder& to) {
  const std::string_view name = row.text("kind");
  const Seconds time = seconds(row.positive("seconds"));
  const std::int64_t samples = row.count("samples");
  for (const auto& [written, part] : kHostParts) {
    if (name == written) {
      to.host({.part = part,
               .workload = std::string(row.text("configuration")),
               .mean = time.base(),
               .deviation = 0,
               .count = static_cast<double>(samples),
               .origin = {}});
      return;
    }
  }
  if (name == "step") {
    to.step({std::string(row.text("configuration")),
             row.number("flops"),
             row.number("bytes"),
             time,
             {}});
    return;
  }
  const auto kind = op_kind_named(name);
  if (!kind) {
    throw RowError(
        fmt::format("unknown op kind \"{}\"; `stepcast list formats` and "
                    "docs/reference/measurement-tables.md name what there is",
                    name));
  }
  const Format format = format_in(row.text("format")).format;
  if (!is_collective(*kind)) {
    read_op(row, to, *kind, format, time, samples);
    return;
  }
  MeasuredTable::CollectiveRow c;
  c.kind = *kind;
  c.format = format;
  c.bytes = row.number("bytes");
  c.ranks = row.count("ranks");
  c.ranks_per_machine = row.count("ranks_per_machine");
  c.since_use = row.text("since_use").empty() ? Seconds(-1) : seconds(row.number("since_use"));
  c.time = time;
  c.samples = samples;
  to.collective(c);
}

}  // namespace stepcast::models
