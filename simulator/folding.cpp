#include "simulator/folding.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/graph/op.h"
#include "core/graph/program.h"

namespace stepcast::simulator {
namespace {

using Ranks = std::vector<std::int32_t>;

/// All groups of a communicator and the group of each rank.
struct Partition {
  std::vector<Ranks> groups;
  std::vector<std::int32_t> group_of;  // by rank, -1 outside every group
};

Partition partition(const ExecutionGraph& graph, const Communicator& communicator) {
  Partition p;
  p.group_of.assign(static_cast<std::size_t>(graph.ranks()), -1);
  if (communicator.axes.empty()) {
    p.groups = communicator.groups;
  } else {
    // Ranks that agree on all other axes; ascending rank order falls out of the scan.
    std::vector<std::int32_t> group_at(static_cast<std::size_t>(graph.ranks()), -1);
    for (std::int32_t rank = 0; rank < graph.ranks(); ++rank) {
      std::int32_t base = rank;
      for (const Axis axis : communicator.axes) {
        base -= graph.mesh.coordinate(rank, axis) * graph.mesh.stride(axis);
      }
      auto& index = group_at[static_cast<std::size_t>(base)];
      if (index < 0) {
        index = static_cast<std::int32_t>(p.groups.size());
        p.groups.emplace_back();
      }
      p.groups[static_cast<std::size_t>(index)].push_back(rank);
    }
  }
  for (std::size_t g = 0; g < p.groups.size(); ++g) {
    for (const std::int32_t rank : p.groups[g]) {
      STEPCAST_CHECK(rank >= 0 && rank < graph.ranks(), "communicator '{}' names rank {} of {}",
                     communicator.name, rank, graph.ranks());
      auto& own = p.group_of[static_cast<std::size_t>(rank)];
      STEPCAST_CHECK(own < 0, "rank {} is in two groups of communicator '{}'", rank,
                     communicator.name);
      own = static_cast<std::int32_t>(g);
    }
  }
  return p;
}

/// used[program][communicator]: some op of the program talks on it.
std::vector<std::vector<char>> communicators_used(const ExecutionGraph& graph) {
  std::vector<std::vector<char>> used;
  for (const Program& program : graph.programs) {
    auto& row = used.emplace_back(graph.communicators.size(), char{0});
    for (const Op& op : program.ops) {
      if (is_collective(op.kind) && op.communicator >= 0) {
        row.at(static_cast<std::size_t>(op.communicator)) = 1;
      }
    }
  }
  return used;
}

/// Splits colours until ranks of one colour see equal colours in every group they use. Returns the
/// number of colours; `colour` is renumbered by lowest rank.
std::int32_t refine(const std::vector<Partition>& partitions,
                    const std::vector<std::vector<char>>& used,
                    const std::vector<std::int32_t>& program_of,
                    std::vector<std::int32_t>& colour) {
  const std::size_t ranks = colour.size();
  std::int32_t colours = 0;
  while (true) {
    // A signature per group (its colours by position), then one per rank.
    std::vector<std::vector<std::int32_t>> signature(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      signature[r].push_back(colour[r]);
    }
    for (std::size_t c = 0; c < partitions.size(); ++c) {
      std::map<std::vector<std::int32_t>, std::int32_t> ids;
      std::vector<std::int32_t> id_of;
      for (const Ranks& group : partitions[c].groups) {
        std::vector<std::int32_t> row;
        row.reserve(group.size());
        for (const std::int32_t rank : group) {
          row.push_back(colour[static_cast<std::size_t>(rank)]);
        }
        id_of.push_back(
            ids.try_emplace(std::move(row), static_cast<std::int32_t>(ids.size())).first->second);
      }
      for (std::size_t r = 0; r < ranks; ++r) {
        const std::int32_t group = partitions[c].group_of[r];
        const bool talks = used[static_cast<std::size_t>(program_of[r])][c] != 0;
        signature[r].push_back(talks && group >= 0 ? id_of[static_cast<std::size_t>(group)] : -1);
      }
    }
    std::map<std::vector<std::int32_t>, std::int32_t> ids;
    for (std::size_t r = 0; r < ranks; ++r) {
      colour[r] = ids.try_emplace(std::move(signature[r]), static_cast<std::int32_t>(ids.size()))
                      .first->second;
    }
    const auto found = static_cast<std::int32_t>(ids.size());
    if (found == colours) {
      return found;
    }
    colours = found;
  }
}

}  // namespace

Folding fold(const ExecutionGraph& graph, bool unfold) {
  const auto ranks = static_cast<std::size_t>(graph.ranks());
  std::vector<std::int32_t> colour(ranks, -1);
  std::vector<std::int32_t> program_of(ranks, -1);
  for (std::size_t c = 0; c < graph.classes.size(); ++c) {
    for (const std::int32_t rank : graph.classes[c].ranks) {
      const auto r = static_cast<std::size_t>(rank);
      STEPCAST_CHECK(r < ranks && colour[r] < 0, "rank {} is outside the mesh or in two classes",
                     rank);
      colour[r] = unfold ? rank : static_cast<std::int32_t>(c);
      program_of[r] = graph.classes[c].program;
    }
  }
  STEPCAST_CHECK(std::find(colour.begin(), colour.end(), -1) == colour.end(),
                 "a rank is in no class");
  std::vector<Partition> partitions;
  for (const Communicator& communicator : graph.communicators) {
    partitions.push_back(partition(graph, communicator));
  }
  const auto used = communicators_used(graph);

  Folding folding;
  folding.communicators = static_cast<std::int32_t>(graph.communicators.size());
  const std::int32_t count = refine(partitions, used, program_of, colour);
  folding.instances.assign(static_cast<std::size_t>(count),
                           {.program = -1, .rank = -1, .ranks = 0});
  for (std::size_t r = 0; r < ranks; ++r) {
    Instance& instance = folding.instances[static_cast<std::size_t>(colour[r])];
    if (instance.ranks++ == 0) {
      instance.program = program_of[r];
      instance.rank = static_cast<std::int32_t>(r);
    }
  }
  folding.group_of.assign(static_cast<std::size_t>(count) * partitions.size(), -1);
  for (std::size_t c = 0; c < partitions.size(); ++c) {
    std::map<Ranks, std::int32_t> ids;
    for (std::size_t i = 0; i < folding.instances.size(); ++i) {
      const Instance& instance = folding.instances[i];
      const std::int32_t own = partitions[c].group_of[static_cast<std::size_t>(instance.rank)];
      if (own < 0 || used[static_cast<std::size_t>(instance.program)][c] == 0) {
        continue;
      }
      const Ranks& real = partitions[c].groups[static_cast<std::size_t>(own)];
      Ranks members;
      for (const std::int32_t rank : real) {
        members.push_back(colour[static_cast<std::size_t>(rank)]);
      }
      const auto [it, fresh] =
          ids.try_emplace(members, static_cast<std::int32_t>(folding.groups.size()));
      folding.group_of[i * partitions.size() + c] = it->second;
      if (fresh) {
        Group group;
        group.communicator = static_cast<std::int32_t>(c);
        group.ranks = real;
        group.distinct = members;
        std::sort(group.distinct.begin(), group.distinct.end());
        group.distinct.erase(std::unique(group.distinct.begin(), group.distinct.end()),
                             group.distinct.end());
        for (const std::int32_t d : group.distinct) {
          group.count.push_back(
              static_cast<std::int32_t>(std::count(members.begin(), members.end(), d)));
        }
        group.members = std::move(members);
        folding.groups.push_back(std::move(group));
      }
    }
  }
  folding.instance_of = std::move(colour);
  return folding;
}

}  // namespace stepcast::simulator
