#include "cli/print/show_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/print/human.h"

namespace stepcast::cli {
namespace {

using traces::MemoryMoment;
using traces::MemoryUse;

Bytes bytes_of(std::int64_t n) { return Bytes(static_cast<double>(n)); }

DataTable holders(const char* key, const std::string& title, const MemoryMoment& moment) {
  DataTable t(key, title,
              {{"place", "", true}, {"use", "", true}, {"blocks"}, {"bytes", "size"}, {"share"}});
  for (const MemoryMoment::Row& r : moment.rows) {
    t.row({short_name(r.place.name), cell(name_of(r.place.use)), cell(r.blocks),
           cell(bytes_of(r.bytes)),
           share(static_cast<double>(r.bytes) /
                 static_cast<double>(std::max<std::int64_t>(1, moment.allocated)))});
  }
  constexpr std::size_t kShown = 10;
  t.limit(kShown);
  return t;
}

std::string reason(const traces::OutOfMemory& o) {
  if (o.asked <= o.unused()) {
    return fmt::format(
        "the allocator held {} that no block used, in gaps too short for it: "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True joins them",
        human(bytes_of(o.unused())));
  }
  std::size_t most = 0;
  for (std::size_t u = 0; u < o.then.by_use.size(); ++u) {
    most = o.then.by_use[u] > o.then.by_use[most] ? u : most;
  }
  return fmt::format("blocks held {}, most of it {} ({})", human(bytes_of(o.then.allocated)),
                     name_of(static_cast<MemoryUse>(most)), human(bytes_of(o.then.by_use[most])));
}

Facts out_of_memory_facts(const traces::OutOfMemory& o) {
  Facts f("out_of_memory", "Out of memory", kLeft);
  f.add("asked_bytes", "asked for", bytes_of(o.asked));
  if (!o.place.empty()) {
    f.add("place", "by", o.place);
  }
  if (o.device_free >= 0) {
    f.add("device_free_bytes", "free on the device", bytes_of(o.device_free));
  }
  f.add("allocated_bytes", "held by blocks", bytes_of(o.then.allocated));
  f.add("unused_bytes", "reserved and unused", bytes_of(o.unused()));
  f.add("reason", "reason", reason(o));
  return f;
}

}  // namespace

Tables recorded_memory_tables(const std::vector<traces::MemoryRecord>& records) {
  Tables tables;
  for (const traces::MemoryRecord& r : records) {
    const MemoryMoment peak = traces::memory_peak(r);
    Facts f("memory", fmt::format("Memory of device {}", r.device));
    f.add("peak_allocated_bytes", "peak of what blocks held", bytes_of(peak.allocated));
    f.add("reserved_bytes", "reserved then", bytes_of(peak.reserved));
    for (std::size_t u = 0; u < peak.by_use.size(); ++u) {
      if (peak.by_use[u] > 0) {
        const std::string use(name_of(static_cast<MemoryUse>(u)));
        f.add(use + "_bytes", "of it " + use, bytes_of(peak.by_use[u]));
      }
    }
    tables.push_back(std::move(f));
    tables.push_back(holders("memory_at_peak", "Memory at the peak by place", peak));
    if (const auto o = traces::out_of_memory(r)) {
      tables.push_back(out_of_memory_facts(*o));
      tables.push_back(holders("memory_when_out", "Memory then by place", o->then));
    }
  }
  return tables;
}

DataTable ledger_beside(const simulator::MemoryLedger& ledger,
                        const std::vector<traces::MemoryRecord>& records) {
  MemoryMoment peak;
  for (const traces::MemoryRecord& r : records) {
    MemoryMoment of = traces::memory_peak(r);
    peak = of.allocated > peak.allocated ? std::move(of) : peak;
  }
  const auto recorded = [&peak](MemoryUse use) {
    return bytes_of(peak.by_use[static_cast<std::size_t>(use)]);
  };
  DataTable t("ledger_beside", "The fullest rank beside the peak that was recorded",
              {{"part", "", true}, {"ledger_bytes", "ledger"}, {"recorded_bytes", "recorded"}});
  const auto row = [&t](const char* part, Bytes told, Bytes seen) {
    t.row({cell(part), cell(told), cell(seen)});
  };
  const Bytes context = ledger.context + ledger.communicators - ledger.workspaces;
  const Bytes named = ledger.weights + ledger.embeddings + ledger.optimizer + ledger.gradients;
  row("weights", ledger.weights + ledger.embeddings, recorded(MemoryUse::kWeights));
  row("optimizer", ledger.optimizer, recorded(MemoryUse::kOptimizer));
  row("gradients, backward pass", ledger.gradients, recorded(MemoryUse::kBackward));
  row("activations and the rest", ledger.total() - named - context - ledger.fragmentation,
      recorded(MemoryUse::kForward));
  row("not told", Bytes{}, recorded(MemoryUse::kUnknown));
  row("all blocks", ledger.total() - context - ledger.fragmentation, bytes_of(peak.allocated));
  t.note(
      "Without context, communicators and fragments, which are no blocks. A gradient that the "
      "forward pass allocated counts there.");
  return t;
}

}  // namespace stepcast::cli
