#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/job/plan.h"

namespace stepcast::planner {

/// Time as the search adds it up: integer femtoseconds, so that a load that is added and taken away
/// again leaves nothing behind and every delta is exact.
using Femtoseconds = std::int64_t;
/// Rounded to whole picoseconds: the last digits of a predicted time, 0.1 fs of a millisecond,
/// move few loads, where rounded to femtoseconds they move every tenth, and with it the search.
Femtoseconds to_load(double seconds);
inline double load_seconds(Femtoseconds ticks) { return static_cast<double>(ticks) * 1e-15; }

/// Parts of a step that no rank leaves before the slowest: each exchange is a rendezvous, and so is
/// the end of the step. In the order of a step; what goes out in an exchange comes back in it as
/// gradients, from the same ranks, so both directions are one phase.
constexpr std::size_t kPhases = 8;
enum LoadPhase : std::uint8_t {
  kArrival,           ///< ids and lengths arrive and are sorted into bags
  kLookup,            ///< rows of whole tables and of columns
  kExchange,          ///< their outputs, and the gradients of these
  kGroupLookup,       ///< rows of tables that are split by rows; partial sums inside groups
  kGroupExchange,     ///< partial sums across groups, and their gradients
  kSequenceLookup,    ///< rows that travel unpooled
  kSequenceExchange,  ///< and their exchange
  kUpdate,            ///< gradients are applied to rows
};
using Load = std::array<Femtoseconds, kPhases>;
Femtoseconds total(const Load& load);

/// Beyond so many tables a smooth descent places them (planner/embedding/internal/many_tables.h).
constexpr std::size_t kLargeTables = 100;
/// Beyond so many tables a start of the search costs as much as a whole sweep over them.
constexpr std::size_t kManyTables = 2000;

constexpr std::size_t kMaxTiers = 3;
using TierBytes = std::array<std::int64_t, kMaxTiers>;

/// One way to place a table, with its price. `pieces` equal parts (columns) each go to one group of
/// `group` consecutive ranks; a group of all ranks needs no choice of place.
struct PlacementOption {
  std::string label;      ///< "row_wise", "column_wise x4": for people
  std::int32_t form = 0;  ///< the caller's own number: what the option means
  std::int32_t pieces = 1;
  std::int32_t group = 1;  ///< ranks that share one piece
  Load load{};             ///< one piece adds to each member of its group
  Load everywhere{};       ///< the option adds to every rank
  /// Members that hold rows which are looked up more often than others, ascending by position:
  /// beyond `load` each has `times` the load `skewed`. Members of equal load are not listed.
  /// Positions go on from piece to piece: member m of piece i has i * group + m.
  struct Skew {
    std::int32_t position = 0;
    float times = 0;
  };
  /// A list of them that does not change: options of several spaces hold one together.
  class Skews {
   public:
    Skews() = default;
    Skews(std::initializer_list<Skew> list) : Skews(std::vector<Skew>(list)) {}
    explicit Skews(std::vector<Skew> list);
    [[nodiscard]] bool empty() const { return list_ == nullptr; }
    [[nodiscard]] const Skew* begin() const { return empty() ? nullptr : list_->data(); }
    [[nodiscard]] const Skew* end() const { return empty() ? nullptr : begin() + list_->size(); }
    [[nodiscard]] float most() const { return most_; }  ///< of `times`

   private:
    std::shared_ptr<const std::vector<Skew>> list_;  ///< null: of none
    float most_ = 0;
  };
  Skews skew;
  Load skewed{};
  /// The exchange that loads all ranks: the all-reduce of copies' gradients.
  Femtoseconds synchronised = 0;
  TierBytes bytes{};  ///< one piece needs on each member
  TierBytes bytes_everywhere{};
  std::uint32_t routes = 0;  ///< fixed charges it brings in, bits of PlacementProblem::fixed
  /// What a skewed member has beyond `load` in one phase; not negative.
  [[nodiscard]] Femtoseconds extra(const Skew& s, std::size_t phase) const {
    return static_cast<Femtoseconds>(static_cast<double>(skewed[phase]) *
                                     static_cast<double>(s.times));
  }
  [[nodiscard]] Load extra(const Skew& s) const;
  /// The rank of a skewed member where the pieces lie on `groups` (empty: on all ranks).
  [[nodiscard]] std::int32_t rank_of(const Skew& s, const std::vector<std::int32_t>& groups) const {
    return groups.empty()
               ? s.position
               : groups[static_cast<std::size_t>(s.position / group)] * group + s.position % group;
  }
  /// Pieces that do not load their groups alike: it matters which of them lies where.
  [[nodiscard]] bool uneven_pieces() const { return pieces > 1 && !skew.empty(); }
  /// The groups in the order of the pieces, where the heaviest piece takes the first of `groups`.
  [[nodiscard]] std::vector<std::int32_t> heaviest_first(std::vector<std::int32_t> groups) const;
  /// The busiest member's.
  [[nodiscard]] Load most_extra() const;
  /// Sum over all members of all pieces.
  [[nodiscard]] Load sum_of_extras() const;
  [[nodiscard]] Femtoseconds piece_total() const;
};

struct PlacementTable {
  std::string name;
  std::vector<PlacementOption> options;
};

/// Capacity of one memory tier. `shared_by` consecutive ranks draw on one unit (a machine's DDR);
/// `capacity[i]` is that of unit i.
struct TierCapacity {
  std::string name;
  std::int32_t shared_by = 1;
  std::vector<std::int64_t> capacity;
};

/// The option of a table and the group of each of its pieces (empty for options on all ranks);
/// pieces of one table go to distinct groups, in the order of the pieces.
struct Choice {
  std::int32_t option = -1;
  std::vector<std::int32_t> groups;
};
using Placement = std::vector<Choice>;

/// Plan that is in use already: what it costs to leave it, and how much may be moved.
struct Moves {
  Placement home;
  std::function<std::int64_t(std::size_t table, const Choice& to)> bytes;  ///< 0 at home
  std::int64_t allowed = 0;  ///< of all tables together; no placement that fits moves more
};

/// Minimise  sum over phases of the slowest rank's load in each  +  fixed charges of the routes in
/// use, one option per table, memory within every capacity. Where all loads lie in one phase that
/// is the busiest rank. It is never less than the busiest rank's load of all phases, so bounds of
/// that hold.
///
/// With `arrival_overlaps` the ids of the next step arrive while this one runs, over the same
/// links, from its begin on:
///
///   sum over phases but kArrival + fixed charges + delay
///
/// where `delay` is arrival_delay(); `arrival_overlaps` is the time in which nothing but arrival
/// uses a link, lookups and updates not counted. It is never less than
///
///   max( sum over phases but kArrival + fixed charges,
///        sum over kArrival and what of the exchanges enters a rank as ids do - arrival_overlaps )
///
/// (gradients come back to the ranks that ids come to, outputs leave them: links have two
/// directions), of which planner/embedding/overlapped_arrival.h makes plain problems.
///
/// Promises: every option's group divides `ranks`; loads and bytes are not negative.
struct PlacementProblem {
  std::int32_t ranks = 1;
  std::vector<PlacementTable> tables;
  std::vector<TierCapacity> tiers;
  std::vector<Femtoseconds> fixed;  ///< by route bit
  Femtoseconds constant = 0;        ///< the same for every plan
  std::optional<Femtoseconds> arrival_overlaps = std::nullopt;
  double returning = 0.5;  ///< share of an exchange's load that is of gradients on their way back
  std::optional<Moves> moves = std::nullopt;
  /// Phases that some option loads.
  [[nodiscard]] std::vector<std::size_t> phases() const;
  /// Number of placements, as a power of ten; of pieces on as many groups, an upper bound.
  [[nodiscard]] double space_log10() const;
};

/// The objective from scratch: the recount that incremental evaluation is tested against.
Femtoseconds objective_of(const PlacementProblem& problem, const Placement& placement);
/// Bytes by [tier][unit] from scratch.
std::vector<std::vector<std::int64_t>> bytes_of(const PlacementProblem& problem,
                                                const Placement& placement);
bool fits(const PlacementProblem& problem, const Placement& placement);
/// Bytes of an option on the unit of a tier that holds most of them.
std::int64_t bytes_on_a_unit(const PlacementProblem& problem, const PlacementOption& option,
                             std::size_t tier);
/// False if no unit has room for the option, whatever else it holds.
bool fits_alone(const PlacementProblem& problem, const PlacementOption& option);
/// True if no placement that fits has the option, while the table has others.
bool left_out(const PlacementProblem& problem, const PlacementTable& table,
              const PlacementOption& option);

}  // namespace stepcast::planner
