// Several recordings of one program, made one.
#include <map>

#include "core/statistics.h"
#include "studies/fit_rows.h"

namespace stepcast::studies {
namespace {

/// Places of the rows of each origin, in the order of their first.
std::vector<std::vector<std::size_t>> by_origin(const std::vector<FitRows::Origin>& origins) {
  std::map<FitRows::Origin, std::size_t> known;
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < origins.size(); ++i) {
    const auto [it, fresh] = known.try_emplace(origins[i], groups.size());
    if (fresh) {
      groups.emplace_back();
    }
    groups[it->second].push_back(i);
  }
  return groups;
}

template <typename Value>
double median_over(const std::vector<std::size_t>& group, Value value) {
  std::vector<double> values;
  for (const std::size_t i : group) {
    values.push_back(value(i));
  }
  return middle_of(values);
}

void merge_ops(FitRows& rows) {
  std::vector<models::MeasuredOp> merged;
  std::vector<FitRows::Origin> origins;
  for (const std::vector<std::size_t>& group : by_origin(rows.op_origins)) {
    merged.push_back(rows.ops[group.front()]);
    merged.back().time =
        seconds(median_over(group, [&](std::size_t i) { return rows.ops[i].time.base(); }));
    origins.push_back(rows.op_origins[group.front()]);
  }
  rows.ops = std::move(merged);
  rows.op_origins = std::move(origins);
}

void merge_collectives(FitRows& rows) {
  std::vector<models::MeasuredCollective> merged;
  std::vector<FitRows::Origin> origins;
  for (const std::vector<std::size_t>& group : by_origin(rows.collective_origins)) {
    models::MeasuredCollective row = rows.collectives[group.front()];
    row.time =
        seconds(median_over(group, [&](std::size_t i) { return rows.collectives[i].time.base(); }));
    row.idle_time = seconds(
        median_over(group, [&](std::size_t i) { return rows.collectives[i].idle_time.base(); }));
    merged.push_back(row);
    origins.push_back(rows.collective_origins[group.front()]);
  }
  rows.collectives = std::move(merged);
  rows.collective_origins = std::move(origins);
}

/// The medians of one rank after the other, over recordings that have as many.
void merge_medians(std::vector<double>& into, const std::vector<std::vector<double>>& recordings) {
  for (std::size_t r = 0; r < into.size(); ++r) {
    std::vector<double> values;
    for (const std::vector<double>& of_recording : recordings) {
      if (of_recording.size() == into.size()) {
        values.push_back(of_recording[r]);
      }
    }
    into[r] = middle_of(values);
  }
}

void merge_hosts_and_steps(FitRows& rows) {
  std::map<std::string, std::vector<std::size_t>> by_program;
  for (std::size_t i = 0; i < rows.hosts.size(); ++i) {
    by_program[rows.hosts[i].program].push_back(i);
  }
  std::vector<FitRows::HostOfJob> hosts;
  std::vector<StepSample> steps;
  for (std::size_t i = 0; i < rows.hosts.size(); ++i) {
    const std::vector<std::size_t>& group = by_program.at(rows.hosts[i].program);
    if (group.front() != i) {
      continue;
    }
    FitRows::HostOfJob host = rows.hosts[i];
    StepSample step = rows.steps[i];
    host.step_seconds = median_over(group, [&](auto k) { return rows.hosts[k].step_seconds; });
    step.seconds = median_over(group, [&](auto k) { return rows.steps[k].seconds; });
    for (const auto part : {&models::MeasuredHost::issue, &models::MeasuredHost::dispatch,
                            &models::MeasuredHost::step}) {
      std::vector<std::vector<double>> medians;
      for (const std::size_t k : group) {
        medians.push_back(rows.hosts[k].medians.*part);
        if (k != i) {
          const std::vector<double>& all = rows.hosts[k].all.*part;
          (host.all.*part).insert((host.all.*part).end(), all.begin(), all.end());
        }
      }
      merge_medians(host.medians.*part, medians);
    }
    hosts.push_back(std::move(host));
    steps.push_back(step);
  }
  rows.hosts = std::move(hosts);
  rows.steps = std::move(steps);
}

}  // namespace

void merge_repeats(FitRows& rows) {
  merge_ops(rows);
  merge_collectives(rows);
  merge_hosts_and_steps(rows);
}

}  // namespace stepcast::studies
