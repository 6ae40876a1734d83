#include "workloads/passes/program_editor.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "workloads/passes/remove_tensors.h"

namespace stepcast::workloads {
namespace {

constexpr auto kUnnamed = static_cast<std::uint32_t>(-1);

/// Takes from a program what is not written anew.
ProgramBuilder begun(Program& was, ProgramEditor::Tables tables) {
  Program p;
  p.streams = std::move(was.streams);
  if (tables == ProgramEditor::Tables::kSaved) {
    p.names = std::move(was.names);
    p.tensors = std::move(was.tensors);
  } else {
    p.tensors.reserve(was.tensors.size() + was.tensors.size() / 4);
  }
  p.tiers = std::move(was.tiers);
  p.embeddings = std::move(was.embeddings);
  p.exchanges = std::move(was.exchanges);
  p.routings = std::move(was.routings);
  p.column_copies = std::move(was.column_copies);
  p.microbatches = was.microbatches;
  p.interval = was.interval;
  p.ops.reserve(was.ops.size() + was.ops.size() / 4);
  p.operands.reserve(was.operands.size() + was.operands.size() / 4);
  return ProgramBuilder(std::move(p));
}

}  // namespace

ProgramEditor::ProgramEditor(Program& program, DependencyInfo& order, Tables tables)
    : was_(std::move(program)),
      order_(std::move(order)),
      now_(was_.tensors.size(), kNotKept),
      writer_(begun(was_, tables)),
      names_(was_.names.size(), kUnnamed),  // none where they are kept
      transfers_(order_.transfers.size(), kNoTransfer),
      later_(order_.transfers.size()),
      ops_(was_.ops.size()) {
  if (tables == Tables::kSaved) {
    std::iota(now_.begin(), now_.end(), TensorId{0});
  }
  for (std::size_t t = 0; t < order_.transfers.size(); ++t) {
    if (order_.transfers[t].early) {
      early_.emplace_back(order_.transfers[t].named_at, static_cast<AsyncHandle>(t));
    }
  }
  std::sort(early_.begin(), early_.end());
  writer_.order().ops.reserve(was_.ops.size() + was_.ops.size() / 4);
}

void ProgramEditor::keep_tensors() {
  ProgramBuilder& b = writer_.builder();
  const auto declared = static_cast<TensorId>(b.tensors());
  TensorId end = declared;
  for (TensorId& id : now_) {
    id = id == kNotKept ? end++ : id;
  }
  for (TensorId id = 0; id < now_.size(); ++id) {
    if (now_[id] >= declared) {
      renumber(was_.tensors[id], now_);
      b.tensor(std::move(was_.tensors[id]));
    }
  }
}

std::uint32_t ProgramEditor::begin_segment(const Segment& was, std::string name,
                                           MicrobatchRole microbatches) {
  first_ = was.first_op;
  end_ = was.first_op + was.op_count;
  at_ = {first_, 0};
  return writer_.begin_segment(std::move(name), was.kind, microbatches);
}

void ProgramEditor::await_in_next_call(const std::vector<AsyncHandle>& transfers) {
  const auto at = [](AsyncHandle t) { return static_cast<std::size_t>(t); };
  const AsyncHandle last = writer_.name_transfer(order_.transfers[at(transfers.front())].channel);
  writer_.await(last);
  for (const AsyncHandle t : transfers) {
    transfers_[at(t)] = last;
    later_[at(t)] = true;
  }
}

void ProgramEditor::await_to(std::uint32_t awaits) {
  if (awaits <= at_.awaits) {
    return;
  }
  const auto stated = order_.awaits_of(order_.ops[at_.op]);
  for (; at_.awaits < awaits; ++at_.awaits) {
    const AsyncHandle t = stated[at_.awaits];
    if (t < 0 || !later_[static_cast<std::size_t>(t)]) {
      writer_.await(transfer_now(t));
    }
  }
}

void ProgramEditor::keep_to(DependencyInfo::Place place) {
  STEPCAST_CHECK(place.op < end_ || (place.op == end_ && place.awaits == 0),
                 "no op follows in the segment to await what is awaited there");
  for (; at_.op < place.op; at_ = {at_.op + 1, 0}) {
    write_op(at_.op);
  }
  await_to(place.awaits);
}

void ProgramEditor::leave_out() {
  const DependencyInfo::OfOp& of = order_.ops[at_.op];
  STEPCAST_CHECK(at_.op < end_ && of.awaits == 0 && !of.transfers,
                 "an op that is left out awaits something, or is awaited");
  at_ = {at_.op + 1, 0};
}

void ProgramEditor::write_op(std::uint32_t i) {
  auto named = std::lower_bound(early_.begin(), early_.end(), std::pair{i, AsyncHandle{0}});
  for (; named != early_.end() && named->first == i; ++named) {
    const auto t = static_cast<std::size_t>(named->second);
    transfers_[t] = writer_.name_transfer(order_.transfers[t].channel);
  }
  const Op& op = was_.ops[i];
  DependencyInfo::OfOp of = order_.ops[i];
  await_to(of.awaits);
  if (of.transfers) {
    const auto t = static_cast<std::size_t>(of.transfer);
    if (!order_.transfers[t].early && !later_[t]) {
      transfers_[t] = writer_.name_transfer(of.channel, false);
    }
    of.transfer = transfers_[t];
  }
  of.after = transfer_now(of.after);
  if (!names_.empty() && names_[op.name] == kUnnamed) {
    names_[op.name] = writer_.builder().name(was_.names[op.name]);
  }
  operands_.clear();
  const TensorId* const first = was_.operands.data() + op.first_operand;
  std::transform(first, first + op.inputs + op.outputs, std::back_inserter(operands_),
                 [this](TensorId id) { return now_[id]; });
  const DependencyInfo::Place place = writer_.place();
  ops_[i] = {place.op,
             static_cast<std::int32_t>(place.awaits) - static_cast<std::int32_t>(of.awaits)};
  writer_.copy(op, of, names_.empty() ? op.name : names_[op.name],
               std::span(operands_).first(op.inputs), std::span(operands_).subspan(op.inputs));
}

DependencyInfo::Place ProgramEditor::place_now(const DependencyInfo::Place& was) const {
  const Now& now = ops_[was.op];
  const bool leaves = std::find(later_.begin(), later_.end(), true) != later_.end();
  const std::int32_t more = leaves ? std::max(now.more_awaits, 0) : now.more_awaits;
  const std::int32_t awaits = static_cast<std::int32_t>(was.awaits) + more;
  STEPCAST_CHECK(awaits >= 0, "an op was inserted after a mark of its place");
  return {now.op, static_cast<std::uint32_t>(awaits)};
}

/// Those of the ops before `was`.
std::uint32_t ProgramEditor::end_now(std::uint32_t was) const {
  return was == first_ ? ops_[was].op : ops_[was - 1].op + 1;
}

/// Carries over what the builder said of the segment's ops.
void ProgramEditor::carry_marks() {
  DependencyInfo& now = writer_.order();
  const auto inside = [this](std::uint32_t op) { return first_ <= op && op < end_; };
  for (const DependencyInfo::Part& part : order_.parts) {
    if (inside(part.begin.op)) {
      now.parts.push_back({part.name, place_now(part.begin), end_now(part.end)});
    }
  }
  for (const DependencyInfo::Need& need : order_.needs) {
    if (inside(need.place.op)) {
      now.needs.push_back({need.name, place_now(need.place)});
    }
  }
  for (const DependencyInfo::Product& product : order_.products) {
    if (inside(product.first)) {
      now.products.push_back(
          {product.block, product.matrices, ops_[product.first].op, end_now(product.end)});
    }
  }
}

void ProgramEditor::end_segment() {
  keep_rest();
  carry_marks();
  later_.assign(later_.size(), false);
  writer_.end_segment();
}

void ProgramEditor::finish(Program& program, DependencyInfo& order) {
  OpWriter::Written written = std::move(writer_).finish();
  for (const AsyncHandle t : order_.unused) {
    written.order.unused.push_back(transfer_now(t));
  }
  order_.values.renumber(now_);
  written.order.values = std::move(order_.values);
  for (const auto& [name, id] : order_.workspaces) {
    written.order.workspaces.emplace(name, now_[id]);
  }
  program = std::move(written.program);
  order = std::move(written.order);
}

}  // namespace stepcast::workloads
