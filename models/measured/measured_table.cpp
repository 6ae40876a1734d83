#include "models/measured/measured_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/graph/op_traits.h"

namespace stepcast::models {
namespace {

bool wanted(std::string_view asked, std::string_view found) {
  return asked.empty() || asked == found;
}

/// Kinds whose bytes every kernel must move at least once: beyond what caches hold, they cannot
/// come faster than memory.
bool moves_its_bytes(OpKind kind) {
  const OpClass c = class_of(kind);
  return c == OpClass::kGemm || c == OpClass::kMemoryBound;
}

/// Bytes through one port of the innermost level that no algorithm can avoid.
double least_port_bytes(const MeasuredCollective& row) {
  const auto n = static_cast<double>(row.group.size);
  const BufferShare least = collective_traits(row.kind).least;
  return least.others * row.bytes * (n - 1) / n + least.whole * row.bytes;
}

std::set<std::string> jobs_of_short_steps(const MeasuredTable& table, std::string_view device) {
  std::vector<const MeasuredTable::StepRow*> steps;
  for (const MeasuredTable::StepRow& row : table.steps) {
    if (wanted(device, table.testbed(row.origin).device)) {
      steps.push_back(&row);
    }
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const auto* a, const auto* b) { return a->time < b->time; });
  steps.resize((steps.size() + 2) / 3);
  std::set<std::string> names;
  for (const MeasuredTable::StepRow* row : steps) {
    names.insert(row->workload);
  }
  return names;
}

}  // namespace

std::string MeasuredTable::place(const Origin& o) const {
  return fmt::format("{}:{}", files[o.file].path, o.line);
}

std::vector<MeasuredOp> measured_ops(const MeasuredTable& table,
                                     std::span<const std::uint32_t> rows) {
  std::vector<MeasuredOp> out;
  out.reserve(rows.size());
  for (const std::uint32_t i : rows) {
    const MeasuredTable::OpRow& row = table.ops[i];
    out.push_back({table.program.get(), &table.op(row), row.time, row.configuration, row.count});
  }
  return out;
}

std::vector<std::uint32_t> find_collectives(const MeasuredTable& table, const System& system) {
  std::vector<std::uint32_t> found;
  for (std::uint32_t i = 0; i < table.collectives.size(); ++i) {
    const MeasuredTable::CollectiveRow& row = table.collectives[i];
    const Testbed& t = table.testbed(row.origin);
    const bool inside = row.ranks == row.ranks_per_machine && t.device == system.device.name;
    if ((t.system == system.name || inside) && t.variant.empty()) {
      found.push_back(i);
    }
  }
  return found;
}

std::vector<MeasuredCollective> measured_collectives(const MeasuredTable& table,
                                                     const System& system,
                                                     std::span<const std::uint32_t> rows) {
  std::vector<MeasuredCollective> out;
  for (const std::uint32_t i : rows) {
    const MeasuredTable::CollectiveRow& row = table.collectives[i];
    MeasuredCollective c{row.kind, row.bytes, {}, row.time, row.format, row.idle_time};
    if (!system.host.shares_core && (c.format == Format::kFp16 || c.format == Format::kBf16)) {
      c.format = Format::kFp32;
    }
    c.group.size = row.ranks;
    for (std::size_t level = 0; level < system.fabric.size(); ++level) {
      const bool outermost = level + 1 == system.fabric.size();
      const std::int64_t members =
          outermost ? row.ranks : std::min(row.ranks_per_machine, system.devices_in_level(level));
      c.group.members.push_back(members);
      c.group.channels.push_back(members);
      c.group.siblings.push_back(1);
    }
    out.push_back(std::move(c));
  }
  return out;
}

MeasuredHost measured_host(const MeasuredTable& table, std::string_view device) {
  MeasuredHost host;
  const std::set<std::string> short_steps = jobs_of_short_steps(table, device);
  for (const MeasuredTable::HostRow& row : table.host) {
    if (wanted(device, table.testbed(row.origin).device) &&
        (short_steps.empty() || short_steps.contains(row.workload))) {
      (host.*row.part).push_back(row.seconds);
    }
  }
  return host;
}

std::string impossible_on(const Device& device, const Op& op, Seconds time) {
  if (const auto peak = device.peak_of(op.format); peak && op.flops / time > *peak) {
    return fmt::format(
        "{:.4g} TFLOP/s, above the {} peak of {} ({:.4g} TFLOP/s); check units, device and format",
        (op.flops / time).base() * 1e-12, name_of(op.format), device.name, peak->base() * 1e-12);
  }
  const Bytes beyond = op.bytes_read + op.bytes_written - device.l2;
  if (moves_its_bytes(op.kind) && device.bandwidth > BytesPerSecond{} && beyond > Bytes{} &&
      beyond / time > device.bandwidth) {
    return fmt::format(
        "{:.4g} GB/s beyond the L2 cache, above the memory bandwidth of {} ({:.4g} GB/s); check "
        "units and device",
        (beyond / time).base() * 1e-9, device.name, device.bandwidth.base() * 1e-9);
  }
  return {};
}

std::string impossible_on(const System& system, const MeasuredCollective& row) {
  if (system.fabric.empty() || row.group.size < 2) {
    return {};
  }
  // The members of one machine have one port each at the innermost level; across machines the
  // outer ports are slower still, so this is a bound for any group.
  const FabricLevel& level = system.fabric.front();
  const double rate = least_port_bytes(row) / row.time.base();
  if (rate <= level.bandwidth.base()) {
    return {};
  }
  return fmt::format(
      "{:.4g} GB/s per device, above the {} port of {} ({:.4g} GB/s); check units and "
      "system",
      rate * 1e-9, level.name, system.name, level.bandwidth.base() * 1e-9);
}

}  // namespace stepcast::models
