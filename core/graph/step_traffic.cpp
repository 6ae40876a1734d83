#include "core/graph/step_traffic.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/formats.h"
#include "core/graph/collective_schedule.h"
#include "core/graph/op_traits.h"
#include "core/graph/program.h"

namespace stepcast {
namespace {

double element_bytes(Format f, double real_bytes) {
  const bool id = f == Format::kInt32 || f == Format::kInt64;
  return real_bytes > 0 && !id ? real_bytes : bits_per_element(f, 1024) / 8;
}

/// One rank's place in a communicator, and the shares its collectives send by level, once known.
struct Place {
  std::vector<std::int32_t> members;
  int position = -1;
  std::array<std::vector<double>, 3> shares;  // by RingUse
};

void add_op(const Program& program, const Op& op, const LinkLevels& levels, Place& place,
            double real_bytes, std::span<double> sent) {
  const double element = element_bytes(op.format, real_bytes) * program.share_of_steps(op);
  const double bytes = static_cast<double>(op.shape[0]) * element;
  const std::vector<std::int32_t>& members = place.members;
  const int position = place.position;
  std::vector<double> to(members.size(), 0.0);
  const OpTraits& traits = traits_of(op.kind);
  if (traits.collective == nullptr) {
    return;
  }
  if (traits.collective->ring) {
    const RingUse use = *traits.collective->ring;
    std::vector<double>& shares = place.shares[static_cast<std::size_t>(use)];
    if (shares.empty()) {
      shares = sent_shares(use, levels, members, position);
    }
    for (std::size_t level = 0; level < shares.size(); ++level) {
      sent[level] += bytes * shares[level];
    }
    return;
  }
  switch (traits.role) {
    case OpRole::kRankwise: {
      const Exchange* exchange = program.exchange_of(op);
      STEPCAST_CHECK(exchange != nullptr, "'{}' has no exchange", program.name(op));
      const std::vector<double> elements = exchange->sent_by(static_cast<std::size_t>(position));
      std::transform(elements.begin(), elements.end(), to.begin(),
                     [&](double n) { return n * element; });
      return add_pair_bytes(levels, members, position, to, sent);
    }
    case OpRole::kSymmetric:
      if (traits.collective->pattern != CollectivePattern::kExchange) {
        return;
      }
      to.assign(members.size(), bytes / static_cast<double>(members.size()));
      return add_pair_bytes(levels, members, position, to, sent);
    case OpRole::kSend:
      to.at(static_cast<std::size_t>(op.peer)) = bytes;
      return add_pair_bytes(levels, members, position, to, sent);
    case OpRole::kBroadcast: {  // a chain from the root
      const auto next = (static_cast<std::size_t>(position) + 1) % members.size();
      to[next] = next == static_cast<std::size_t>(op.peer) ? 0 : bytes;
      return add_pair_bytes(levels, members, position, to, sent);
    }
    case OpRole::kReceive:
    case OpRole::kCompute:
      return;
  }
}

}  // namespace

std::string_view name_of(TrafficKind kind) {
  switch (kind) {
    case TrafficKind::kIds:
      return "ids";
    case TrafficKind::kOutputs:
      return "outputs";
    case TrafficKind::kGradients:
      return "gradients";
    case TrafficKind::kReplicaSync:
      return "replica_sync";
    case TrafficKind::kDenseSync:
      return "dense_sync";
    case TrafficKind::kExperts:
      return "experts";
    case TrafficKind::kOther:
    case TrafficKind::kCount:
      break;
  }
  return "other";
}

StepTraffic::StepTraffic(const LinkLevels& of) : levels(of.names()) {
  for (auto& of_kind : bytes) {
    of_kind.assign(of.count(), 0.0);
  }
}

double StepTraffic::total(TrafficKind kind) const {
  const auto& of_kind = bytes[static_cast<std::size_t>(kind)];
  return std::accumulate(of_kind.begin(), of_kind.end(), 0.0);
}

double StepTraffic::exchanged(std::size_t level) const {
  return at(TrafficKind::kIds, level) + at(TrafficKind::kOutputs, level) +
         at(TrafficKind::kGradients, level);
}

StepTraffic expected_traffic(const ExecutionGraph& graph, const LinkLevels& levels,
                             double real_bytes) {
  StepTraffic traffic(levels);
  for (std::int32_t rank = 0; rank < graph.ranks(); ++rank) {
    const Program& program = graph.program_of(rank);
    std::vector<Place> places(graph.communicators.size());
    for (const Call& call : program.calls) {
      for (const Op& op : program.ops_of(program.segments[call.segment])) {
        if (op.communicator < 0) {
          continue;
        }
        Place& place = places[static_cast<std::size_t>(op.communicator)];
        if (place.members.empty()) {
          place.members = graph.members(op.communicator, rank);
          const auto at = std::find(place.members.begin(), place.members.end(), rank);
          place.position =
              at == place.members.end() ? -1 : static_cast<int>(at - place.members.begin());
        }
        if (place.members.size() > 1 && place.position >= 0) {
          add_op(program, op, levels, place, real_bytes,
                 traffic.bytes[static_cast<std::size_t>(op.traffic)]);
        }
      }
    }
  }
  return traffic;
}

}  // namespace stepcast
