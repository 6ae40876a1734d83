#include "traces/graph/operator_join.h"

namespace stepcast::traces {
namespace {

/// A copy to the device, or within it, or a fill; by what the profiler calls it.
std::optional<OperatorWork> transfer(std::string_view name, EventCategory category,
                                     std::int64_t bytes) {
  OperatorWork w;
  const std::int64_t words = (bytes + 3) / 4;
  if (bytes <= 0) {
    return std::nullopt;
  }
  if (category == EventCategory::kMemset) {
    w.op.kind = OpKind::kFill;
    w.op.shape = {words};
  } else if (name.find("HtoD") != std::string_view::npos) {
    w.op.kind = OpKind::kLoadBatch;
    w.op.shape = {bytes};
  } else if (name.find("DtoD") != std::string_view::npos) {
    w.op.kind = OpKind::kCopyColumns;
    w.op.shape = {1, words};
  } else {
    return std::nullopt;
  }
  fill_work(w.op);
  return w;
}

}  // namespace

OperatorJoin::OperatorJoin(const Recording& recording, const RankRecording& rank)
    : recording_(recording), rank_(rank), around_(rank.events.size(), kNoEvent) {
  const Events& e = rank.events;
  std::vector<EventId> open;
  for (const Lane& lane : rank.lanes) {
    if (lane.kind != Lane::Kind::kHostThread) {
      continue;
    }
    open.clear();
    for (EventId i = lane.first; i < lane.first + lane.count; ++i) {
      while (!open.empty() && e.end(open.back()) < e.begin[i]) {
        open.pop_back();
      }
      around_[i] = open.empty() ? kNoEvent : open.back();
      if (e.category[i] == EventCategory::kCpuOp) {
        open.push_back(i);
      }
    }
  }
}

EventId OperatorJoin::innermost(EventId device_work) const {
  const EventId call = rank_.events.link[device_work];
  return call == kNoEvent ? kNoEvent : around_[call];
}

OperatorJoin::Joined OperatorJoin::of(EventId device_work) const {
  const EventCategory category = rank_.events.category[device_work];
  if (category == EventCategory::kMemcpy || category == EventCategory::kMemset) {
    const auto& found = work(device_work);
    return {device_work, found ? &*found : nullptr};
  }
  for (EventId i = innermost(device_work); i != kNoEvent; i = around_[i]) {
    const auto& found = work(i);
    if (found && (found->composite || i == innermost(device_work))) {
      return {i, &*found};
    }
  }
  return {innermost(device_work), nullptr};
}

KernelKinds::Kind OperatorJoin::kind_of(EventId device_work) const {
  const Events& e = rank_.events;
  if (e.category[device_work] == EventCategory::kMemcpy ||
      e.category[device_work] == EventCategory::kMemset) {
    return {KernelKind::kCopy, OpKind::kCount};
  }
  const NameId name = e.name[device_work];
  EventId around = innermost(device_work);
  KernelKinds::Kind kind;
  do {
    const NameId operation = around == kNoEvent ? kNoName : e.name[around];
    const auto [at, fresh] = kinds_.try_emplace({name, operation});
    if (fresh) {
      const auto text = [this](NameId id) {
        return id == kNoName ? std::string_view{} : recording_.names.view(id);
      };
      at->second = KernelKinds::built_in().of(text(name), text(operation));
    }
    kind = at->second;
    around = around == kNoEvent ? kNoEvent : around_[around];
  } while (kind.kind == KernelKind::kOther && around != kNoEvent);
  if (kind.kind == KernelKind::kOther && e.category[device_work] == EventCategory::kCollective) {
    kind.kind = KernelKind::kCommunication;
  }
  return kind;
}

OperatorCall OperatorJoin::call_of(EventId op) const {
  const OpInfo& info = rank_.ops[static_cast<std::size_t>(rank_.events.detail[op])];
  const auto text = [this](NameId id) {
    return id == kNoName ? std::string_view{} : recording_.names.view(id);
  };
  return {.name = recording_.names.view(rank_.events.name[op]),
          .shapes = shapes_of(text(info.shapes)),
          .types = items_of(text(info.types)),
          .values = items_of(text(info.inputs))};
}

OperatorJoin::Key OperatorJoin::key_of(EventId event) const {
  const Events& e = rank_.events;
  const auto index = static_cast<std::size_t>(e.detail[event]);
  if (e.category[event] == EventCategory::kCpuOp) {
    const OpInfo& op = rank_.ops[index];
    return {e.name[event], op.shapes, op.types, op.inputs};
  }
  return {e.name[event], static_cast<std::int64_t>(e.category[event]), rank_.copies[index].bytes,
          -1};
}

const std::optional<OperatorTraffic>& OperatorJoin::traffic_of(EventId device_work) const {
  static const std::optional<OperatorTraffic> kNone;
  const EventId op = innermost(device_work);
  if (op == kNoEvent || rank_.events.detail[op] == kNoDetail) {
    return kNone;
  }
  const KernelKind kind = kind_of(device_work).kind;
  const auto [at, fresh] = traffic_.try_emplace({key_of(op), kind});
  if (fresh) {
    at->second = traces::traffic_of(call_of(op), kind);
  }
  return at->second;
}

const std::optional<OperatorWork>& OperatorJoin::work(EventId event) const {
  static const std::optional<OperatorWork> kNone;
  const Events& e = rank_.events;
  if (e.detail[event] == kNoDetail) {
    return kNone;
  }
  const Key key = key_of(event);
  const auto [at, fresh] = known_.try_emplace(key);
  if (fresh) {
    at->second = e.category[event] == EventCategory::kCpuOp
                     ? work_of(call_of(event))
                     : transfer(recording_.names.view(e.name[event]), e.category[event], key[2]);
  }
  return at->second;
}

}  // namespace stepcast::traces
