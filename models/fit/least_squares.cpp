#include "models/fit/least_squares.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>

namespace stepcast::models {
namespace {

double huber_loss(double r, double delta) {
  const double a = std::abs(r);
  return a <= delta ? a * a / 2 : delta * (a - delta / 2);
}

class Search {
 public:
  Search(const LeastSquares& problem, const std::vector<double>& origin)
      : p_(problem),
        origin_(origin),
        n_(static_cast<Eigen::Index>(problem.start.size())),
        residuals_(problem.rows),
        shifted_(problem.rows) {}

  double objective(const std::vector<double>& x, std::vector<double>& r) const {
    p_.residuals(x, r);
    double sum = 0;
    for (const double v : r) {
      sum += std::isfinite(v) ? huber_loss(v, p_.huber) : 1e6;
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double pull = prior(x, i);
      sum += pull * pull / 2;
    }
    return sum;
  }

  std::vector<double> run(std::vector<double> x) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = std::clamp(x[i], p_.low[i], p_.high[i]);
    }
    double best = objective(x, residuals_);
    double damping = 1e-2;
    for (int iteration = 0; iteration < p_.iterations && damping < 1e8; ++iteration) {
      linearise(x);
      bool improved = false;
      for (int attempt = 0; attempt < 8 && !improved; ++attempt) {
        std::vector<double> next = step(x, damping);
        const double value = objective(next, shifted_);
        if (value < best) {
          improved = best - value > p_.tolerance * best;
          best = value;
          x = next;
          residuals_ = shifted_;
          damping = std::max(damping / 4, 1e-9);
          if (!improved) {
            return x;
          }
        } else {
          damping *= 4;
        }
      }
      if (!improved) {
        break;
      }
    }
    return x;
  }

 private:
  [[nodiscard]] double prior(const std::vector<double>& x, std::size_t i) const {
    return (x[i] - origin_[i]) / p_.prior_sigma * p_.prior_residual;
  }

  void linearise(const std::vector<double>& x) {
    const auto rows = static_cast<Eigen::Index>(p_.rows);
    Eigen::MatrixXd jacobian(rows, n_);
    constexpr double kStep = 1e-4;
    for (Eigen::Index j = 0; j < n_; ++j) {
      std::vector<double> moved = x;
      const auto at = static_cast<std::size_t>(j);
      const double h = moved[at] + kStep <= p_.high[at] ? kStep : -kStep;
      moved[at] += h;
      p_.residuals(moved, shifted_);
      for (Eigen::Index i = 0; i < rows; ++i) {
        const auto row = static_cast<std::size_t>(i);
        const double slope = (shifted_[row] - residuals_[row]) / h;
        jacobian(i, j) = std::isfinite(slope) ? slope : 0;
      }
    }
    Eigen::VectorXd weighted(rows);
    for (Eigen::Index i = 0; i < rows; ++i) {
      const double r = residuals_[static_cast<std::size_t>(i)];
      const double w = std::abs(r) <= p_.huber ? 1 : p_.huber / std::abs(r);
      weighted(i) = std::isfinite(r) ? w * r : 0;
      jacobian.row(i) *= std::sqrt(std::isfinite(w) ? w : 0);
      if (std::abs(r) > 0 && w > 0) {
        weighted(i) /= std::sqrt(w);
      }
    }
    normal_ = jacobian.transpose() * jacobian;
    gradient_ = jacobian.transpose() * weighted;
    const double pull = p_.prior_residual / p_.prior_sigma;
    for (Eigen::Index j = 0; j < n_; ++j) {
      normal_(j, j) += pull * pull;
      gradient_(j) += pull * prior(x, static_cast<std::size_t>(j));
    }
  }

  [[nodiscard]] std::vector<double> step(const std::vector<double>& x, double damping) const {
    Eigen::MatrixXd a = normal_;
    for (Eigen::Index j = 0; j < n_; ++j) {
      a(j, j) += damping * (normal_(j, j) + 1e-9);
    }
    const Eigen::VectorXd delta = a.ldlt().solve(-gradient_);
    std::vector<double> next = x;
    for (std::size_t i = 0; i < next.size(); ++i) {
      const double move =
          std::clamp(delta(static_cast<Eigen::Index>(i)), -2.0, 2.0);  // at most e^2 at a time
      next[i] = std::clamp(x[i] + move, p_.low[i], p_.high[i]);
    }
    return next;
  }

  const LeastSquares& p_;
  const std::vector<double>& origin_;
  Eigen::Index n_;
  std::vector<double> residuals_, shifted_;
  Eigen::MatrixXd normal_;
  Eigen::VectorXd gradient_;
};

}  // namespace

std::vector<double> minimise(const LeastSquares& problem) {
  // From nearly quadratic to robust: far from the answer every row must pull, near it outliers must
  // not.
  const std::vector<double> origin = problem.start;
  std::vector<double> x = origin;
  for (const double widen : {16.0, 4.0, 1.0}) {
    LeastSquares stage = problem;
    stage.huber *= widen;
    x = Search(stage, origin).run(std::move(x));
  }
  return x;
}

FittedModel search_constants(
    std::string_view form, std::vector<Constant> constants, const FittedModel* like,
    std::span<const double> measured, double pull,
    const std::function<double(std::size_t row, std::span<const double> constants)>& time) {
  constexpr std::size_t kRoughRows = 1000;
  LeastSquares problem;
  problem.rows = measured.size();
  problem.prior_sigma = 1;
  problem.prior_residual = pull;
  if (measured.size() >= kRoughRows) {
    problem.tolerance = 1e-5;  // two thirds of the time go into the last two digits
  }
  for (Constant& c : constants) {
    c.start =
        like != nullptr && like->form == form ? like->constants.at(std::string(c.name)) : c.start;
    problem.start.push_back(std::log(std::clamp(c.start, c.low, c.high)));
    problem.low.push_back(std::log(c.low));
    problem.high.push_back(std::log(c.high));
  }
  std::vector<double> values(constants.size());
  problem.residuals = [&](std::span<const double> x, std::span<double> r) {
    std::transform(x.begin(), x.end(), values.begin(), [](double v) { return std::exp(v); });
    for (std::size_t i = 0; i < measured.size(); ++i) {
      r[i] = std::log(time(i, values) / measured[i]);
    }
  };
  const std::vector<double> x = minimise(problem);
  FittedModel model;
  model.form = form;
  for (std::size_t i = 0; i < x.size(); ++i) {
    model.constants[std::string(constants[i].name)] = std::exp(x[i]);
  }
  return model;
}

}  // namespace stepcast::models
