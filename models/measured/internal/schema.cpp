#include "models/measured/internal/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/device_names.h"
#include "core/error.h"
#include "models/measured/names.h"
#include "models/measured/op_text.h"

namespace stepcast::models {

std::string_view Row::text(std::string_view column) const {
  std::size_t i = 0;
  for (const auto* list : {&schema_.columns, &schema_.optional}) {
    for (const std::string_view name : *list) {
      if (name == column) {
        const int at = positions_[i];
        if (at < 0) {
          return {};
        }
        if (static_cast<std::size_t>(at) >= fields_.size()) {
          throw RowError(fmt::format("the line ends before column {}; complete it", column));
        }
        return fields_[static_cast<std::size_t>(at)];
      }
      ++i;
    }
  }
  STEPCAST_FAIL("schema {} has no column {}", schema_.name, column);
}

double Row::number(std::string_view column) const {
  const std::string_view field = text(column);
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || !std::isfinite(value)) {
    throw RowError(
        fmt::format("{} is \"{}\", expected a number; mend or remove the row", column, field));
  }
  return value;
}

double Row::positive(std::string_view column) const {
  const double value = number(column);
  if (value <= 0) {
    throw RowError(fmt::format("{} is {}, expected above 0; measure it again or remove the row",
                               column, value));
  }
  return value;
}

std::int64_t Row::count(std::string_view column, std::int64_t least) const {
  const double value = number(column);
  if (value < static_cast<double>(least) || value != std::floor(value) || value > 9e15) {
    throw RowError(fmt::format("{} is {}, expected an integer from {}; mend or remove the row",
                               column, text(column), least));
  }
  return static_cast<std::int64_t>(value);
}

NamedFormat format_in(std::string_view text) {
  const auto format = measured_format(text);
  if (!format) {
    throw RowError(
        fmt::format("unknown number format \"{}\"; use bfloat16, half, fp8, int8, fp32 or a name "
                    "of `stepcast list formats`",
                    text));
  }
  return {format->format, format->variant};
}

TableBuilder::TableBuilder(MeasuredTable& table, const ReadOptions& options)
    : table_(table), options_(options) {}

void TableBuilder::begin_file(const Schema& schema, const std::string& path, std::string sha,
                              bool named) {
  file_ = static_cast<std::uint32_t>(table_.files.size());
  table_.files.push_back({path, std::string(schema.name), std::move(sha), 0});
  named_configurations_.clear();
  std::string name = std::filesystem::path(path).filename().string();
  for (const std::string_view ending : {".gz", ".zst", ".csv"}) {
    if (name.size() > ending.size() &&
        name.compare(name.size() - ending.size(), ending.size(), ending) == 0) {
      name.resize(name.size() - ending.size());
    }
  }
  file_testbed_ = {{}, {}, std::string(schema.stack), {}};
  if (named || schema.name == "calibration") {
    file_testbed_.device = options_.device;
    file_testbed_.system = options_.system;
  }
  if (const auto device = device_named(name)) {
    file_testbed_.device = device->device;
    file_testbed_.system = device->system;
  }
  // KIND__DEVICE__STACK, with a version behind the last underscore of the stack.
  const std::size_t last = name.rfind("__");
  if (file_testbed_.stack.empty() && last != std::string::npos && name.find("__") != last) {
    file_testbed_.stack = name.substr(last + 2);
    std::replace(file_testbed_.stack.begin(), file_testbed_.stack.end(), '_', ' ');
  }
  if (schema.name == "nccl") {
    file_testbed_.stack = "nccl " + file_testbed_.stack;
  }
}

void TableBuilder::skip(std::string reason) {
  table_.skipped.push_back({{file_, line_, origin({}).testbed}, std::move(reason)});
}

MeasuredTable::Origin TableBuilder::origin(const RowTestbed& where) {
  Testbed t = file_testbed_;
  if (!where.device.empty()) {
    const auto known = device_named(where.device);
    t.device = known ? known->device : where.device;
    t.system = known ? known->system : std::string_view{};
  }
  t.variant = where.variant;
  t.stack = where.stack.empty() ? t.stack : where.stack;
  return {file_, line_, testbed(t)};
}

std::uint32_t TableBuilder::testbed(const Testbed& t) {
  const auto [it, fresh] =
      testbeds_.try_emplace(t, static_cast<std::uint32_t>(table_.testbeds.size()));
  if (fresh) {
    table_.testbeds.push_back(t);
  }
  return it->second;
}

std::int64_t TableBuilder::configuration(std::string_view name) {
  const auto it = named_configurations_.find(name);
  if (it != named_configurations_.end()) {
    return it->second;
  }
  const auto next = static_cast<std::int64_t>(configurations_.size());
  configurations_.try_emplace({-1, static_cast<std::int64_t>(file_), next}, next);
  named_configurations_.emplace(name, next);
  return next;
}

void TableBuilder::op(Op op, Seconds time, std::initializer_list<std::int64_t> key,
                      const RowTestbed& where, std::int64_t samples) {
  fill_work(op);
  op_with_work(op, time, key, where, samples);
}

void TableBuilder::op_with_work(Op op, Seconds time, std::initializer_list<std::int64_t> key,
                                const RowTestbed& where, std::int64_t samples) {
  ops_with_work(std::span(&op, 1), time, key, where, samples);
}

void TableBuilder::ops_with_work(std::span<const Op> ops, Seconds time,
                                 std::initializer_list<std::int64_t> key, const RowTestbed& where,
                                 std::int64_t samples) {
  MeasuredTable::OpRow row;
  row.origin = origin(where);
  row.op = static_cast<std::uint32_t>(table_.program->ops.size());
  row.count = static_cast<std::uint32_t>(ops.size());
  row.time = time;
  row.samples = samples;
  if (key.size() > 0) {
    std::vector<std::int64_t> whole{static_cast<std::int64_t>(ops.front().kind)};
    whole.insert(whole.end(), key.begin(), key.end());
    row.configuration =
        configurations_
            .try_emplace(std::move(whole), static_cast<std::int64_t>(configurations_.size()))
            .first->second;
  }
  table_.program->ops.insert(table_.program->ops.end(), ops.begin(), ops.end());
  table_.ops.push_back(row);
}

void TableBuilder::quantises(std::int64_t m, std::int64_t k, bool search, double bytes) {
  quantised_.push_back({table_.ops.size() - 1, m, k, search, bytes});
}

void TableBuilder::quantisation(std::int64_t m, std::int64_t k, bool search, Seconds time) {
  quantisation_[quantised_shape(file_testbed_, m, k)][search ? 1 : 0] = time;
}

/// A product whose quantisation no table holds stands in for one without: another variant.
void TableBuilder::take_off_quantisation() {
  constexpr double kCastBytes = 3;  // an element of the tables: bf16 read, fp8 written
  constexpr double kRead = 2;
  for (const Quantised& q : quantised_) {
    MeasuredTable::OpRow& row = table_.ops[q.row];
    Testbed t = table_.testbeds[row.origin.testbed];
    const auto found = quantisation_.find(quantised_shape(t, q.m, q.k));
    const bool known = found != quantisation_.end() && found->second[0] > Seconds{} &&
                       (!q.search || found->second[1] > Seconds{});
    const Seconds left = known ? row.time - found->second[0] * ((kRead + q.bytes) / kCastBytes) -
                                     (q.search ? found->second[1] : Seconds{})
                               : Seconds{};
    if (left > Seconds{}) {
      row.apart = row.time - left;
      row.time = left;
    } else {
      t.variant += t.variant.empty() ? "with quantisation" : " with quantisation";
      row.origin.testbed = testbed(t);
    }
  }
}

void TableBuilder::op_with_reuse(const Op& op, std::string_view operands, Seconds time,
                                 std::int64_t configuration, std::int64_t samples) {
  const std::uint32_t index = add_with_reuse(*table_.program, op, operands);
  table_.ops.push_back({index, 1, time, configuration, samples, origin({}), {}});
}

void TableBuilder::collective(MeasuredTable::CollectiveRow row, const RowTestbed& where) {
  row.origin = origin(where);
  table_.collectives.push_back(row);
}

void TableBuilder::host(MeasuredTable::HostRow row) {
  row.origin = origin({});
  table_.host.push_back(std::move(row));
}

void TableBuilder::step(MeasuredTable::StepRow row) {
  row.origin = origin({});
  table_.steps.push_back(std::move(row));
}

std::int32_t TableBuilder::embedding_group(std::int64_t tables, std::int64_t rows, std::int64_t dim,
                                           double bags, double lookups, Format format,
                                           OptimizerKind optimizer, const Access& law) {
  EmbeddingGroup group;
  group.format = format;
  group.optimizer = optimizer;
  EmbeddingShard shard;
  shard.rows = shard.table_rows = rows;
  shard.dim = dim;
  shard.bags = bags;
  shard.lookups = lookups;
  shard.has_state = optimizer != OptimizerKind::kSgd;
  shard.access = std::make_shared<const Access>(law);
  for (std::int64_t t = 0; t < tables; ++t) {
    shard.table = static_cast<std::int32_t>(t);
    group.shards.push_back(shard);
  }
  table_.program->embeddings.push_back(std::move(group));
  return static_cast<std::int32_t>(table_.program->embeddings.size()) - 1;
}

}  // namespace stepcast::models
