#include <catch2/catch.hpp>

#include "core/graph/program_builder.h"
#include "core/graph/temporaries.h"

using namespace stepcast;

namespace {

/// A temporary of as many bytes.
TensorId temporary(ProgramBuilder& b, const char* name, std::int64_t bytes) {
  Tensor t;
  t.name = name;
  t.rows = bytes / 4;
  t.columns = 1;
  t.format = Format::kFp32;
  return b.tensor(t);
}

struct Made {
  Program program;
  TensorId a = 0, b = 0, c = 0;
};

/// a, then b of a, then a again of b, then c of a. `stream`: where the first op is done; `reads`: a
/// second segment that finds a value in c.
Made chain(const char* stream = "compute", bool reads = false) {
  ProgramBuilder builder({"compute", "other"});
  Made made;
  made.a = temporary(builder, "a", 100);
  made.b = temporary(builder, "b", 200);
  made.c = temporary(builder, "c", 400);
  const auto first = builder.begin_segment("first");
  builder.op(OpKind::kFill, "1", {25}).out({made.a}).on(stream);
  builder.op(OpKind::kAdd, "2", {25, 1}).in({made.a}).out({made.b});
  builder.op(OpKind::kAdd, "3", {25, 1}).in({made.b}).out({made.a});
  builder.op(OpKind::kAdd, "4", {25, 1}).in({made.a}).out({made.c});
  builder.end_segment();
  builder.call(first, 0);
  if (reads) {
    const auto second = builder.begin_segment("second");
    builder.op(OpKind::kAdd, "5", {25, 1}).in({made.c}).out({made.b});
    builder.end_segment();
    builder.call(second, 0);
  }
  made.program = std::move(builder).finish();
  return made;
}

Bytes peak(const Made& made) {
  return Temporaries(made.program).peak_of(made.program.segments.front());
}

}  // namespace

TEST_CASE("a temporary lives from its writer to its last reader, and again when it is written anew",
          "[core][program]") {
  const Made made = chain();
  const auto lives = Temporaries(made.program).lives_in(made.program.segments.front());
  REQUIRE(lives.size() == 4);
  const auto is = [&](std::size_t i, TensorId id, std::uint32_t first, std::uint32_t last) {
    return lives[i].tensor == id && lives[i].first == first && lives[i].last == last;
  };
  CHECK(is(0, made.a, 0, 1));
  CHECK(is(1, made.b, 1, 2));
  CHECK(is(2, made.a, 2, 3));
  CHECK(is(3, made.c, 3, 3));
  CHECK(peak(made) == Bytes(100 + 400));  // of 100, 300, 300, 500 by op
}

TEST_CASE("temporaries of other streams, and with a value from before, live throughout",
          "[core][program]") {
  // a from the first op to the last: 100, 300, 300, 500.
  const Made other = chain("other");
  CHECK(Temporaries(other.program).lives_throughout(other.a));
  CHECK(peak(other) == Bytes(500));
  // c throughout: 400 more than 100, 300, 300, 100.
  const Made carried = chain("compute", true);
  CHECK(Temporaries(carried.program).lives_throughout(carried.c));
  CHECK_FALSE(Temporaries(carried.program).lives_throughout(carried.b));
  CHECK(peak(carried) == Bytes(700));
}

TEST_CASE("a temporary written in two parts lives from the first", "[core][program]") {
  ProgramBuilder builder;
  const TensorId parts = temporary(builder, "parts", 100);
  const TensorId big = temporary(builder, "big", 1000);
  const auto segment = builder.begin_segment("s");
  builder.op(OpKind::kFill, "left", {10}).out({parts});
  builder.op(OpKind::kFill, "big", {250}).out({big});
  builder.op(OpKind::kFill, "right", {15}).out({parts});
  builder.op(OpKind::kAdd, "reads", {25, 1}).in({parts}).out({big});
  builder.end_segment();
  builder.call(segment, 0);
  const Program program = std::move(builder).finish();
  CHECK(Temporaries(program).peak() == Bytes(1100));
}
