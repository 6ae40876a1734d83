#include "core/system.h"

#include "core/job/plan.h"

namespace stepcast {
namespace {

/// The formats that can stand in for one a device does not run natively, nearest first.
std::vector<Format> stand_ins(Format f) {
  switch (f) {
    case Format::kFp32:
      return {};
    case Format::kTf32:
      return {Format::kFp32};
    case Format::kBf16:
      return {Format::kFp16, Format::kFp32};
    case Format::kFp16:
      return {Format::kBf16, Format::kFp32};
    default:
      return {Format::kFp8, Format::kBf16, Format::kFp16, Format::kFp32};
  }
}

}  // namespace

std::optional<FlopsPerSecond> Device::peak_of(Format f) const {
  if (const auto it = peak.find(f); it != peak.end()) {
    return it->second;
  }
  // MX formats shrink bytes; without native support products run in a 16-bit format, not in fp8.
  const bool block_format = format_info(f).block > 1;
  for (const Format s : stand_ins(f)) {
    if (block_format && s == Format::kFp8) {
      continue;
    }
    if (const auto it = peak.find(s); it != peak.end()) {
      return it->second;
    }
  }
  return std::nullopt;
}

std::int64_t System::devices_in_level(std::size_t i) const {
  std::int64_t n = 1;
  for (std::size_t level = 0; level <= i && level < fabric.size(); ++level) {
    n *= fabric[level].taken();
  }
  return n;
}

std::optional<std::int64_t> System::devices_in(const std::string& level) const {
  if (level == "node") {
    return host.devices;
  }
  for (std::size_t i = 0; i < fabric.size(); ++i) {
    if (fabric[i].name == level) {
      return devices_in_level(i);
    }
  }
  return std::nullopt;
}

std::string_view name_of(ShardingKind kind) {
  switch (kind) {
    case ShardingKind::kTableWise:
      return "table_wise";
    case ShardingKind::kRowWise:
      return "row_wise";
    case ShardingKind::kColumnWise:
      return "column_wise";
    case ShardingKind::kTableRowWise:
      return "table_row_wise";
    case ShardingKind::kDataParallel:
      return "data_parallel";
  }
  return "unknown";
}

std::optional<ShardingKind> sharding_named(std::string_view name) {
  for (const ShardingKind k :
       {ShardingKind::kTableWise, ShardingKind::kRowWise, ShardingKind::kColumnWise,
        ShardingKind::kTableRowWise, ShardingKind::kDataParallel}) {
    if (name_of(k) == name) {
      return k;
    }
  }
  return std::nullopt;
}

}  // namespace stepcast
