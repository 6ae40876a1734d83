#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "core/error.h"
#include "core/statistics.h"
#include "studies/guard/guard.h"

namespace stepcast::studies {
namespace {

constexpr double kJudgedAlone = 0.01;      ///< share of the step
constexpr std::size_t kStepsToDivide = 8;  ///< one run of so many steps is divided into blocks
constexpr std::size_t kBlocks = 4;

/// Appends a run: its median, and half the distance of the order statistics one standard deviation
/// of the binomial rank to either side, the standard error of a median whatever the distribution.
void add(BaselineTimes& times, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const double reach = 0.5 / std::sqrt(static_cast<double>(values.size()));
  times.median.push_back(interpolated_quantile(values, 0.5));
  times.standard_error.push_back(
      (interpolated_quantile(values, 0.5 + reach) - interpolated_quantile(values, 0.5 - reach)) /
      2);
}

std::vector<double> part(const std::vector<double>& values, std::size_t first, std::size_t end) {
  return {values.begin() + static_cast<std::ptrdiff_t>(first),
          values.begin() + static_cast<std::ptrdiff_t>(end)};
}

GuardSamples part(const GuardSamples& run, std::size_t first, std::size_t end) {
  GuardSamples block{.ranks = run.ranks,
                     .ops = {},
                     .step = part(run.step, first, end),
                     .host = part(run.host, first, end),
                     .exposed = part(run.exposed, first, end)};
  for (const GuardSamples::Op& op : run.ops) {
    block.ops.push_back({op.name, op.kind, op.phase, op.kernel, part(op.seconds, first, end),
                         part(op.launches, first, end), part(op.bytes, first, end)});
  }
  return block;
}

std::vector<GuardSamples> blocks_of(const GuardSamples& run) {
  std::vector<GuardSamples> blocks;
  for (std::size_t b = 0; b < kBlocks; ++b) {
    blocks.push_back(part(run, b * run.step.size() / kBlocks, (b + 1) * run.step.size() / kBlocks));
  }
  return blocks;
}

void widen(BaselineRange& range, const std::vector<double>& values, bool fresh) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  range.low = fresh ? *low : std::min(range.low, *low);
  range.high = fresh ? *high : std::max(range.high, *high);
}

using Key = std::tuple<std::string, OpKind, Phase>;

std::vector<BaselineOp> ops_of(std::span<const GuardSamples> runs) {
  std::map<Key, BaselineOp> ops;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (const GuardSamples::Op& op : runs[r].ops) {
      BaselineOp& row = ops[{op.name, op.kind, op.phase}];
      const bool fresh = row.time.median.empty();
      if (fresh) {
        row.name = op.name;
        row.kind = op.kind;
        row.phase = op.phase;
        row.kernel = op.kernel;
      }
      // Runs that lack the op launched it zero times.
      for (std::size_t missed = row.time.median.size(); missed < r; ++missed) {
        add(row.time, {0});
        row.launches.low = row.bytes.low = 0;
      }
      add(row.time, op.seconds);
      widen(row.launches, op.launches, fresh && r == 0);
      widen(row.bytes, op.bytes, fresh && r == 0);
    }
  }
  std::vector<BaselineOp> result;
  for (auto& [key, row] : ops) {
    while (row.time.median.size() < runs.size()) {
      add(row.time, {0});
      row.launches.low = row.bytes.low = 0;
    }
    result.push_back(std::move(row));
  }
  return result;
}

double typical(const BaselineTimes& times) { return median_of(times.median); }

}  // namespace

Baseline make_baseline(std::span<const GuardSamples> runs, std::string version,
                       const Baseline* like) {
  if (runs.empty() || runs.front().step.empty()) {
    throw InputError("baseline", "holds no step; record at least one");
  }
  for (const GuardSamples& run : runs) {
    if (run.ranks != runs.front().ranks || run.step.empty()) {
      throw InputError("baseline",
                       fmt::format("run 1 has {} ranks, another has {} ranks and {} steps; a "
                                   "baseline is made from repeats of one program",
                                   runs.front().ranks, run.ranks, run.step.size()));
    }
  }
  if (like == nullptr && runs.size() == 1 && runs.front().step.size() >= kStepsToDivide) {
    const std::vector<GuardSamples> blocks = blocks_of(runs.front());
    Baseline baseline = make_baseline(blocks, std::move(version));
    baseline.blocks = true;
    return baseline;
  }
  Baseline b;
  b.version = std::move(version);
  b.ranks = runs.front().ranks;
  b.ops = ops_of(runs);
  for (const GuardSamples& run : runs) {
    b.steps.push_back(static_cast<std::int64_t>(run.step.size()));
    add(b.step, run.step);
    add(b.host, run.host);
    add(b.exposed, run.exposed);
  }
  std::map<Key, bool> small;
  if (like != nullptr) {
    for (const BaselineOp& op : like->ops) {
      small[{op.name, op.kind, op.phase}] = op.small;
    }
  }
  for (BaselineOp& op : b.ops) {
    const auto found = small.find({op.name, op.kind, op.phase});
    op.small =
        found != small.end() ? found->second : typical(op.time) < kJudgedAlone * typical(b.step);
    small[{op.name, op.kind, op.phase}] = op.small;
  }
  std::stable_sort(b.ops.begin(), b.ops.end(), [](const BaselineOp& x, const BaselineOp& y) {
    return typical(x.time) > typical(y.time);
  });
  for (const GuardSamples& run : runs) {
    std::vector<double> sum(run.step.size(), 0);
    for (const GuardSamples::Op& op : run.ops) {
      for (std::size_t s = 0; s < sum.size(); ++s) {
        sum[s] += small.at({op.name, op.kind, op.phase}) ? op.seconds[s] : 0;
      }
    }
    add(b.small_ops, sum);
  }
  return b;
}

}  // namespace stepcast::studies
