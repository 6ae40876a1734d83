#include "studies/fit/overlap_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "core/access/access.h"
#include "studies/fit/error_statistics.h"

namespace stepcast::studies {
namespace {

using Interval = std::pair<std::int64_t, std::int64_t>;
using RankKey = std::tuple<std::int32_t, std::string, OpKind, Phase>;

struct Times {
  std::vector<double> seconds, overlapped;
};

/// Disjoint, in order.
std::vector<Interval> merged(std::vector<Interval> all) {
  std::sort(all.begin(), all.end());
  std::vector<Interval> out;
  for (const Interval& i : all) {
    if (!out.empty() && i.first <= out.back().second) {
      out.back().second = std::max(out.back().second, i.second);
    } else {
      out.push_back(i);
    }
  }
  return out;
}

std::int64_t common(const Interval& a, const std::vector<Interval>& with) {
  std::int64_t sum = 0;
  const auto first = std::partition_point(with.begin(), with.end(),
                                          [&a](const Interval& i) { return i.second <= a.first; });
  for (auto i = first; i != with.end() && i->first < a.second; ++i) {
    sum += std::min(a.second, i->second) - std::max(a.first, i->first);
  }
  return sum;
}

/// Every compute op of a trace: its times, and for how long something moved on its rank.
std::map<RankKey, Times> times_of(const traces::GraphRun& trace) {
  std::map<RankKey, Times> times;
  for (const traces::RankTrace& rank : trace.ranks) {
    const Program& program = trace.graph.program_of(rank.rank);
    std::vector<Interval> moving;
    for (const OpSpan& s : rank.ops) {
      if (is_collective(program.ops[s.ref.op].kind)) {
        moving.emplace_back(ticks(s.ready), ticks(s.end));
      }
    }
    moving = merged(std::move(moving));
    for (const OpSpan& s : rank.ops) {
      const Op& op = program.ops[s.ref.op];
      if (is_collective(op.kind)) {
        continue;
      }
      const Interval own{ticks(s.begin), ticks(s.end)};
      Times& t = times[{rank.rank, program.name(op), op.kind, op.phase}];
      t.seconds.push_back(static_cast<double>(own.second - own.first) * 1e-12);
      t.overlapped.push_back(static_cast<double>(common(own, moving)) * 1e-12);
    }
  }
  return times;
}

Job plain_job(const System& system, std::int64_t ranks) {
  Job job;
  job.system = system;
  job.devices = ranks;
  job.formats = {Format::kFp32, Format::kFp32, Format::kFp32, Format::kFp32, Format::kFp32};
  job.parallel.data = ranks;
  job.parallel.bucket = MB(1);
  job.dense_optimizer = OptimizerKind::kSgd;
  return job;
}

}  // namespace

Job draw_overlap_case(std::int64_t number, const System& system, std::int64_t ranks, Draw& draw) {
  Job job = plain_job(system, ranks);
  job.workload.name = fmt::format("overlap {}", number);
  if (number % 2 == 0) {
    TransformerWorkload t;
    constexpr std::int64_t kWidths[] = {128, 192, 320, 384};
    t.layers = draw.integer(2, 4);
    t.hidden = draw.one_of(kWidths);
    t.head_dim = 32;
    t.heads = t.kv_heads = t.hidden / t.head_dim;
    t.ffn_hidden = 4 * t.hidden;
    t.activation = Activation::kGelu;
    t.vocabulary = 512;
    job.workload.model = t;
    job.batch.sequence = draw.log_integer(24, 200);
    job.batch.micro = draw.integer(1, 4);
    job.batch.global = job.batch.micro * ranks;
    return job;
  }
  LayeredWorkload d;
  d.dense_features = 16;
  d.bottom_mlp = {draw.log_integer(200, 900), 32};
  d.top_mlp = {draw.log_integer(300, 1500), draw.log_integer(300, 1500), 1};
  for (std::int64_t i = 0; i < 4; ++i) {
    EmbeddingTable table;
    table.name = fmt::format("t{}", i);
    table.rows = 50000;
    table.dim = 32;
    table.pooling = static_cast<double>(draw.integer(2, 12));
    table.access =
        std::make_shared<Access>(Access::zipf(table.rows, 0.8, static_cast<std::uint64_t>(i)));
    d.tables.push_back(std::move(table));
  }
  job.workload.model = std::move(d);
  job.batch.global = draw.log_integer(64, 1500) * ranks;
  job.embedding_choice = "table_wise";
  return job;
}

void add_overlap(OverlapRows& rows, const traces::GraphRun& alone,
                 const traces::GraphRun& overlapped) {
  constexpr double kShortest = 20e-6;
  const auto configuration = static_cast<std::int64_t>(rows.compute.size());
  for (const traces::GraphRun* trace : {&alone, &overlapped}) {
    for (const traces::RankTrace& rank : trace->ranks) {
      rows.dropped += rank.dropped;
    }
  }
  const std::map<RankKey, Times> before = times_of(alone);
  for (const auto& [key, times] : times_of(overlapped)) {
    const auto same = before.find(key);
    if (same == before.end() || median_of(same->second.seconds) < kShortest) {
      continue;
    }
    rows.compute.push_back({.alone = seconds(median_of(same->second.seconds)),
                            .time = seconds(median_of(times.seconds)),
                            .overlapped = seconds(median_of(times.overlapped)),
                            .configuration = configuration});
  }
}

}  // namespace stepcast::studies
