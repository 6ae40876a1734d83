#include "studies/predict/show.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/access/access.h"
#include "core/error.h"
#include "core/formats.h"
#include "core/graph/execution_order.h"
#include "core/graph/op_traits.h"

namespace stepcast::studies {
namespace {

const Program& program_of(const ExecutionGraph& graph, const RankClass& c) {
  return graph.programs[static_cast<std::size_t>(c.program)];
}

/// Visits every op template of a program with the number of its executions in a step.
template <typename Visit>
void for_each_op(const Program& program, const Visit& visit) {
  const std::vector<std::int64_t> calls = calls_of(program);
  for (std::size_t s = 0; s < program.segments.size(); ++s) {
    for (const Op& op : program.ops_of(program.segments[s])) {
      visit(op, static_cast<double>(calls[s]));
    }
  }
}

/// By wait of the program: the op template that makes the record it refers to in the first call
/// with such a record, else at the end of the step before.
std::vector<std::int64_t> recorders_of(const Program& program) {
  std::vector<std::int64_t> recorders(program.waits.size(), -1);
  LatestRecords<std::int64_t> latest(program, -1);
  const auto resolve = [&](const Op& op) {
    std::size_t wait = op.first_wait;
    latest.for_each_wait(op, [&](std::int32_t, std::int64_t recorder) {
      recorders[wait] = recorders[wait] < 0 ? recorder : recorders[wait];
      ++wait;
    });
  };
  for (const Call& call : program.calls) {
    const Segment& segment = program.segments[call.segment];
    for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      resolve(program.ops[o]);
      latest.issue(program.ops[o], o);
    }
  }
  std::for_each(program.ops.begin(), program.ops.end(), resolve);
  return recorders;
}

/// Most instances of each per-microbatch tensor that are alive at once; 1 for all others.
std::vector<std::int64_t> instances_at_once(const Program& program) {
  std::vector<std::vector<TensorId>> touched(program.segments.size());
  for (std::size_t s = 0; s < program.segments.size(); ++s) {
    for (const Op& op : program.ops_of(program.segments[s])) {
      for (const auto& ids : {program.inputs(op), program.outputs(op)}) {
        touched[s].insert(touched[s].end(), ids.begin(), ids.end());
      }
    }
    std::sort(touched[s].begin(), touched[s].end());
    touched[s].erase(std::unique(touched[s].begin(), touched[s].end()), touched[s].end());
  }
  // First and last call of every instance.
  std::map<std::pair<TensorId, std::int32_t>, std::pair<std::size_t, std::size_t>> lives;
  for (std::size_t c = 0; c < program.calls.size(); ++c) {
    for (const TensorId id : touched[program.calls[c].segment]) {
      if (program.tensors[id].per_microbatch) {
        lives.try_emplace({id, program.calls[c].microbatch}, c, c).first->second.second = c;
      }
    }
  }
  std::vector<std::map<std::size_t, std::int64_t>> changes(program.tensors.size());
  for (const auto& [instance, life] : lives) {
    ++changes[instance.first][life.first];
    --changes[instance.first][life.second + 1];
  }
  std::vector<std::int64_t> most(program.tensors.size(), 1);
  for (std::size_t t = 0; t < changes.size(); ++t) {
    std::int64_t live = 0;
    for (const auto& [call, change] : changes[t]) {
      live += change;
      most[t] = std::max(most[t], live);
    }
  }
  return most;
}

/// Bytes of one element on the wire; row formats need the length of a row.
double wire_bytes(const Op& op) {
  const bool rows = op.kind == OpKind::kAllToAllV && op.shape[1] > 0;
  return bits_per_element(op.format, rows ? op.shape[1] : 1024) / 8;
}

}  // namespace

std::vector<std::int64_t> calls_of(const Program& program) {
  std::vector<std::int64_t> calls(program.segments.size(), 0);
  for (const Call& c : program.calls) {
    ++calls[c.segment];
  }
  return calls;
}

std::vector<OpContent> op_list(const ExecutionGraph& graph) {
  std::vector<OpContent> list;
  for (std::size_t c = 0; c < graph.classes.size(); ++c) {
    const Program& program = program_of(graph, graph.classes[c]);
    const std::vector<std::int64_t> calls = calls_of(program);
    const auto recorders = recorders_of(program);
    for (std::size_t s = 0; s < program.segments.size(); ++s) {
      const Segment& segment = program.segments[s];
      for (std::size_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
        const Op& op = program.ops[o];
        OpContent row;
        row.rank_class = static_cast<std::int32_t>(c);
        row.segment = segment.name;
        row.calls = calls[s];
        row.op = &op;
        row.name = program.name(op);
        row.stream = program.streams.at(op.stream);
        if (op.communicator >= 0) {
          row.communicator = graph.communicators[static_cast<std::size_t>(op.communicator)].name;
        }
        const auto awaited = recorders.begin() + op.first_wait;
        row.waits.assign(awaited, awaited + op.waits);
        list.push_back(std::move(row));
      }
    }
  }
  return list;
}

std::vector<WorkRow> work_by_kind(const ExecutionGraph& graph, bool split_phases) {
  std::map<std::pair<OpKind, Phase>, WorkRow> rows;
  for (const RankClass& c : graph.classes) {
    std::map<std::pair<OpKind, Phase>, WorkRow> own;
    for_each_op(program_of(graph, c), [&](const Op& op, double calls) {
      if (is_collective(op.kind) || calls == 0) {
        return;
      }
      WorkRow& row = own[{op.kind, split_phases ? op.phase : Phase::kForward}];
      row.executions += calls;
      row.flops += op.flops * calls;
      row.read += op.bytes_read * calls;
      row.written += op.bytes_written * calls;
    });
    const double ranks = static_cast<double>(c.ranks.size());
    for (const auto& [key, mine] : own) {
      WorkRow& row = rows[key];
      row.executions += mine.executions * ranks;
      row.flops += mine.flops * ranks;
      row.read += mine.read * ranks;
      row.written += mine.written * ranks;
      row.flops_most = std::max(row.flops_most, mine.flops);
      row.bytes_most = std::max(row.bytes_most, mine.read + mine.written);
    }
  }
  std::vector<WorkRow> sorted;
  for (auto& [key, row] : rows) {
    std::tie(row.kind, row.phase) = key;
    sorted.push_back(row);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const WorkRow& a, const WorkRow& b) {
    return std::pair(a.flops, a.read + a.written) > std::pair(b.flops, b.read + b.written);
  });
  return sorted;
}

Bytes sent_bytes(const Program& program, const Op& op, std::size_t members, std::size_t position) {
  const auto bytes_of = [&op](double elements) { return Bytes(elements * wire_bytes(op)); };
  const Bytes buffer = bytes_of(static_cast<double>(op.shape[0]));
  const double others =
      members > 0 ? static_cast<double>(members - 1) / static_cast<double>(members) : 0;
  if (const Exchange* exchange = program.exchange_of(op)) {  // a recorded graph keeps none
    const std::vector<double> parts = exchange->sent_by(position);
    double elements = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      elements += i == position ? 0 : parts[i];
    }
    return bytes_of(elements);
  }
  const CollectiveTraits* traits = traits_of(op.kind).collective;
  const BufferShare sent = traits == nullptr ? BufferShare{} : traits->sent;
  return (sent.others * others + sent.whole) * buffer;
}

std::vector<TrafficRow> traffic(const ExecutionGraph& graph) {
  std::map<std::pair<std::int32_t, OpKind>, TrafficRow> rows;
  for (const RankClass& c : graph.classes) {
    const Program& program = program_of(graph, c);
    const std::int32_t rank = c.ranks.front();
    std::map<std::int32_t, std::pair<std::size_t, std::size_t>> groups;  // size, position
    std::map<std::pair<std::int32_t, OpKind>, Bytes> own;
    const double ranks = static_cast<double>(c.ranks.size());
    for_each_op(program, [&](const Op& op, double calls) {
      if (!is_collective(op.kind) || op.communicator < 0 || calls == 0) {
        return;
      }
      const auto [group, fresh] = groups.try_emplace(op.communicator);
      if (fresh) {
        const auto members = graph.members(op.communicator, rank);
        const auto here = std::find(members.begin(), members.end(), rank);
        group->second = {members.size(), static_cast<std::size_t>(here - members.begin())};
      }
      const auto [members, position] = group->second;
      TrafficRow& row = rows[{op.communicator, op.kind}];
      const Bytes sent = sent_bytes(program, op, members, position) * calls;
      row.group = std::max(row.group, members);
      row.executions += calls * ranks;
      row.buffers += Bytes(static_cast<double>(op.shape[0]) * wire_bytes(op)) * (calls * ranks);
      row.sent += sent * ranks;
      own[{op.communicator, op.kind}] += sent;
    });
    for (const auto& [key, sent] : own) {
      TrafficRow& row = rows[key];
      if (sent > row.sent_most) {
        row.sent_most = sent;
        row.rank_most = rank;
      }
    }
  }
  std::vector<TrafficRow> list;
  for (auto& [key, row] : rows) {
    row.communicator = graph.communicators[static_cast<std::size_t>(key.first)].name;
    row.kind = key.second;
    list.push_back(row);
  }
  return list;
}

std::vector<LookupRow> lookups(const Job& job) {
  std::vector<LookupRow> list;
  const LayeredWorkload* dlrm = job.workload.layered();
  if (dlrm == nullptr) {
    return list;
  }
  for (const EmbeddingTable& t : dlrm->tables) {
    LookupRow row;
    row.table = t.name;
    row.rows = t.rows;
    row.dim = t.dim;
    row.pooling = t.pooling;
    row.format = job.row_format(t);
    row.features = t.feature_count();
    row.weights = format_bytes(row.format, t.rows, t.dim);
    row.lookups = static_cast<double>(job.batch.global) * t.pooling;
    const Bytes row_bytes = format_bytes(row.format, 1, t.dim);
    row.looked_up = row_bytes * row.lookups;
    row.unique = row.lookups;
    if (t.access != nullptr) {
      const AccessAnswer unique = t.access->unique(row.lookups);
      row.unique = unique.value;
      row.sampled = unique.outside_sample;
    }
    row.looked_up_unique = row_bytes * row.unique;
    list.push_back(std::move(row));
  }
  return list;
}

std::vector<MemoryContent> memory_content(const ExecutionGraph& graph, std::size_t largest) {
  std::vector<MemoryContent> list;
  for (std::size_t c = 0; c < graph.classes.size(); ++c) {
    const Program& program = program_of(graph, graph.classes[c]);
    MemoryContent content;
    content.rank_class = static_cast<std::int32_t>(c);
    content.ranks = graph.classes[c].ranks;
    content.use = memory_use(program);
    const std::vector<std::int64_t> instances = instances_at_once(program);
    for (std::size_t t = 0; t < program.tensors.size(); ++t) {
      const Tensor& tensor = program.tensors[t];
      if (!tensor.is_view()) {
        content.largest.push_back({tensor.name, tensor.role, tensor.format, tensor.rows,
                                   tensor.columns, instances[t],
                                   tensor.bytes() * static_cast<double>(instances[t])});
      }
    }
    std::stable_sort(content.largest.begin(), content.largest.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    content.largest.resize(std::min(content.largest.size(), largest));
    list.push_back(std::move(content));
  }
  return list;
}

}  // namespace stepcast::studies
