#include "models/collectives/idle_time.h"
#include "core/graph/op.h"
#include "core/graph/program.h"

#include <catch2/catch.hpp>
#include <vector>

namespace stepcast::models {

TEST_CASE("time since a communicator's last use", "[models][collective][rest]") {
  // One step: call 0 of segment A, twice segment B, in issue order
  //   A: compute 1 s, reduce on 0, compute 2 s
  //   B: compute 4 s, reduce on 0, compute 8 s, gather on 1
  Program p;
  const auto add = [&](OpKind kind, std::int32_t communicator) {
    Op op;
    op.kind = kind;
    op.communicator = communicator;
    p.ops.push_back(op);
  };
  add(OpKind::kAdd, -1);
  add(OpKind::kAllReduce, 0);
  add(OpKind::kAdd, -1);
  add(OpKind::kAdd, -1);
  add(OpKind::kAllReduce, 0);
  add(OpKind::kAdd, -1);
  add(OpKind::kAllGather, 1);
  p.segments.resize(2);
  p.segments[0].first_op = 0;
  p.segments[0].op_count = 3;
  p.segments[1].first_op = 3;
  p.segments[1].op_count = 4;
  p.calls = {{0, 0}, {1, 0}, {1, 1}};
  std::vector<Seconds> time{Seconds(1),   Seconds(100), Seconds(2),  Seconds(4),
                            Seconds(100), Seconds(8),   Seconds(100)};
  const std::vector<Seconds> since = since_last_use(p, time);
  // A's reduce: after B's last reduce 8 s of this step's end and 1 s of the next one's begin.
  CHECK(since[1].base() == Approx(8 + 1));
  // B's reduce: 2 + 4 s after A's, then 8 + 4 s after its own first call.
  CHECK(since[4].base() == Approx(((2 + 4) + (8 + 4)) / 2.0));
  // The gather: 4 + 8 s after its first call; that one counts 1 + 2 + 4 + 8 s from the step's
  // begin.
  CHECK(since[6].base() == Approx((12 + 15) / 2.0));
  CHECK(since[0].base() == 0);
}

}  // namespace stepcast::models
