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

/// Appends a run: a quantile, and half the distance of the order statistics one standard deviation
/// of the binomial rank to either side, its standard error whatever the distribution.
void add(BaselineTimes& times, std::vector<double> values, double quantile = 0.5) {
  std::sort(values.begin(), values.end());
  const double reach =
      std::sqrt(quantile * (1 - quantile) / static_cast<double>(values.size()));
  times.median.push_back(interpolated_quantile(values, quantile));
  times.standard_error.push_back((interpolated_quantile(values, quantile + reach) -
                                  interpolated_quantile(values, quantile - reach)) /
                                 2);
}

void add_mean(BaselineTimes& times, const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double v : values) {
    sum += v;
  }
  for (const double v : values) {
    squares += (v - sum / n) * (v - sum / n);
  }
  times.median.push_back(sum / n);
  times.standard_error.push_back(n > 1 ? std::sqrt(squares / (n - 1) / n) : 0);
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

/// Appends the runs of a time, of which there were `runs`: an op that one side lacks ran not at
/// all. The latest `most` stay.
void append(BaselineTimes& times, std::size_t runs, const BaselineTimes& fresh, std::size_t now,
            std::size_t most) {
  for (std::vector<double> BaselineTimes::*values :
       {&BaselineTimes::median, &BaselineTimes::standard_error}) {
    std::vector<double>& v = times.*values;
    v.resize(runs, 0);
    v.insert(v.end(), (fresh.*values).begin(), (fresh.*values).end());
    v.resize(runs + now, 0);
    v.erase(v.begin(), v.end() - static_cast<std::ptrdiff_t>(std::min(most, v.size())));
  }
}

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
    add_mean(b.step_mean, run.step);
    add(b.step_p95, run.step, 0.95);
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

Baseline extended(const Baseline& kept, const Baseline& fresh, std::size_t most) {
  Baseline b = kept;
  const std::size_t runs = kept.steps.size(), now = fresh.steps.size();
  b.version = fresh.version;
  b.steps.insert(b.steps.end(), fresh.steps.begin(), fresh.steps.end());
  b.steps.erase(b.steps.begin(),
                b.steps.end() - static_cast<std::ptrdiff_t>(std::min(most, b.steps.size())));
  std::map<Key, const BaselineOp*> added;
  for (const BaselineOp& op : fresh.ops) {
    added[{op.name, op.kind, op.phase}] = &op;
  }
  const auto join = [](BaselineRange& range, const BaselineRange& other) {
    range = {std::min(range.low, other.low), std::max(range.high, other.high)};
  };
  for (BaselineOp& op : b.ops) {
    const auto found = added.find({op.name, op.kind, op.phase});
    const BaselineOp other = found != added.end() ? *found->second : BaselineOp{};
    append(op.time, runs, other.time, now, most);
    join(op.launches, other.launches);
    join(op.bytes, other.bytes);
    added.erase({op.name, op.kind, op.phase});
  }
  for (const auto& [key, op] : added) {
    BaselineOp& row = b.ops.emplace_back(*op);
    row.time = {};
    append(row.time, runs, op->time, now, most);
    row.launches.low = row.bytes.low = 0;
  }
  for (BaselineTimes Baseline::*total :
       {&Baseline::step, &Baseline::step_mean, &Baseline::step_p95, &Baseline::host,
        &Baseline::exposed, &Baseline::small_ops}) {
    if (!(b.*total).median.empty()) {
      append(b.*total, runs, fresh.*total, now, most);
    }
  }
  return b;
}

}  // namespace stepcast::studies
