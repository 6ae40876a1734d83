#include "workloads/op_writer.h"

#include <cmath>

#include "core/error.h"
#include "core/job/tier_units.h"

namespace stepcast::workloads {

OpWriter::OpEdit OpWriter::compute(OpKind kind, std::string_view name,
                                   std::initializer_list<std::int64_t> shape) {
  return op(Channel::kCompute, kind, name, shape);
}

OpWriter::OpEdit OpWriter::op(Channel channel, OpKind kind, std::string_view name,
                              std::initializer_list<std::int64_t> shape) {
  note({.channel = channel});
  return builder_.op(kind, name, shape);
}

void OpWriter::follows(OpId on) {
  if (on != kNoOp) {
    order_.dependencies.push_back(
        {static_cast<std::uint32_t>(written()), static_cast<std::uint32_t>(on)});
  }
}

/// Notes a fact of the op that is written next.
void OpWriter::note(DependencyInfo::OfOp of) {
  of.first_await = static_cast<std::uint32_t>(order_.awaits.size());
  of.awaits = static_cast<std::uint32_t>(awaits_.size());
  order_.awaits.insert(order_.awaits.end(), awaits_.begin(), awaits_.end());
  awaits_.clear();
  order_.ops.push_back(of);
}

void OpWriter::copy(const Op& op, const DependencyInfo::OfOp& of, std::uint32_t name,
                    std::span<const TensorId> in, std::span<const TensorId> out) {
  note(of);
  builder_.copy(op, name, in, out);
}

OpWriter::Event OpWriter::name_transfer(Channel channel, bool early) {
  order_.transfers.push_back({channel, static_cast<std::uint32_t>(order_.ops.size()), early});
  return static_cast<Event>(order_.transfers.size() - 1);
}

OpWriter::Event OpWriter::transfer(Channel channel, const Transfer& t) {
  const Event done = t.event == kNoTransfer ? name_transfer(channel, false) : t.event;
  note({.channel = channel,
        .transfers = true,
        .after_compute = t.after_compute,
        .transfer = done,
        .after = t.after});
  OpEdit edit = builder_.op(t.kind, t.name, {t.elements, t.tag});
  edit.in(t.in).out(t.out).format(t.format);
  if (t.attributes != CollectiveAttributes{}) {
    edit.attributes(t.attributes);
  }
  edit.communicator(t.communicator, t.peer).routing(t.routing);
  return done;
}

OpWriter::Event OpWriter::host_move(OpKind kind, std::string_view name, Bytes bytes,
                                    const std::vector<TensorId>& in,
                                    const std::vector<TensorId>& out, Event after) {
  const Event done = name_transfer(Channel::kTier, false);
  note({.channel = Channel::kTier, .transfers = true, .transfer = done, .after = after});
  const bool fetches = kind == OpKind::kTierFetch;
  const auto tier = static_cast<std::uint8_t>(builder_.tier(kHostTier) - 1);
  builder_.op(kind, name, {std::llround(bytes.base())})
      .in(in)
      .out(out)
      .attributes(TierAttributes{.tier = tier})
      .work({}, fetches ? bytes : Bytes{}, fetches ? Bytes{} : bytes);
  return done;
}

void OpWriter::await(Event event) {
  if (event != kNoTransfer) {
    awaits_.push_back(event);
  }
}

TensorId OpWriter::workspace(const std::string& name, std::int64_t rows, std::int64_t columns,
                             Format format) {
  const auto found = order_.workspaces.find(name);
  if (found != order_.workspaces.end()) {
    const Tensor& t = builder_.tensor_at(found->second);
    STEPCAST_CHECK(t.rows == rows && t.columns == columns, "workspace '{}' is {} x {}, not {} x {}",
                   name, t.rows, t.columns, rows, columns);
    return found->second;
  }
  Tensor t;
  t.name = name;
  t.role = TensorRole::kActivation;
  t.format = format;
  t.rows = rows;
  t.columns = columns;
  const TensorId id = builder_.tensor(std::move(t));
  order_.workspaces.emplace(name, id);
  return id;
}

void OpWriter::end_segment() {
  order_.unused.insert(order_.unused.end(), awaits_.begin(), awaits_.end());
  awaits_.clear();
  builder_.end_segment();
}

OpWriter::Written OpWriter::finish() && {
  return {std::move(builder_).finish(), std::move(order_)};
}

}  // namespace stepcast::workloads
