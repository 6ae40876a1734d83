#include "studies/fit/device_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "core/access/access.h"
#include "models/measured/op_text.h"
#include "runtime/launch.h"
#include "studies/fit/error_statistics.h"

namespace stepcast::studies {
namespace {

using runtime::calibration::DeviceCase;
using runtime::calibration::DeviceSample;
using runtime::calibration::DeviceSweep;
using runtime::calibration::EmbeddingCase;
using runtime::calibration::SweepPart;

EmbeddingGroup group_of(const DeviceCase& c) {
  const EmbeddingCase& e = c.embedding;
  EmbeddingShard shard;
  shard.rows = shard.table_rows = e.rows;
  shard.dim = e.dim;
  shard.lookups = static_cast<double>(e.lookups());
  shard.bags = static_cast<double>(e.batch);
  shard.has_state = e.optimizer == OptimizerKind::kRowwiseAdagrad;
  shard.access = std::make_shared<const Access>(e.zipf > 0 ? Access::zipf(e.rows, e.zipf)
                                                           : Access::uniform(e.rows));
  EmbeddingGroup group;
  group.format = c.op.format;
  group.optimizer = e.optimizer;
  group.shards.push_back(shard);
  return group;
}

/// Rows that are held out together: products of one (n, k), attention of one head, row-wise ops of
/// one width, tables of one (rows, dim).
std::array<std::int64_t, 4> configuration_of(const DeviceCase& c) {
  const auto part = static_cast<std::int64_t>(c.part);
  switch (c.part) {
    case SweepPart::kGemm:
      return {part, c.op.shape[1], c.op.shape[2], 0};
    case SweepPart::kAttention:
      return {part, c.op.shape[1], c.op.shape[2], c.op.shape[5]};
    case SweepPart::kEmbedding:
      return {part, c.embedding.rows, c.embedding.dim, 0};
    default:
      return {part, c.op.shape[1], c.op.shape[1] == 0 ? c.op.shape[0] : 0, 0};
  }
}

std::string operands_of(const DeviceCase& c, Bytes flushed) {
  const double read = c.op.bytes_read.base();
  const double written = c.op.bytes_written.base();
  const double distance = read + written + (c.cold ? flushed.base() : 0.0);
  std::string text;
  for (const double bytes : {read, written}) {
    if (bytes > 0) {
      text += fmt::format("{}{:.9g}@{:.9g}", text.empty() ? "" : " ", bytes, distance);
    }
  }
  return text;
}

}  // namespace

void add_device_sweep(FitRows& rows, const DeviceSweep& sweep, Bytes flushed) {
  constexpr std::int64_t kFirstConfiguration = 1'000'000;  // after those of jobs
  ExecutionGraph& graph = rows.graphs.emplace_back();
  Program& program = graph.programs.emplace_back();
  program.streams.emplace_back("compute");
  std::map<std::array<std::int64_t, 4>, std::int64_t> configurations;
  std::vector<std::uint32_t> ops;
  for (const DeviceSample& s : sweep.samples) {
    Op op = s.what.op;
    op.name = static_cast<std::uint32_t>(program.names.size());
    program.names.push_back(fmt::format("sweep.{}", stepcast::name_of(op.kind)));
    if (s.what.part == SweepPart::kEmbedding) {
      op.attributes =
          EmbeddingAttributes{.group = static_cast<std::int32_t>(program.embeddings.size())};
      program.embeddings.push_back(group_of(s.what));
    }
    ops.push_back(models::add_with_reuse(program, op, operands_of(s.what, flushed)));
  }
  for (std::size_t i = 0; i < ops.size(); ++i) {  // addresses are stable now
    const auto known = static_cast<std::int64_t>(configurations.size());
    const auto id =
        configurations.emplace(configuration_of(sweep.samples[i].what), known).first->second;
    rows.ops.push_back(
        {&program, &program.ops[ops[i]], sweep.samples[i].median, kFirstConfiguration + id});
  }
  if (!sweep.facts.launch.empty()) {
    FitRows::HostOfJob host;
    host.medians.issue = host.all.issue = sweep.facts.launch;
    rows.hosts.push_back(host);
  }
}

System measured_system(const DeviceSweep& sweep, int ranks, int local_ranks) {
  System s;
  s.name = "local-cuda";
  Device& d = s.device;
  for (const char c : sweep.facts.name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    d.name += plain ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : '-';
  }
  d.memory = sweep.facts.memory;
  d.l2 = sweep.facts.l2;
  d.multiprocessors = sweep.facts.multiprocessors;
  d.bandwidth = sweep.facts.copy;
  d.launch = sweep.facts.launch.empty() ? microseconds(2) : Seconds(median_of(sweep.facts.launch));
  for (const DeviceSample& sample : sweep.samples) {
    if (sample.what.op.kind == OpKind::kGemm) {
      FlopsPerSecond& best = d.peak[sample.what.op.format];
      best = std::max(best, FlopsPerSecond(sample.what.op.flops.base() / sample.median.base()));
    }
  }
  if (!d.peak.contains(Format::kFp32)) {
    d.peak[Format::kFp32] =
        FlopsPerSecond(1e12);  // no product was measured: any rate, for forms without constants
  }
  d.source = fmt::format("{}; measured by stepcast calibrate; peak is the best product measured",
                         sweep.facts.versions);
  s.host.devices = local_ranks;
  s.host.cores = runtime::available_cores();
  s.host.shares_core = false;
  s.host.collectives_hold_core = false;
  s.fabric.push_back({.name = "device",
                      .size = std::max(2, ranks),
                      .bandwidth = BytesPerSecond(sweep.facts.copy.base() / 2),
                      .latency = d.launch,
                      .oversubscription = 1,
                      .in_switch_reduction = false});
  return s;
}

}  // namespace stepcast::studies
