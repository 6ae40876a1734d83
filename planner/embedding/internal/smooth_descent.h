#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "planner/embedding/placement.h"

namespace stepcast::planner::internal {

constexpr double kSteepest = 340;  ///< largest exponent: products of two stay finite
inline double exp_of(double x) { return std::exp(std::min(x, kSteepest)); }

/// Descent on a smooth stand-in for the objective, for many tables and ranks.
///
/// The slowest rank of a phase is replaced by  log(sum over ranks of exp(b load)) / b,  which lies
/// above it by at most log(ranks) / b. So one more piece has a price on every rank and in every
/// phase, also on ranks that are not the slowest: the multipliers of the Lagrangian over ranks and
/// phases, kept up to date with every piece. Tables in turn take the option and the ranks of least
/// price, while b rises from soft to sharp; bytes beyond a capacity have a price that rises too.
/// Prices of one piece on all ranks are a few products each, in arrays, so a sweep costs tables x
/// options x ranks x phases of these. Source: Plotkin, Shmoys, Tardos, "Fast approximation
/// algorithms for fractional packing and covering problems", Math. Oper. Res. 20(2), 1995.
class SmoothDescent {
 public:
  /// How sharp and how long. `soft` and `sharp` are b times the objective's scale.
  struct Schedule {
    double soft = 40;
    double sharp = 3000;
    int sweeps = 12;
    int exchanges = 1;
  };

  /// `scale`: an objective of about the right size, in seconds.
  SmoothDescent(const PlacementProblem& problem, double scale);

  void fix(std::vector<std::int32_t> choose) { choose_ = std::move(choose); }
  /// Starts from `from`, or from nothing where that is empty. The placement of the least objective
  /// among those that fit after a sweep; empty where none did. `stop` is asked after every table.
  Placement run(const Schedule& schedule, std::uint64_t seed, const Placement& from,
                const std::function<bool()>& stop = nullptr);
  /// Prices of an option looked up so far.
  [[nodiscard]] std::uint64_t evaluations() const { return evaluations_; }

 private:
  /// Factors by which an option scales the sums of exponentials, by phase: on each member of its
  /// group, and beyond that on members that hold more or less than others.
  struct Factors {
    struct Uneven {
      std::size_t member, phase;  ///< member: its position among those of all pieces
      double factor;
    };
    std::array<double, kPhases> member{};
    std::vector<Uneven> uneven;
  };
  struct Offer {
    double price;  ///< rise of the smooth objective, and of the price of bytes
    Choice choice;
  };
  static constexpr std::size_t kMostPieces = 32;  ///< of a rank that are considered for exchanges
  /// Pieces of a rank: exp(b load) by phase, then what it takes to remove them.
  struct Held {
    std::size_t size = 0;
    std::array<std::int32_t, kMostPieces> tables{};
    std::array<std::array<double, 2 * kPhases>, kMostPieces> factors{};
  };
  void sharpen(double b);
  void apply(std::size_t table, const Choice& choice, std::int64_t sign);
  void load_rank(std::size_t phase, std::size_t rank, Femtoseconds load);
  [[nodiscard]] double taken_on_all(std::size_t tier) const;
  void take_bytes(std::size_t tier, std::size_t unit, double bytes);
  [[nodiscard]] Offer best_of(std::size_t table, std::size_t first);
  void factors_of(const PlacementOption& option);
  /// Prices of a piece on every group into `price_`.
  void price_groups(const PlacementOption& option);
  void exchange(std::uint64_t& seed);
  bool exchange_from(std::size_t rank, std::size_t first);
  void gather(std::size_t rank, Held& held) const;
  [[nodiscard]] bool may_exchange(std::int32_t give, std::size_t from, std::int32_t take,
                                  std::size_t partner) const;
  void move(std::int32_t table, std::size_t from, std::size_t to);
  /// The groups of least price, one for each piece.
  void pick(const PlacementOption& option);
  void order_pieces(const PlacementOption& option);
  void refresh();
  [[nodiscard]] double least_rise(const PlacementOption& option) const;
  [[nodiscard]] double rise(const PlacementOption& option) const;
  [[nodiscard]] double charges(const PlacementOption& option) const;
  [[nodiscard]] double price_per_byte(std::size_t tier) const;
  [[nodiscard]] Femtoseconds objective() const;
  [[nodiscard]] bool fits() const;

  const PlacementProblem& problem_;
  std::vector<std::size_t> phases_;
  std::size_t ranks_;
  double scale_;
  std::vector<std::int32_t> choose_;
  double b_ = 1;
  double byte_price_ = 0;  ///< seconds for all of a tier's capacity on one rank
  Placement placement_;
  std::array<std::vector<Femtoseconds>, kPhases> load_;  ///< by rank, without what is on all ranks
  std::array<std::vector<double>, kPhases> exp_;         ///< exp(b (load - top))
  std::array<Femtoseconds, kPhases> top_{}, even_{};
  std::array<double, kPhases> sum_{};        ///< of `exp_`
  std::array<double, kPhases> least_exp_{};  ///< about the least of `exp_`
  std::vector<std::vector<double>> room_;    ///< [tier][rank]: bytes left of its unit
  std::vector<double> on_all_;               ///< by tier: bytes on every rank alike
  std::vector<double> least_room_;           ///< by tier; never above the least
  std::vector<std::int32_t> route_uses_;
  std::vector<std::vector<std::int32_t>> tables_on_;  ///< by rank: those with a piece on it alone
  std::vector<std::size_t> local_;                    ///< phases that such pieces load
  std::vector<double> factors_on_;                    ///< by table: as in `Held`
  Held mine_, theirs_;
  Factors factors_;
  std::vector<double> price_;
  std::vector<std::pair<double, std::int32_t>> chosen_;
  std::uint64_t evaluations_ = 0;
};

}  // namespace stepcast::planner::internal
