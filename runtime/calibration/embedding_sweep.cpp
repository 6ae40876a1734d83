#include "runtime/calibration/embedding_sweep.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <new>
#include <optional>
#include <random>

#include "core/access/access.h"
#include "core/split_mix.h"
#include "runtime/cpu/kernels/embedding.h"

namespace stepcast::runtime::calibration {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kTableElements = 120'000'000;  // half a GB of fp32 over all tables of a case
constexpr std::int64_t kLeastRepeats = 9;
constexpr double kAgreed = 0.02;
constexpr double kVoid = 0.10;
constexpr std::size_t kRounds = 2;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// How often this thread was taken off its core so far.
std::int64_t preemptions() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

/// Floats in pages of their own, huge ones where the system has them: as the runtime holds its
/// tensors.
class Pages {
 public:
  explicit Pages(std::size_t floats) : bytes_(floats * sizeof(float)) {
    void* address =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
      throw std::bad_alloc();
    }
    madvise(address, bytes_, MADV_HUGEPAGE);
    data_ = static_cast<float*>(address);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { munmap(data_, bytes_); }
  [[nodiscard]] float* data() const { return data_; }

 private:
  std::size_t bytes_;
  float* data_ = nullptr;
};

std::int64_t log_uniform(std::mt19937_64& random, double low, double high) {
  const double u = unit_interval(random());
  return std::llround(low * std::pow(high / low, u));
}
template <typename T>
T one_of(std::mt19937_64& random, const std::vector<T>& values) {
  return values[random() % values.size()];
}

/// Median and half the distance between the quartiles, relative.
struct Typical {
  double median = 0;
  double spread = 0;
};
Typical typical_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  const double median = (samples[(n - 1) / 2] + samples[n / 2]) / 2;
  return {median, (samples[(3 * n) / 4] - samples[n / 4]) / 2 / median};
}

/// The buffers of the largest case, and one case at a time running in them.
class Bench {
 public:
  explicit Bench(const std::vector<EmbeddingCase>& cases)
      : weights_(kTableElements + 1), state_(largest_rows(cases)), pooled_(largest_pooled(cases)) {
    std::fill_n(weights_.data(), kTableElements, 0.01F);
    std::fill_n(state_.data(), largest_rows(cases), 1.0F);
    std::fill_n(pooled_.data(), largest_pooled(cases), 1e-3F);
  }

  EmbeddingSample run(const EmbeddingCase& shape, std::uint64_t seed, double budget) {
    const Access law =
        shape.zipf > 0 ? Access::zipf(shape.rows, shape.zipf, seed) : Access::uniform(shape.rows);
    AccessSampler sampler(law, seed);
    indices_.resize(static_cast<std::size_t>(shape.lookups()));
    offsets_.resize(static_cast<std::size_t>(shape.batch + 1));
    for (std::int64_t b = 0; b <= shape.batch; ++b) {
      offsets_[static_cast<std::size_t>(b)] = b * shape.pooling;
    }
    const auto begin = Clock::now();
    warm(shape, law);
    for (int i = 0; i < 3; ++i) {
      step(shape, sampler);
    }
    std::vector<double> forward;
    std::vector<double> backward;
    EmbeddingSample sample;
    sample.shape = shape;
    for (int attempts = 0; attempts < 4000; ++attempts) {
      const bool spent = since(begin) > budget;
      if (spent && attempts >= 3 * kLeastRepeats) {
        break;
      }
      if (const std::optional<Times> t = step(shape, sampler)) {
        forward.push_back(t->forward);
        backward.push_back(t->backward);
      }
      const auto n = static_cast<std::int64_t>(forward.size());
      if (n >= kLeastRepeats && (spent || n % kLeastRepeats == 0)) {
        const Typical f = typical_of(forward);
        const Typical b = typical_of(backward);
        sample.forward = Seconds(f.median);
        sample.backward = Seconds(b.median);
        sample.spread = std::max(f.spread, b.spread);
        if (spent || (sample.spread <= kAgreed && n >= 3 * kLeastRepeats)) {
          break;
        }
      }
    }
    sample.repeats = static_cast<std::int64_t>(forward.size());
    sample.unstable = sample.repeats < kLeastRepeats || sample.spread > kVoid;
    return sample;
  }

 private:
  struct Times {
    double forward, backward;
  };

  static std::size_t largest_rows(const std::vector<EmbeddingCase>& cases) {
    std::int64_t most = 1;
    for (const EmbeddingCase& c : cases) {
      most = std::max(most, c.rows * c.tables);
    }
    return static_cast<std::size_t>(most);
  }
  static std::size_t largest_pooled(const std::vector<EmbeddingCase>& cases) {
    std::int64_t most = 1;
    for (const EmbeddingCase& c : cases) {
      most = std::max(most, c.batch * c.dim * c.tables);
    }
    return static_cast<std::size_t>(most);
  }

  /// Reads rows from cold to hot, so that the caches hold what a long run would have left there.
  void warm(const EmbeddingCase& shape, const Access& law) {
    constexpr std::int64_t kWarmBytes = 128 << 20;
    const std::int64_t rows = std::min(shape.rows, kWarmBytes / (4 * shape.dim * shape.tables));
    for (std::int64_t rank = rows - 1; rank >= 0; --rank) {
      const std::int64_t row = law.row_of_rank(rank);
      for (std::int64_t t = 0; t < shape.tables; ++t) {
        const kernels::Bags one{&row, nullptr, 1};
        kernels::embedding_bag_forward(
            {weights_.data() + t * shape.rows * shape.dim, shape.rows, shape.dim}, one,
            kernels::Pooling::kSum, {pooled_.data(), 1, shape.dim});
      }
    }
  }

  /// One forward and one backward of a fresh batch; nothing where the thread was preempted.
  std::optional<Times> step(const EmbeddingCase& shape, AccessSampler& sampler) {
    sampler.fill_rows(indices_);
    const std::int64_t interrupted = preemptions();
    const auto start = Clock::now();
    for_each_table(shape, [&](kernels::MatrixView weights, const kernels::Bags& bags,
                              kernels::MatrixView pooled, float*) {
      kernels::embedding_bag_forward(weights, bags, kernels::Pooling::kSum, pooled);
    });
    const double forward = since(start);
    const auto middle = Clock::now();
    kernels::OptimizerSettings settings;
    settings.kind = shape.optimizer;
    settings.learning_rate = 1e-6F;
    for_each_table(shape, [&](kernels::MatrixView weights, const kernels::Bags& bags,
                              kernels::MatrixView pooled, float* squares) {
      kernels::embedding_bag_backward(pooled, bags, kernels::Pooling::kSum, settings, weights,
                                      {squares, nullptr}, workspace_);
    });
    const double backward = since(middle);
    if (preemptions() != interrupted) {
      return std::nullopt;
    }
    return Times{forward, backward};
  }

  /// Tables write side by side into one pooled matrix, which is its own gradient on the way back.
  template <typename Visit>
  void for_each_table(const EmbeddingCase& shape, Visit visit) {
    const kernels::MatrixView pooled(pooled_.data(), shape.batch, shape.dim * shape.tables);
    for (std::int64_t t = 0; t < shape.tables; ++t) {
      const kernels::Bags bags{indices_.data() + t * shape.batch * shape.pooling, offsets_.data(),
                               shape.batch};
      visit(
          kernels::MatrixView(weights_.data() + t * shape.rows * shape.dim, shape.rows, shape.dim),
          bags, pooled.block(t * shape.dim, shape.dim), state_.data() + t * shape.rows);
    }
  }

  Pages weights_, state_, pooled_;
  std::vector<std::int64_t> indices_, offsets_;
  kernels::EmbeddingWorkspace workspace_;
};

}  // namespace

const std::vector<double>& swept_exponents() {
  static const std::vector<double> exponents{0, 0.5, 0.8, 0.95, 1.05, 1.2};
  return exponents;
}

const std::vector<std::int64_t>& swept_dims() {
  static const std::vector<std::int64_t> dims{16, 32, 48, 64, 96, 128, 192, 256};
  return dims;
}

std::vector<EmbeddingCase> embedding_cases(const EmbeddingSweepOptions& options) {
  std::vector<EmbeddingCase> cases;
  std::mt19937_64 random(options.seed);
  for (std::int64_t i = 0; i < options.cases_per_cell; ++i) {
    for (const double zipf : swept_exponents()) {
      for (const std::int64_t dim : swept_dims()) {
        EmbeddingCase c;
        c.zipf = zipf;
        c.dim = dim;
        c.tables = one_of<std::int64_t>(random, {1, 1, 2, 4});
        c.pooling = one_of<std::int64_t>(random, {1, 2, 5, 10, 20, 40});
        c.rows = std::min(log_uniform(random, 1e3, 5e6), kTableElements / (dim * c.tables));
        const std::int64_t lookups =
            log_uniform(random, 4e3, std::min(1e5, 4e6 / static_cast<double>(dim)));
        c.batch = std::max<std::int64_t>(16, lookups / (c.pooling * c.tables));
        c.optimizer = i % 2 == 0 ? OptimizerKind::kRowwiseAdagrad : OptimizerKind::kSgd;
        cases.push_back(c);
      }
    }
  }
  return cases;
}

EmbeddingSample both(const EmbeddingSample& before, const EmbeddingSample& after) {
  const auto mean = [](Seconds a, Seconds b) { return Seconds(std::sqrt(a.base() * b.base())); };
  EmbeddingSample sample = before;
  sample.moved = {after.forward / before.forward, after.backward / before.backward};
  sample.forward = mean(before.forward, after.forward);
  sample.backward = mean(before.backward, after.backward);
  sample.spread = std::max(before.spread, after.spread);
  sample.repeats = before.repeats + after.repeats;
  sample.unstable = before.unstable || after.unstable;
  return sample;
}

std::vector<EmbeddingSample> measure_embedding(const EmbeddingSweepOptions& options) {
  const std::vector<EmbeddingCase> cases = embedding_cases(options);
  Bench bench(cases);
  std::vector<EmbeddingSample> samples;
  const auto begin = Clock::now();
  const std::size_t runs = cases.size() * kRounds;
  for (std::size_t run = 0; run < runs; ++run) {
    const std::size_t i = run % cases.size();
    if (options.progress) {
      options.progress(static_cast<double>(run) / static_cast<double>(runs), cases[i]);
    }
    // What quick cases leave of the budget goes to those still to come.
    const double left = std::max(0.0, options.seconds - since(begin));
    const EmbeddingSample sample =
        bench.run(cases[i], options.seed + run, left / static_cast<double>(runs - run));
    if (run < cases.size()) {
      samples.push_back(sample);
    } else {
      samples[i] = both(samples[i], sample);
    }
  }
  return samples;
}

}  // namespace stepcast::runtime::calibration
