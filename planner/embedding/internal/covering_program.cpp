#include "planner/embedding/internal/covering_program.h"

#include <algorithm>
#include <limits>

namespace stepcast::planner::internal {

CoveringProgram::CoveringProgram(const PatternItems& items)
    : items_(items), n_(items.tables().size()) {
  inverse_.assign(n_ * n_, 0);
  cost_.assign(n_, 1);
  basis_.assign(n_, Pattern(n_, -1));
  for (std::size_t t = 0; t < n_; ++t) {  // each table alone, in its largest part
    basis_[t][t] = 0;
    inverse_[t * n_ + t] = 1 / items.tables()[t].front().part;
    level_.push_back(inverse_[t * n_ + t]);
  }
}

std::vector<double> CoveringProgram::duals() const {
  std::vector<double> v(n_, 0);
  for (std::size_t i = 0; i < n_; ++i) {
    for (std::size_t t = 0; t < n_; ++t) {
      v[t] += cost_[i] * inverse_[i * n_ + t];
    }
  }
  return v;
}

double CoveringProgram::value() const {
  double sum = 0;
  for (std::size_t i = 0; i < n_; ++i) {
    sum += cost_[i] * level_[i];
  }
  return sum;
}

double CoveringProgram::worth(const Pattern& p, std::span<const double> values) const {
  double sum = 0;
  for (std::size_t t = 0; t < n_; ++t) {
    sum += p[t] >= 0 ? values[t] * part(t, p) : 0;
  }
  return sum;
}

bool CoveringProgram::enter(const Pattern& p) {
  std::vector<double> column(n_, 0);
  for (std::size_t t = 0; t < n_; ++t) {
    column[t] = p[t] >= 0 ? part(t, p) : 0;
  }
  return pivot(column, 1, p);
}

bool CoveringProgram::enter_slack(std::size_t t) {
  std::vector<double> column(n_, 0);
  column[t] = -1;
  return pivot(column, 0, Pattern(n_, -1));
}

double CoveringProgram::covered(std::size_t t, std::int32_t i) const {
  double sum = 0;
  for (std::size_t b = 0; b < n_; ++b) {
    sum += basis_[b][t] == i ? level_[b] * part(t, basis_[b]) : 0;
  }
  return sum;
}

double CoveringProgram::part(std::size_t t, const Pattern& p) const {
  return items_.tables()[t][static_cast<std::size_t>(p[t])].part;
}

bool CoveringProgram::pivot(const std::vector<double>& column, double cost,
                            const Pattern& pattern) {
  std::vector<double> d(n_, 0);
  for (std::size_t i = 0; i < n_; ++i) {
    for (std::size_t t = 0; t < n_; ++t) {
      d[i] += inverse_[i * n_ + t] * column[t];
    }
  }
  std::size_t leave = n_;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < n_; ++i) {
    if (d[i] > 1e-9) {
      const double ratio = std::max(0.0, level_[i]) / d[i];
      if (ratio < least - 1e-12 || (ratio < least + 1e-12 && leave < n_ && d[i] > d[leave])) {
        least = ratio;
        leave = i;
      }
    }
  }
  if (leave == n_) {
    return false;
  }
  for (std::size_t t = 0; t < n_; ++t) {
    inverse_[leave * n_ + t] /= d[leave];
  }
  level_[leave] /= d[leave];
  for (std::size_t i = 0; i < n_; ++i) {
    if (i == leave || d[i] == 0) {
      continue;
    }
    for (std::size_t t = 0; t < n_; ++t) {
      inverse_[i * n_ + t] -= d[i] * inverse_[leave * n_ + t];
    }
    level_[i] -= d[i] * level_[leave];
  }
  cost_[leave] = cost;
  basis_[leave] = pattern;
  return true;
}

}  // namespace stepcast::planner::internal
