#include "core/access/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "core/access/internal/access_data.h"
#include "core/error.h"

namespace stepcast {
namespace {

using internal::Atom;
using internal::PopularityCurve;

constexpr std::int64_t kMostRows = std::int64_t{1} << 53;  // counts of rows stay exact in a double
constexpr double kSteepest = 100;  // beyond any table; the first row already takes all lookups
constexpr double kSampleTolerance = 0.01;  // rounded shares of a published histogram

void require(bool condition, const std::string& what) {
  if (!condition) {
    throw InputError("access", what);
  }
}

void check_rows(std::int64_t rows) {
  require(rows >= 1 && rows <= kMostRows,
          fmt::format("a table has {} rows; give a count of 1 to 2^53", rows));
}

/// The mean count of a bin, and how many of its rows were seen once and twice: exact for the bins
/// (0,1] and (1,2]; in a wider bin from 0 the most singles that its mean count allows.
Atom atom_of(const ReuseBin& bin) {
  const double count = bin.reuse_high <= 1 ? 1 : std::max(1.0, bin.accesses / bin.unique_rows);
  Atom atom{bin.unique_rows, count, count, 0, 0};
  if (bin.reuse_high <= 1) {
    atom.singles = bin.unique_rows;
  } else if (bin.reuse_low < 1) {
    const double high = std::min(bin.reuse_high, bin.accesses);
    atom.singles = high > 1 ? bin.unique_rows * std::clamp((high - count) / (high - 1), 0.0, 1.0)
                            : bin.unique_rows;
  } else if (bin.reuse_low <= 1 && bin.reuse_high <= 2) {
    atom.doubles = bin.unique_rows;
  }
  return atom;
}

void check_bin(const ReuseBin& bin, std::size_t index) {
  const bool numbers = bin.reuse_low >= 0 && bin.reuse_high > bin.reuse_low &&
                       bin.unique_rows >= 0 && bin.accesses >= 0 &&
                       std::isfinite(bin.unique_rows) && std::isfinite(bin.accesses);
  require(numbers,
          fmt::format("histogram bin {} ({}, {}] with {} rows and {} accesses: bounds must "
                      "rise from 0 and counts must not be negative",
                      index, bin.reuse_low, bin.reuse_high, bin.unique_rows, bin.accesses));
  require((bin.unique_rows > 0) == (bin.accesses > 0),
          fmt::format("histogram bin {} has {} rows but {} accesses; a row in a bin was accessed",
                      index, bin.unique_rows, bin.accesses));
}

/// Atoms of counted rows, sorted from hot to cold, and the rows never seen.
std::vector<Atom> atoms_of_counts(const std::vector<double>& counts_by_rank, std::int64_t rows) {
  std::vector<Atom> atoms;
  for (const double count : counts_by_rank) {
    if (atoms.empty() || atoms.back().count != count) {
      atoms.push_back({0, count, count, 0, 0});
    }
    atoms.back().rows += 1;
  }
  for (Atom& atom : atoms) {
    atom.singles = atom.count == 1 ? atom.rows : 0;
    atom.doubles = atom.count == 2 ? atom.rows : 0;
  }
  atoms.push_back(
      {static_cast<double>(rows) - static_cast<double>(counts_by_rank.size()), 0, 0, 0, 0});
  return atoms;
}

double lookups_in(const std::vector<Atom>& atoms) {
  double sum = 0;
  for (const Atom& atom : atoms) {
    sum += atom.rows * atom.count;
  }
  return sum;
}

}  // namespace

Access Access::uniform(std::int64_t rows) {
  check_rows(rows);
  const auto count = static_cast<double>(rows);
  Data data{.rows = rows, .curve = PopularityCurve({{count, 1 / count, 0, 0, 0}})};
  return Access(std::make_shared<const Data>(std::move(data)));
}

Access Access::zipf(std::int64_t rows, double exponent, std::uint64_t seed) {
  check_rows(rows);
  require(exponent >= 0 && exponent <= kSteepest,
          fmt::format("zipf exponent {}; give a number in 0..100 (0 is uniform, measured tables "
                      "are 0.6 to 1.3)",
                      exponent));
  Data data{.kind = AccessKind::kZipf,
            .rows = rows,
            .exponent = exponent,
            .seed = seed,
            .curve = PopularityCurve::zipf(static_cast<double>(rows), exponent, 0),
            .shuffled = true,
            .permutation = internal::Permutation(rows, seed)};
  return Access(std::make_shared<const Data>(std::move(data)));
}

Access Access::histogram(std::int64_t rows, std::vector<ReuseBin> bins, double sample_lookups) {
  check_rows(rows);
  double seen = 0;
  double accesses = 0;
  std::vector<Atom> atoms;
  for (std::size_t i = 0; i < bins.size(); ++i) {
    check_bin(bins[i], i);
    seen += bins[i].unique_rows;
    accesses += bins[i].accesses;
    if (bins[i].unique_rows > 0) {
      atoms.push_back(atom_of(bins[i]));
    }
  }
  require(accesses > 0, "the histogram holds no accesses");
  require(std::isfinite(sample_lookups) && sample_lookups >= accesses * (1 - kSampleTolerance),
          fmt::format(
              "the bins hold {} accesses but the sample n0 only {} lookups; n0 is the number of "
              "lookups that the histogram was taken from",
              accesses, sample_lookups));
  require(
      sample_lookups <= accesses * (1 + kSampleTolerance),
      fmt::format("the sample n0 has {} lookups but the bins hold only {}; every recorded lookup "
                  "must be in a bin",
                  sample_lookups, accesses));
  require(seen <= static_cast<double>(rows) * (1 + 1e-9),
          fmt::format("the histogram saw {} different rows of a table of {} rows", seen, rows));
  atoms.push_back({std::max(0.0, static_cast<double>(rows) - seen), 0, 0, 0, 0});
  Data data{.kind = AccessKind::kHistogram,
            .rows = rows,
            .sample_lookups = lookups_in(atoms),
            .curve = PopularityCurve(std::move(atoms)),
            .shuffled = true,
            .permutation = internal::Permutation(rows, 0)};
  return Access(std::make_shared<const Data>(std::move(data)));
}

Access Access::indices(std::int64_t rows, std::vector<std::int64_t> recorded) {
  check_rows(rows);
  require(!recorded.empty(), "a recording of no lookups; give at least one row id");
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    require(recorded[i] >= 0 && recorded[i] < rows,
            fmt::format("recorded row id {} at position {} is outside the table's rows 0..{}",
                        recorded[i], i, rows - 1));
  }
  std::vector<std::int64_t> sorted = recorded;
  std::sort(sorted.begin(), sorted.end());
  struct Seen {
    std::int64_t row;
    std::int64_t count;
  };
  std::vector<Seen> seen;
  for (const std::int64_t row : sorted) {
    if (seen.empty() || seen.back().row != row) {
      seen.push_back({row, 0});
    }
    ++seen.back().count;
  }
  sorted.clear();
  for (const Seen& s : seen) {
    sorted.push_back(s.row);
  }
  std::stable_sort(seen.begin(), seen.end(),
                   [](const Seen& a, const Seen& b) { return a.count > b.count; });
  std::vector<double> counts;
  std::vector<std::int64_t> by_rank;
  std::vector<std::int64_t> rank_of_sorted(sorted.size());
  const auto place = [&sorted](std::int64_t row) {
    return static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), row) -
                                    sorted.begin());
  };
  for (const Seen& s : seen) {
    rank_of_sorted[place(s.row)] = static_cast<std::int64_t>(by_rank.size());
    by_rank.push_back(s.row);
    counts.push_back(static_cast<double>(s.count));
  }
  std::vector<std::int64_t> rank_of;
  rank_of.reserve(recorded.size());
  for (const std::int64_t row : recorded) {
    rank_of.push_back(rank_of_sorted[place(row)]);
  }
  Data data{.kind = AccessKind::kIndices,
            .rows = rows,
            .sample_lookups = static_cast<double>(recorded.size()),
            .curve = PopularityCurve(atoms_of_counts(counts, rows)),
            .recorded = std::move(recorded),
            .rank_of = std::move(rank_of),
            .rows_seen = std::move(by_rank),
            .rows_sorted = std::move(sorted)};
  return Access(std::make_shared<const Data>(std::move(data)));
}

AccessKind Access::kind() const { return data_->kind; }
std::int64_t Access::rows() const { return data_->rows; }
double Access::exponent() const { return data_->exponent; }
std::uint64_t Access::seed() const { return data_->seed; }
double Access::sample_lookups() const { return data_->sample_lookups; }
const std::vector<std::int64_t>& Access::recorded() const { return data_->recorded; }

std::int64_t Access::row_of_rank(std::int64_t rank) const {
  if (rank < 0 || rank >= rows()) {
    require(false, fmt::format("rank {} is outside 0..{}", rank, rows() - 1));
  }
  if (data_->shuffled) {
    return data_->permutation(rank);
  }
  if (data_->rows_seen.empty()) {
    return rank;
  }
  const auto seen = static_cast<std::int64_t>(data_->rows_seen.size());
  if (rank < seen) {
    return data_->rows_seen[static_cast<std::size_t>(rank)];
  }
  // The (rank - seen)-th id that was never seen: below the seen id at place i there are id - i
  // such.
  const std::int64_t wanted = rank - seen;
  std::int64_t first = 0;
  std::int64_t last = seen;
  while (first < last) {
    const std::int64_t middle = (first + last) / 2;
    if (data_->rows_sorted[static_cast<std::size_t>(middle)] - middle <= wanted) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return wanted + first;
}

/// A law with this one's origin (kind, exponent, seed) over other rows.
Access Access::derived(Data data) const {
  data.kind = data_->kind;
  data.exponent = data_->exponent;
  data.seed = data_->seed;
  data.shuffled = data_->kind != AccessKind::kUniform;
  data.permutation = internal::Permutation(data.rows, data_->seed);
  if (data_->sampled()) {
    data.sample_lookups = lookups_in(data.curve.atoms());
  }
  return Access(std::make_shared<const Data>(std::move(data)));
}

std::pair<Access, double> Access::ranks(std::int64_t first, std::int64_t last) const {
  require(
      first >= 0 && first < last && last <= rows(),
      fmt::format("popularity ranks [{}, {}) of a table of {} rows; give 0 <= first < last <= rows",
                  first, last, rows()));
  if (first == 0 && last == rows()) {
    return {*this, 1.0};
  }
  const PopularityCurve& curve = data_->curve;
  const double mass =
      curve.mass(static_cast<double>(last)) - curve.mass(static_cast<double>(first));
  const auto rows_inside = static_cast<double>(last - first);
  if (const auto& law = curve.law()) {
    return {derived({.rows = last - first,
                     .curve = PopularityCurve::zipf(rows_inside, law->exponent,
                                                    law->offset + static_cast<double>(first))}),
            mass};
  }
  std::vector<Atom> atoms = curve.slice(static_cast<double>(first), static_cast<double>(last));
  if (atoms.front().p <= 0) {
    return {uniform(last - first), 0.0};
  }
  return {
      derived({.rows = last - first, .curve = PopularityCurve(std::move(atoms), curve.share())}),
      mass};
}

Access Access::random_subset(std::int64_t rows) const {
  require(rows >= 1 && rows <= this->rows(),
          fmt::format("a subset of {} rows of a table of {} rows", rows, this->rows()));
  if (rows == this->rows()) {
    return *this;
  }
  if (data_->kind == AccessKind::kUniform && data_->curve.atoms().size() == 1) {
    return uniform(rows);
  }
  const double share = static_cast<double>(rows) / static_cast<double>(this->rows());
  return derived(
      {.rows = rows,
       .curve = PopularityCurve(data_->curve.thinned(share), data_->curve.share() * share),
       .subset_of = data_});
}

std::pair<Access, double> Access::chosen(std::span<const std::int64_t> ranks, std::int64_t followed,
                                         std::int64_t others) const {
  const std::int64_t count = static_cast<std::int64_t>(ranks.size()) + others;
  require(count >= 1 && followed <= rows() && others >= 0 && others <= rows() - followed &&
              (ranks.empty() || (ranks.front() >= 0 && ranks.back() < followed)),
          fmt::format("{} rows of the hottest {} and {} others of a table of {}", ranks.size(),
                      followed, others, rows()));
  const PopularityCurve& curve = data_->curve;
  std::vector<Atom> atoms =
      curve.chosen(ranks, static_cast<double>(followed), static_cast<double>(others));
  double mass = 0;
  for (const Atom& atom : atoms) {
    mass += atom.rows * atom.p;
  }
  if (mass <= 0) {
    return {uniform(count), 0.0};
  }
  return {derived({.rows = count, .curve = PopularityCurve(std::move(atoms), curve.share())}),
          std::min(1.0, mass)};
}

Access Access::remapped(std::int64_t buckets, Remap kind) const {
  check_rows(buckets);
  if (buckets == rows()) {
    return *this;
  }
  if (data_->kind == AccessKind::kIndices && !data_->recorded.empty()) {
    const bool folded = kind == Remap::kFrequency;
    std::vector<std::int64_t> ids = folded ? data_->rank_of : data_->recorded;
    for (std::int64_t& id : ids) {
      id = !folded ? id % buckets : std::min(id, buckets - 1);
    }
    return indices(buckets, std::move(ids));
  }
  const auto count = static_cast<double>(buckets);
  const PopularityCurve& curve = data_->curve;
  return derived(
      {.rows = buckets,
       .curve = PopularityCurve(
           kind == Remap::kFrequency ? curve.folded(count) : curve.hashed(count), curve.share())});
}

double dedup_factor(double samples_per_session, double keep_probability) {
  require(std::isfinite(samples_per_session) && samples_per_session >= 1,
          fmt::format("{} samples per session; give at least 1", samples_per_session));
  require(keep_probability >= 0 && keep_probability <= 1,
          fmt::format("session keep probability {}; give a number in 0..1", keep_probability));
  return 1 / (1 - (samples_per_session - 1) / samples_per_session * keep_probability);
}

}  // namespace stepcast
