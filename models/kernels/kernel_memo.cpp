#include "models/kernels/kernel_memo.h"

#include <algorithm>
#include <bit>

#include "core/graph/program.h"
#include "core/portable.h"
#include "core/split_mix.h"
#include "models/kernels/kernel_form.h"

namespace stepcast::models {
namespace {

constexpr std::size_t kMostTraffic = 100'000;  // shards kept; ranks with rows apart have their own

/// The fields a prediction of the op alone may depend on.
bool same(const Op& a, const Op& b) {
  return a.kind == b.kind && a.format == b.format && a.flags == b.flags &&
         (a.routing < 0) == (b.routing < 0) && a.shape == b.shape && a.flops == b.flops &&
         a.bytes_read == b.bytes_read && a.bytes_written == b.bytes_written &&
         a.attributes == b.attributes;
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * kSplitMixStep;
  return hash ^ (hash >> 32U);
}

std::uint64_t hash_of(const Op& op) {
  std::uint64_t h = static_cast<std::uint64_t>(op.kind) |
                    static_cast<std::uint64_t>(op.format) << 8U |
                    static_cast<std::uint64_t>(op.flags) << 16U;
  for (const std::int64_t extent : op.shape) {
    h = mixed(h, static_cast<std::uint64_t>(extent));
  }
  return mixed(h, bit_pattern(op.bytes_read.base()));
}

}  // namespace

KernelMemo::KernelMemo(const CostModel& model, std::size_t expected_shapes)
    : model_(model), table_(std::bit_ceil(2 * std::max<std::size_t>(expected_shapes, 8))) {}

KernelMemo::Entry& KernelMemo::slot(const Op& op) {
  const std::size_t mask = table_.size() - 1;
  std::size_t at = hash_of(op) & mask;
  while (table_[at].taken && !same(table_[at].op, op)) {
    at = (at + 1) & mask;
  }
  return table_[at];
}

void KernelMemo::grow() {
  std::vector<Entry> old(2 * table_.size());
  old.swap(table_);
  for (const Entry& entry : old) {
    if (entry.taken) {
      slot(entry.op) = entry;
    }
  }
}

ShardTraffic KernelMemo::traffic(const EmbeddingShard& shard, Format format) {
  if (shard.access == nullptr) {
    return shard_traffic(shard, format);
  }
  if (traffic_.size() > kMostTraffic) {
    traffic_.clear();
  }
  const auto [at, fresh] = traffic_.try_emplace({shard.access, shard.rows, shard.lookups});
  if (fresh) {
    at->second = shard_traffic(shard, format);
  }
  ShardTraffic t = at->second;
  t.shard = &shard;
  t.bags = std::max(0.0, shard.bags);
  t.row_bytes = format_bytes(format, 1, shard.dim).base();
  return t;
}

Prediction KernelMemo::kernel(const Program& program, const Op& op) {
  Entry& found = slot(op);
  if (found.taken) {
    return found.prediction;
  }
  const Prediction prediction = model_.kernel(OpFacts(
      program, op, [this](const EmbeddingShard& s, Format format) { return traffic(s, format); }));
  if (!model_.of_op_alone(op)) {
    return prediction;
  }
  found = {op, prediction, true};
  if (2 * ++used_ > table_.size()) {
    grow();
  }
  return prediction;
}

}  // namespace stepcast::models
