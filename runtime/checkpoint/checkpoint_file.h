#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/checkpoint/state_blocks.h"

namespace stepcast::runtime {

/// A rank's part of a checkpoint as the bytes of its file: 64-bit words, little endian.
///
///   file    "stepckp1", step, rank, ranks, blocks, 0, 0, hash of these
///   block   key, part, column, columns, width, listed, first row, stride, rows, hash of what
///           follows, 0, hash of these; listed: the rows (`first` the least, `stride` the greatest);
///           rows x width fp32 numbers, filled up with zeros to whole words
class CheckpointImage {
 public:
  /// `memory` gives a tensor's numbers. All of it is allocated here, so that later nothing fails.
  using Memory = std::function<float*(TensorId)>;
  CheckpointImage(const std::vector<StateBlock>& blocks, std::int32_t rank, std::int32_t ranks,
                  const Memory& memory);
  /// Copies the numbers as they are: what training waits for.
  void copy();
  /// Fills in step and hashes, writes the file and brings it to the disk. Errors: RunError.
  void write(std::int64_t step, const std::filesystem::path& file);
  [[nodiscard]] std::size_t bytes() const { return words_.size() * sizeof(std::uint64_t); }
  [[nodiscard]] std::size_t numbers() const { return numbers_; }

 private:
  struct Part {
    std::size_t header = 0, numbers = 0, end = 0;  ///< words
    const float* from = nullptr;
    std::int64_t count = 0, width = 0, pitch = 0;
  };
  std::vector<std::uint64_t> words_;
  std::vector<Part> parts_;
  std::size_t numbers_ = 0;
};

/// Puts the state of a checkpoint's files into a rank's memory, whatever ranks wrote it, and
/// returns its step. `blocks` are held_state; those of parameters that no step changes may be
/// missing: not in `updated`, keys ascending. `name` gives a parameter's name for messages.
/// Errors: InputError naming file and place for damage, and what is missing.
std::int64_t load_checkpoint(const std::filesystem::path& folder,
                             const std::vector<StateBlock>& blocks,
                             const std::vector<std::uint64_t>& updated,
                             const CheckpointImage::Memory& memory,
                             const std::function<std::string(TensorId)>& name);

/// The name of a rank's file.
std::string checkpoint_file(std::int32_t rank);

}  // namespace stepcast::runtime
