#include "profiler/nccl/nccl_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace stepcast::profiler {
namespace {

using traces::CollectiveInfo;
using traces::kNoDetail;
using traces::Nanoseconds;

struct ByLaunch {
  template <class A, class B>
  bool operator()(const A& a, const B& b) const {
    return a.launch < b.launch;
  }
};

bool point_to_point(NcclFunction f) { return f == NcclFunction::kSend || f == NcclFunction::kRecv; }

/// kCount where the model has no kind of its own: reduce, gather, scatter.
OpKind kind_of(NcclFunction f) {
  switch (f) {
    case NcclFunction::kAllReduce:
      return OpKind::kAllReduce;
    case NcclFunction::kAllGather:
      return OpKind::kAllGather;
    case NcclFunction::kReduceScatter:
      return OpKind::kReduceScatter;
    case NcclFunction::kAllToAll:
      return OpKind::kAllToAll;
    case NcclFunction::kBroadcast:
      return OpKind::kBroadcast;
    case NcclFunction::kSend:
      return OpKind::kSend;
    case NcclFunction::kRecv:
      return OpKind::kRecv;
    default:
      return OpKind::kCount;
  }
}

std::int64_t times(std::uint64_t count, std::int64_t factor) {
  std::int64_t product = 0;
  return count > INT64_MAX ||
                 __builtin_mul_overflow(static_cast<std::int64_t>(count), factor, &product)
             ? -1
             : product;
}

/// Elements in and out of a collective, by NCCL's convention of its count.
std::pair<std::int64_t, std::int64_t> elements_of(const NcclCall& c) {
  const std::int64_t one = times(c.count, 1);
  const std::int64_t all = times(c.count, std::max(1, c.members));
  switch (c.function) {
    case NcclFunction::kAllGather:
    case NcclFunction::kGather:
      return {one, all};
    case NcclFunction::kReduceScatter:
    case NcclFunction::kScatter:
      return {all, one};
    case NcclFunction::kAllToAll:
      return {all, all};
    default:
      return {one, one};
  }
}

}  // namespace

std::string_view name_of(NcclFunction function) {
  constexpr std::array<std::string_view, static_cast<std::size_t>(NcclFunction::kCount)> kNames{
      "ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclAlltoAll", "ncclBroadcast",
      "ncclReduce",    "ncclGather",    "ncclScatter",       "ncclSend",     "ncclRecv"};
  const auto i = static_cast<std::size_t>(function);
  return i < kNames.size() ? kNames[i] : "nccl";
}

NcclType nccl_type(std::int32_t type) {
  constexpr std::array<NcclType, 12> kTypes{{{1, "int8"},
                                             {1, "uint8"},
                                             {4, "int32"},
                                             {4, "uint32"},
                                             {8, "int64"},
                                             {8, "uint64"},
                                             {2, "fp16"},
                                             {4, "fp32"},
                                             {8, "fp64"},
                                             {2, "bf16"},
                                             {1, "float8_e4m3"},
                                             {1, "float8_e5m2"}}};
  return type >= 0 && static_cast<std::size_t>(type) < kTypes.size()
             ? kTypes[static_cast<std::size_t>(type)]
             : NcclType{};
}

/// "ncclAllReduce" or, where NCCL said how, "ncclAllReduce RING LL128 16 channels".
std::string NcclCalls::detailed_name(const NcclCall& call) const {
  const std::string_view name = name_of(call.function);
  if (details_.empty()) {
    return std::string(name);
  }
  const auto of_launch = [&call](const auto& list) {
    return std::equal_range(list.begin(), list.end(), call, ByLaunch{});
  };
  const auto [first, last] = of_launch(calls_);
  auto nth = std::count_if(first, last, [&call](const NcclCall& c) {
    return c.function == call.function && c.begin < call.begin;
  });
  const auto [detail, end] = of_launch(details_);
  for (auto d = detail; d != end; ++d) {
    if (name.ends_with(d->function) && nth-- == 0) {
      return fmt::format("{} {} {} {} channels", name, d->algorithm, d->protocol, d->channels);
    }
  }
  return std::string(name);
}

std::int32_t NcclCalls::describe(traces::RankBuilder& builder,
                                 const std::vector<NcclCall>& exchange,
                                 std::int32_t global_rank) const {
  const NcclCall& first = exchange.front();
  traces::RankRecording& rank = builder.rank();
  CollectiveInfo info;
  info.from_host = true;
  info.sequence = first.sequence;
  // One whose making was not seen has no id, and is not one with others of that kind.
  traces::Group unknown;
  if (first.communicator != 0) {
    info.group = builder.group(fmt::format("nccl-{:016x}", first.communicator));
  }
  traces::Group& group =
      info.group < 0 ? unknown : rank.groups[static_cast<std::size_t>(info.group)];
  constexpr std::int32_t kLargest = 1 << 20;
  if (group.size == 0 && first.members > 0 && first.members <= kLargest) {
    group.size = first.members;
    group.ranks.assign(static_cast<std::size_t>(first.members), -1);  // others are not known here
    if (first.rank >= 0 && first.rank < first.members) {
      group.ranks[static_cast<std::size_t>(first.rank)] = global_rank;
      if (info.group >= 0) {
        rank.metadata["nccl.rank." + group.name] = std::to_string(first.rank);
      }
    }
  }
  const NcclType type = nccl_type(first.type);
  info.dtype = type.bytes > 0 ? builder.names().intern(type.name) : traces::kNoName;
  if (!point_to_point(first.function)) {
    info.kind = kind_of(first.function);
    info.name = builder.names().intern(detailed_name(first));
    info.peer = first.peer;
    std::tie(info.elements_in, info.elements_out) = elements_of(first);
  } else {
    const auto members = static_cast<std::size_t>(group.size);
    std::vector<std::int64_t> sent(members, 0), received(members, 0);
    std::int64_t in = 0, out = 0;
    bool sends = false, receives = false, one_peer = true;
    for (const NcclCall& c : exchange) {
      const std::int64_t n = std::max<std::int64_t>(0, times(c.count, 1));
      const bool send = c.function == NcclFunction::kSend;
      (send ? sends : receives) = true;
      std::int64_t& total = send ? in : out;
      total = total > INT64_MAX - n ? INT64_MAX : total + n;
      one_peer = one_peer && c.peer == first.peer;
      if (c.peer >= 0 && static_cast<std::size_t>(c.peer) < members) {
        std::int64_t& part = (send ? sent : received)[static_cast<std::size_t>(c.peer)];
        part = part > INT64_MAX - n ? INT64_MAX : part + n;
      }
    }
    const bool both = sends && receives;
    info.kind = both ? OpKind::kAllToAllV : kind_of(first.function);
    info.name = builder.names().intern(both ? "ncclSend, ncclRecv" : name_of(first.function));
    info.peer = one_peer ? first.peer : -1;
    info.elements_in = sends ? in : -1;
    info.elements_out = receives ? out : -1;
    if (exchange.size() > 1) {
      info.split_in = sends ? sent : std::vector<std::int64_t>{};
      info.split_out = receives ? received : std::vector<std::int64_t>{};
    }
  }
  const std::int64_t elements = std::max(info.elements_in, info.elements_out);
  info.bytes = type.bytes > 0 && elements >= 0 && elements < INT64_MAX / type.bytes
                   ? elements * type.bytes
                   : -1;
  rank.collectives.push_back(std::move(info));
  return static_cast<std::int32_t>(rank.collectives.size() - 1);
}

void NcclCalls::write(traces::RankBuilder& builder, std::int64_t process, std::int32_t global_rank,
                      std::int64_t begin, std::int64_t end) {
  std::erase_if(calls_, [&](const NcclCall& c) {
    return c.begin < begin || c.begin >= end || c.end < c.begin;
  });
  std::stable_sort(calls_.begin(), calls_.end(), [](const NcclCall& a, const NcclCall& b) {
    return a.launch != b.launch ? a.launch < b.launch : a.begin < b.begin;
  });
  std::stable_sort(details_.begin(), details_.end(), ByLaunch{});
  std::vector<std::vector<NcclCall>> exchanges;
  for (const NcclCall& c : calls_) {
    const auto joins = [&c](const std::vector<NcclCall>& e) {
      return e.front().launch == c.launch && e.front().communicator == c.communicator &&
             point_to_point(e.front().function) && point_to_point(c.function);
    };
    const auto last_launch =
        std::find_if(exchanges.rbegin(), exchanges.rend(),
                     [&c](const auto& e) { return e.front().launch != c.launch; });
    const auto found = std::find_if(exchanges.rbegin(), last_launch, joins);
    if (found != last_launch) {
      found->push_back(c);
    } else {
      exchanges.push_back({c});
    }
  }
  for (const auto& exchange : exchanges) {
    const NcclCall& c = exchange.front();
    const std::int32_t detail = describe(builder, exchange, global_rank);
    traces::RankRecording& rank = builder.rank();
    launched_.push_back({c.launch, rank.collectives.back().kind, detail});
    traces::OpInfo op;
    op.collective = detail;
    rank.ops.push_back(op);
    builder.add({.begin = Nanoseconds(c.begin),
                 .duration = Nanoseconds(c.end - c.begin),
                 .name = rank.collectives.back().name,
                 .category = traces::EventCategory::kUserRange,
                 .lane = builder.host_lane(process, c.thread),
                 .detail = static_cast<std::int32_t>(rank.ops.size() - 1)});
  }
}

std::int32_t NcclCalls::detail_of(traces::RankBuilder& builder, std::uint64_t launch, OpKind kind,
                                  std::size_t nth, std::size_t kernels) const {
  auto at =
      std::lower_bound(launched_.begin(), launched_.end(), launch,
                       [](const Launched& l, std::uint64_t wanted) { return l.launch < wanted; });
  std::vector<std::int32_t> matching, all;
  for (; at != launched_.end() && at->launch == launch; ++at) {
    all.push_back(at->detail);
    const bool exchange = at->kind == OpKind::kSend || at->kind == OpKind::kRecv ||
                          at->kind == OpKind::kAllToAll || at->kind == OpKind::kAllToAllV;
    if (at->kind == kind || (kind == OpKind::kAllToAllV && exchange)) {
      matching.push_back(at->detail);
    }
  }
  const std::vector<std::int32_t>& served = matching.empty() ? all : matching;
  if (served.empty() || nth >= kernels) {
    return kNoDetail;
  }
  const std::size_t from = nth * served.size() / kernels;
  const std::size_t to = std::max(from + 1, (nth + 1) * served.size() / kernels);
  if (to == from + 1) {
    return served[from];
  }
  auto& collectives = builder.rank().collectives;
  CollectiveInfo sum = collectives[static_cast<std::size_t>(served[from])];
  const auto add = [](std::int64_t& total, std::int64_t more) {
    total = total < 0 || more < 0 || total > INT64_MAX - more ? -1 : total + more;
  };
  for (std::size_t i = from + 1; i < to; ++i) {
    const CollectiveInfo& c = collectives[static_cast<std::size_t>(served[i])];
    add(sum.elements_in, c.elements_in);
    add(sum.elements_out, c.elements_out);
    add(sum.bytes, c.bytes);
    sum.kind = sum.kind == c.kind ? c.kind : OpKind::kCount;
    sum.group = sum.group == c.group ? c.group : -1;
  }
  collectives.push_back(std::move(sum));
  return static_cast<std::int32_t>(collectives.size() - 1);
}

}  // namespace stepcast::profiler
