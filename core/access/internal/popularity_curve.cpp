#include "core/access/internal/popularity_curve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"

namespace stepcast::internal {
namespace {

constexpr std::size_t kMantissas = 256;  // of numbers of lookups whose answers a curve keeps
constexpr std::size_t kDoublings = 12;   // more that are answered where a second one is asked for
constexpr int kMostDoublings = 60;
constexpr double kExactRows = 2048;   // a table this small has one atom per row
constexpr double kExactRanks = 256;   // of a larger one, so many head rows have
constexpr double kBinGrowth = 0.015;  // then bins of this relative width, one mean probability each

/// Integral of (x/a)^-exponent from a to b, stable around exponent 1.
double power_integral(double a, double b, double exponent) {
  const double log_ratio = std::log(b / a);
  const double z = (1 - exponent) * log_ratio;
  return a * log_ratio * (std::abs(z) < 1e-8 ? 1 + z / 2 : std::expm1(z) / z);
}

double minus_log1p(double p) {
  return p >= 1 ? std::numeric_limits<double>::infinity() : -std::log1p(-p);
}

struct Occupancy {
  double rows = 0;   ///< sum 1 - exp(-p t)
  double slope = 0;  ///< its derivative, sum p exp(-p t): the share of lookups that miss
};

Occupancy occupancy(const std::vector<Atom>& atoms, double t) {
  Occupancy sum;
  for (const Atom& atom : atoms) {
    const double seen = -std::expm1(-atom.p * t);
    sum.rows += atom.rows * seen;
    sum.slope += atom.rows * atom.p * (1 - seen);
  }
  return sum;
}

/// Splits atoms that hold more than 1/64 of the rows, so that what follows in rank varies along
/// them.
std::vector<Atom> finer(const std::vector<Atom>& atoms, double rows) {
  std::vector<Atom> result;
  for (const Atom& atom : atoms) {
    const double pieces = std::max(1.0, std::ceil(atom.rows * 64 / rows));
    Atom piece = atom;
    piece.rows /= pieces;
    piece.singles /= pieces;
    piece.doubles /= pieces;
    result.insert(result.end(), static_cast<std::size_t>(pieces), piece);
  }
  return result;
}

Atom part_of(const Atom& atom, double rows) {
  const double part = rows / atom.rows;
  return {rows, atom.p, atom.count, atom.singles * part, atom.doubles * part};
}

}  // namespace

double PowerLaw::at(double rank) const {
  return scale * std::pow((offset + 1 + rank) / (offset + 1), -exponent);
}

double PowerLaw::sum(double rank, double count) const {
  double total = 0;
  for (; count >= 1 && offset + 1 + rank < kExactRanks; ++rank, --count) {
    total += at(rank);
  }
  if (count < 1) {
    return total;
  }
  // Sum of f over integers = integral between half-integers - (f'(b) - f'(a)) / 24 + O(f''').
  const double a = offset + rank + 0.5;
  const double b = a + count;
  const double at_a = at(rank - 0.5);
  const double at_b = at(rank + count - 0.5);
  return total + at_a * power_integral(a, b, exponent) - exponent * (at_a / a - at_b / b) / 24;
}

PopularityCurve::PopularityCurve(std::vector<Atom> atoms, double share, std::optional<PowerLaw> law)
    : atoms_(std::move(atoms)), law_(law), share_(share) {
  std::erase_if(atoms_, [](const Atom& atom) { return !(atom.rows > 0); });
  const auto hotter = [](const Atom& a, const Atom& b) { return a.p > b.p; };
  if (!law_ && !std::is_sorted(atoms_.begin(), atoms_.end(), hotter)) {
    std::stable_sort(atoms_.begin(), atoms_.end(), hotter);
  }
  double total = 0;
  for (const Atom& atom : atoms_) {
    total += atom.rows * atom.p;
  }
  STEPCAST_CHECK(total > 0 && std::isfinite(total), "popularity mass {}", total);
  if (law_) {
    law_->scale /= total;
  }
  for (Atom& atom : atoms_) {
    atom.p /= total;
  }
  sum_up();
}

PopularityCurve PopularityCurve::again(std::vector<Atom> atoms, double share) {
  PopularityCurve curve;
  curve.atoms_ = std::move(atoms);
  curve.share_ = share;
  curve.sum_up();
  return curve;
}

void PopularityCurve::sum_up() {
  decay_.reserve(atoms_.size());
  rows_before_.reserve(atoms_.size() + 1);
  mass_before_.reserve(atoms_.size() + 1);
  rows_before_.push_back(0);
  mass_before_.push_back(0);
  for (const Atom& atom : atoms_) {
    decay_.push_back(minus_log1p(atom.p * share_) / share_);
    rows_before_.push_back(rows_before_.back() + atom.rows);
    mass_before_.push_back(mass_before_.back() + atom.rows * atom.p);
  }
}

PopularityCurve PopularityCurve::zipf(double rows, double exponent, double offset) {
  const PowerLaw law{exponent, offset, 1};
  std::vector<Atom> atoms;
  atoms.reserve(rows <= kExactRows ? static_cast<std::size_t>(rows) : 1600);
  for (double rank = 0; rank < rows;) {
    const double x = offset + 1 + rank;
    const bool single = rows <= kExactRows || x < kExactRanks;
    const double width = single ? 1 : std::min(rows - rank, std::floor(x * kBinGrowth));
    atoms.push_back({width, single ? law.at(rank) : law.sum(rank, width) / width, 0, 0, 0});
    rank += width;
  }
  return PopularityCurve(std::move(atoms), 1, law);
}

std::size_t PopularityCurve::atom_at(double rank) const {
  const auto after = std::upper_bound(rows_before_.begin(), rows_before_.end(), rank);
  const auto index = static_cast<std::size_t>(after - rows_before_.begin());
  return std::min(index, atoms_.size()) - 1;
}

double PopularityCurve::mass(double first_rows) const {
  if (first_rows <= 0) {
    return 0;
  }
  if (first_rows >= rows()) {
    return 1;
  }
  const std::size_t i = atom_at(first_rows);
  const double inside = first_rows - rows_before_[i];
  if (!law_ || atoms_[i].rows <= 1) {
    return std::min(1.0, mass_before_[i] + inside * atoms_[i].p);
  }
  const double whole = std::floor(inside);
  const double part =
      law_->sum(rows_before_[i], whole) + (inside - whole) * law_->at(rows_before_[i] + whole);
  return std::min(mass_before_[i] + part, std::min(1.0, mass_before_[i + 1]));
}

double PopularityCurve::unique(double lookups) const {
  if (lookups <= 0) {
    return 0;
  }
  int doublings = 0;
  double least = std::frexp(lookups, &doublings);  // 0.5 to 1
  if (doublings < 0 || doublings > kMostDoublings) {
    least = lookups;
    doublings = 0;
  }
  // Always from the mantissa up, so an answer does not depend on what was asked before.
  const auto at = static_cast<std::size_t>(doublings);
  std::size_t count = at + 1;
  {
    const std::lock_guard lock(answers_->mutex);
    if (const auto known = answers_->unique.find(least); known != answers_->unique.end()) {
      if (at < known->second.size()) {
        return known->second[at];
      }
      count += kDoublings;
    }
  }
  std::vector<double> answers = unique_doubling(least, count);
  const double answer = answers[at];
  const std::lock_guard lock(answers_->mutex);
  if (answers_->unique.size() >= kMantissas) {
    answers_->unique.clear();
  }
  std::vector<double>& kept = answers_->unique[least];
  if (kept.size() < answers.size()) {
    kept = std::move(answers);
  }
  return answer;
}

std::vector<double> PopularityCurve::unique_doubling(double least, std::size_t count) const {
  std::vector<double> seen;  // by atom: chance that a row is among the lookups, negative
  seen.reserve(atoms_.size());
  for (const double decay : decay_) {
    seen.push_back(std::expm1(-least * decay));
  }
  std::vector<double> answers;
  answers.reserve(count);
  for (double lookups = least; answers.size() < count; lookups *= 2) {
    double sum = 0;
    for (std::size_t i = 0; i < atoms_.size(); ++i) {
      sum -= atoms_[i].rows * seen[i];
      seen[i] *= 2 + seen[i];
    }
    answers.push_back(std::min({sum, lookups, rows()}));
  }
  return answers;
}

double PopularityCurve::seen_once(double lookups) const {
  if (lookups <= share_) {  // one lookup of the whole table sees one row once
    return std::max(0.0, lookups);
  }
  double sum = 0;
  for (std::size_t i = 0; i < atoms_.size(); ++i) {
    // n p (1-p)^(n-1) of the table, n = lookups / share; times share.
    sum += atoms_[i].rows * atoms_[i].p * lookups * std::exp(-(lookups - share_) * decay_[i]);
  }
  return std::min({sum, lookups, rows()});
}

double PopularityCurve::lru_hit(double capacity) const {
  double reachable = 0;
  for (const Atom& atom : atoms_) {
    reachable += atom.p > 0 ? atom.rows : 0;
  }
  if (capacity <= 0) {
    return 0;
  }
  if (capacity >= reachable * (1 - 1e-12)) {  // all fit, up to the rounding of the sum
    return 1;
  }
  // Newton on log occupancy against log t: nearly linear for power laws; bisection guards it.
  double low = capacity;  // occupancy(t) <= t
  double high = std::numeric_limits<double>::infinity();
  double t = capacity;
  Occupancy now = occupancy(atoms_, t);
  for (int step = 0; step < 200 && std::abs(now.rows - capacity) > 1e-12 * capacity; ++step) {
    (now.rows < capacity ? low : high) = t;
    const double elasticity = t * now.slope / now.rows;
    double next = t * std::exp(std::min(8.0, std::log(capacity / now.rows) / elasticity));
    if (!(next > low && next < high)) {
      next = std::isfinite(high) ? std::sqrt(low * high) : 2 * low;
    }
    if (next == t || !std::isfinite(next)) {
      break;
    }
    t = next;
    now = occupancy(atoms_, t);
  }
  return std::clamp(1 - now.slope, 0.0, 1.0);
}

std::vector<Atom> PopularityCurve::slice(double first, double last) const {
  std::vector<Atom> result;
  for (std::size_t i = atom_at(first); i < atoms_.size() && rows_before_[i] < last; ++i) {
    const double rows = std::min(last, rows_before_[i + 1]) - std::max(first, rows_before_[i]);
    if (rows > 0) {
      result.push_back(part_of(atoms_[i], rows));
    }
  }
  return result;
}

std::vector<Atom> PopularityCurve::thinned(double share) const {
  std::vector<Atom> result;
  for (const Atom& atom : atoms_) {
    result.push_back(part_of(atom, atom.rows * share));
  }
  return result;
}

std::vector<Atom> PopularityCurve::chosen(std::span<const std::int64_t> ranks, double followed,
                                          double others) const {
  const double tail = rows() - followed;
  const double share = tail > 0 ? others / tail : 0;
  std::vector<Atom> result;
  auto next = ranks.begin();
  for (std::size_t i = 0; i < atoms_.size(); ++i) {
    const auto end = std::find_if(next, ranks.end(), [&](std::int64_t rank) {
      return static_cast<double>(rank) + 0.5 >= rows_before_[i + 1];
    });
    const double beyond = std::max(0.0, rows_before_[i + 1] - std::max(followed, rows_before_[i]));
    const double rows = static_cast<double>(end - next) + beyond * share;
    next = end;
    if (rows > 0) {
      result.push_back(part_of(atoms_[i], rows));
    }
  }
  return result;
}

// With m = rows / buckets rows in a bucket, the row of rank r is the hottest of its bucket with
// chance (1 - r/rows)^(m-1); the others are then m - 1 random rows among the colder ones. Summed
// over r this gives `buckets` buckets and the whole mass.
std::vector<Atom> PopularityCurve::hashed(double buckets) const {
  const double m = rows() / buckets;
  if (m <= 1) {
    std::vector<Atom> result = atoms_;
    result.push_back({buckets - rows(), 0, 0, 0, 0});
    return result;
  }
  const std::vector<Atom> parts = finer(atoms_, rows());
  std::vector<Atom> result(parts.size());
  Atom
      colder;  // totals over the rows colder than the part: rows, and sums of p, count, unseen rows
  double unseen = 0;
  for (std::size_t i = parts.size(); i-- > 0;) {
    const Atom& part = parts[i];
    const double same = std::max(0.0, part.rows - 1) / 2;  // of the part itself, on average
    const double others = colder.rows + same;
    const double mean_p = others > 0 ? (colder.p + same * part.p) / others : 0;
    const double mean_count = others > 0 ? (colder.count + same * part.count) / others : 0;
    const double alone = others > 0 ? std::pow(unseen / others, m - 1) : 1;
    const double begin = std::min(1.0, (colder.rows + part.rows) / rows());
    const double end = colder.rows / rows();
    const double count = buckets * (std::pow(begin, m) - std::pow(end, m));
    const double kept = count / part.rows;
    result[i] = {count, part.p + (m - 1) * mean_p, part.count + (m - 1) * mean_count,
                 part.singles * kept * alone, part.doubles * kept * alone};
    colder.rows += part.rows;
    colder.p += part.rows * part.p;
    colder.count += part.rows * part.count;
    unseen += part.count > 0 ? 0 : part.rows;
  }
  return result;
}

std::vector<Atom> PopularityCurve::folded(double buckets) const {
  if (buckets > rows()) {
    std::vector<Atom> result = atoms_;
    result.push_back({buckets - rows(), 0, 0, 0, 0});
    return result;
  }
  std::vector<Atom> result = buckets > 1 ? slice(0, buckets - 1) : std::vector<Atom>{};
  Atom rest{1, 0, 0, 0, 0};
  for (const Atom& atom : slice(buckets - 1, rows())) {
    rest.p += atom.rows * atom.p;
    rest.count += atom.rows * atom.count;
  }
  rest.singles = std::abs(rest.count - 1) < 1e-9 ? 1 : 0;
  rest.doubles = std::abs(rest.count - 2) < 1e-9 ? 1 : 0;
  result.push_back(rest);
  return result;
}

double absence(double total, double count, double lookups) {
  const double fewer = std::min(count, lookups);
  const double more = std::max(count, lookups);
  if (fewer <= 0) {
    return 1;
  }
  if (fewer + more > total) {
    return 0;
  }
  if (fewer <= 64) {
    // C(N-c, n) / C(N, n) = prod_{i<c} (N - n - i) / (N - i); the fraction of c by Stirling.
    const double fraction = fewer - std::floor(fewer);
    const double half = (1 - fraction) / 2;
    double product = std::pow((total - more + half) / (total + half), fraction);
    for (double i = fraction; i < fewer - 0.5; ++i) {
      product *= (total - more - i) / (total - i);
    }
    return product;
  }
  // The same product as a midpoint integral of its logarithm, four panels of 5-point Gauss.
  constexpr std::array<double, 5> kNode = {-0.9061798459386640, -0.5384693101056831, 0,
                                           0.5384693101056831, 0.9061798459386640};
  constexpr std::array<double, 5> kWeight = {0.2369268850561891, 0.4786286704993665,
                                             0.5688888888888889, 0.4786286704993665,
                                             0.2369268850561891};
  double log_product = 0;
  const double half_panel = fewer / 8;
  for (int panel = 0; panel < 4; ++panel) {
    for (std::size_t i = 0; i < kNode.size(); ++i) {
      const double x = half_panel * (2 * panel + 1 + kNode[i]) - 0.5;
      log_product += half_panel * kWeight[i] * std::log1p(-more / (total - x));
    }
  }
  return std::exp(log_product);
}

double rarefied_unique(const std::vector<Atom>& atoms, double total, double lookups) {
  double sum = 0;
  for (const Atom& atom : atoms) {
    sum += atom.rows * (1 - absence(total, atom.count, lookups));
  }
  return sum;
}

double rarefied_seen_once(const std::vector<Atom>& atoms, double total, double lookups) {
  if (lookups <= 1) {
    return std::max(0.0, lookups);
  }
  // P(one of c) = c C(N-c, n-1) / C(N, n) = (c n / N) C(N-1-(c-1), n-1) / C(N-1, n-1).
  double sum = 0;
  for (const Atom& atom : atoms) {
    if (atom.count > 0) {
      sum += atom.rows * atom.count * lookups / total *
             absence(total - 1, std::max(0.0, atom.count - 1), lookups - 1);
    }
  }
  return sum;
}

}  // namespace stepcast::internal
