#include <catch2/catch.hpp>
#include <cstdint>
#include <set>
#include <string_view>

#include "core/error.h"
#include "core/formats.h"

using namespace stepcast;

TEST_CASE("bits per element of every format", "[core][formats]") {
  // element + scale / block + microexponent / 2.
  CHECK(bits_per_element(Format::kFp32) == 32);
  CHECK(bits_per_element(Format::kTf32) == 32);
  CHECK(bits_per_element(Format::kBf16) == 16);
  CHECK(bits_per_element(Format::kFp16) == 16);
  CHECK(bits_per_element(Format::kFp8) == 8);
  CHECK(bits_per_element(Format::kInt8) == 8);
  CHECK(bits_per_element(Format::kInt32) == 32);
  CHECK(bits_per_element(Format::kInt64) == 64);
  CHECK(bits_per_element(Format::kMxfp8) == 8.25);  // 8 + 8/32
  CHECK(bits_per_element(Format::kMxint8) == 8.25);
  CHECK(bits_per_element(Format::kMxfp6) == 6.25);
  CHECK(bits_per_element(Format::kMxfp4) == 4.25);
  CHECK(bits_per_element(Format::kNvfp4) == 4.5);  // 4 + 8/16
  CHECK(bits_per_element(Format::kMx9) == 9);      // 1 + 7 + 8/16 + 1/2
  CHECK(bits_per_element(Format::kMx6) == 6);
  CHECK(bits_per_element(Format::kMx4) == 4);
  CHECK(bits_per_element(Format::kInt8Row, 64) == 9);    // (64 + 8) * 8 / 64
  CHECK(bits_per_element(Format::kInt4Row, 64) == 4.5);  // (32 + 4) * 8 / 64
  CHECK_THROWS_WITH(bits_per_element(Format::kInt8Row), Catch::Contains("row length"));
}

TEST_CASE("a row is padded to whole blocks and whole bytes", "[core][formats]") {
  CHECK(format_bytes(Format::kMxfp4, 1, 32) == bytes(17));  // 32 * 4 bits + 8 = 136 bits
  CHECK(format_bytes(Format::kMxfp4, 1, 33) == bytes(34));
  CHECK(format_bytes(Format::kMxfp4, 3, 1) == bytes(51));
  CHECK(format_bytes(Format::kMxfp6, 1, 32) == bytes(25));  // 192 + 8 = 200 bits
  CHECK(format_bytes(Format::kMxfp8, 2, 64) == bytes(132));
  CHECK(format_bytes(Format::kNvfp4, 1, 17) == bytes(18));  // two blocks of 72 bits
  CHECK(format_bytes(Format::kMx9, 1, 16) == bytes(18));    // 128 + 8 + 8 = 144 bits
  CHECK(format_bytes(Format::kMx6, 1, 16) == bytes(12));
  CHECK(format_bytes(Format::kMx4, 1, 17) == bytes(16));
  CHECK(format_bytes(Format::kBf16, 7, 5) == bytes(70));
  CHECK(format_bytes(Format::kBf16, 1000, 256) * 2 == format_bytes(Format::kFp32, 1000, 256));
  CHECK(format_bytes(Format::kMxfp4, 0, 32) == bytes(0));
  CHECK(format_bytes(Format::kInt8Row, 5, 0) == bytes(0));
  CHECK_THROWS_AS(format_bytes(Format::kFp32, -1, 4), InputError);
  // Exact where 32-bit arithmetic would overflow: 10^9 rows of 128 floats.
  CHECK(format_bytes(Format::kFp32, 1'000'000'000, 128).base() == 512e9);
}

TEST_CASE("embedding rows with scale and bias", "[core][formats]") {
  // D 64: fp32 256, int8 64 + 8, int4 32 + 4, int2 16 + 4 bytes.
  CHECK(format_bytes(Format::kFp32, 1, 64) == bytes(256));
  CHECK(format_bytes(Format::kInt8Row, 1, 64) == bytes(72));
  CHECK(format_bytes(Format::kInt4Row, 1, 64) == bytes(36));
  CHECK(format_bytes(Format::kInt4Row, 10, 63) == bytes(360));  // ceil(63 / 2) = 32
  CHECK(quantised_row_bytes(2, 64) == bytes(20));
  CHECK(quantised_row_bytes(8, 64, 8) == format_bytes(Format::kInt8Row, 1, 64));
  // Checkpoint compression of a 256-byte row with two fp16 per row: 12.8, 9.1, 7.1, 3.76.
  CHECK(256 / quantised_row_bytes(2, 64).base() == Approx(12.8));
  CHECK(256 / quantised_row_bytes(3, 64).base() == Approx(9.1).margin(0.05));
  CHECK(256 / quantised_row_bytes(4, 64).base() == Approx(7.1).margin(0.05));
  CHECK(256 / quantised_row_bytes(8, 64).base() == Approx(3.76).margin(0.005));
  CHECK_THROWS_AS(quantised_row_bytes(9, 64), InputError);
}

TEST_CASE("names round-trip and unknown names are no answer", "[core][formats]") {
  std::set<std::string_view> names;
  for (const FormatInfo& info : all_formats()) {
    CHECK(format_named(info.name) == info.format);
    CHECK(&format_info(info.format) == &info);
    CHECK(name_of(info.format) == info.name);
    names.insert(info.name);
  }
  CHECK(names.size() == all_formats().size());
  CHECK(format_named("mxfp4") == Format::kMxfp4);
  CHECK_FALSE(format_named("fp7").has_value());
  CHECK_FALSE(format_named("").has_value());
}

TEST_CASE("bytes never shrink with a longer row and reach the nominal bits",
          "[core][formats][property]") {
  for (const FormatInfo& info : all_formats()) {
    CAPTURE(info.name);
    double before = 0;
    for (std::int64_t elements = 1; elements <= 200; ++elements) {
      const double now = format_bytes(info.format, 1, elements).base();
      REQUIRE(now >= before);
      REQUIRE(now * 8 >= static_cast<double>(elements * info.element_bits));
      before = now;
    }
    if (info.block > 0) {  // whole blocks carry no padding
      CHECK(format_bytes(info.format, 1, 3200).base() * 8 / 3200 ==
            Approx(bits_per_element(info.format)));
    }
  }
}
