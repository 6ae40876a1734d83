// Published tables of communication times. Sizes become the NCCL convention of each op.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "models/measured/internal/schema.h"

namespace stepcast::models {
namespace {

using Collective = MeasuredTable::CollectiveRow;

OpKind collective_kind(std::string_view name) {
  if (name == "alltoall" || name == "all_to_all" || name == "all_to_allv") {
    return OpKind::kAllToAll;
  }
  if (name == "all_gather" || name == "all_gather_base") {
    return OpKind::kAllGather;
  }
  for (const OpKind k : {OpKind::kAllReduce, OpKind::kReduceScatter, OpKind::kBroadcast}) {
    if (name == name_of(k)) {
      return k;
    }
  }
  throw RowError(fmt::format(
      "unknown collective \"{}\"; one of all_reduce, all_gather, reduce_scatter, alltoall, "
      "broadcast",
      name));
}

}  // namespace

// nccl-tests: message_size counts elements of the nccl-tests size (the gathered output, the input
// of a reduce-scatter, one rank's send buffer), which is the convention here too.
void read_nccl(const Row& row, TableBuilder& to) {
  const Format format = format_in(row.text("nccl_dtype")).format;
  const std::int64_t ranks = row.count("num_gpus", 2);
  Collective c;
  c.kind = collective_kind(row.text("op_name"));
  c.format = format;
  c.bytes = row.positive("message_size") * bits_per_element(format, 1) / 8;
  c.ranks = c.ranks_per_machine = ranks;
  c.time = milliseconds(row.positive("latency_ms"));
  to.collective(c);
}

// Bandwidths instead of times: time = size / algorithm bandwidth, MB read as MiB; out of place.
void read_nccl_bandwidth(const Row& row, TableBuilder& to) {
  const std::string& path = to.table().files.back().path;
  const std::string file = path.substr(path.find_last_of('/') + 1);
  Collective c;
  bool known = false;
  for (const std::string_view name : {"all_reduce", "all_gather", "reduce_scatter", "alltoall"}) {
    if (file.find(name) != std::string::npos) {
      c.kind = collective_kind(name);
      known = true;
    }
  }
  if (!known) {
    throw RowError(
        "the columns do not tell the collective, and neither does the file's name; put all_reduce, "
        "all_gather, reduce_scatter or alltoall into it");
  }
  const std::int64_t machines = row.count("Nodes");
  c.ranks = row.count("GPUs", 2);
  if (c.ranks % machines != 0) {
    throw RowError(
        fmt::format("{} GPUs do not divide into {} nodes; mend the row", c.ranks, machines));
  }
  c.ranks_per_machine = c.ranks / machines;
  c.format = Format::kFp32;
  c.bytes = MiB(row.positive("size(MB)")).base();
  c.time = Bytes(c.bytes) / GBps(row.positive("out algbw(GB/s)"));
  c.samples = row.count("iterations");
  to.collective(c);
}

// Read off a log plot. The size of an all-gather is what it gathers: four times as much at the
// times plotted would exceed the links.
void read_plotted_collective(const Row& row, TableBuilder& to) {
  constexpr std::int64_t kRanks = 4;
  const std::string_view name = row.text("collective");
  Collective c;
  c.kind = collective_kind(name);
  c.bytes = row.positive("size_bytes");
  c.ranks = c.ranks_per_machine = kRanks;
  c.time = microseconds(row.positive("latency_us"));
  const bool plain = name == name_of(c.kind);
  to.collective(c, {.variant = plain ? std::string_view{} : name});
}

// One row per rank: the median of the transfer, 1 us resolution, profiler overhead included.
void read_send_recv(const Row& row, TableBuilder& to) {
  Collective c;
  c.kind = OpKind::kSend;
  c.bytes = row.positive("size_bytes");
  c.ranks = row.count("num_workers", 2);
  c.ranks_per_machine = row.count("devices_per_node");
  c.time = milliseconds(row.positive("median_ms"));
  (void)row.count("rank", 0);
  to.collective(c);
}

// Rows of one transfer become one: the rank that waited least.
void keep_fastest_rank(TableBuilder& to, std::size_t first_collective) {
  auto& rows = to.table().collectives;
  std::map<std::tuple<OpKind, double, std::int64_t, std::int64_t>, std::size_t> seen;
  std::size_t kept = first_collective;
  for (std::size_t i = first_collective; i < rows.size(); ++i) {
    const Collective row = rows[i];
    const auto [it, fresh] =
        seen.try_emplace({row.kind, row.bytes, row.ranks, row.ranks_per_machine}, kept);
    if (fresh) {
      rows[kept++] = row;
    } else if (row.time < rows[it->second].time) {
      rows[it->second] = row;
    }
  }
  rows.resize(kept);
}

}  // namespace stepcast::models
