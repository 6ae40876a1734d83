#include "studies/predict/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <new>
#include <system_error>

#include "core/clearly_less.h"
#include "core/config/aliases.h"
#include "core/error.h"
#include "core/portable.h"
#include "planner/parallel/parallel_for.h"
#include "studies/plan/searched_plan.h"
#include "studies/predict/predict.h"
#include "workloads/embedding_plan/plan_summary.h"

namespace stepcast::studies {
namespace {

constexpr std::size_t kMostPoints = 1'000'000;

/// A column a front can be taken over: its value, turned so that smaller is better.
struct ResultColumn {
  const char* name;
  double (*cost)(const SweepPoint&);
};
constexpr std::array<ResultColumn, 7> kResultColumns{{
    {"iteration_time_s", [](const SweepPoint& p) { return p.iteration.base(); }},
    {"samples_per_s", [](const SweepPoint& p) { return -p.samples_per_second; }},
    {"tokens_per_s", [](const SweepPoint& p) { return -p.tokens_per_second; }},
    {"mfu", [](const SweepPoint& p) { return -p.mfu; }},
    {"memory_bytes", [](const SweepPoint& p) { return p.memory.base(); }},
    {"days", [](const SweepPoint& p) { return p.days; }},
    {"cost", [](const SweepPoint& p) { return p.cost; }},
}};

std::vector<std::string> overrides_of(const std::vector<SweepAxis>& axes,
                                      const std::vector<std::string>& values) {
  std::vector<std::string> overrides;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    overrides.push_back(axes[a].key + "=" + values[a]);
  }
  return overrides;
}

std::vector<std::string> values_at(const std::vector<SweepAxis>& axes, std::size_t index) {
  std::vector<std::string> values(axes.size());
  for (std::size_t a = axes.size(); a-- > 0;) {
    values[a] = axes[a].values[index % axes[a].values.size()];
    index /= axes[a].values.size();
  }
  return values;
}

bool asks_for_run(const RunLength& length) {
  return length.tokens > 0 || length.samples > 0 || length.steps > 0;
}

SweepPoint evaluate(const std::vector<SweepAxis>& axes, std::size_t index, const MakeJob& make_job,
                    const SweepOptions& options) {
  SweepPoint point;
  point.values = values_at(axes, index);
  try {
    SweptJob made = make_job(overrides_of(axes, point.values));
    point.chosen = std::move(made.chosen);
    const StepPrediction p = predict(with_searched_plan(std::move(made.job)));
    const bool fits = p.fit == simulator::Fit::kYes;
    point.status = fits ? SweepStatus::kOk : SweepStatus::kDoesNotFit;
    point.iteration = p.iteration;
    if (p.interval) {
      point.p5 = p.interval->p5;
      point.p95 = p.interval->p95;
    }
    point.samples_per_second = p.samples_per_second;
    point.tokens_per_second = p.tokens_per_second;
    point.mfu = p.mfu;
    point.memory = p.memory.total() + p.reserve;
    point.in_calibrated_range = p.in_calibrated_range;
    point.planned_by_rule = workloads::planned_by_rule(p.job);
    point.plan_searched = p.job.embedding_plan && p.job.embedding_choice == "search";
    point.reason = fits ? "" : p.warnings.front();
    if (asks_for_run(options.length)) {
      const TrainingRun run =
          training_run(p, flow_costs(p.job, p.iteration), options.length, options.terms);
      point.days = run.time / seconds(86400);
      point.device_hours = run.device_hours;
      point.cost = run.cost;
    }
  } catch (const InputError& e) {
    point.status = SweepStatus::kInvalid;
    point.reason = e.what();
  } catch (const std::bad_alloc&) {
    point.status = SweepStatus::kFailed;
    point.reason = "out of memory while predicting this point";
  } catch (const std::exception& e) {
    point.status = SweepStatus::kFailed;
    point.reason = e.what();
  }
  return point;
}

double number_of(const SweepAxis& axis, const std::string& text) {
  double v = 0;
  const auto [end, error] = read_decimal(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw InputError("--pareto", fmt::format("{}: '{}' is not a number; a front over a swept key "
                                             "needs numbers",
                                             axis.key, text));
  }
  return v;
}

/// Costs of all points in one column; smaller is better.
std::vector<double> costs_of(const std::vector<SweepPoint>& points,
                             const std::vector<SweepAxis>& axes, const std::string& column) {
  std::vector<double> costs;
  for (const ResultColumn& c : kResultColumns) {
    if (column == c.name) {
      std::transform(points.begin(), points.end(), std::back_inserter(costs),
                     [&c](const SweepPoint& p) { return comparable(c.cost(p)); });
      return costs;
    }
  }
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (column == axes[a].key) {
      for (const std::string& value : axes[a].values) {
        number_of(axes[a], value);  // all of them, before a sweep begins
      }
      for (const SweepPoint& p : points) {
        costs.push_back(number_of(axes[a], p.values[a]));
      }
      return costs;
    }
  }
  throw InputError("--pareto", fmt::format("'{}' is no column; expected one of {} or a swept key",
                                           column, fmt::join(sweep_columns(), ", ")));
}

}  // namespace

std::string_view name_of(SweepStatus status) {
  constexpr std::array<std::string_view, 4> kNames{"ok", "does not fit", "invalid", "failed"};
  return kNames.at(static_cast<std::size_t>(status));
}

std::vector<std::string> split_values(std::string_view text) {
  std::vector<std::string> values(1);
  std::string open;  // the brackets that wait to be closed
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ',' && open.empty() && !quoted) {
      values.emplace_back();
      continue;
    }
    values.back() += c;
    if (quoted && c == '\\' && i + 1 < text.size()) {
      values.back() += text[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '[' || c == '{')) {
      open += c == '[' ? ']' : '}';
    } else if (!quoted && (c == ']' || c == '}')) {
      if (open.empty() || open.back() != c) {
        throw InputError("--set", fmt::format("'{}': a '{}' that closes nothing", text, c));
      }
      open.pop_back();
    }
  }
  if (quoted || !open.empty()) {
    throw InputError("--set",
                     fmt::format("'{}': a {} is not closed", text, quoted ? "quote" : "bracket"));
  }
  if (std::find(values.begin(), values.end(), "") != values.end()) {
    throw InputError("--set", fmt::format("'{}': an empty value between commas", text));
  }
  return values;
}

std::vector<SweepAxis> sweep_axes(const std::vector<std::string>& assignments) {
  std::vector<SweepAxis> axes;
  for (const std::string& given : assignments) {
    const std::string text = config::spelled_out(given);
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw InputError("--set", fmt::format("found '{}'; expected key=value,value,...", text));
    }
    const std::string key = text.substr(0, equals);
    std::erase_if(axes, [&](const SweepAxis& before) { return before.key == key; });
    axes.push_back({key, split_values(std::string_view(text).substr(equals + 1))});
  }
  return axes;
}

std::size_t sweep_size(const std::vector<SweepAxis>& axes) {
  std::size_t size = 1;
  for (const SweepAxis& axis : axes) {
    STEPCAST_CHECK(!axis.values.empty(), "axis {} has no values", axis.key);
    size *= axis.values.size();
    if (size > kMostPoints) {
      throw InputError("--set", fmt::format("the cross product has more than {} points; sweep "
                                            "fewer values at a time",
                                            kMostPoints));
    }
  }
  return size;
}

std::vector<SweepPoint> sweep(const std::vector<SweepAxis>& axes, const MakeJob& make_job,
                              const SweepOptions& options) {
  std::vector<SweepPoint> points(sweep_size(axes));
  std::mutex mutex;  // guards the next two
  std::vector<char> done(points.size(), 0);
  std::size_t count = 0;
  std::size_t handed = 0;
  // The calling thread hands points out in order, as far as they are done.
  const auto hand_out = [&] {
    const std::size_t from = handed;
    std::unique_lock lock(mutex);
    while (handed < done.size() && done[handed] != 0) {
      ++handed;
    }
    const std::size_t now = count;
    lock.unlock();
    if (options.on_progress) {
      options.on_progress(now);
    }
    for (std::size_t i = from; i < handed && options.on_point; ++i) {
      options.on_point(points[i]);
    }
  };
  planner::parallel_for(points.size(), options.threads, [&](std::size_t worker, std::size_t i) {
    points[i] = evaluate(axes, i, make_job, options);
    {
      const std::lock_guard lock(mutex);
      done[i] = 1;
      ++count;
    }
    if (worker == 0) {
      hand_out();
    }
  });
  hand_out();
  return points;
}

const std::vector<std::string>& sweep_columns() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const ResultColumn& c : kResultColumns) {
      names.emplace_back(c.name);
    }
    return names;
  }();
  return kNames;
}

void mark_pareto(std::vector<SweepPoint>& points, const std::vector<SweepAxis>& axes,
                 const std::vector<std::string>& columns) {
  std::vector<std::vector<double>> costs;
  for (const std::string& column : columns) {
    costs.push_back(costs_of(points, axes, column));
  }
  const auto dominates = [&costs](std::size_t a, std::size_t b) {
    bool better = false;
    for (const auto& c : costs) {
      if (c[a] > c[b]) {
        return false;
      }
      better = better || c[a] < c[b];
    }
    return better;
  };
  // In lexicographic order of costs a point is dominated only by earlier ones, and then also by an
  // earlier one of the front.
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < points.size(); ++i) {
    points[i].pareto = false;
    if (points[i].status == SweepStatus::kOk) {
      order.push_back(i);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&costs](std::size_t a, std::size_t b) {
    for (const auto& c : costs) {
      if (c[a] != c[b]) {
        return c[a] < c[b];
      }
    }
    return false;
  });
  std::vector<std::size_t> front;
  for (const std::size_t i : order) {
    points[i].pareto =
        std::none_of(front.begin(), front.end(), [&](std::size_t f) { return dominates(f, i); });
    if (points[i].pareto) {
      front.push_back(i);
    }
  }
}

}  // namespace stepcast::studies
