#include <catch2/catch.hpp>
#include <random>

#include "core/config/quantity.h"
#include "core/config/suggest.h"
#include "core/error.h"

using namespace stepcast;
using namespace stepcast::config;
using Catch::Matchers::Contains;

TEST_CASE("an amount is its number times its unit", "[config][quantity]") {
  CHECK(parse_quantity<Bytes>("80 GB", "x").base() == 80e9);
  CHECK(parse_quantity<Bytes>("80 GiB", "x").base() == 80 * 1073741824.0);
  CHECK(parse_quantity<Bytes>("0 B", "x").base() == 0);
  CHECK(parse_quantity<Bytes>("25MB", "x").base() == 25e6);
  CHECK(parse_quantity<BytesPerSecond>("3.35 TB/s", "x").base() == 3.35e12);
  CHECK(parse_quantity<Seconds>("2 us", "x").base() == 2e-6);
  CHECK(parse_quantity<Seconds>("1.5 min", "x").base() == 90);
  CHECK(parse_quantity<FlopsPerSecond>("989 TFLOP/s", "x").base() == 989e12);
}

TEST_CASE("an amount without a proper unit is refused with a remedy", "[config][quantity]") {
  const auto bytes = [](const char* text) { return parse_quantity<Bytes>(text, "d.json: memory"); };
  const auto rate = [](const char* text) {
    return parse_quantity<BytesPerSecond>(text, "d.json: bandwidth");
  };
  CHECK_THROWS_WITH(bytes("80"), Contains("d.json: memory") && Contains("\"80\"") &&
                                     Contains("unit is missing") && Contains("80 GB"));
  CHECK_THROWS_WITH(bytes("80 Gb"), Contains("that is bits, expected bytes: write \"10 GB\""));
  CHECK_THROWS_WITH(bytes("80 GB/s"), Contains("unknown unit \"GB/s\""));
  CHECK_THROWS_WITH(bytes("-1 GB"), Contains("at least 0"));
  CHECK_THROWS_WITH(bytes("nan GB"), Contains("expected a number and a unit"));
  CHECK_THROWS_WITH(bytes("inf GB"), Contains("expected a number and a unit"));
  CHECK_THROWS_WITH(bytes("1e300 GB"), Contains("too large"));
  CHECK_THROWS_WITH(bytes("1,5 GB"), Contains("unknown unit"));
  CHECK_THROWS_WITH(bytes(""), Contains("expected a number and a unit"));
  // 400 Gb/s is 50 GB/s: eight bits to the byte.
  CHECK_THROWS_WITH(rate("400 Gb/s"), Contains("50 GB/s"));
  CHECK_THROWS_AS(rate("400 Gb/s"), InputError);
  for (const char* spelt : {"400 Gbit/s", "400 gbps", "400 Gb/sec", "400 Gbits/s", "400 GBit/s"}) {
    CHECK_THROWS_WITH(rate(spelt), Contains("bits per second") && Contains("\"50 GB/s\""));
  }
  CHECK_THROWS_WITH(rate("400 GBps"), Contains("did you mean \"GB/s\"?"));
}

TEST_CASE("a written amount reads back to the same bits", "[config][quantity][property]") {
  CHECK(quantity_text(microseconds(2)) == "2 us");
  CHECK(quantity_text(microseconds(2.5)) == "2.5 us");
  CHECK(quantity_text(GB(80)) == "80 GB");
  CHECK(quantity_text(BytesPerSecond(3.35e12)) == "3.35 TB/s");
  CHECK(quantity_text(teraflops(989)) == "989 TFLOP/s");
  CHECK(quantity_text(GiB(80)) == "80 GiB");
  CHECK(quantity_text(Bytes()) == "0 B");
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-12, 18);
  for (int i = 0; i < 20'000; ++i) {
    const double v = std::pow(10, exponent(random));
    REQUIRE(parse_quantity<Bytes>(quantity_text(Bytes(v)), "x").base() == v);
    REQUIRE(parse_quantity<Seconds>(quantity_text(Seconds(v)), "x").base() == v);
    REQUIRE(parse_quantity<FlopsPerSecond>(quantity_text(FlopsPerSecond(v)), "x").base() == v);
  }
}

TEST_CASE("the nearest name is the one with the fewest edits", "[config]") {
  const std::vector<std::string> names{"tensor", "context", "pipeline", "data"};
  CHECK(nearest_name("tensr", names) == "tensor");       // one letter missing
  CHECK(nearest_name("piepline", names) == "pipeline");  // two neighbours swapped: one edit
  CHECK(nearest_name("Data", names) == "data");
  CHECK(nearest_name("optimizer", names).empty());
  CHECK(nearest_name("", names).empty());
  const std::vector<std::string> others{"gb200-nvl72", "dgx-h100", "fp32", "bf16", "h200-sxm"};
  CHECK(nearest_name("h200", others) == "h200-sxm");  // its beginning
  CHECK(nearest_name("h100", others) == "dgx-h100");  // a part of it
  CHECK(nearest_name("bfloat16", others) == "bf16");  // abbreviated
  CHECK(nearest_name("mainframe", others).empty());
  CHECK(list_of({"a", "b", "c"}) == "a, b or c");
  CHECK(list_of({"a"}) == "a");
}
