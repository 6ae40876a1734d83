#include <cmath>
#include <numeric>

#include "workloads/transformer/stage.h"

// How copies of tokens get to the ranks of their experts and back (workloads/transformer/moe.cpp).
namespace stepcast::workloads {

/// The transpose of an exchange keeps every port as busy, so the way back has the sizes of the way
/// there.
OpWriter::Event TransformerStage::exchange_copies(const std::string& name, TensorId from,
                                                  TensorId to, CopyWay way, std::int64_t part) {
  const ExpertShape& e = *shape_.experts;
  const std::int64_t h = e.width;
  OpWriter::Transfer t;
  t.kind = e.to.empty() && !e.once ? OpKind::kAllToAll : OpKind::kAllToAllV;
  t.name = name;
  t.elements = e.part(e.sent, part) * h;
  t.in = {from};
  t.out = {to};
  t.communicator = communicators_.expert;
  t.format = way == CopyWay::kThere ? job_.formats.expert_dispatch.value_or(compute_) : compute_;
  t.attributes.way = way;
  t.routing = routing_ + static_cast<std::int32_t>(part);
  if (!e.to.empty()) {
    Exchange exchange;
    for (const double copies : e.to) {
      exchange.send_elements.push_back(copies * static_cast<double>(h) /
                                       static_cast<double>(e.chunks));
    }
    t.attributes.exchange = writer_.builder().exchange(std::move(exchange));
  }
  if (e.once) {
    Exchange exchange;
    exchange.send_elements.assign(static_cast<std::size_t>(e.ranks), 0.0);
    const ExpertMachines& m = *e.once;
    const double width = static_cast<double>(h) / static_cast<double>(e.chunks);
    exchange.forwarded = {static_cast<std::size_t>(m.machines), m.to_machine * width,
                          static_cast<double>(m.machines) * m.to_rank * width, m.to_rank * width};
    const std::vector<double> elements = exchange.sent_by(0);
    t.elements = std::llround(std::accumulate(elements.begin(), elements.end(), 0.0));
    t.attributes.exchange = writer_.builder().exchange(std::move(exchange));
  }
  return writer_.transfer(Channel::kExpert, t);
}

void TransformerStage::move_rows(OpKind kind, const char* name, TensorId from, TensorId to,
                                 std::int64_t part) {
  OpWriter::Transfer t;
  t.kind = kind;
  t.name = name;
  t.elements = shape_.experts->part(shape_.experts->computed, part) * shape_.experts->width;
  t.in = {from};
  t.out = {to};
  t.communicator = communicators_.tensor;
  t.format = compute_;
  t.routing = routing_ + static_cast<std::int32_t>(part);
  writer_.transfer(Channel::kCompute, t);
}

bool TransformerStage::sorts_copies() const {
  const ExpertShape& e = *shape_.experts;
  return !e.once && e.local > 1 && (e.ranks > 1 || e.gathers);
}

/// Copies leave for the ranks of their experts, in the order of those ranks, or rows for their
/// machines; when each part has arrived.
std::vector<OpWriter::Event> TransformerStage::send_copies(const std::string& name, TensorId copies,
                                                           TensorId rows) {
  const ExpertShape& e = *shape_.experts;
  if (e.ranks > 1 && bits_per_element(job_.formats.expert_dispatch.value_or(compute_), 1024) <
                         bits_per_element(compute_)) {
    narrow_copies(name + ".quantise", copies);
  }
  std::vector<OpWriter::Event> arrived;
  for (std::int64_t part = 0; e.ranks > 1 && part < e.chunks; ++part) {
    arrived.push_back(
        exchange_copies(name + ".exchange", copies, received(rows), CopyWay::kThere, part));
  }
  return arrived;
}

/// Writes what leaves in a narrow format in it first.
void TransformerStage::narrow_copies(const std::string& name, TensorId copies) {
  const ExpertShape& e = *shape_.experts;
  const Format format = *job_.formats.expert_dispatch;
  const std::int64_t elements = (e.once ? shape_.rows : e.sent) * e.width;
  auto op = writer_.compute(OpKind::kCast, name, {elements});
  op.in({copies}).out({copies}).format(format);
  const auto n = static_cast<double>(elements);
  op.work(Flops(2 * n), Bytes(n * bits_per_element(compute_) / 8),
          Bytes(n * bits_per_element(format, 1024) / 8));
}

/// Tensor that copies arrive in: the one the experts read, if nothing is done to them first.
TensorId TransformerStage::received(TensorId rows) {
  const ExpertShape& e = *shape_.experts;
  if (permutes_in_exchange()) {
    return rows;
  }
  if (e.once) {
    return writer_.workspace("moe.received", e.once->received, e.width, compute_);
  }
  return e.gathers || sorts_copies()
             ? writer_.workspace("moe.received", e.received_room, e.width, compute_)
             : rows;
}

/// Between the order in which a part of the copies comes and goes and that of this rank's experts.
void TransformerStage::sort_copies(const std::string& name, CopyWay way, TensorId from, TensorId to,
                                   std::int64_t part) {
  const ExpertShape& e = *shape_.experts;
  writer_.compute(OpKind::kDispatchForward, name, {e.part(e.computed, part), e.width})
      .in({from})
      .out({to})
      .attributes(DispatchAttributes{way})
      .routing(routing_ + static_cast<std::int32_t>(part));
}

/// From a part of the copies as they arrived to `rows` of this rank's experts, expert by expert.
/// Where rows arrive once, what copies them depends on the pass.
void TransformerStage::to_experts(const std::string& name, TensorId copies, TensorId rows,
                                  std::int64_t part) {
  const ExpertShape& e = *shape_.experts;
  const std::int64_t h = e.width;
  TensorId at = e.ranks > 1 ? received(rows) : copies;
  if (e.gathers) {
    const TensorId gathered =
        sorts_copies() ? writer_.workspace("moe.unsorted", e.computed_room, h, compute_) : rows;
    move_rows(OpKind::kAllGather, (name + ".gather").c_str(), at, gathered, part);
    at = gathered;
  }
  if (sorts_copies()) {
    sort_copies(name + ".sort", CopyWay::kThere, at, rows, part);
  }
}

/// The way back: what the experts made of each copy of a part, on the rank of its token. When they
/// are there.
OpWriter::Event TransformerStage::from_experts(const std::string& name, TensorId rows,
                                               TensorId copies, std::int64_t part) {
  const ExpertShape& e = *shape_.experts;
  const std::int64_t h = e.width;
  if (e.once) {
    return exchange_copies(name + ".exchange", received(rows), copies, CopyWay::kBack, part);
  }
  TensorId at = rows;
  if (sorts_copies()) {
    const TensorId unsorted = writer_.workspace("moe.unsorted", e.computed_room, h, compute_);
    sort_copies(name + ".unsort", CopyWay::kBack, at, unsorted, part);
    at = unsorted;
  }
  if (e.gathers) {
    const TensorId own =
        e.ranks > 1 ? writer_.workspace("moe.received", e.received_room, h, compute_) : copies;
    move_rows(OpKind::kReduceScatter, (name + ".reduce").c_str(), at, own, part);
    at = own;
  }
  return e.ranks > 1 ? exchange_copies(name + ".exchange", at, copies, CopyWay::kBack, part) : -1;
}

/// Sums of this rank's tokens as they come back, where several experts made one.
TensorId TransformerStage::rows_returned() {
  return writer_.workspace("moe.returned", shape_.experts->once->returned, shape_.experts->width,
                           compute_);
}

}  // namespace stepcast::workloads
