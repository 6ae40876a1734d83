#include "models/ptx/flow.h"

#include <algorithm>

#include "models/ptx/opcode.h"

namespace stepcast::models::ptx {
namespace {

/// Basic blocks by number, in the order of the code; the last number is the end of the program.
struct Graph {
  std::vector<int> first;     ///< instruction
  std::vector<int> block_of;  ///< of each instruction
  std::vector<std::vector<int>> next, previous;
};

bool ends_block(const Instruction& i) {
  return i.opcode->flow == Flow::kBranch || i.opcode->flow == Flow::kExit;
}

Graph graph_of(const std::vector<Instruction>& code) {
  std::vector<bool> leads(code.size() + 1, false);
  leads[0] = true;
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (ends_block(code[i])) {
      leads[i + 1] = true;
      if (code[i].target >= 0) {
        leads[static_cast<std::size_t>(code[i].target)] = true;
      }
    }
  }
  Graph g;
  g.block_of.resize(code.size());
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (leads[i]) {
      g.first.push_back(static_cast<int>(i));
    }
    g.block_of[i] = static_cast<int>(g.first.size()) - 1;
  }
  const int end = static_cast<int>(g.first.size());
  g.next.resize(g.first.size() + 1);
  g.previous.resize(g.first.size() + 1);
  const auto join = [&g](int from, int to) {
    g.next[static_cast<std::size_t>(from)].push_back(to);
    g.previous[static_cast<std::size_t>(to)].push_back(from);
  };
  for (int b = 0; b < end; ++b) {
    const std::size_t after = b + 1 < end ? static_cast<std::size_t>(g.first[b + 1]) : code.size();
    const Instruction& last = code[after - 1];
    if (last.opcode->flow == Flow::kBranch) {
      join(b, g.block_of[static_cast<std::size_t>(last.target)]);
    } else if (last.opcode->flow == Flow::kExit) {
      join(b, end);
    }
    if (!ends_block(last) || last.guard >= 0) {
      join(b, b + 1);
    }
  }
  return g;
}

/// Blocks from which the end can be reached, in postorder of the reversed graph.
std::vector<int> postorder(const Graph& g) {
  const int end = static_cast<int>(g.first.size());
  std::vector<int> order;
  std::vector<bool> seen(g.next.size(), false);
  std::vector<std::pair<int, std::size_t>> open{{end, 0}};
  seen[static_cast<std::size_t>(end)] = true;
  while (!open.empty()) {
    auto& [block, tried] = open.back();
    const std::vector<int>& before = g.previous[static_cast<std::size_t>(block)];
    if (tried == before.size()) {
      order.push_back(block);
      open.pop_back();
      continue;
    }
    const int next = before[tried++];
    if (!seen[static_cast<std::size_t>(next)]) {
      seen[static_cast<std::size_t>(next)] = true;
      open.emplace_back(next, 0);
    }
  }
  return order;
}

/// Immediate postdominator of each block, -1 where the end cannot be reached.
std::vector<int> postdominators(const Graph& g) {
  const std::vector<int> order = postorder(g);
  std::vector<int> rank(g.next.size(), -1);
  for (std::size_t i = 0; i < order.size(); ++i) {
    rank[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  }
  std::vector<int> above(g.next.size(), -1);
  const int end = static_cast<int>(g.first.size());
  above[static_cast<std::size_t>(end)] = end;
  const auto meet = [&](int a, int b) {
    while (a != b) {
      int& lower = rank[static_cast<std::size_t>(a)] < rank[static_cast<std::size_t>(b)] ? a : b;
      lower = above[static_cast<std::size_t>(lower)];
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto b = order.rbegin() + 1; b != order.rend(); ++b) {
      int nearest = -1;
      for (const int n : g.next[static_cast<std::size_t>(*b)]) {
        if (above[static_cast<std::size_t>(n)] >= 0) {
          nearest = nearest < 0 ? n : meet(n, nearest);
        }
      }
      if (above[static_cast<std::size_t>(*b)] != nearest) {
        above[static_cast<std::size_t>(*b)] = nearest;
        changed = true;
      }
    }
  }
  return above;
}

}  // namespace

void find_reconvergence(std::vector<Instruction>& code) {
  const Graph g = graph_of(code);
  const std::vector<int> above = postdominators(g);
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (code[i].opcode->flow == Flow::kBranch && code[i].guard >= 0) {
      const int block = above[static_cast<std::size_t>(g.block_of[i])];
      code[i].reconverge =
          block >= 0 && block < static_cast<int>(g.first.size()) ? g.first[block] : -1;
    }
  }
}

}  // namespace stepcast::models::ptx
