#include "core/graph/program.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "core/error.h"
#include "core/graph/memory_use.h"
#include "core/graph/temporaries.h"

namespace stepcast {

std::string_view name_of(TensorRole role) {
  constexpr std::array<std::string_view, static_cast<std::size_t>(TensorRole::kCount)> names{
      "parameter", "gradient", "optimizer", "embedding", "activation", "buffer", "input"};
  return names.at(static_cast<std::size_t>(role));
}

const EmbeddingGroup* Program::group_of(const Op& o) const {
  const std::int32_t lookup = o.as<EmbeddingAttributes>().group;
  const std::int32_t group = lookup >= 0 ? lookup : o.as<TierAttributes>().group;
  return group < 0 || static_cast<std::size_t>(group) >= embeddings.size()
             ? nullptr
             : &embeddings[static_cast<std::size_t>(group)];
}

const Exchange* Program::exchange_of(const Op& o) const {
  const std::int32_t exchange = o.as<CollectiveAttributes>().exchange;
  return exchange < 0 || static_cast<std::size_t>(exchange) >= exchanges.size()
             ? nullptr
             : &exchanges[static_cast<std::size_t>(exchange)];
}

std::optional<std::uint32_t> Program::index_of(const Op& o) const {
  const Op* first = ops.data();
  const Op* end = first + ops.size();
  const bool inside = !std::less<>{}(&o, first) && std::less<>{}(&o, end);
  return inside ? std::optional(static_cast<std::uint32_t>(&o - first)) : std::nullopt;
}

std::uint64_t Program::executed_ops() const {
  std::uint64_t n = 0;
  for (const Call& c : calls) {
    n += segments[c.segment].op_count;
  }
  return n;
}

std::int32_t ExecutionGraph::class_of(std::int32_t rank) const {
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const auto& ranks = classes[c].ranks;
    if (std::binary_search(ranks.begin(), ranks.end(), rank)) {
      return static_cast<std::int32_t>(c);
    }
  }
  throw InternalError(fmt::format("rank {} is in no class", rank));
}

std::vector<std::int32_t> ExecutionGraph::members(std::int32_t communicator,
                                                  std::int32_t rank) const {
  const Communicator& c = communicators.at(static_cast<std::size_t>(communicator));
  if (c.axes.empty()) {
    for (const auto& group : c.groups) {
      if (std::find(group.begin(), group.end(), rank) != group.end()) {
        return group;
      }
    }
    return {};
  }
  std::vector<std::int32_t> ranks{rank};
  for (const Axis axis : c.axes) {
    const std::int32_t stride = mesh.stride(axis);
    const std::int32_t here = mesh.coordinate(rank, axis);
    std::vector<std::int32_t> wider;
    for (const std::int32_t r : ranks) {
      for (std::int32_t i = 0; i < mesh.extent(axis); ++i) {
        wider.push_back(r + (i - here) * stride);
      }
    }
    ranks = std::move(wider);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

namespace {

/// The tensor whose storage this one is.
TensorId stored_in(const Program& program, TensorId id) {
  while (program.tensors[id].per_microbatch && program.tensors[id].is_view()) {
    id = static_cast<TensorId>(program.tensors[id].view_of);
  }
  return id;
}

/// First and last call that touch an instance of a per-microbatch tensor.
struct Life {
  std::size_t first = SIZE_MAX;
  std::size_t last = 0;
};

/// By micro-batch, for what these segments name.
std::vector<Life> lives_of(const Program& program, const std::vector<std::uint32_t>& segments) {
  std::vector<bool> named(program.segments.size(), false);
  for (const std::uint32_t s : segments) {
    named[s] = true;
  }
  std::vector<Life> lives(static_cast<std::size_t>(std::max(1, program.microbatches)));
  for (std::size_t c = 0; c < program.calls.size(); ++c) {
    if (named[program.calls[c].segment]) {
      Life& life = lives[static_cast<std::size_t>(program.calls[c].microbatch)];
      life.first = std::min(life.first, c);
      life.last = std::max(life.last, c);
    }
  }
  return lives;
}

/// Peak of live per-microbatch instances of a tier over the calls. An instance lives from the first
/// call that names it to the last: those that the same segments name live alike.
Bytes peak_of_instances(const Program& program, std::size_t tier) {
  std::vector<std::vector<std::uint32_t>> named_by(program.tensors.size());  // segments
  for (std::uint32_t s = 0; s < program.segments.size(); ++s) {
    for (const Op& op : program.ops_of(program.segments[s])) {
      const auto* first = program.operands.data() + op.first_operand;
      for (const auto* id = first; id != first + op.inputs + op.outputs; ++id) {
        const TensorId stored = stored_in(program, *id);
        auto& segments = named_by[stored];
        const Tensor& t = program.tensors[stored];
        if (t.per_microbatch && t.tier == tier && (segments.empty() || segments.back() != s)) {
          segments.push_back(s);
        }
      }
    }
  }
  std::map<std::vector<std::uint32_t>, double> bytes_named_by;
  for (TensorId id = 0; id < program.tensors.size(); ++id) {
    if (!named_by[id].empty()) {
      bytes_named_by[named_by[id]] += program.tensors[id].bytes().base();
    }
  }
  std::vector<double> change(program.calls.size() + 1, 0.0);
  for (const auto& [segments, bytes] : bytes_named_by) {
    for (const Life& life : lives_of(program, segments)) {
      if (life.first != SIZE_MAX) {
        change[life.first] += bytes;
        change[life.last + 1] -= bytes;
      }
    }
  }
  double live = 0;
  double peak = 0;
  for (const double d : change) {
    live += d;
    peak = std::max(peak, live);
  }
  return Bytes(peak);
}

}  // namespace

bool is_held_buffer(const Tensor& t) {
  return !t.per_microbatch && !t.is_view() && t.tier == 0 &&
         (t.role == TensorRole::kBuffer || t.role == TensorRole::kInput);
}

MemoryUse memory_use(const Program& program) {
  MemoryUse use;
  for (const Tensor& t : program.tensors) {
    if (t.per_microbatch || t.is_view() || t.tier > 0) {
      continue;
    }
    switch (t.role) {
      case TensorRole::kParameter:
        use.parameters += t.bytes();
        break;
      case TensorRole::kGradient:
        use.gradients += t.bytes();
        break;
      case TensorRole::kOptimizerState:
        use.optimizer += t.bytes();
        break;
      case TensorRole::kEmbedding:
        use.embeddings += t.bytes();
        break;
      case TensorRole::kBuffer:
      case TensorRole::kInput:
        use.buffers += t.bytes();
        break;
      case TensorRole::kActivation:
      case TensorRole::kCount:
        break;
    }
  }
  use.activations = peak_of_instances(program, 0) + Temporaries(program).peak();
  return use;
}

Bytes held_in_tier(const Program& program, std::size_t tier) {
  Bytes held = peak_of_instances(program, tier + 1);
  for (const Tensor& t : program.tensors) {
    held += t.tier == tier + 1 && !t.per_microbatch && !t.is_view() ? t.bytes() : Bytes{};
  }
  return held;
}

std::vector<double> Exchange::sent_by(std::size_t position) const {
  std::vector<double> elements = send_elements;
  for (const std::vector<double>& unit : unit_elements) {
    for (std::size_t place = 0; place < unit.size(); ++place) {
      elements.at(position / unit.size() * unit.size() + place) += unit[place];
    }
  }
  const std::size_t places = forwarded ? elements.size() / forwarded->units : 1;
  for (std::size_t member = 0; forwarded && member < elements.size(); ++member) {
    const bool own_unit = member / places == position / places;
    const bool own_place = member % places == position % places;
    elements[member] += own_unit && own_place ? forwarded->kept
                        : own_unit            ? forwarded->inside
                        : own_place           ? forwarded->across
                                              : 0;
  }
  return elements;
}

}  // namespace stepcast
