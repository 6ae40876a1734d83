#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "core/graph/program_builder.h"
#include "runtime/cpu/tensor_storage.h"

using namespace stepcast;
using namespace stepcast::runtime;
using namespace stepcast::runtime::cpu;

namespace {

std::vector<float> filled(ParameterPiece piece, std::int32_t rank, std::int64_t rows) {
  std::vector<float> m(static_cast<std::size_t>(rows * (piece.local_column + piece.columns)), -9);
  fill_piece(piece, rank, rows, piece.local_column + piece.columns, m.data());
  return m;
}

}  // namespace

TEST_CASE("every sharding of a parameter starts from the same numbers", "[runtime][storage]") {
  ParameterPiece whole;
  whole.key = parameter_key("table");
  whole.columns = 6;
  whole.scale = 0.5;
  const auto reference = filled(whole, 0, 12);

  ParameterPiece columns = whole;  // columns [2, 5), behind one local column of something else
  columns.column = 2;
  columns.columns = 3;
  columns.local_column = 1;
  const auto part = filled(columns, 0, 12);

  ParameterPiece striped = whole;  // rows 1, 4, 7, 10
  striped.row = 1;
  striped.row_stride = 3;
  const auto stripe = filled(striped, 0, 4);

  ParameterPiece by_rank = whole;  // rank 2 of ranks holding 4 rows each: rows 8..11
  by_rank.row_per_rank = 4;
  const auto block = filled(by_rank, 2, 4);

  for (std::size_t i = 0; i < 12; ++i) {
    CHECK(part[i * 4] == -9);
    for (std::size_t j = 0; j < 3; ++j) {
      CHECK(part[i * 4 + 1 + j] == reference[i * 6 + 2 + j]);
    }
  }
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 6; ++j) {
      CHECK(stripe[i * 6 + j] == reference[(1 + 3 * i) * 6 + j]);
      CHECK(block[i * 6 + j] == reference[(8 + i) * 6 + j]);
    }
  }
}

TEST_CASE("initial values are uniform in [-scale, scale]", "[runtime][storage]") {
  // Mean 0 and variance scale^2 / 3; over n = 64000 values the mean's deviation is
  // scale / sqrt(3 n) = 0.0023 scale, so 5 of them bound it. Neighbours are uncorrelated likewise.
  ParameterPiece piece;
  piece.key = parameter_key("weights");
  piece.columns = 64;
  piece.scale = 2;
  const auto values = filled(piece, 0, 1000);
  double sum = 0;
  double squares = 0;
  double beside = 0;
  double below = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double v = static_cast<double>(values[i]);
    REQUIRE(std::abs(v) <= 2);
    sum += v;
    squares += v * v;
    beside += i > 0 ? v * static_cast<double>(values[i - 1]) : 0;
    below += i >= 64 ? v * static_cast<double>(values[i - 64]) : 0;
  }
  const double n = static_cast<double>(values.size());
  CHECK(std::abs(sum / n) < 5 * 0.0023 * 2);
  CHECK(squares / n == Approx(4.0 / 3).epsilon(0.02));
  CHECK(std::abs(beside / n) < 5 * (4.0 / 3) / std::sqrt(n));
  CHECK(std::abs(below / n) < 5 * (4.0 / 3) / std::sqrt(n));
}

TEST_CASE("microbatches share memory only when their lives do not overlap", "[runtime][storage]") {
  // Two microbatches, forward then backward. GPipe: F0 F1 B0 B1, two activations live; one after
  // the other: F0 B0 F1 B1, one.
  const bool gpipe = GENERATE(false, true);
  const bool other_stream = GENERATE(false, true);
  CAPTURE(gpipe, other_stream);
  ProgramBuilder b;
  b.set_microbatches(2);
  const TensorId x = b.activation("x", 1, 1000, Format::kFp32);
  const auto done = b.event();
  const auto f = b.begin_segment("forward");
  b.op(OpKind::kFill, "write", {1000}).out({x}).records(done);
  b.end_segment();
  const auto w = b.begin_segment("backward");
  auto read = b.op(OpKind::kAdd, "read", {1, 1000}).in({x, x}).out({x});
  if (other_stream) {
    read.on("other").waits(done);
  }
  b.end_segment();
  const std::vector<std::pair<std::uint32_t, std::int32_t>> calls =
      gpipe ? std::vector<std::pair<std::uint32_t, std::int32_t>>{{f, 0}, {f, 1}, {w, 0}, {w, 1}}
            : std::vector<std::pair<std::uint32_t, std::int32_t>>{{f, 0}, {w, 0}, {f, 1}, {w, 1}};
  for (const auto& [segment, microbatch] : calls) {
    b.call(segment, microbatch);
  }
  const Program program = std::move(b).finish();
  const TensorStorage storage(program, 0);
  const bool shared = storage.at(x, 0) == storage.at(x, 1);
  // With two streams the next microbatch could write while the other stream still reads.
  CHECK(shared == (!gpipe && !other_stream));
}

TEST_CASE("tensors of one collective lie side by side", "[runtime][storage]") {
  ProgramBuilder b;
  const auto p = b.parameter("p", 3, 5, Format::kFp32, Format::kFp32, {});
  const auto q = b.parameter("q", 1, 7, Format::kFp32, Format::kFp32, {});
  const auto s = b.begin_segment("sync");
  b.op(OpKind::kAllReduce, "bucket", {22})
      .in({q.gradient, p.gradient})
      .out({q.gradient, p.gradient})
      .communicator(0);
  b.end_segment();
  b.call(s);
  const Program program = std::move(b).finish();
  const TensorStorage storage(program, 0);
  CHECK(storage.at(p.gradient, 0) == storage.at(q.gradient, 0) + 7);
  CHECK(reinterpret_cast<std::uintptr_t>(storage.at(p.weight, 0)) % 64 == 0);
  CHECK(storage.allocated() >= Bytes(4.0 * 2 * 22));
}
