#pragma once
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <iostream>
#include <random>
#include <vector>

#include "runtime/cuda/kernels/matrix_view.h"
#include "tests/runtime/cuda/standin/numbers.h"

/// Helpers that tests of single device kernels share: matrices on the device with gaps between
/// their rows and poison around them, and oracles in double.
namespace stepcast::runtime::cuda::kernels::test {

/// Values of a matrix without gaps.
using Numbers = std::vector<double>;

/// f(i, j) for all of a shape.
template <class F>
Numbers each(Index rows, Index columns, F f) {
  Numbers v;
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) {
      v.push_back(f(i, j));
    }
  }
  return v;
}

/// Columns of `first` with the sums of f(i, j) added.
template <class F>
Numbers column_sums(const Numbers& first, Index rows, Index columns, F f) {
  Numbers sums = first;
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) {
      sums[static_cast<std::size_t>(j)] += f(i, j);
    }
  }
  return sums;
}

/// Whether kernels can run here; else the reason is printed in the words by which ctest knows a
/// skipped test.
inline bool has_device() {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code != cudaSuccess || devices == 0) {
    std::cout << "skipped: no CUDA device (" << cudaGetErrorString(code) << ")" << std::endl;
    return false;
  }
  return true;
}

/// A test case that is skipped where kernels cannot run.
#define DEVICE_TEST_CASE(...) \
  DEVICE_TEST_CASE_OF(INTERNAL_CATCH_UNIQUE_NAME(on_device), __VA_ARGS__)
#define DEVICE_TEST_CASE_OF(body, ...) \
  static void body();                  \
  TEST_CASE(__VA_ARGS__) {             \
    if (has_device()) {                \
      body();                          \
    }                                  \
  }                                    \
  static void body()

inline void succeed(cudaError_t code) {
  INFO(cudaGetErrorString(code));
  REQUIRE(code == cudaSuccess);
}

/// Device memory, every byte 0xff: a NaN in every float format, -1 in every integer.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(std::max<std::size_t>(bytes, 1)) {
    succeed(cudaMalloc(&data_, bytes_));
    succeed(cudaMemset(data_, 0xff, bytes_));
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }
  [[nodiscard]] Workspace workspace() const { return {data_, bytes_}; }
  [[nodiscard]] std::vector<char> bytes() const {
    succeed(cudaDeviceSynchronize());
    std::vector<char> copy(bytes_);
    succeed(cudaMemcpy(copy.data(), data_, bytes_, cudaMemcpyDeviceToHost));
    return copy;
  }
  void write(const std::vector<char>& bytes) const {
    if (!bytes.empty()) {
      succeed(cudaMemcpy(data_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    }
  }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

/// An array of plain values on the device.
template <class T>
class Array {
 public:
  explicit Array(std::size_t count) : count_(count), memory_(count * sizeof(T)) {}
  explicit Array(const std::vector<T>& values) : Array(values.size()) { write(values); }
  [[nodiscard]] T* data() const { return memory_.as<T>(); }
  void write(const std::vector<T>& values) const {
    std::vector<char> bytes(values.size() * sizeof(T));
    if (!values.empty()) {
      std::memcpy(bytes.data(), values.data(), bytes.size());
    }
    memory_.write(bytes);
  }
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> values(count_);
    const std::vector<char> bytes = memory_.bytes();
    if (count_ > 0) {
      std::memcpy(values.data(), bytes.data(), count_ * sizeof(T));
    }
    return values;
  }

 private:
  std::size_t count_;
  Memory memory_;
};

/// A matrix on the device, poisoned, with `gap` elements after each row that nobody may write.
class Matrix {
 public:
  Matrix(Format format, Index rows, Index columns, Index gap = 0)
      : format_(format),
        rows_(rows),
        columns_(columns),
        stride_(columns + gap),
        memory_(static_cast<std::size_t>(rows * stride_) * element_bytes(format)) {}
  Matrix(Format format, Index rows, Index columns, const Numbers& values, Index gap = 0)
      : Matrix(format, rows, columns, gap) {
    write(values);
  }
  [[nodiscard]] MatrixView view() const {
    return {memory_.as<void>(), format_, rows_, columns_, stride_};
  }
  [[nodiscard]] Vector vector() const { return {memory_.as<void>(), format_}; }
  void write(const Numbers& values) const {
    std::vector<char> bytes = memory_.bytes();
    for (Index i = 0; i < rows_; ++i) {
      for (Index j = 0; j < columns_; ++j) {
        standin::store(bytes.data(), format_, i * stride_ + j,
                       static_cast<float>(values[static_cast<std::size_t>(i * columns_ + j)]));
      }
    }
    memory_.write(bytes);
  }
  [[nodiscard]] Numbers read() const {
    const std::vector<char> bytes = memory_.bytes();
    Numbers values;
    for (Index i = 0; i < rows_; ++i) {
      for (Index j = 0; j < columns_; ++j) {
        values.push_back(standin::load(bytes.data(), format_, i * stride_ + j));
      }
      const std::size_t size = element_bytes(format_);
      const auto gap = bytes.begin() + (i * stride_ + columns_) * static_cast<Index>(size);
      const auto end = bytes.begin() + (i + 1) * stride_ * static_cast<Index>(size);
      const bool untouched = std::all_of(gap, end, [](char c) { return c == '\xff'; });
      CHECK(untouched);  // between the rows
    }
    return values;
  }

 private:
  Format format_;
  Index rows_, columns_, stride_;
  Memory memory_;
};

/// Relative error that the rounding of one stored result leaves, with some for sums in fp32.
inline double tolerance_of(Format stored) {
  return stored == Format::kBf16 ? 1.2e-2 : stored == Format::kFp16 ? 2e-3 : 2e-5;
}

/// Every value within `tolerance` of the largest expected one, none of them left poisoned.
inline void check_near(const Numbers& found, const Numbers& expected, double tolerance) {
  REQUIRE(found.size() == expected.size());
  double largest = 1e-3, worst = 0;
  std::size_t at = 0;
  for (const double x : expected) {
    largest = std::max(largest, std::abs(x));
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double error = std::abs(found[i] - expected[i]);
    if (!(error <= worst)) {  // a NaN too
      worst = std::isnan(error) ? HUGE_VAL : error;
      at = i;
    }
  }
  INFO("worst at " << at << " of " << found.size() << ": found " << (found.empty() ? 0 : found[at])
                   << ", expected " << (expected.empty() ? 0 : expected[at]) << ", largest "
                   << largest);
  CHECK(worst <= tolerance * largest);
}

/// Draws of one test: the same every time.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  Index below(Index n) { return static_cast<Index>(random_() % static_cast<std::uint64_t>(n)); }
  /// Multiples of 1/64 in [-1, 1]: exact in every stored format.
  Numbers values(Index count) {
    Numbers v(static_cast<std::size_t>(count));
    for (double& x : v) {
      x = static_cast<double>(below(129) - 64) / 64;
    }
    return v;
  }
  Numbers positive(Index count) {
    Numbers v = values(count);
    for (double& x : v) {
      x = std::abs(x) + 1.0 / 64;
    }
    return v;
  }

 private:
  std::mt19937_64 random_;
};

/// Shapes around what kernels cut work by: packs of 16 bytes, warps, blocks, tiles.
struct Shape {
  Index rows, columns, gap;
};
inline std::vector<Shape> odd_shapes() {
  return {{1, 1, 0},   {3, 7, 0},    {5, 32, 3},    {1, 257, 0},  {33, 64, 8},
          {64, 63, 1}, {129, 33, 5}, {1025, 16, 0}, {2, 1024, 0}, {7, 1030, 2}};
}
inline std::vector<Format> stored_formats() {
  return {Format::kFp32, Format::kBf16, Format::kFp16};
}

}  // namespace stepcast::runtime::cuda::kernels::test
