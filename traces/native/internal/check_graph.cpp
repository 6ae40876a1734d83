#include "traces/native/internal/check_graph.h"

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace stepcast::traces::internal {
namespace {

constexpr std::int64_t kMostRanks = 1 << 20;

class Checker {
 public:
  Checker(const ExecutionGraph& graph, const std::string& file) : graph_(graph), file_(file) {}

  void check() {
    mesh();
    for (std::size_t i = 0; i < graph_.communicators.size(); ++i) {
      communicator(graph_.communicators[i], fmt::format("communicators[{}]", i));
    }
    classes();
  }

 private:
  [[noreturn]] void fail(const std::string& path, const std::string& what) const {
    throw InputError(file_ + ": " + path, what);
  }

  void mesh() {
    std::int64_t ranks = 1;
    for (const std::int32_t n :
         {graph_.mesh.tensor, graph_.mesh.context, graph_.mesh.pipeline, graph_.mesh.data}) {
      if (n < 1 || n > kMostRanks || (ranks *= n) > kMostRanks) {
        fail("mesh", fmt::format("expected degrees of at least 1, at most {} ranks", kMostRanks));
      }
    }
  }

  void communicator(const Communicator& c, const std::string& path) {
    std::vector<bool>& in_group = covered_.emplace_back();
    std::vector<Axis> axes = c.axes;
    std::sort(axes.begin(), axes.end());
    if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
      fail(path + ".axes", "an axis appears twice");
    }
    if (c.axes.empty()) {
      in_group.resize(static_cast<std::size_t>(graph_.ranks()));
    }
    for (const auto& group : c.groups) {
      for (const std::int32_t rank : group) {
        if (rank < 0 || rank >= graph_.ranks()) {
          fail(path + ".groups", fmt::format("rank {} of {}", rank, graph_.ranks()));
        }
        if (c.axes.empty()) {
          in_group[static_cast<std::size_t>(rank)] = true;
        }
      }
    }
  }

  void classes() {
    std::vector<bool> seen(static_cast<std::size_t>(graph_.ranks()));
    for (std::size_t i = 0; i < graph_.classes.size(); ++i) {
      const std::string path = fmt::format("classes[{}].ranks", i);
      const RankClass& c = graph_.classes[i];
      if (!std::is_sorted(c.ranks.begin(), c.ranks.end())) {
        fail(path, "expected ranks in ascending order");
      }
      for (const std::int32_t rank : c.ranks) {
        if (rank < 0 || rank >= graph_.ranks() || seen[static_cast<std::size_t>(rank)]) {
          fail(path, fmt::format("rank {} appears twice or is none of {}", rank, graph_.ranks()));
        }
        seen[static_cast<std::size_t>(rank)] = true;
      }
      for (const Op& op : graph_.programs[static_cast<std::size_t>(c.program)].ops) {
        collective(op, c, path);
      }
    }
    if (const auto lost = std::find(seen.begin(), seen.end(), false); lost != seen.end()) {
      fail("classes", fmt::format("rank {} is in none", lost - seen.begin()));
    }
  }

  /// Every rank that runs a collective must be in one of its groups.
  void collective(const Op& op, const RankClass& c, const std::string& path) const {
    if (!is_collective(op.kind) || op.communicator < 0) {
      return;
    }
    if (op.peer < -1 || op.peer >= graph_.ranks()) {
      fail(path,
           fmt::format("runs a collective with peer {} of {} ranks", op.peer, graph_.ranks()));
    }
    const auto& in_group = covered_[static_cast<std::size_t>(op.communicator)];
    for (std::size_t r = 0; !in_group.empty() && r < c.ranks.size(); ++r) {
      if (!in_group[static_cast<std::size_t>(c.ranks[r])]) {
        fail(path,
             fmt::format("rank {} runs a collective on '{}', which it is not in", c.ranks[r],
                         graph_.communicators[static_cast<std::size_t>(op.communicator)].name));
      }
    }
  }

  const ExecutionGraph& graph_;
  const std::string& file_;
  std::vector<std::vector<bool>> covered_;  ///< by communicator; empty: its axes cover all ranks
};

}  // namespace

void check_graph(const ExecutionGraph& graph, const std::string& file) {
  Checker(graph, file).check();
}

}  // namespace stepcast::traces::internal
