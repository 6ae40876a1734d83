// fp8 on the device: rounding against every value the formats have, and products of quantised
// matrices.
#include <cuda_fp8.h>

#include "runtime/cuda/kernels/quantise.h"
#include "tests/runtime/cuda/kernels/kernel_fixture.h"

namespace stepcast::runtime::cuda::kernels::test {
namespace {

/// Value that a byte stands for, from the bits (arXiv 2209.05433, table 1).
double value_of(unsigned char byte, Fp8 format) {
  const int mantissa_bits = format == Fp8::kE4m3 ? 3 : 2;
  const int bias = format == Fp8::kE4m3 ? 7 : 15;
  const int exponent = byte % 128 >> mantissa_bits;
  const double mantissa = byte % (1 << mantissa_bits) / std::exp2(mantissa_bits);
  const double magnitude =
      exponent == 0 ? mantissa * std::exp2(1 - bias) : (1 + mantissa) * std::exp2(exponent - bias);
  return byte < 128 ? magnitude : -magnitude;
}

/// All magnitudes of a format, ascending; without infinities and NaN.
std::vector<double> magnitudes_of(Fp8 format) {
  std::vector<double> all;
  const double largest = format == Fp8::kE4m3 ? 448 : 57344;
  for (unsigned byte = 0; byte < 128; ++byte) {
    const double v = value_of(static_cast<unsigned char>(byte), format);
    if (v <= largest) {
      all.push_back(v);
    }
  }
  return all;
}

}  // namespace

DEVICE_TEST_CASE("kernels: matrices quantised to fp8 with one scale", "[cuda][kernels][gpu]") {
  Draw draw(71);
  for (const Fp8 format : {Fp8::kE4m3, Fp8::kE5m2}) {
    const std::vector<double> magnitudes = magnitudes_of(format);
    for (const auto& [rows, columns, gap] : std::vector<std::array<Index, 3>>{{1, 1, 0},
                                                                              {3, 17, 1},
                                                                              {33, 64, 8},
                                                                              {70, 45, 0},
                                                                              {300, 5, 3},
                                                                              {150, 80, 16},
                                                                              {5, 2064, 0}}) {
      for (const Format stored : stored_formats()) {
        for (const auto& [transpose, both] : std::vector<std::pair<bool, bool>>{
                 {false, false}, {true, false}, {false, true}, {true, true}}) {
          CAPTURE(static_cast<int>(format), rows, columns, name_of(stored), transpose, both);
          Numbers x = draw.values(rows * columns);
          for (double& v : x) {  // over many binades: subnormal results too
            v *= std::exp2(-static_cast<double>(draw.below(12)));
          }
          x[x.size() / 2] = -0.75;  // never nothing but zeros
          const Matrix in(stored, rows, columns, x, gap);
          const Numbers held = in.read();
          const Index out_rows = transpose ? columns : rows;
          const Index used = transpose ? rows : columns;
          const auto padded = [](Index n) { return (n + 15) / 16 * 16; };
          const Index pitch = padded(used);
          const Array<unsigned char> out(static_cast<std::size_t>(out_rows * pitch));
          const Index other_pitch = padded(out_rows);  // the other layout, made in the same pass
          const Array<unsigned char> other(static_cast<std::size_t>(used * other_pitch));
          const QuantisedRows asked{out.data(), pitch};
          const QuantisedRows beside =
              both ? QuantisedRows{other.data(), other_pitch} : QuantisedRows();
          const Memory workspace(kQuantiseWorkspace);
          const float* factor =
              quantise({in.view(), format, transpose ? beside : asked, transpose ? asked : beside},
                       workspace.workspace(), nullptr);
          CHECK(reinterpret_cast<std::uintptr_t>(factor) % 16 == 0);  // scales are read so
          float up = 0;
          succeed(cudaDeviceSynchronize());
          succeed(cudaMemcpy(&up, factor, sizeof up, cudaMemcpyDeviceToHost));
          double largest = 0;
          for (const double v : held) {
            largest = std::max(largest, std::abs(v));
          }
          CHECK(up == Approx(largest / magnitudes.back()));
          const std::vector<unsigned char> bytes = out.read();
          for (Index i = 0; i < out_rows; ++i) {
            for (Index j = 0; j < pitch; ++j) {
              const unsigned char byte = bytes[static_cast<std::size_t>(i * pitch + j)];
              if (j >= used) {
                REQUIRE(byte == 0);
                continue;
              }
              const auto at =
                  static_cast<std::size_t>(transpose ? j * columns + i : i * columns + j);
              const double scaled = held[at] * (magnitudes.back() / largest);
              // The nearest magnitude; halfway (within the rounding of the scale) either.
              double nearest = HUGE_VAL;
              for (const double m : magnitudes) {
                nearest = std::min(nearest, std::abs(m - std::abs(scaled)));
              }
              const double found = value_of(byte, format);
              REQUIRE(std::abs(found - scaled) <= nearest + 1e-6 * std::abs(scaled));
            }
          }
        }
      }
    }
  }
}

DEVICE_TEST_CASE("kernels: zeros, huge and broken values in fp8", "[cuda][kernels][gpu]") {
  const auto quantised = [](const Numbers& x) {
    const Matrix in(Format::kFp32, 1, static_cast<Index>(x.size()), x);
    const Array<unsigned char> out(16);
    const Memory workspace(kQuantiseWorkspace);
    const float* factor =
        quantise({in.view(), Fp8::kE4m3, {out.data(), 16}, {}}, workspace.workspace(), nullptr);
    float up = 0;
    succeed(cudaDeviceSynchronize());
    succeed(cudaMemcpy(&up, factor, sizeof up, cudaMemcpyDeviceToHost));
    return std::pair(up, out.read());
  };
  const auto zeros = quantised({0, 0, 0});
  CHECK(zeros.first == 1);
  CHECK(std::all_of(zeros.second.begin(), zeros.second.end(), [](auto b) { return b == 0; }));
  const auto huge = quantised({3e38, -1.5e38, 0});
  CHECK(huge.first == Approx(3e38 / 448));
  CHECK(value_of(huge.second[0], Fp8::kE4m3) == 448);
  CHECK(value_of(huge.second[1], Fp8::kE4m3) == -224);
  // A value that is no number makes every product of the matrix none.
  CHECK(std::isnan(quantised({1, std::nan(""), 2}).first));
  CHECK(std::isnan(quantised({1, -HUGE_VAL, 2}).first));
}

}  // namespace stepcast::runtime::cuda::kernels::test
