#include "core/stored_access.h"

#include <fmt/format.h>

#include <cmath>

#include "core/access/internal/access_data.h"
#include "core/error.h"

namespace stepcast {
namespace {

using internal::Atom;
using internal::PopularityCurve;

bool same_atoms(const std::vector<Atom>& a, const std::vector<Atom>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Atom& x, const Atom& y) {
    return x.rows == y.rows && x.p == y.p && x.count == y.count && x.singles == y.singles &&
           x.doubles == y.doubles;
  });
}

/// Probabilities sum to 1, hottest first, and all rows are there.
void check_atoms(const StoredAccess& law) {
  constexpr double kRounding = 1e-6;
  double rows = 0;
  double mass = 0;
  double hottest = (1 + kRounding) / law.share;
  for (const auto& [n, p, count, singles, doubles] : law.atoms) {
    const bool numbers = n > 0 && p >= 0 && p <= hottest && count >= 0 && singles >= 0 &&
                         doubles >= 0 && std::isfinite(n + count + singles + doubles);
    if (!numbers) {
      throw InputError("access", "its rows are not told in order of falling popularity");
    }
    rows += n;
    mass += n * p;
    hottest = p;
  }
  if (!(law.share > 0 && law.share <= 1) || std::abs(mass - 1) > kRounding ||
      rows > static_cast<double>(law.rows) * (1 + kRounding) + 1) {
    throw InputError("access", fmt::format("{} of its {} rows are told, with a share of {} of all "
                                           "lookups",
                                           rows, law.rows, mass));
  }
}

}  // namespace

StoredAccess StoredAccess::of(const Access& access) {
  const Access::Data& data = *access.data_;
  StoredAccess law{.kind = data.kind,
                   .rows = data.rows,
                   .exponent = data.exponent,
                   .seed = data.seed,
                   .sample_lookups = data.sample_lookups,
                   .recorded = data.recorded};
  if (data.subset_of != nullptr) {
    law.subset_of = Access(data.subset_of);
    return law;
  }
  if (!law.recorded.empty()) {
    return law;
  }
  if (const auto& power = data.curve.law()) {
    law.offset = power->offset;
    return law;
  }
  if (data.kind == AccessKind::kUniform &&
      same_atoms(data.curve.atoms(), Access::uniform(data.rows).data_->curve.atoms()) &&
      data.curve.share() == 1) {
    return law;
  }
  law.share = data.curve.share();
  for (const Atom& a : data.curve.atoms()) {
    law.atoms.push_back({a.rows, a.p, a.count, a.singles, a.doubles});
  }
  return law;
}

Access StoredAccess::restored() const {
  if (subset_of) {
    return subset_of->random_subset(rows);
  }
  if (!recorded.empty()) {
    return Access::indices(rows, recorded);
  }
  if (atoms.empty() && kind == AccessKind::kUniform) {
    return Access::uniform(rows);
  }
  const bool law = atoms.empty();
  if (law && (kind != AccessKind::kZipf || !(offset >= 0 && offset <= 0x1p53))) {
    throw InputError("access", "holds neither a law nor what was counted");
  }
  const Access checked = Access::zipf(rows, exponent, seed);
  if (law && offset == 0) {
    return checked;
  }
  if (!law) {
    check_atoms(*this);
  }
  std::vector<Atom> curve;
  for (const auto& [n, p, count, singles, doubles] : atoms) {
    curve.push_back({n, p, count, singles, doubles});
  }
  Access::Data data{
      .kind = kind,
      .rows = rows,
      .exponent = exponent,
      .seed = seed,
      .sample_lookups = sample_lookups,
      .curve = law ? PopularityCurve::zipf(static_cast<double>(rows), exponent, offset)
                   : PopularityCurve::again(std::move(curve), share),
      .shuffled = kind != AccessKind::kUniform,
      .permutation = internal::Permutation(rows, seed)};
  return Access(std::make_shared<const Access::Data>(std::move(data)));
}

}  // namespace stepcast
