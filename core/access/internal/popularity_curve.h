#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace stepcast::internal {

/// `rows` rows, each with probability `p` and, in a sample, seen `count` times. `singles` of them
/// were seen exactly once, `doubles` exactly twice. Rows may be fractional: a mean over shards.
struct Atom {
  double rows = 0;
  double p = 0;
  double count = 0;
  double singles = 0;
  double doubles = 0;
};

/// p(x) = scale * (x / first)^-exponent at x = offset + 1 + rank: a zipf law from rank `offset` on.
struct PowerLaw {
  double exponent = 0;
  double offset = 0;
  double scale = 0;
  [[nodiscard]] double at(double rank) const;
  /// Sum of p over `count` consecutive ranks from `rank`; Euler-Maclaurin beyond the first terms.
  [[nodiscard]] double sum(double rank, double count) const;
};

/// The rows of a table in order of falling popularity, in groups that share one probability.
/// Probabilities are normalised on construction. With `share` s < 1 the curve is the mean over
/// random subsets of a table: an atom of w/s rows of probability s*p there is w rows of probability
/// p here.
class PopularityCurve {
 public:
  explicit PopularityCurve(std::vector<Atom> atoms, double share = 1,
                           std::optional<PowerLaw> law = std::nullopt);
  static PopularityCurve zipf(double rows, double exponent, double offset);
  /// From what another curve says of itself, which is normalised: the same to the last bit.
  static PopularityCurve again(std::vector<Atom> atoms, double share);

  [[nodiscard]] const std::vector<Atom>& atoms() const { return atoms_; }
  [[nodiscard]] const std::optional<PowerLaw>& law() const { return law_; }
  [[nodiscard]] double share() const { return share_; }
  [[nodiscard]] double rows() const { return rows_before_.back(); }
  [[nodiscard]] double rows_before(std::size_t atom) const { return rows_before_[atom]; }
  [[nodiscard]] std::size_t atom_at(double rank) const;

  [[nodiscard]] double mass(double first_rows) const;  ///< of the `first_rows` hottest rows
  /// Sum of 1 - (1-p)^n. A step asks for shares 1/2, 1/4 ... of its lookups, and for 2, 4 ... times
  /// as many: these are answered together, from the smallest up, by 1 - q^2 = (1 - q)(1 + q). They
  /// are kept, as every column part, pass and plan of a table asks for the same.
  [[nodiscard]] double unique(double lookups) const;
  [[nodiscard]] double seen_once(double lookups) const;  ///< sum n p (1-p)^(n-1)
  [[nodiscard]] double lru_hit(double capacity) const;   ///< Che's approximation

  [[nodiscard]] std::vector<Atom> slice(double first, double last) const;
  [[nodiscard]] std::vector<Atom> thinned(double share) const;
  /// The rows of `ranks` (ascending, below `followed`) and, of those from rank `followed` on, a
  /// random `others`.
  [[nodiscard]] std::vector<Atom> chosen(std::span<const std::int64_t> ranks, double followed,
                                         double others) const;
  [[nodiscard]] std::vector<Atom> hashed(double buckets) const;
  [[nodiscard]] std::vector<Atom> folded(double buckets) const;

 private:
  PopularityCurve() = default;
  void sum_up();  ///< prefix sums over the atoms
  struct Answers {
    std::mutex mutex;
    /// By mantissa m of the lookups: those of m, 2 m, 4 m ...
    std::unordered_map<double, std::vector<double>> unique;
  };
  /// unique() of `least`, 2 `least`, 4 `least` ...
  [[nodiscard]] std::vector<double> unique_doubling(double least, std::size_t count) const;

  std::vector<Atom> atoms_;
  std::vector<double> decay_;  ///< -log(1 - p): a row survives n lookups unseen by exp(-n decay)
  std::vector<double> rows_before_;  ///< one more than atoms
  std::vector<double> mass_before_;
  std::optional<PowerLaw> law_;
  double share_ = 1;
  std::shared_ptr<Answers> answers_ = std::make_shared<Answers>();  ///< copies are the same curve
};

/// Chance that a row seen c of N times is absent from n of these N lookups, C(N-c, n) / C(N, n),
/// continued to fractional c and n. 0 <= c, n <= N.
double absence(double total, double count, double lookups);
/// Expected distinct rows, and rows seen exactly once, in `lookups` of the `total` recorded
/// lookups.
double rarefied_unique(const std::vector<Atom>& atoms, double total, double lookups);
double rarefied_seen_once(const std::vector<Atom>& atoms, double total, double lookups);

}  // namespace stepcast::internal
