#include "tests/runtime/cuda/standin/device_memory.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "runtime/cuda/communicator.h"
#include "runtime/cuda/device_memory.h"
#include "runtime/cuda/matmul.h"
#include "runtime/cuda/nccl_exchange.h"
#include "tests/runtime/cuda/standin/device.h"

// Errors that the stand-in makes, as a device and its libraries would, so that the tests over it
// can fail.
namespace stepcast::standin {
namespace {

/// Whether a child that reads the byte ends by a signal.
bool faults(const char* byte) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    static_cast<void>(*static_cast<const volatile char*>(byte));
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status);
}

bool guarded() {
#ifdef __SANITIZE_ADDRESS__
  return false;
#else
  const int key = pkey_alloc(0, 0);
  return key >= 0 && pkey_free(key) == 0;
#endif
}

TEST_CASE("a buffer grows by what was asked for where a quarter more does not fit",
          "[cuda][standin]") {
  const auto limit = std::to_string(device_bytes_in_use() + 1'000'000);
  setenv("STANDIN_MEMORY", limit.c_str(), 1);
  runtime::cuda::Ledger ledger;
  runtime::cuda::Buffer buffer(runtime::cuda::Buffer::Kind::kDevice, "rows", &ledger);
  buffer.reserve(400'128);
  buffer.reserve(600'064);
  CHECK(buffer.bytes() == 750'080);  // a quarter more
  buffer.reserve(900'096);
  CHECK(buffer.bytes() == 900'096);
  CHECK(ledger.total().base() == 900'096);
  CHECK_THROWS_AS(buffer.reserve(1'100'000), RunError);
  unsetenv("STANDIN_MEMORY");
}

TEST_CASE("the host cannot touch the stand-in's device memory, what runs on the device can",
          "[cuda][standin]") {
  char* device = nullptr;
  char* host = nullptr;
  REQUIRE(cudaMalloc(reinterpret_cast<void**>(&device), 64) == cudaSuccess);
  REQUIRE(cudaMallocHost(reinterpret_cast<void**>(&host), 64) == cudaSuccess);
  CHECK(faults(device) == guarded());
  CHECK_FALSE(faults(host));
  {
    const OnDevice here;
    CHECK_FALSE(faults(device + 63));
  }
  CHECK(faults(device) == guarded());
  CHECK(cudaFree(device) == cudaSuccess);
  CHECK(cudaFreeHost(host) == cudaSuccess);
}

TEST_CASE("the stand-in refuses copies whose ends are not where their kind says",
          "[cuda][standin]") {
  char* device = nullptr;
  char* host = nullptr;
  char pageable[64] = {};
  REQUIRE(cudaMalloc(reinterpret_cast<void**>(&device), 64) == cudaSuccess);
  REQUIRE(cudaMallocHost(reinterpret_cast<void**>(&host), 64) == cudaSuccess);
  const auto copied = [](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, nullptr) == cudaSuccess;
  };
  CHECK(copied(device, host, 64, cudaMemcpyHostToDevice));
  CHECK(copied(host, device, 64, cudaMemcpyDeviceToHost));
  CHECK_FALSE(copied(device, host, 65, cudaMemcpyHostToDevice));  // past both ends
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK_FALSE(copied(device, host, 64, cudaMemcpyDeviceToDevice));
  CHECK_FALSE(copied(host, device, 64, cudaMemcpyHostToDevice));
  CHECK_FALSE(copied(device, pageable, 64, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(device, pageable, 64, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(cudaMemset(host, 0, 64) != cudaSuccess);
  cudaGetLastError();
  CHECK(cudaFree(device) == cudaSuccess);
  CHECK(cudaFree(device) == cudaErrorInvalidValue);
  cudaGetLastError();
  CHECK(cudaFreeHost(host) == cudaSuccess);
}

TEST_CASE("a stream of its own does not wait for a copy from pageable memory", "[cuda][standin]") {
  char* device = nullptr;
  char* host = nullptr;
  cudaStream_t stream = nullptr;
  REQUIRE(cudaMalloc(reinterpret_cast<void**>(&device), 64) == cudaSuccess);
  REQUIRE(cudaMallocHost(reinterpret_cast<void**>(&host), 64) == cudaSuccess);
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  char written = 0;
  const auto read = [&](cudaStream_t by) {
    REQUIRE(cudaMemcpyAsync(host, device, 1, cudaMemcpyDeviceToHost, by) == cudaSuccess);
    return *host;
  };
  const auto write = [&] {
    ++written;
    REQUIRE(cudaMemcpy(device, &written, 1, cudaMemcpyHostToDevice) == cudaSuccess);
  };
  write();
  CHECK(read(stream) != written);
  CHECK(read(nullptr) == written);
  write();
  CHECK(read(stream) != written);
  REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
  CHECK(read(stream) == written);
  ++written;
  runtime::cuda::copy_in(device, &written, 1, "a byte");
  CHECK(read(stream) == written);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  CHECK(cudaFree(device) == cudaSuccess);
  CHECK(cudaFreeHost(host) == cudaSuccess);
}

TEST_CASE("an exchange that NCCL refuses leaves no group open", "[cuda][standin]") {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t alone = nullptr;
  REQUIRE(ncclCommInitRankConfig(&alone, 1, {}, 0, &config) == ncclSuccess);
  std::atomic<std::int64_t> looked{0};
  const runtime::cuda::Communicator communicator(alone, "one rank", std::chrono::seconds(1),
                                                 &looked);
  const std::vector<std::int64_t> send{0, 4};  // to a member that is not there
  const std::vector<std::int64_t> receive{0, 0};
  CHECK_THROWS_WITH(runtime::cuda::all_to_all_v(communicator, nullptr, send, nullptr, receive,
                                                ncclFloat32, 4, nullptr),
                    Catch::Contains("ncclSend or ncclRecv"));
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
}

TEST_CASE("a product whose epilogue cuBLASLt does not have is named", "[cuda][standin]") {
  using namespace runtime::cuda;  // NOLINT
  Product product;
  product.m = product.n = product.k = 4;
  char* memory = nullptr;
  REQUIRE(cudaMalloc(reinterpret_cast<void**>(&memory), 4 * 256) == cudaSuccess);
  const auto multiply = [&](Epilogue epilogue) {
    product.epilogue = epilogue;
    Matmul matmul;
    EpilogueOperands operands;
    operands.bias = {memory + 768, Format::kFp32};
    matmul(product, memory, memory + 256, memory + 512, {}, nullptr, operands);
  };
  CHECK_NOTHROW(multiply(Epilogue::kBias));
  setenv("STANDIN_EPILOGUE_WIDTH", "5", 1);
  CHECK_NOTHROW(multiply(Epilogue::kNone));
  CHECK_THROWS_WITH(
      multiply(Epilogue::kBias),
      Catch::Contains("no algorithm for a product of 4 x 4 x 4 (fp32 operands, fp32 result, "
                      "epilogue bias)"));
  unsetenv("STANDIN_EPILOGUE_WIDTH");
  CHECK(cudaFree(memory) == cudaSuccess);
}

/// Products of as many rows as a step brings, and times that an algorithm was asked for.
std::int64_t asked_for_varying_rows(bool transpose_a) {
  using namespace runtime::cuda;  // NOLINT
  constexpr std::int64_t kWidth = 3, kMost = 70;
  std::vector<float> ones(kWidth * kMost, 1.0F), out(kWidth * kMost);
  const std::size_t bytes = ones.size() * sizeof(float);
  float* memory = nullptr;
  REQUIRE(cudaMalloc(reinterpret_cast<void**>(&memory), 3 * bytes) == cudaSuccess);
  float* const a = memory;
  float* const b = a + ones.size();
  float* const c = b + ones.size();
  REQUIRE(cudaMemcpy(a, ones.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess);
  REQUIRE(cudaMemcpy(b, ones.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess);
  Matmul matmul;
  const std::int64_t before = algorithms_asked_for;
  for (const std::int64_t rows : {1, 5, 64, 63, 65, 70, 5}) {
    Product p;
    p.m = transpose_a ? kWidth : rows;
    p.n = kWidth;
    p.k = transpose_a ? rows : kWidth;
    p.transpose_a = transpose_a;
    p.rows_vary = true;
    matmul(p, a, b, c, {}, nullptr);
    REQUIRE(cudaMemcpy(out.data(), c, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
    for (std::int64_t i = 0; i < p.m * p.n; ++i) {
      REQUIRE(out[static_cast<std::size_t>(i)] == static_cast<float>(p.k));
    }
  }
  CHECK(cudaFree(memory) == cudaSuccess);
  return algorithms_asked_for - before;
}

TEST_CASE("products of varying rows share the algorithms of rounded ones", "[cuda][standin]") {
  for (const bool transpose_a : {false, true}) {
    CAPTURE(transpose_a);
    CHECK(asked_for_varying_rows(transpose_a) == 2);  // of 64 and 128 rows
  }
  // Algorithms that the library takes for their own size alone: 64 rows are one of those rounded
  // to, five others are not.
  setenv("STANDIN_ALGORITHMS_OF_ONE_SIZE", "1", 1);
  CHECK(asked_for_varying_rows(false) == 2 + 5);
  unsetenv("STANDIN_ALGORITHMS_OF_ONE_SIZE");
}

/// A product of 16 x 16 x 16 in fp32 with what its epilogue goes with.
struct ProductOfSixteen {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t matrix = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  char* memory = nullptr;

  explicit ProductOfSixteen(cublasLtEpilogue_t epilogue) {
    REQUIRE(cudaMalloc(reinterpret_cast<void**>(&memory), 8192) == cudaSuccess);
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&matrix, CUDA_R_32F, 16, 16, 16);
    cublasLtMatmulPreferenceCreate(&preference);
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, memory);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, memory + 1024);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{16});
  }
  ~ProductOfSixteen() {
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatrixLayoutDestroy(matrix);
    cublasLtMatmulDescDestroy(operation);
    cublasLtDestroy(handle);
    cudaFree(memory);
  }
  ProductOfSixteen(const ProductOfSixteen&) = delete;
  ProductOfSixteen& operator=(const ProductOfSixteen&) = delete;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t what, T value) {
    cublasLtMatmulDescSetAttribute(operation, what, &value, sizeof value);
  }
  void batch(std::int32_t count) {
    const std::int64_t step = 256;
    cublasLtMatrixLayoutSetAttribute(matrix, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                     sizeof count);
    cublasLtMatrixLayoutSetAttribute(matrix, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                     sizeof step);
  }
  bool has_algorithm() {
    int found = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle, operation, matrix, matrix, matrix, matrix,
                                          preference, 1, &result, &found) == CUBLAS_STATUS_SUCCESS;
  }
  bool multiplies() {
    const float one = 1;
    const float zero = 0;
    char* const data = memory + 4096;
    return cublasLtMatmul(handle, operation, &one, data, matrix, data, matrix, &zero, data + 2048,
                          matrix, data + 2048, matrix, &result.algo, nullptr, 0,
                          nullptr) == CUBLAS_STATUS_SUCCESS;
  }
  cublasLtMatmulHeuristicResult_t result{};
};

TEST_CASE("the stand-in's cuBLASLt refuses operands of epilogues that the header does not allow",
          "[cuda][standin]") {
  const auto epilogue = GENERATE(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU_BGRAD);
  ProductOfSixteen p(epilogue);
  CHECK(p.has_algorithm());
  CHECK(p.multiplies());
  for (const std::int64_t leading : {8, 20}) {  // below the rows; no multiple of 8
    p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, leading);
    CHECK_FALSE(p.has_algorithm());
    CHECK_FALSE(p.multiplies());
  }
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{24});
  CHECK(p.has_algorithm());
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, CUDA_R_16BF);  // not the result's
  CHECK_FALSE(p.has_algorithm());
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, CUDA_R_32F);
  CHECK(p.has_algorithm());
  p.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF);
  CHECK_FALSE(p.has_algorithm());
  p.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
  // The algorithm counts on the addresses it was asked for with.
  CHECK(p.has_algorithm());
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.memory + 1028);
  CHECK_FALSE(p.multiplies());
  CHECK(p.has_algorithm());
  CHECK(p.multiplies());
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<char*>(nullptr));
  CHECK_FALSE(p.has_algorithm());
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.memory + 1024);
  p.batch(2);
  CHECK_FALSE(p.has_algorithm());
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, std::int64_t{16 * 24});
  CHECK(p.has_algorithm());
}

TEST_CASE("the stand-in's cuBLASLt takes masks whose rows are packs of 128 bits",
          "[cuda][standin]") {
  ProductOfSixteen p(CUBLASLT_EPILOGUE_RELU_AUX_BIAS);
  CHECK_FALSE(p.has_algorithm());
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{128});
  CHECK(p.has_algorithm());
}

}  // namespace
}  // namespace stepcast::standin
