#pragma once
#include <memory>
#include <string>

#include "runtime/data/batch_source.h"
#include "runtime/data/data_file.h"

namespace stepcast::runtime {

/// Sequences of sequence + 1 tokens. With a file: its bytes, each sequence from a random place.
/// Without: a synthetic language over at most 256 tokens spread over the vocabulary, in which a
/// token is followed by its fixed successor in 4 of 5 cases, so that the loss can fall.
/// Errors: InputError for a vocabulary under 256 with a file, or a file shorter than a sequence.
class TokenSource final : public BatchSource {
 public:
  TokenSource(std::int64_t vocabulary, std::int64_t sequence, SampleRange range, std::uint64_t seed,
              const std::string& file = {});
  void draw(std::int64_t step, HostBatch& batch) override;

 private:
  std::int64_t vocabulary_;
  std::int64_t sequence_;
  SampleRange range_;
  std::uint64_t seed_;
  std::unique_ptr<DataFile> file_;
};

}  // namespace stepcast::runtime
