#include "planner/embedding/internal/phase_bound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <queue>
#include <set>
#include <utility>

#include "planner/embedding/internal/phase_items.h"

namespace stepcast::planner::internal {
namespace {

constexpr int kSteps = 14;         // towards the best weights of a node
constexpr int kRootSteps = 100;    // of the first
constexpr double kClosed = 1e-6;   // relative: the relaxation attains its own bound
constexpr std::size_t kFew = 100;  // tables: beyond, phases are cut first
constexpr double kInfinite = std::numeric_limits<double>::infinity();

}  // namespace

// Members of PhaseBound::Tree, so not of an anonymous namespace.
inline namespace phase_bound_parts {

/// Fields of an item that a relaxation reads.
struct Candidate {
  double even;
  PhaseVector local;
  const PhaseItem* item;
};

struct Node {
  double bound = 0;
  bool solved = true;         ///< else the bound is one of a relaxation
  std::uint32_t routes = 0;   ///< of the options
  std::uint32_t charged = 0;  ///< of them, those that are paid for
  PhaseVector weight{};
  PhaseVector least{};  ///< the slowest rank of a phase has at least this, beyond what lies on all
  PhaseVector most{};   ///< and no more: no piece is larger
  std::vector<std::int16_t> fixed;  ///< item by table; -1: free; empty: all are
  [[nodiscard]] bool is_free(std::size_t table) const { return fixed.empty() || fixed[table] < 0; }
};

}  // namespace phase_bound_parts

class PhaseBound::Tree {
 public:
  Tree(const PlacementProblem& problem, std::size_t starts)
      : problem_(problem),
        phases_(problem.phases()),
        kept_(starts),
        items_of_(problem, kFew),
        tables_(items_of_.tables()),
        used_(items_of_.routes()) {}

  double raise(double in_hand, double enough, std::uint64_t nodes) {
    in_hand_ = std::min(in_hand_, in_hand);
    if (!rooted_) {
      rooted_ = true;
      plant();
    }
    while (!open_.empty()) {
      const Node node = open_.top();
      if (!node.solved) {
        open_.pop();
        solve(node);
        continue;
      }
      if (node.bound >= std::min(enough, in_hand_) || nodes == 0) {
        break;
      }
      const Branch at = branch(node);
      if (at.phase == kPhases && at.table == tables_.size()) {
        break;
      }
      open_.pop();
      nodes -= std::min(nodes, go_on(node, at));
    }
    return open_.empty() ? in_hand_ : std::min(in_hand_, open_.top().bound);
  }

  [[nodiscard]] std::vector<std::vector<std::int32_t>> starts() const {
    std::vector<std::vector<std::int32_t>> all;
    std::copy_if(starts_.begin(), starts_.end(), std::back_inserter(all), [&](const auto& options) {
      return std::find(last_.begin(), last_.end(), options) == last_.end();
    });
    all.insert(all.end(), last_.begin(), last_.end());
    return all;
  }

 private:
  struct Later {
    bool operator()(const Node& a, const Node& b) const { return a.bound > b.bound; }
  };

  /// Sums over the fixed tables of a node.
  struct Fixed {
    double charges = 0;  ///< with what lies on all ranks
    PhaseVector local{}, piece{};
    double pieces = 0;                  ///< of all phases
    std::vector<std::size_t> capped{};  ///< phases whose pieces may not be of any size
  };
  [[nodiscard]] Fixed fixed_of(const Node& node) const {
    Fixed f;
    f.piece = node.least;
    f.charges = load_seconds(problem_.constant);
    for (std::size_t r = 0; r < problem_.fixed.size(); ++r) {
      f.charges += (node.charged >> r & 1U) != 0 ? load_seconds(problem_.fixed[r]) : 0;
    }
    for (std::size_t t = 0; t < node.fixed.size(); ++t) {
      if (node.is_free(t)) {
        continue;
      }
      const PhaseItem& item = tables_[t][static_cast<std::size_t>(node.fixed[t])];
      f.charges += item.even;
      for (const std::size_t p : phases_) {
        f.local[p] += item.local[p];
        f.piece[p] = std::max(f.piece[p], item.piece[p]);
      }
    }
    for (std::size_t p = 0; p < kPhases; ++p) {
      f.pieces += f.piece[p];
      if (node.most[p] < kInfinite) {
        f.capped.push_back(p);
      }
    }
    return f;
  }

  /// The items that the free tables of a node may take, into `items_`; false where a table has
  /// none. Tables whose cheapest items fit add to `sure_even_` and `sure_local_`.
  bool gather(const Node& node, const Fixed& f) {
    free_.clear();
    items_.clear();
    first_.assign(1, 0);
    taken_.clear();
    sure_even_ = 0;
    sure_local_ = {};
    chosen_.resize(tables_.size());
    for (std::size_t t = 0; t < node.fixed.size(); ++t) {
      if (!node.is_free(t)) {
        chosen_[t] = &tables_[t][static_cast<std::size_t>(node.fixed[t])];
      }
    }
    const PhaseItems::Grouped& groups = items_of_.grouped(node.routes);
    const auto fits = [&](const PhaseVector& piece) {
      return std::all_of(f.capped.begin(), f.capped.end(),
                         [&](std::size_t p) { return piece[p] <= node.most[p]; });
    };
    const auto take = [&](const auto& of) {
      sure_even_ += of.even;
      for (const std::size_t p : phases_) {
        sure_local_[p] += of.local[p];
      }
    };
    for (const PhaseItems::Block& block : groups.blocks) {
      if (node.fixed.empty() && fits(block.piece)) {
        taken_.push_back(&block);
        take(block);
        continue;
      }
      for (const auto& [table, item] : block.tables) {
        if (node.is_free(table) && fits(item->piece)) {
          chosen_[table] = item;
          take(*item);
        } else if (!gather_table(node, f, table)) {
          return false;
        }
      }
    }
    return std::all_of(groups.others.begin(), groups.others.end(),
                       [&](std::size_t t) { return gather_table(node, f, t); });
  }

  /// The least of any placement with an item; where a larger number than that is below what is in
  /// hand already, that one.
  [[nodiscard]] double least_with(const Fixed& f, const PhaseItem& item) const {
    const double even = f.charges + item.even;
    if (even + f.pieces + item.pieces < in_hand_) {
      return even + f.pieces + item.pieces;
    }
    double least = even;
    for (std::size_t p = 0; p < kPhases; ++p) {
      least += std::max(f.piece[p], item.piece[p]);
    }
    return least;
  }

  bool gather_table(const Node& node, const Fixed& f, std::size_t t) {
    if (!node.is_free(t)) {
      return true;
    }
    for (const PhaseItem& item : tables_[t]) {
      if ((item.routes & ~node.routes) != 0) {
        continue;
      }
      const bool over = std::any_of(f.capped.begin(), f.capped.end(),
                                    [&](std::size_t p) { return item.piece[p] > node.most[p]; });
      if (!over && least_with(f, item) < in_hand_) {
        items_.push_back({item.even, item.local, &item});
      }
    }
    if (items_.size() == first_.back()) {
      return false;
    }
    free_.push_back(t);
    first_.push_back(items_.size());
    return true;
  }

  /// The cheapest items under the weights, into `chosen_`. What they put on average on a rank is
  /// added to `local`; returned is what they put on all.
  double relax(const PhaseVector& weight, PhaseVector& local) {
    double even = sure_even_;
    for (const std::size_t p : phases_) {
      local[p] += sure_local_[p];
    }
    for (std::size_t at = 0; at < free_.size(); ++at) {
      double least = kInfinite;
      std::size_t best = first_[at];
      for (std::size_t i = first_[at]; i < first_[at + 1]; ++i) {
        double cost = items_[i].even;
        for (std::size_t p = 0; p < kPhases; ++p) {
          cost += weight[p] * items_[i].local[p];
        }
        if (cost < least) {
          least = cost;
          best = i;
        }
      }
      chosen_[free_[at]] = items_[best].item;
      even += items_[best].even;
      for (std::size_t p = 0; p < kPhases; ++p) {
        local[p] += items_[best].local[p];
      }
    }
    return even;
  }

  /// Every set of fixed charges, with the bound that the prices without any give it.
  void plant() {
    Node root;
    root.routes = used_;
    root.weight.fill(1);
    root.most.fill(kInfinite);
    solve(root, kRootSteps);
    const double free = open_.empty() ? in_hand_ : open_.top().bound;
    if (!open_.empty()) {
      root.weight = open_.top().weight;
    }
    open_ = {};
    root.solved = false;
    for (std::uint32_t set = used_;; set = (set - 1) & used_) {
      root.routes = root.charged = set;
      root.bound = free;
      for (std::size_t r = 0; r < problem_.fixed.size(); ++r) {
        root.bound += (set >> r & 1U) != 0 ? load_seconds(problem_.fixed[r]) : 0;
      }
      if (root.bound < in_hand_) {
        open_.push(root);
      }
      if (set == 0) {
        break;
      }
    }
  }

  /// Finds weights for the node and keeps it where its bound is below what is in hand.
  void solve(Node node, int steps = kSteps) {
    const Fixed f = fixed_of(node);
    PhaseVector weight = node.weight;
    node.bound = 0;
    node.solved = true;
    if (!gather(node, f)) {
      return;
    }
    for (int step = 0; step < steps; ++step) {
      PhaseVector local = f.local;
      double bound = f.charges + relax(weight, local);
      double slopes = 0;
      PhaseVector slope{};
      for (const std::size_t p : phases_) {
        bound += (1 - weight[p]) * f.piece[p] + weight[p] * local[p];
        slope[p] = local[p] - f.piece[p];
        const bool held = slope[p] > 0 ? weight[p] >= 1 : weight[p] <= 0;
        slope[p] = held ? 0 : slope[p];
        slopes += slope[p] * slope[p];
      }
      if (bound > node.bound) {
        node.bound = bound;
        node.weight = weight;
      }
      if (slopes == 0 || node.bound >= in_hand_) {
        break;
      }
      const double length = 0.5 * std::max(in_hand_ - bound, 0.01 * in_hand_) / slopes;
      for (const std::size_t p : phases_) {
        weight[p] = std::clamp(weight[p] + length * slope[p], 0.0, 1.0);
      }
    }
    if (node.bound < in_hand_) {
      open_.push(std::move(node));
    }
  }

  /// Way on from a node: whether the slowest rank of a phase has at most `below` or at
  /// least `above`, or which option a table takes. No table: the relaxation attains the bound.
  struct Branch {
    std::size_t table = 0;
    std::size_t phase = kPhases;
    double below = 0, above = 0;
  };

  /// The children of a node; how many.
  std::uint64_t go_on(const Node& node, const Branch& at) {
    if (at.phase < kPhases) {
      Node below = node;
      below.most[at.phase] = at.below;
      solve(std::move(below));
      Node above = node;
      above.least[at.phase] = at.above;
      solve(std::move(above));
      return 2;
    }
    std::uint64_t children = 0;
    for (std::size_t i = 0; i < tables_[at.table].size(); ++i) {
      if ((tables_[at.table][i].routes & ~node.routes) == 0) {
        Node child = node;
        child.fixed.resize(tables_.size(), -1);
        child.fixed[at.table] = static_cast<std::int16_t>(i);
        solve(std::move(child));
        ++children;
      }
    }
    return children;
  }

  /// Least time of the chosen items, wherever they lie.
  [[nodiscard]] double least_placed(double charges, const PhaseVector& local) const {
    double sum = charges;
    for (const std::size_t p : phases_) {
      double most = local[p];
      for (const PhaseItem* item : chosen_) {
        most = std::max(most, item->piece[p]);
      }
      sum += most;
    }
    return sum;
  }

  /// Half are those that take least, half the last, whose phases are cut most.
  void keep(double least, std::vector<std::int32_t> options) {
    const auto at = std::upper_bound(leasts_.begin(), leasts_.end(), least);
    last_.push_back(options);
    starts_.insert(starts_.begin() + (at - leasts_.begin()), std::move(options));
    leasts_.insert(at, least);
    if (starts_.size() > (kept_ + 1) / 2) {
      starts_.pop_back();
      leasts_.pop_back();
    }
    if (last_.size() > kept_ / 2) {
      last_.erase(last_.begin());
    }
  }

  /// The phase in which a piece stands out most above the relaxation, cut half way down to it.
  Branch cut(const PhaseVector& last) const {
    Branch at;
    double most = 0;
    double piece = 0;
    for (const std::size_t p : phases_) {
      double largest = 0;
      for (const PhaseItem* item : chosen_) {
        largest = std::max(largest, item->piece[p]);
      }
      if (largest > last[p] * (1 + kClosed) && largest - last[p] > most) {
        most = largest - last[p];
        piece = largest;
        at.phase = p;
      }
    }
    if (at.phase == kPhases) {
      return at;
    }
    const std::size_t p = at.phase;
    at.below = (last[p] + piece) / 2;
    at.above = piece;
    const auto [under, above] = items_of_.pieces_around(p, at.below);
    at.above = std::min(piece, above);
    at.below = std::max(under, last[p]);
    return at;
  }

  /// Few tables: the free table whose piece stands out most above the relaxation.
  Branch branch(const Node& node) {
    const Fixed f = fixed_of(node);
    PhaseVector local = f.local;
    gather(node, f);
    for (const PhaseItems::Block* block : taken_) {
      for (const auto& [table, item] : block->tables) {
        chosen_[table] = item;
      }
    }
    const double charges = f.charges + relax(node.weight, local);
    if (kept_ > 0) {
      std::vector<std::int32_t> options;
      for (const PhaseItem* item : chosen_) {
        options.push_back(item->option);
      }
      if (seen_.insert(options).second) {
        keep(least_placed(charges, local), std::move(options));
      }
    }
    double attained = charges;
    PhaseVector last{};
    for (const std::size_t p : phases_) {
      last[p] = std::max(local[p], f.piece[p]);
      attained += last[p];
    }
    if (tables_.size() > kFew) {
      Branch at = cut(last);
      if (at.phase < kPhases || attained <= node.bound * (1 + kClosed)) {
        at.table = tables_.size();
        return at;
      }
    }
    std::size_t worst = tables_.size();
    double most = 0;
    double heaviest = 0;
    std::size_t heavy = tables_.size();
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      if (!node.is_free(t)) {
        continue;
      }
      double above = 0;
      double sum = chosen_[t]->even;
      for (const std::size_t p : phases_) {
        above += std::max(0.0, chosen_[t]->piece[p] - last[p]);
        sum += chosen_[t]->local[p];
      }
      if (above > most) {
        most = above;
        worst = t;
      }
      if (sum > heaviest) {
        heaviest = sum;
        heavy = t;
      }
    }
    if (worst < tables_.size() || attained <= node.bound * (1 + kClosed)) {
      return {.table = worst};
    }
    return {.table = heavy};
  }

  const PlacementProblem& problem_;
  std::vector<std::size_t> phases_;
  std::size_t kept_;
  double in_hand_ = kInfinite;
  bool rooted_ = false;
  PhaseItems items_of_;
  const std::vector<std::vector<PhaseItem>>& tables_;
  std::uint32_t used_;
  std::priority_queue<Node, std::vector<Node>, Later> open_;
  // The node looked at: tables that choose, their items from `first_` on, blocks taken whole.
  std::vector<std::size_t> free_;
  std::vector<Candidate> items_;
  std::vector<std::size_t> first_;
  std::vector<const PhaseItems::Block*> taken_;
  double sure_even_ = 0;
  PhaseVector sure_local_{};
  std::vector<const PhaseItem*> chosen_;
  std::vector<std::vector<std::int32_t>> starts_;
  std::vector<double> leasts_;                   ///< of them
  std::vector<std::vector<std::int32_t>> last_;  ///< the newest
  std::set<std::vector<std::int32_t>> seen_;
};

PhaseBound::PhaseBound(const PlacementProblem& problem, std::size_t starts)
    : tree_(std::make_unique<Tree>(problem, starts)) {}
PhaseBound::~PhaseBound() = default;

Femtoseconds PhaseBound::raise(Femtoseconds in_hand, Femtoseconds enough, std::uint64_t nodes) {
  const double bound = tree_->raise(load_seconds(in_hand), load_seconds(enough), nodes);
  return static_cast<Femtoseconds>(std::floor(std::max(0.0, bound) * (1 - 1e-9) * 1e15));
}

std::vector<std::vector<std::int32_t>> PhaseBound::starts() const { return tree_->starts(); }

}  // namespace stepcast::planner::internal
