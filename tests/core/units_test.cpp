#include <catch2/catch.hpp>
#include <concepts>
#include <type_traits>

#include "core/error.h"
#include "core/units.h"

using namespace stepcast;

namespace {
template <typename A, typename B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <typename A, typename B>
concept Comparable = requires(A a, B b) {
  a < b;
};
}  // namespace

TEST_CASE("dimensions are checked by the compiler", "[core][units]") {
  STATIC_REQUIRE(Addable<Seconds, Seconds>);
  STATIC_REQUIRE_FALSE(Addable<Bytes, Seconds>);
  STATIC_REQUIRE_FALSE(Addable<Bytes, double>);
  STATIC_REQUIRE_FALSE(Comparable<Bytes, Flops>);
  STATIC_REQUIRE_FALSE(std::convertible_to<double, Seconds>);
  STATIC_REQUIRE(std::same_as<decltype(Bytes(1) / BytesPerSecond(1)), Seconds>);
  STATIC_REQUIRE(std::same_as<decltype(Flops(1) / Seconds(1)), FlopsPerSecond>);
  STATIC_REQUIRE(std::same_as<decltype(BytesPerSecond(1) * Seconds(1)), Bytes>);
  STATIC_REQUIRE(std::same_as<decltype(Seconds(1) / Seconds(1)), double>);
}

TEST_CASE("factories name the unit", "[core][units]") {
  CHECK(GB(1).base() == 1e9);
  CHECK(GiB(1).base() == 1024.0 * 1024.0 * 1024.0);
  CHECK(MiB(3) == Bytes(3 * 1024.0 * 1024.0));
  CHECK(microseconds(1500) / milliseconds(1) == Approx(1.5));
  // 6.7e9 B / 3350e9 B/s = 2 ms.
  CHECK((GB(6.7) / GBps(3350)) / milliseconds(1) == Approx(2));
  CHECK((teraflops(2) * seconds(0.5)).base() == Approx(1e12));
}

TEST_CASE("quantities add, scale and compare like numbers", "[core][units]") {
  Bytes total = MB(1);
  total += MB(2);
  total *= 2;
  total -= MB(1);
  CHECK(total == MB(5));
  CHECK(-total < Bytes());
  CHECK(2 * MB(1) == MB(1) * 2);
  CHECK(MB(4) / 2 == MB(2));
}

TEST_CASE("the clock counts whole picoseconds, rounded to nearest", "[core][units]") {
  CHECK(to_ticks(seconds(1)) == 1'000'000'000'000);
  CHECK(to_ticks(nanoseconds(0.0014)) == 1);  // 1.4 ps
  CHECK(to_ticks(nanoseconds(0.0016)) == 2);
  const SimTime start{1000};
  CHECK(ticks(after(start, nanoseconds(2))) == 3000);
  CHECK(to_seconds(SimTime{2'500'000}) / microseconds(1) == Approx(2.5));
}

TEST_CASE("an input error begins with its place, a failed check with its condition",
          "[core][error]") {
  CHECK(std::string(InputError("job.json: tables[0].rows", "0 rows").what()) ==
        "job.json: tables[0].rows: 0 rows");
  CHECK(std::string(InputError("", "no place").what()) == "no place");
  const auto broken = [] { STEPCAST_CHECK(1 > 2, "one is {}", 1); };
  CHECK_THROWS_WITH(broken(), Catch::Contains("1 > 2 failed: one is 1"));
  CHECK_THROWS_AS(broken(), InternalError);
}
