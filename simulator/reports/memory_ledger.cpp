#include "simulator/reports/memory_ledger.h"

#include <algorithm>

#include "core/graph/memory_use.h"
#include "core/graph/op.h"
#include "core/graph/program.h"
#include "core/graph/temporaries.h"
#include "core/job/tier_units.h"
#include "simulator/reports/framework_memory.h"

namespace stepcast::simulator {
namespace {

/// Most instances of a tensor at once: a life lasts from the first call that names it to the last.
std::int64_t most_instances(const Program& program, TensorId id) {
  std::vector<bool> names(program.segments.size(), false);
  for (std::size_t s = 0; s < program.segments.size(); ++s) {
    for (const Op& op : program.ops_of(program.segments[s])) {
      const auto* first = program.operands.data() + op.first_operand;
      names[s] = names[s] || std::find(first, first + op.inputs + op.outputs, id) !=
                                 first + op.inputs + op.outputs;
    }
  }
  const auto microbatches = static_cast<std::size_t>(std::max(1, program.microbatches));
  std::vector<std::size_t> last(microbatches, 0);
  for (std::size_t c = 0; c < program.calls.size(); ++c) {
    if (names[program.calls[c].segment]) {
      last[static_cast<std::size_t>(program.calls[c].microbatch)] = c + 1;
    }
  }
  std::int64_t now = 0;
  std::int64_t most = 0;
  std::vector<bool> live(microbatches, false);
  for (std::size_t c = 0; c < program.calls.size(); ++c) {
    const auto m = static_cast<std::size_t>(program.calls[c].microbatch);
    if (!names[program.calls[c].segment]) {
      continue;
    }
    if (!live[m]) {
      live[m] = true;
      most = std::max(most, ++now);
    }
    now -= last[m] == c + 1 ? 1 : 0;
  }
  return most;
}

}  // namespace

std::vector<std::pair<std::string_view, Bytes>> MemoryLedger::lines() const {
  return {{"weights", weights},
          {"gradients", gradients},
          {"optimizer", optimizer},
          {"embeddings", embeddings},
          {"activations in flight", in_flight},
          {"logits", logits},
          {"temporaries", temporaries},
          {"gather buffers", gather_buffers},
          {"cache", cache},
          {"other buffers", buffers},
          {"context", context - workspaces},
          {"workspaces", workspaces},
          {"communicators", communicators},
          {"fragmentation", fragmentation}};
}

std::vector<std::pair<std::string_view, Bytes>> MemoryLedger::parts() const {
  return {{"weights", weights},
          {"gradients", gradients},
          {"optimizer", optimizer},
          {"activations", in_flight + logits},
          {"temporary", temporaries + gather_buffers + workspaces + fragmentation},
          {"communication", communicators + buffers},
          {"embeddings", embeddings},
          {"cache", cache},
          {"context", context - workspaces}};
}

Bytes MemoryLedger::total() const {
  Bytes sum;
  for (const auto& [name, bytes] : lines()) {
    sum += bytes;
  }
  return sum;
}

Bytes communicator_bytes(const Program& program, const Device& device,
                         const std::function<std::size_t(std::int32_t)>& ranks_in) {
  return framework_memory(device, communicators_of(program, ranks_in), {}).communicators;
}

MemoryLedger memory_ledger(const ExecutionGraph& graph, std::size_t rank_class,
                           const Device& device) {
  const RankClass& ranks = graph.classes.at(rank_class);
  const Program& program = graph.programs[static_cast<std::size_t>(ranks.program)];
  const MemoryUse use = memory_use(program);
  MemoryLedger l;
  l.rank = ranks.ranks.front();
  l.weights = use.parameters;
  l.gradients = use.gradients;
  l.optimizer = use.optimizer;
  l.embeddings = use.embeddings;
  for (TensorId id = 0; id < program.tensors.size(); ++id) {
    const Tensor& t = program.tensors[id];
    if (t.is_view()) {
      continue;
    }
    if (t.purpose == TensorPurpose::kLogits) {
      l.logits += t.bytes() * static_cast<double>(most_instances(program, id));
    } else if (t.purpose == TensorPurpose::kGathered) {
      l.gather_buffers += t.bytes();
    } else if (t.purpose == TensorPurpose::kKeyValueCache) {
      l.cache += t.bytes();
    }
  }
  l.buffers = use.buffers - l.gather_buffers - l.cache;
  l.temporaries = Temporaries(program).peak();
  l.in_flight = use.activations - l.temporaries;
  l.logits = std::min(l.logits, l.in_flight);
  l.in_flight -= l.logits;
  const FrameworkMemory framework = framework_memory(
      device,
      communicators_of(program, [&](std::int32_t c) { return graph.members(c, l.rank).size(); }),
      use.activations, has_experts(program));
  l.context = framework.context;
  l.communicators = framework.communicators;
  l.fragmentation = framework.fragmentation;
  l.workspaces = framework.workspaces;
  const auto host = std::find(program.tiers.begin(), program.tiers.end(), kHostTier);
  if (host != program.tiers.end()) {
    l.host = held_in_tier(program, static_cast<std::size_t>(host - program.tiers.begin()));
  }
  return l;
}

MemoryLedger fullest_ledger(const ExecutionGraph& graph, const Device& device) {
  MemoryLedger fullest;
  for (std::size_t c = 0; c < graph.classes.size(); ++c) {
    const MemoryLedger l = memory_ledger(graph, c, device);
    if (c == 0 || l.total() > fullest.total()) {
      fullest = l;
    }
  }
  return fullest;
}

}  // namespace stepcast::simulator
