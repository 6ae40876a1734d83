#include "traces/native/internal/check_graph.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/graph/embedding_placement.h"
#include "core/graph/op_traits.h"
#include "core/graph/program.h"

namespace stepcast::traces::internal {
namespace {

constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::int32_t kMostEvents = 1 << 24;
constexpr std::int64_t kLargest = std::int64_t{1} << 53;  // what a double still counts exactly

[[noreturn]] void reject(const std::string& file, const std::string& path,
                         const std::string& what) {
  throw InputError(file + ": " + path, what);
}

/// One program: what its records name is there.
class ProgramChecker {
 public:
  ProgramChecker(const ExecutionGraph& graph, std::size_t index, const std::string& file)
      : graph_(graph),
        p_(graph.programs[index]),
        file_(file),
        path_(fmt::format("programs[{}]", index)) {}

  void check() {
    if (p_.events < 0 || p_.events > kMostEvents || p_.interval < 1) {
      fail("", fmt::format("{} events, an interval of {} steps", p_.events, p_.interval));
    }
    calls();
    for (std::size_t i = 0; i < p_.ops.size(); ++i) {
      op(p_.ops[i], fmt::format(".ops[{}]", i));
    }
    for (std::size_t i = 0; i < p_.tensors.size(); ++i) {
      tensor(p_.tensors[i], fmt::format(".tensors[{}]", i));
    }
    for (std::size_t i = 0; i < p_.embeddings.size(); ++i) {
      for (const EmbeddingShard& s : p_.embeddings[i].shards) {
        shard(s, fmt::format(".embeddings[{}].shards", i));
      }
    }
    for (std::size_t i = 0; i < p_.routings.size(); ++i) {
      const ExpertRouting& r = p_.routings[i];
      if (r.draw == nullptr || r.parts < 1 || r.split.ranks < 1 || r.split.tensor < 1) {
        fail(fmt::format(".routings[{}]", i), "has no draw, parts or ranks");
      }
    }
  }

 private:
  [[noreturn]] void fail(const std::string& place, const std::string& what) const {
    reject(file_, path_ + place, what);
  }
  template <typename Index, typename List>
  [[nodiscard]] static bool in(Index i, const List& list) {
    return i >= 0 && static_cast<std::uint64_t>(i) < list.size();
  }
  /// -1 names nothing.
  template <typename Index, typename List>
  [[nodiscard]] static bool none_or_in(Index i, const List& list) {
    return i == -1 || in(i, list);
  }
  [[nodiscard]] bool event(std::int32_t e) const { return e >= 0 && e < p_.events; }

  void calls() {
    for (std::size_t i = 0; i < p_.segments.size(); ++i) {
      const Segment& s = p_.segments[i];
      if (std::uint64_t{s.first_op} + s.op_count > p_.ops.size()) {
        fail(fmt::format(".segments[{}]", i),
             fmt::format("reaches past the {} ops of the program", p_.ops.size()));
      }
    }
    for (std::size_t i = 0; i < p_.calls.size(); ++i) {
      const Call& c = p_.calls[i];
      if (!in(c.segment, p_.segments) || c.microbatch < 0 || c.microbatch >= p_.microbatches) {
        fail(fmt::format(".calls[{}]", i),
             fmt::format("names segment {} and microbatch {}", c.segment, c.microbatch));
      }
    }
  }

  void op(const Op& op, const std::string& path) const {
    if (!in(op.stream, p_.streams) || !in(op.name, p_.names) ||
        (op.record != -1 && !event(op.record)) ||
        (op.communicator >= 0 && !in(op.communicator, graph_.communicators)) ||
        !none_or_in(op.routing, p_.routings)) {
      fail(path, "names a stream, name, event or communicator that is not declared");
    }
    if (std::any_of(op.shape.begin(), op.shape.end(),
                    [](std::int64_t n) { return n < -kLargest || n > kLargest; })) {
      fail(path + ".shape", "a size beyond 2^53");
    }
    if (std::uint64_t{op.first_operand} + op.inputs + op.outputs > p_.operands.size() ||
        std::uint64_t{op.first_wait} + op.waits > p_.waits.size()) {
      fail(path, "reaches past the program's operands or waits");
    }
    const auto operands = std::span(p_.operands).subspan(op.first_operand, op.inputs + op.outputs);
    if (!std::all_of(operands.begin(), operands.end(),
                     [this](TensorId t) { return in(t, p_.tensors); })) {
      fail(path, "an operand that is no tensor of the program");
    }
    for (const std::int32_t w : p_.waits_of(op)) {
      if (!event(w)) {
        fail(path, fmt::format("waits for event {} of {}", w, p_.events));
      }
    }
    if (op.attributes.index() != 0 &&
        op.attributes.index() != traits_of(op.kind).attributes.index()) {
      fail(path, fmt::format("'{}' has attributes of another kind of op", name_of(op.kind)));
    }
    const auto tier = op.as<TierAttributes>();
    const bool known = none_or_in(op.as<EmbeddingAttributes>().group, p_.embeddings) &&
                       none_or_in(tier.group, p_.embeddings) &&
                       none_or_in(op.as<ColumnAttributes>().blocks, p_.column_copies) &&
                       none_or_in(op.as<CollectiveAttributes>().exchange, p_.exchanges);
    if (!known || (moves_between_tiers(op.kind) && !p_.tiers.empty() && !in(tier.tier, p_.tiers))) {
      fail(path, fmt::format("'{}' refers to what the program does not hold", name_of(op.kind)));
    }
  }

  void tensor(const Tensor& t, const std::string& path) const {
    const bool sizes = t.rows >= 0 && t.columns >= 0 && t.rows <= kLargest &&
                       t.columns <= kLargest &&
                       static_cast<double>(t.rows) * static_cast<double>(t.columns) < 0x1p62;
    if (!sizes || t.data_ranks < 1 || t.tier > p_.tiers.size()) {
      fail(path, fmt::format("{} rows of {} columns", t.rows, t.columns));
    }
    bool named = none_or_in(t.view_of, p_.tensors) && none_or_in(t.next_of, p_.tensors) &&
                 none_or_in(t.master, p_.tensors);
    for (const Tensor::Source& s : t.sources) {
      named = named && in(s.tensor, p_.tensors);
    }
    if (!named) {
      fail(path, "refers to a tensor that the program does not hold");
    }
    for (const ParameterPiece& piece : t.pieces) {
      if (piece.tensor_column_ranks < 1) {
        fail(path + ".pieces", fmt::format("tensor_column_ranks {}", piece.tensor_column_ranks));
      }
    }
  }

  void shard(const EmbeddingShard& s, const std::string& path) const {
    const bool tensors =
        in(s.weights, p_.tensors) && in(s.state, p_.tensors) &&
        (!s.cache || (in(s.cache->rows, p_.tensors) && in(s.cache->state, p_.tensors)));
    if (!tensors || !in(s.table, graph_.inputs.tables) || s.access == nullptr || s.rows < 0 ||
        s.dim < 0 || s.row_stride < 1) {
      fail(path, "refers to a tensor, table or law that the graph does not hold");
    }
  }

  const ExecutionGraph& graph_;
  const Program& p_;
  const std::string& file_;
  std::string path_;
};

class GraphChecker {
 public:
  GraphChecker(const ExecutionGraph& graph, const std::string& file) : graph_(graph), file_(file) {}

  void check() {
    mesh();
    for (std::size_t i = 0; i < graph_.communicators.size(); ++i) {
      communicator(graph_.communicators[i], fmt::format("communicators[{}]", i));
    }
    for (std::size_t i = 0; i < graph_.programs.size(); ++i) {
      ProgramChecker(graph_, i, file_).check();
    }
    classes();
    if (graph_.placement != nullptr) {
      placement(*graph_.placement);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& path, const std::string& what) const {
    reject(file_, path, what);
  }

  void mesh() {
    const Mesh& m = graph_.mesh;
    std::int64_t ranks = 1;
    for (const std::int32_t n : {m.tensor, m.context, m.pipeline, m.data}) {
      if (n < 1 || n > kMostRanks || (ranks *= n) > kMostRanks) {
        fail("mesh", fmt::format("expected degrees of at least 1, at most {} ranks", kMostRanks));
      }
    }
    MeshOrder order = m.order;
    std::sort(order.begin(), order.end());
    if (std::adjacent_find(order.begin(), order.end()) != order.end()) {
      fail("mesh.order", "an axis appears twice");
    }
  }

  void communicator(const Communicator& c, const std::string& path) {
    std::vector<std::size_t>& size = group_size_.emplace_back();
    std::vector<Axis> axes = c.axes;
    std::sort(axes.begin(), axes.end());
    if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
      fail(path + ".axes", "an axis appears twice");
    }
    if (c.axes.empty()) {
      size.resize(static_cast<std::size_t>(graph_.ranks()), 0);
    }
    for (const auto& group : c.groups) {
      for (const std::int32_t rank : group) {
        if (rank < 0 || rank >= graph_.ranks()) {
          fail(path + ".groups", fmt::format("rank {} of {}", rank, graph_.ranks()));
        }
        if (c.axes.empty()) {
          size[static_cast<std::size_t>(rank)] = group.size();
        }
      }
    }
  }

  void classes() {
    std::vector<bool> seen(static_cast<std::size_t>(graph_.ranks()));
    for (std::size_t i = 0; i < graph_.classes.size(); ++i) {
      const std::string path = fmt::format("classes[{}].ranks", i);
      const RankClass& c = graph_.classes[i];
      if (c.program < 0 || static_cast<std::size_t>(c.program) >= graph_.programs.size()) {
        fail(fmt::format("classes[{}].program", i),
             fmt::format("{} of {} programs", c.program, graph_.programs.size()));
      }
      if (!std::is_sorted(c.ranks.begin(), c.ranks.end())) {
        fail(path, "expected ranks in ascending order");
      }
      for (const std::int32_t rank : c.ranks) {
        if (rank < 0 || rank >= graph_.ranks() || seen[static_cast<std::size_t>(rank)]) {
          fail(path, fmt::format("rank {} appears twice or is none of {}", rank, graph_.ranks()));
        }
        seen[static_cast<std::size_t>(rank)] = true;
      }
      const Program& program = graph_.programs[static_cast<std::size_t>(c.program)];
      for (const Op& op : program.ops) {
        collective(program, op, c, path);
      }
    }
    if (const auto lost = std::find(seen.begin(), seen.end(), false); lost != seen.end()) {
      fail("classes", fmt::format("rank {} is in none", lost - seen.begin()));
    }
  }

  /// Ranks in the group of a rank; 0 where it is in none.
  [[nodiscard]] std::size_t members(std::int32_t communicator, std::int32_t rank) const {
    const auto& size = group_size_[static_cast<std::size_t>(communicator)];
    if (!size.empty()) {
      return size[static_cast<std::size_t>(rank)];
    }
    std::size_t n = 1;
    for (const Axis a : graph_.communicators[static_cast<std::size_t>(communicator)].axes) {
      n *= static_cast<std::size_t>(graph_.mesh.extent(a));
    }
    return n;
  }

  /// Every rank that runs a collective must be in one of its groups, and send to each member.
  void collective(const Program& program, const Op& op, const RankClass& c,
                  const std::string& path) const {
    if (!is_collective(op.kind) || op.communicator < 0) {
      return;
    }
    if (op.peer < -1 || op.peer >= graph_.ranks()) {
      fail(path,
           fmt::format("runs a collective with peer {} of {} ranks", op.peer, graph_.ranks()));
    }
    const Exchange* exchange = program.exchange_of(op);
    for (const std::int32_t rank : c.ranks) {
      const std::size_t n = members(op.communicator, rank);
      if (n == 0) {
        fail(path,
             fmt::format("rank {} runs a collective on '{}', which it is not in", rank,
                         graph_.communicators[static_cast<std::size_t>(op.communicator)].name));
      }
      if (exchange != nullptr && !sends(*exchange, n)) {
        fail(path,
             fmt::format("rank {} exchanges with other than the {} members of its group", rank, n));
      }
    }
  }
  static bool sends(const Exchange& e, std::size_t members) {
    return e.send_elements.size() == members &&
           std::all_of(e.unit_elements.begin(), e.unit_elements.end(),
                       [members](const std::vector<double>& unit) {
                         return unit.empty() || members % unit.size() == 0;
                       }) &&
           (!e.forwarded || (e.forwarded->units > 0 && members % e.forwarded->units == 0));
  }

  void placement(const EmbeddingPlacement& p) const {
    if (p.node < 1 || p.held.size() != static_cast<std::size_t>(graph_.ranks()) ||
        p.group_sizes.size() > kMostGroupSizes) {
      fail("placement", fmt::format("is of {} ranks", p.held.size()));
    }
    for (std::size_t i = 0; i < p.slices.size(); ++i) {
      const EmbeddingSlice& s = p.slices[i];
      const bool ranks = !s.ranks.empty() && s.copies >= 1 && std::ssize(s.ranks) % s.copies == 0 &&
                         s.ranks.front() >= 0 && s.ranks.back() < graph_.ranks();
      if (!ranks || s.table < 0 ||
          static_cast<std::size_t>(s.table) >= graph_.inputs.tables.size()) {
        fail(fmt::format("placement.slices[{}]", i), "has no table or no ranks");
      }
    }
    for (const auto& held : p.held) {
      for (const std::int32_t slice : held) {
        if (slice < 0 || static_cast<std::size_t>(slice) >= p.slices.size()) {
          fail("placement.held", fmt::format("slice {} of {}", slice, p.slices.size()));
        }
      }
    }
  }

  const ExecutionGraph& graph_;
  const std::string& file_;
  std::vector<std::vector<std::size_t>> group_size_;  ///< by rank; empty: its axes cover all ranks
};

}  // namespace

void check_graph(const ExecutionGraph& graph, const std::string& file) {
  GraphChecker(graph, file).check();
}

}  // namespace stepcast::traces::internal
