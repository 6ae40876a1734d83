#include "core/graph/length_law.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/graph/program.h"
#include "core/split_mix.h"

namespace stepcast {
namespace {

constexpr std::uint64_t kLengthKey = 0x6a61676765640001ULL;  // apart from other draws of a step

/// The smallest length that as many as `share` of all sequences do not exceed, `most` at most.
std::int64_t quantile(const LengthLaw& law, double share, std::int64_t most) {
  std::int64_t below = 0;
  while (most - below > 1) {
    const std::int64_t middle = below + (most - below) / 2;
    (law.at_most(middle) > share ? most : below) = middle;
  }
  return most;
}

double pairs_of(std::int64_t length, bool causal, std::int64_t targets) {
  const auto n = static_cast<double>(length);
  const auto last = static_cast<double>(std::min(targets, length));
  const double before = n - last;
  return causal ? before * (before + 1) / 2 + last * (before + 1) : n * n;
}

}  // namespace

std::string_view name_of(LengthKind kind) {
  constexpr std::array<std::string_view, static_cast<std::size_t>(LengthKind::kCount)> kNames{
      "fixed", "uniform", "geometric", "lognormal"};
  return kNames.at(static_cast<std::size_t>(kind));
}

double LengthLaw::at_most(std::int64_t rows) const {
  if (rows < 1) {
    return 0;
  }
  const auto n = static_cast<double>(rows);
  const auto a = static_cast<double>(first);
  const auto b = static_cast<double>(second);
  switch (kind) {
    case LengthKind::kUniform:
      return std::clamp((n - a + 1) / (b - a + 1), 0.0, 1.0);
    case LengthKind::kGeometric:
      return a <= 1 ? 1 : -std::expm1(n * std::log1p(-1 / a));
    case LengthKind::kLogNormal:
      return std::erfc(-std::log(n / a) / (b * std::sqrt(2.0))) / 2;
    default:
      return n >= a ? 1 : 0;
  }
}

double expected_pairs(const LengthLaw& law, std::int64_t rows, bool causal, std::int64_t targets) {
  STEPCAST_CHECK(rows >= 1 && rows <= kLongestJagged, "{} rows of sequences", rows);
  const auto count = static_cast<std::size_t>(rows);
  std::vector<double> p(count + 1);  // p[n]: of length n
  for (std::size_t n = 1; n <= count; ++n) {
    const auto length = static_cast<std::int64_t>(n);
    p[n] = law.at_most(length) - law.at_most(length - 1);
  }
  std::vector<double> begins(count, 0.0);
  begins[0] = 1;
  double shorter = 0;  // sum of p(n) c(n) over n < the room left, built up from the end
  std::vector<double> of_room(count + 1);
  for (std::size_t room = 1; room <= count; ++room) {
    const auto length = static_cast<std::int64_t>(room);
    const double pairs = pairs_of(length, causal, targets);
    of_room[room] = shorter + (1 - law.at_most(length - 1)) * pairs;
    shorter += p[room] * pairs;
  }
  double expected = 0;
  for (std::size_t m = 0; m < count; ++m) {
    const double here = begins[m];
    expected += here * of_room[count - m];
    if (here > 0) {
      double* to = begins.data() + m;
      for (std::size_t n = 1; n < count - m; ++n) {
        to[n] += here * p[n];
      }
    }
  }
  return expected;
}

std::vector<std::int32_t> draw_offsets(const LengthLaw& law, std::int64_t rows, std::int64_t step,
                                       std::int64_t first_sample, std::int64_t samples) {
  STEPCAST_CHECK(samples * rows < std::int64_t{1} << 31, "{} samples of {} rows", samples, rows);
  std::vector<std::int32_t> offsets;
  const std::uint64_t step_key = split_mix(kLengthKey + static_cast<std::uint64_t>(step));
  for (std::int64_t s = 0; s < samples; ++s) {
    std::uint64_t stream = split_mix(step_key + static_cast<std::uint64_t>(first_sample + s));
    for (std::int64_t begin = 0; begin < rows;) {
      offsets.push_back(static_cast<std::int32_t>(s * rows + begin));
      begin += quantile(law, unit_interval(next_split_mix(stream)), rows - begin);
    }
  }
  offsets.push_back(static_cast<std::int32_t>(samples * rows));
  return offsets;
}

std::vector<std::int32_t> draw_offsets(const ExecutionGraph& graph, const Op& op, std::int32_t rank,
                                       std::int32_t microbatch, std::int64_t step) {
  const std::int64_t samples = op.shape[0];
  const std::int64_t first =
      graph.mesh.coordinate(rank, Axis::kData) * (graph.inputs.batch.global / graph.mesh.data);
  return draw_offsets(op.as<JaggedAttributes>().lengths, op.shape[3], step,
                      first + microbatch * samples, samples);
}

}  // namespace stepcast
