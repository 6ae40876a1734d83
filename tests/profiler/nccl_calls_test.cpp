#include <catch2/catch.hpp>
#include <cstring>

#include "profiler/nccl/nccl_calls.h"

namespace stepcast::profiler {
namespace {

using traces::CollectiveInfo;
using traces::kNoDetail;

constexpr std::int32_t kFp32 = 7, kBf16 = 9;

NcclCall call(std::uint64_t launch, NcclFunction f, std::uint64_t count, std::int32_t type,
              std::int32_t peer = -1) {
  NcclCall c;
  c.launch = launch;
  c.communicator = 0xabc;
  c.members = 4;
  c.rank = 1;
  c.function = f;
  c.count = count;
  c.type = type;
  c.peer = peer;
  c.thread = 11;
  c.begin = static_cast<std::int64_t>(launch) * 100;
  c.end = c.begin + 50;
  return c;
}

struct Written {
  traces::Names names;
  traces::RankBuilder builder{names, "rank"};
  NcclCalls calls;
  explicit Written(const std::vector<NcclCall>& all, std::int64_t begin = 0,
                   std::int64_t end = INT64_MAX) {
    for (const NcclCall& c : all) {
      calls.add(c);
    }
    calls.write(builder, 10, 5, begin, end);
  }
  CollectiveInfo of(std::uint64_t launch, OpKind kind, std::size_t nth = 0,
                    std::size_t kernels = 1) {
    const auto detail = calls.detail_of(builder, launch, kind, nth, kernels);
    REQUIRE(detail != kNoDetail);
    return builder.rank().collectives.at(static_cast<std::size_t>(detail));
  }
};

TEST_CASE("communicators whose making was not seen are no group", "[profiler][nccl]") {
  std::vector<NcclCall> calls{call(1, NcclFunction::kAllReduce, 1000, kFp32),
                              call(2, NcclFunction::kGather, 10, kFp32, 0)};
  calls[0].communicator = calls[1].communicator = 0;
  Written w(calls);
  CHECK(w.of(1, OpKind::kAllReduce).group == -1);
  CHECK(w.of(1, OpKind::kAllReduce).bytes == 4000);
  CHECK(w.of(2, OpKind::kCount).bytes == 160);  // the root's buffer: 4 parts of 10 * 4 B
  CHECK(w.builder.rank().groups.empty());
}

TEST_CASE("collectives are sized by NCCL's conventions", "[profiler][nccl]") {
  Written w({call(1, NcclFunction::kAllReduce, 1000, kFp32),
             call(2, NcclFunction::kAllGather, 1000, kBf16),
             call(3, NcclFunction::kReduceScatter, 1000, kBf16),
             call(4, NcclFunction::kBroadcast, 1000, kFp32, 2)});
  // All-reduce: the buffer, 1000 * 4 B.
  CHECK(w.of(1, OpKind::kAllReduce).bytes == 4000);
  // All-gather and reduce-scatter count one part; the larger side has 4 of them: 4 * 1000 * 2 B.
  CHECK(w.of(2, OpKind::kAllGather).bytes == 8000);
  CHECK(w.of(2, OpKind::kAllGather).elements_in == 1000);
  CHECK(w.of(3, OpKind::kReduceScatter).elements_in == 4000);
  CHECK(w.of(3, OpKind::kReduceScatter).bytes == 8000);
  CHECK(w.of(4, OpKind::kBroadcast).peer == 2);
  REQUIRE(w.builder.rank().groups.size() == 1);
  const traces::Group& g = w.builder.rank().groups[0];
  CHECK(g.size == 4);
  CHECK(g.ranks == std::vector<std::int32_t>{-1, 5, -1, -1});  // this process is global rank 5
}

TEST_CASE("grouped sends and receives are one exchange with its parts", "[profiler][nccl]") {
  std::vector<NcclCall> all;
  for (std::int32_t peer = 0; peer < 4; ++peer) {
    all.push_back(call(9, NcclFunction::kSend, 10 + static_cast<std::uint64_t>(peer), kFp32, peer));
    all.push_back(call(9, NcclFunction::kRecv, 20, kFp32, peer));
  }
  Written w(all);
  const CollectiveInfo c = w.of(9, OpKind::kAllToAllV);
  CHECK(c.kind == OpKind::kAllToAllV);
  CHECK(c.split_in == std::vector<std::int64_t>{10, 11, 12, 13});
  CHECK(c.split_out == std::vector<std::int64_t>{20, 20, 20, 20});
  CHECK(c.bytes == 4 * 80);  // received 80 elements, sent 46
  CHECK(w.builder.rank().collectives.size() == 1);
}

TEST_CASE("a lone send keeps its peer", "[profiler][nccl]") {
  Written w({call(1, NcclFunction::kSend, 8, kFp32, 3)});
  const CollectiveInfo c = w.of(1, OpKind::kAllToAllV);  // its kernel is named SendRecv
  CHECK(c.kind == OpKind::kSend);
  CHECK(c.peer == 3);
  CHECK(c.split_in.empty());
  CHECK(c.bytes == 32);
}

TEST_CASE("kernels of a group are matched by kind; calls that share one are summed",
          "[profiler][nccl]") {
  Written w({call(1, NcclFunction::kAllReduce, 100, kFp32),
             call(1, NcclFunction::kAllGather, 10, kFp32),
             call(1, NcclFunction::kAllReduce, 200, kFp32),
             call(1, NcclFunction::kAllReduce, 300, kFp32)});
  CHECK(w.of(1, OpKind::kAllGather).bytes == 160);
  CHECK(w.of(1, OpKind::kAllReduce, 0, 1).bytes == 2400);  // (100 + 200 + 300) * 4 B
  CHECK(w.of(1, OpKind::kAllReduce, 0, 3).bytes == 400);
  CHECK(w.of(1, OpKind::kAllReduce, 2, 3).bytes == 1200);
  // Two kernels for three calls: one takes the first, the other the rest.
  CHECK(w.of(1, OpKind::kAllReduce, 0, 2).bytes == 400);
  CHECK(w.of(1, OpKind::kAllReduce, 1, 2).bytes == 2000);
  CHECK(w.calls.detail_of(w.builder, 77, OpKind::kAllReduce, 0, 1) == kNoDetail);
}

TEST_CASE("what NCCL says of a collective stands in its name", "[profiler][nccl]") {
  traces::Names names;
  traces::RankBuilder builder(names, "rank");
  NcclCalls calls;
  for (std::uint64_t n = 0; n < 2; ++n) {
    NcclCall c = call(1, NcclFunction::kAllReduce, 100 + n, kFp32);
    c.begin += static_cast<std::int64_t>(n);
    calls.add(c);
    NcclDetail d;
    d.launch = 1;
    d.channels = n == 0 ? 16 : 2;
    std::strcpy(d.function, "AllReduce");
    std::strcpy(d.algorithm, n == 0 ? "RING" : "TREE");
    std::strcpy(d.protocol, "LL");
    calls.add(d);
  }
  calls.add(call(2, NcclFunction::kAllReduce, 1, kFp32));
  calls.write(builder, 10, 0, 0, INT64_MAX);
  const auto& all = builder.rank().collectives;
  REQUIRE(all.size() == 3);
  CHECK(names.view(all[0].name) == "ncclAllReduce RING LL 16 channels");
  CHECK(names.view(all[1].name) == "ncclAllReduce TREE LL 2 channels");
  CHECK(names.view(all[2].name) == "ncclAllReduce");
}

TEST_CASE("sizes that do not fit are unknown, not wrong", "[profiler][nccl]") {
  Written w({call(1, NcclFunction::kAllGather, UINT64_MAX, kFp32),
             call(2, NcclFunction::kAllReduce, 100, 99)});
  CHECK(w.of(1, OpKind::kAllGather).bytes == -1);
  CHECK(w.of(2, OpKind::kAllReduce).bytes == -1);
}

TEST_CASE("calls outside the window are left out", "[profiler][nccl]") {
  Written w(
      {call(1, NcclFunction::kAllReduce, 1, kFp32), call(5, NcclFunction::kAllReduce, 1, kFp32)},
      200, 1000);
  CHECK(w.calls.detail_of(w.builder, 1, OpKind::kAllReduce, 0, 1) == kNoDetail);
  CHECK(w.calls.detail_of(w.builder, 5, OpKind::kAllReduce, 0, 1) != kNoDetail);
}

}  // namespace
}  // namespace stepcast::profiler
