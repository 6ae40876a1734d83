#pragma once
// Schedules drawn by hand: when each op begins and ends, worked out on paper.
#include <string>
#include <vector>

namespace stepcast::planner::test {

/// A schedule as text. `rank` begins a program, `segment` a segment of it; below it one op a line,
/// in order of issue:
///
///   NAME STREAM TIME [records E] [waits E]... [meets] [host] | BEGIN-END [BEGIN-END]...
///
/// `meets`: a collective of all ranks, which begins when its rank arrives and ends TIME after the
/// last arrived. `host`: the host thread itself waits for the op's events before it issues the op.
/// Behind the bar stand the spans, one for each call of the segment. `calls` lists the calls.
/// Issuing costs nothing.
struct Drawn {
  std::string name;
  std::string text;
};

// clang-format off
inline const std::vector<Drawn> kDrawn{
    {"a wait holds its own stream alone", R"(
rank
segment step
  a  compute 3  records 0  | 0-3
  b  compute 4             | 3-7
  c  copy    2             | 0-2
  d  copy    2  waits 0    | 3-5
calls step
)"},
    {"two records of an event: each wait has the latest one issued before it", R"(
rank
segment step
  a  compute 2  records 0  | 0-2
  v  early   1  waits 0    | 2-3
  b  compute 4  records 0  | 2-6
  w  late    1  waits 0    | 6-7
calls step
)"},
    {"the latest record is the one issued last, though another ends later", R"(
rank
segment step
  a  slow    10  records 0  | 0-10
  b  compute 2   records 0  | 0-2
  w  third   1   waits 0    | 2-3
calls step
)"},
    {"a record issued after the wait is none of its business", R"(
rank
segment step
  a  slow    10  records 0  | 0-10
  w  third   1   waits 0    | 10-11
  b  compute 2   records 0  | 0-2
calls step
)"},
    {"a wait with no record before it refers to the step before, which has ended", R"(
rank
segment step
  w  copy    4  waits 0    | 0-4
  a  compute 3  records 0  | 0-3
  x  copy    1  waits 0    | 4-5
calls step
)"},
    {"a wait on a record of an earlier call, over a segment between", R"(
rank
segment make
  a  compute 2  records 0  | 0-2
  b  side    7  records 1  | 0-7
segment pass
  c  compute 3             | 2-5
segment use
  d  other   1  waits 0    | 2-3
  e  compute 1  waits 1    | 7-8
calls make pass use
)"},
    {"one wait that refers to an earlier call, and in each further call to the call before", R"(
rank
segment step
  w  compute 2  waits 0    | 0-2  5-7   10-12
  y  side    5  records 0  | 0-5  5-10  10-15
calls step step step
)"},
    {"inside and outside of a call: the record of the same call, once there is one", R"(
rank
segment step
  v  third   1  waits 0              | 0-1  3-4
  a  compute 3  records 0            | 0-3  3-6
  w  fourth  1  waits 0              | 3-4  6-7
calls step step
)"},
    {"a wait for two streams is for the later one", R"(
rank
segment step
  a  one     3  records 0            | 0-3
  b  two     5  records 1            | 0-5
  c  compute 1  waits 0  waits 1     | 5-6
calls step
)"},
    {"a host wait keeps back all that is issued after it, on every stream", R"(
rank
segment step
  a  side    5  records 0            | 0-5
  b  compute 1                       | 0-1
  h  calls   0  waits 0  host        | 5-5
  c  compute 2                       | 5-7
  d  side    1                       | 5-6
calls step
)"},
    {"a host wait for a record of an earlier call", R"(
rank
segment step
  h  calls   0  waits 0  host        | 0-0  6-6
  a  compute 2                       | 0-2  6-8
  b  side    6  records 0            | 0-6  6-12
calls step step
)"},
    {"a collective begins for all when the last has come", R"(
rank
segment step
  a  compute 2                       | 0-2
  s  compute 3  meets                | 2-8
  b  compute 1                       | 8-9
calls step
rank
segment step
  a  compute 5                       | 0-5
  s  compute 3  meets                | 5-8
  b  compute 4                       | 8-12
calls step
)"},
    {"collectives meet in order of issue, whichever stream comes first", R"(
rank
segment step
  a  one     4  records 0            | 0-4
  s  one     1  meets                | 4-6
  t  two     2  meets                | 0-3
  b  compute 1  waits 0              | 4-5
calls step
rank
segment step
  t  one     5                       | 0-5
  s  one     1  meets                | 5-6
  u  two     1                       | 0-1
  v  two     2  meets                | 1-3
calls step
)"},
    {"collectives of several calls: the n-th meets the n-th", R"(
rank
segment step
  a  compute 1                       | 0-1  5-6
  s  compute 2  meets                | 1-5  6-10
calls step step
rank
segment first
  a  compute 3                       | 0-3
  s  compute 2  meets                | 3-5
segment second
  b  compute 3                       | 5-8
  t  compute 2  meets                | 8-10
calls first second
)"},
    {"steps back to back: the next one starts while the last exchange is under way", R"(
rank
segment begin
  g  comm    3  waits 1  records 0   | 0-3   11-14
segment pass
  f  compute 5                       | 0-5   7-12
  b  compute 2  waits 0              | 5-7   14-16
segment finish
  x  comm    4  waits 2              | 3-7   14-18
  r  compute 0  records 2            | 7-7   16-16
  y  comm    4  waits 2  records 1   | 7-11  18-22
calls begin pass finish begin pass finish
)"},
};
// clang-format on

}  // namespace stepcast::planner::test
