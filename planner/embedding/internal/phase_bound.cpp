#include "planner/embedding/internal/phase_bound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <queue>
#include <set>

namespace stepcast::planner::internal {
namespace {

using Vector = std::array<double, kPhases>;  // seconds by phase; a weight by phase

constexpr int kSteps = 14;         // towards the best weights of a node
constexpr double kClosed = 1e-6;   // relative: the relaxation attains its own bound
constexpr std::size_t kFew = 100;  // tables: beyond, phases are cut first
constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// An option of a table.
struct PhaseItem {
  Vector even{};   ///< on every rank at least
  Vector local{};  ///< beyond that, averaged over ranks
  Vector piece{};  ///< beyond that, on the rank that has most of a phase
  std::uint32_t routes = 0;
  std::int32_t option = 0;
};

PhaseItem phase_item(const PlacementOption& o, std::size_t option, std::int32_t ranks) {
  PhaseItem item;
  item.routes = o.routes;
  item.option = static_cast<std::int32_t>(option);
  const bool everywhere = o.group == ranks;
  const double copies = everywhere ? o.pieces : 1;
  const double share = static_cast<double>(o.pieces) * o.group / ranks;
  const Load most_extra = o.most_extra();
  const Load extras = o.sum_of_extras();
  for (std::size_t p = 0; p < kPhases; ++p) {
    const Ticks most = most_extra[p];
    const double sum = load_seconds(extras[p]);
    const double even = everywhere ? copies * load_seconds(o.load[p]) : 0;
    const double mean = share * load_seconds(o.load[p]) + sum / ranks;
    item.even[p] = load_seconds(o.everywhere[p]) + even;
    item.local[p] = std::max(0.0, mean - even);
    item.piece[p] = std::max(0.0, copies * load_seconds(o.load[p] + most) - even);
  }
  return item;
}

bool dominates(const PhaseItem& a, const PhaseItem& b) {
  bool better = (a.routes & ~b.routes) == 0;
  for (std::size_t p = 0; p < kPhases && better; ++p) {
    better = a.even[p] <= b.even[p] && a.even[p] + a.local[p] <= b.even[p] + b.local[p] &&
             a.even[p] + a.piece[p] <= b.even[p] + b.piece[p];
  }
  return better;
}

struct Node {
  double bound = 0;
  bool solved = true;         ///< else the bound is one of a relaxation
  std::uint32_t routes = 0;   ///< of the options
  std::uint32_t charged = 0;  ///< of them, those that are paid for
  Vector weight{};
  Vector least{};  ///< the slowest rank of a phase has at least this, beyond `even`
  Vector most{};   ///< and no more: no piece is larger
  std::vector<std::int16_t> fixed;  ///< item by table; -1: free
};

}  // namespace

class PhaseBound::Tree {
 public:
  Tree(const PlacementProblem& problem, std::size_t starts)
      : problem_(problem), phases_(problem.phases()), kept_(starts) {
    for (const PlacementTable& table : problem.tables) {
      std::vector<PhaseItem> items;
      for (std::size_t o = 0; o < table.options.size(); ++o) {
        const PhaseItem item = phase_item(table.options[o], o, problem.ranks);
        if (std::none_of(items.begin(), items.end(),
                         [&](const PhaseItem& other) { return dominates(other, item); })) {
          std::erase_if(items, [&](const PhaseItem& other) { return dominates(item, other); });
          items.push_back(item);
        }
      }
      for (const PhaseItem& i : items) {
        used_ |= i.routes;
      }
      tables_.push_back(std::move(items));
    }
  }

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

  /// What the fixed tables of a node add up to.
  struct Fixed {
    double charges = 0;
    Vector even{}, local{}, piece{};
  };
  [[nodiscard]] Fixed fixed_of(const Node& node) const {
    Fixed f;
    f.piece = node.least;
    f.charges = load_seconds(problem_.constant);
    for (std::size_t r = 0; r < problem_.fixed.size(); ++r) {
      f.charges += (node.charged >> r & 1U) != 0 ? load_seconds(problem_.fixed[r]) : 0;
    }
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      if (node.fixed[t] < 0) {
        continue;
      }
      const PhaseItem& item = tables_[t][static_cast<std::size_t>(node.fixed[t])];
      for (const std::size_t p : phases_) {
        f.even[p] += item.even[p];
        f.local[p] += item.local[p];
        f.piece[p] = std::max(f.piece[p], item.piece[p]);
      }
    }
    return f;
  }

  /// The items that the free tables of a node may take, into `items_`; false where a table has
  /// none.
  bool gather(const Node& node, const Fixed& f) {
    double floor = f.charges;
    for (const std::size_t p : phases_) {
      floor += f.even[p];
    }
    items_.clear();
    first_.clear();
    chosen_.resize(tables_.size());
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      first_.push_back(items_.size());
      if (node.fixed[t] >= 0) {
        chosen_[t] = &tables_[t][static_cast<std::size_t>(node.fixed[t])];
        continue;
      }
      for (const PhaseItem& item : tables_[t]) {
        if ((item.routes & ~node.routes) != 0) {
          continue;
        }
        double least = floor;  // of any placement with this item
        for (const std::size_t p : phases_) {
          least += item.piece[p] > node.most[p] ? kInfinite : 0;
          least += item.even[p] + std::max(f.piece[p], item.piece[p]);
        }
        if (least < in_hand_) {
          items_.push_back(&item);
        }
      }
      if (items_.size() == first_.back()) {
        return false;
      }
    }
    first_.push_back(items_.size());
    return true;
  }

  /// The cheapest items under the weights, into `chosen_`; what they put on all ranks and on
  /// average is added to `even` and `local`.
  void relax(const Vector& weight, Vector& even, Vector& local) {
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      if (first_[t] == first_[t + 1]) {
        continue;  // fixed
      }
      double best = kInfinite;
      for (std::size_t i = first_[t]; i < first_[t + 1]; ++i) {
        double cost = 0;
        for (const std::size_t p : phases_) {
          cost += items_[i]->even[p] + weight[p] * items_[i]->local[p];
        }
        if (cost < best) {
          best = cost;
          chosen_[t] = items_[i];
        }
      }
      for (const std::size_t p : phases_) {
        even[p] += chosen_[t]->even[p];
        local[p] += chosen_[t]->local[p];
      }
    }
  }

  /// Every set of fixed charges, with the bound that the prices without any give it.
  void plant() {
    Node root;
    root.routes = used_;
    root.weight.fill(1);
    root.most.fill(kInfinite);
    root.fixed.assign(tables_.size(), -1);
    solve(root);
    const double free = open_.empty() ? in_hand_ : open_.top().bound;
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
  void solve(Node node) {
    const Fixed f = fixed_of(node);
    Vector weight = node.weight;
    node.bound = 0;
    node.solved = true;
    if (!gather(node, f)) {
      return;
    }
    for (int step = 0; step < kSteps; ++step) {
      Vector even = f.even;
      Vector local = f.local;
      relax(weight, even, local);
      double bound = f.charges;
      double slopes = 0;
      Vector slope{};
      for (const std::size_t p : phases_) {
        bound += even[p] + (1 - weight[p]) * f.piece[p] + weight[p] * local[p];
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

  /// Where to go on from a node: whether the slowest rank of a phase has at most `below` or at
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
        child.fixed[at.table] = static_cast<std::int16_t>(i);
        solve(std::move(child));
        ++children;
      }
    }
    return children;
  }

  /// What the chosen items take at least, wherever they lie.
  [[nodiscard]] double least_placed(const Fixed& f, const Vector& even, const Vector& local) const {
    double sum = f.charges;
    for (const std::size_t p : phases_) {
      double most = local[p];
      for (const PhaseItem* item : chosen_) {
        most = std::max(most, item->piece[p]);
      }
      sum += even[p] + most;
    }
    return sum;
  }

  /// Few tables: the first starts, of nodes of least bound. Many: half are those that take least,
  /// half the last, whose phases are cut most.
  void keep(double least, std::vector<std::int32_t> options) {
    if (tables_.size() <= kFew) {
      starts_.push_back(std::move(options));
      return;
    }
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
  Branch cut(const Vector& last) const {
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
    double under = 0;  // the largest piece that stays
    for (const auto& items : tables_) {
      for (const PhaseItem& item : items) {
        if (item.piece[p] > at.below) {
          at.above = std::min(at.above, item.piece[p]);
        } else {
          under = std::max(under, item.piece[p]);
        }
      }
    }
    at.below = std::max(under, last[p]);
    return at;
  }

  /// Few tables: the free table whose piece stands out most above the relaxation.
  Branch branch(const Node& node) {
    const Fixed f = fixed_of(node);
    Vector even = f.even;
    Vector local = f.local;
    gather(node, f);
    relax(node.weight, even, local);
    if (kept_ > 0 && (starts_.size() < kept_ || tables_.size() > kFew)) {
      std::vector<std::int32_t> options;
      for (const PhaseItem* item : chosen_) {
        options.push_back(item->option);
      }
      if (seen_.insert(options).second) {
        keep(least_placed(f, even, local), std::move(options));
      }
    }
    double attained = f.charges;
    Vector last{};
    for (const std::size_t p : phases_) {
      last[p] = std::max(local[p], f.piece[p]);
      attained += even[p] + last[p];
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
      if (node.fixed[t] >= 0) {
        continue;
      }
      double above = 0;
      double sum = 0;
      for (const std::size_t p : phases_) {
        above += std::max(0.0, chosen_[t]->piece[p] - last[p]);
        sum += chosen_[t]->local[p] + chosen_[t]->even[p];
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
  std::vector<std::vector<PhaseItem>> tables_;
  std::uint32_t used_ = 0;
  std::priority_queue<Node, std::vector<Node>, Later> open_;
  std::vector<const PhaseItem*> items_;  ///< of the node looked at, by table from `first_`
  std::vector<std::size_t> first_;
  std::vector<const PhaseItem*> chosen_;
  std::vector<std::vector<std::int32_t>> starts_;
  std::vector<double> leasts_;                   ///< of them
  std::vector<std::vector<std::int32_t>> last_;  ///< the newest
  std::set<std::vector<std::int32_t>> seen_;
};

PhaseBound::PhaseBound(const PlacementProblem& problem, std::size_t starts)
    : tree_(std::make_unique<Tree>(problem, starts)) {}
PhaseBound::~PhaseBound() = default;

Ticks PhaseBound::raise(Ticks in_hand, Ticks enough, std::uint64_t nodes) {
  const double bound = tree_->raise(load_seconds(in_hand), load_seconds(enough), nodes);
  return static_cast<Ticks>(std::floor(std::max(0.0, bound) * (1 - 1e-9) * 1e15));
}

std::vector<std::vector<std::int32_t>> PhaseBound::starts() const { return tree_->starts(); }

}  // namespace stepcast::planner::internal
