#include "runtime/data/token_source.h"

#include <algorithm>

#include "core/error.h"
#include "runtime/data/counter_random.h"

namespace stepcast::runtime {
namespace {

constexpr std::int64_t kLargestAlphabet = 256;
constexpr double kPredictable = 0.8;

void write_synthetic(CounterRandom& random, std::int64_t vocabulary, std::int64_t length,
                     std::int32_t* out) {
  const std::int64_t alphabet = std::min(vocabulary, kLargestAlphabet);
  const std::int64_t spread = vocabulary / alphabet;
  const auto any = [&] {
    return static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(alphabet));
  };
  std::int64_t letter = any();
  for (std::int64_t i = 0; i < length; ++i) {
    out[i] = static_cast<std::int32_t>(letter * spread);
    letter = random.unit() < kPredictable ? (letter * 5 + 3) % alphabet : any();
  }
}

}  // namespace

TokenSource::TokenSource(std::int64_t vocabulary, std::int64_t sequence, SampleRange range,
                         std::uint64_t seed, const std::string& file)
    : vocabulary_(vocabulary), sequence_(sequence), range_(range), seed_(seed) {
  if (file.empty()) {
    return;
  }
  if (vocabulary < kLargestAlphabet) {
    throw InputError(file, fmt::format("is read as bytes, which need a vocabulary of at least {}; "
                                       "the workload has {}",
                                       kLargestAlphabet, vocabulary));
  }
  file_ = std::make_unique<DataFile>(file);
  if (static_cast<std::int64_t>(file_->text().size()) <= sequence) {
    throw InputError(file, fmt::format("has {} bytes; one sequence takes {}", file_->text().size(),
                                       sequence + 1));
  }
}

void TokenSource::draw(std::int64_t step, HostBatch& batch) {
  const std::int64_t length = sequence_ + 1;
  batch.tokens.resize(static_cast<std::size_t>(range_.count * length));
  const std::uint64_t step_key = key_of(seed_, static_cast<std::uint64_t>(step));
  for (std::int64_t s = 0; s < range_.count; ++s) {
    CounterRandom random(key_of(step_key, static_cast<std::uint64_t>(range_.first + s)));
    std::int32_t* out = batch.tokens.data() + s * length;
    if (file_ == nullptr) {
      write_synthetic(random, vocabulary_, length, out);
      continue;
    }
    const std::string_view text = file_->text();
    const auto places =
        static_cast<std::uint64_t>(static_cast<std::int64_t>(text.size()) - length + 1);
    const std::size_t first = random.next() % places;
    for (std::int64_t i = 0; i < length; ++i) {
      out[i] = static_cast<unsigned char>(text[first + static_cast<std::size_t>(i)]);
    }
  }
}

}  // namespace stepcast::runtime
