// Rows of jobs that ran on cores of different pace, brought to one.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "core/statistics.h"
#include "studies/fit_rows.h"

namespace stepcast::studies {
namespace {

/// The power of the exchange's pace that collectives follow: the median slope of ln time over ln
/// pace between rows of one kind and group whose bytes differ by a tenth at most and whose paces by
/// more than probes scatter. 1 where the exchange kept one pace: there is nothing to learn from.
double exchange_power(const FitRows& rows) {
  constexpr double kApart = 0.4, kAlike = 1.1;
  constexpr std::size_t kReach = 64, kEnough = 20;
  std::vector<std::size_t> order(rows.collectives.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto key = [&](std::size_t i) {
    const models::MeasuredCollective& c = rows.collectives[i];
    return std::tuple(c.kind, c.format, c.group.size, c.bytes, i);
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  std::vector<double> slopes;
  for (std::size_t a = 0; a < order.size(); ++a) {
    const models::MeasuredCollective& first = rows.collectives[order[a]];
    for (std::size_t b = a + 1; b < std::min(order.size(), a + kReach); ++b) {
      const models::MeasuredCollective& second = rows.collectives[order[b]];
      if (second.kind != first.kind || second.format != first.format ||
          second.group.size != first.group.size || second.bytes > first.bytes * kAlike) {
        break;
      }
      const auto from = rows.exchanged[order[a]].pace, to = rows.exchanged[order[b]].pace;
      const double apart = from && to ? std::log(*to / *from) : 0;
      if (std::abs(apart) > kApart) {
        slopes.push_back(std::log(second.time / first.time) / apart);
        break;
      }
    }
  }
  return slopes.size() < kEnough ? 1 : std::clamp(median_of(slopes), 0.0, 1.0);
}

void at_common_exchange(FitRows& rows) {
  const double common = median_of(rows.exchange_paces);
  rows.exchange_power = exchange_power(rows);
  for (std::size_t i = 0; i < rows.collectives.size(); ++i) {
    if (const auto pace = rows.exchanged[i].pace) {
      rows.collectives[i].time *= std::pow(common / *pace, rows.exchange_power);
    }
  }
  rows.reference[2] *= common;
}

}  // namespace

void at_common_pace(FitRows& rows) {
  if (rows.paces.empty()) {
    return;
  }
  const double pace = median_of(rows.paces);
  if (!rows.exchange_paces.empty()) {
    at_common_exchange(rows);
  }
  for (models::MeasuredOp& row : rows.ops) {
    row.time *= pace;
  }
  for (std::size_t i = 0; i < rows.collectives.size(); ++i) {
    rows.collectives[i].time *= rows.exchanged[i].pace ? 1 : pace;
  }
  for (FitRows::HostOfJob& host : rows.hosts) {
    host.step_seconds *= pace;
    host.scale(pace);
  }
  for (StepSample& step : rows.steps) {
    step.seconds *= pace;
  }
  for (MeasuredRow& row : rows.rows) {
    row.seconds *= pace;
  }
  for (std::size_t i = 0; i < rows.collectives.size(); ++i) {
    rows.rows[rows.exchanged[i].row].seconds = rows.collectives[i].time.base();
  }
  for (double& p : rows.paces) {
    p /= pace;
  }
  rows.reference[0] *= pace;
  rows.reference[1] *= pace;
}

}  // namespace stepcast::studies
