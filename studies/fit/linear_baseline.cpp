#include "studies/fit/linear_baseline.h"

#include <Eigen/Dense>
#include <algorithm>
#include <array>

#include "core/graph/program.h"
#include "models/fit/fit.h"

namespace stepcast::studies {

StepSample step_sample(const ExecutionGraph& graph, Seconds measured) {
  StepSample busiest;
  for (const Program& program : graph.programs) {
    StepSample s;
    for (const Call& call : program.calls) {
      for (const Op& op : program.ops_of(program.segments[call.segment])) {
        s.flops += op.flops.base();
        s.bytes += (op.bytes_read + op.bytes_written).base();
      }
    }
    busiest.flops = std::max(busiest.flops, s.flops);
    busiest.bytes = std::max(busiest.bytes, s.bytes);
  }
  busiest.seconds = measured.base();
  return busiest;
}

FittedModel fit_linear_baseline(std::span<const StepSample> samples, const std::string& source) {
  constexpr std::array<const char*, 3> kNames{"step", "per_flop", "per_byte"};
  // With three columns the best non-negative solution is the best of the unconstrained ones over
  // all subsets of columns.
  const auto n = static_cast<Eigen::Index>(samples.size());
  Eigen::MatrixXd columns(n, 3);
  for (Eigen::Index i = 0; i < n; ++i) {
    const StepSample& s = samples[static_cast<std::size_t>(i)];
    columns.row(i) << 1 / s.seconds, s.flops / s.seconds, s.bytes / s.seconds;
  }
  const Eigen::VectorXd ones = Eigen::VectorXd::Ones(n);
  Eigen::Vector3d best = Eigen::Vector3d::Zero();
  double best_error = ones.squaredNorm();
  for (int subset = 1; subset < 8; ++subset) {
    std::vector<Eigen::Index> used;
    for (Eigen::Index c = 0; c < 3; ++c) {
      if ((subset >> c & 1) != 0) {
        used.push_back(c);
      }
    }
    Eigen::MatrixXd a(n, static_cast<Eigen::Index>(used.size()));
    Eigen::VectorXd scale(static_cast<Eigen::Index>(used.size()));
    for (std::size_t u = 0; u < used.size(); ++u) {
      const auto column = static_cast<Eigen::Index>(u);
      scale(column) = std::max(1e-300, columns.col(used[u]).norm());
      a.col(column) = columns.col(used[u]) / scale(column);
    }
    const Eigen::VectorXd x = a.colPivHouseholderQr().solve(ones);
    const double error = (a * x - ones).squaredNorm();
    if ((x.array() >= 0).all() && error < best_error) {
      best_error = error;
      best.setZero();
      for (std::size_t u = 0; u < used.size(); ++u) {
        best(used[u]) = x(static_cast<Eigen::Index>(u)) / scale(static_cast<Eigen::Index>(u));
      }
    }
  }
  FittedModel model;
  model.form = "baseline.linear";
  for (int c = 0; c < 3; ++c) {
    model.constants[kNames[static_cast<std::size_t>(c)]] = best(c);
  }
  model.samples = n;
  model.source = source;
  std::vector<double> predicted;
  std::vector<double> measured;
  for (const StepSample& s : samples) {
    predicted.push_back(linear_baseline(model, s).base());
    measured.push_back(s.seconds);
  }
  model.error = models::error_of(predicted, measured);
  return model;
}

Seconds linear_baseline(const FittedModel& model, const StepSample& s) {
  return seconds(model.constants.at("step") + model.constants.at("per_flop") * s.flops +
                 model.constants.at("per_byte") * s.bytes);
}

}  // namespace stepcast::studies
