#include "runtime/checkpoint/checkpoint_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <span>

#include "core/error.h"
#include "core/split_mix.h"
#include "runtime/data/data_file.h"

namespace stepcast::runtime {
namespace {

constexpr std::uint64_t kMagic = 0x31706b6370657473ULL;  // "stepckp1"
constexpr std::size_t kFileWords = 8, kBlockWords = 12;
enum FileWord : std::size_t { kTag, kStep, kRank, kRanks, kBlocks, kFileHash = 7 };
enum BlockWord : std::size_t {
  kKey,
  kPart,
  kColumn,
  kColumns,
  kWidth,
  kListed,
  kFirst,
  kStride,
  kRows,
  kDataHash,
  kBlockHash = 11
};

using Words = std::span<const std::uint64_t>;

/// A bijection of every word, so that a change of one always changes it.
std::uint64_t hash_of(Words words) {
  std::uint64_t hash = kMagic;
  for (const std::uint64_t word : words) {
    hash = split_mix(hash ^ word);
  }
  return hash;
}

std::size_t words_of(std::int64_t numbers) { return (static_cast<std::size_t>(numbers) + 1) / 2; }

std::int64_t number(std::uint64_t word) { return static_cast<std::int64_t>(word); }

/// A block of a file, read in place.
struct StoredBlock {
  StateId id;
  Words rows;  ///< empty: even
  const float* numbers = nullptr;
  [[nodiscard]] std::int64_t row(std::int64_t i) const {
    return rows.empty() ? id.rows.at(i) : number(rows[static_cast<std::size_t>(i)]);
  }
  /// First and last of the rows, the least first.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> bounds() const {
    const std::int64_t last = rows.empty() ? id.rows.at(id.count - 1) : id.rows.stride;
    return {std::min(id.rows.first, last), std::max(id.rows.first, last)};
  }
};

/// A place that state is put into, and what of it has arrived.
class Target {
 public:
  explicit Target(const StateBlock& block)
      : block_(block), arrived_(static_cast<std::size_t>(block.id.count * block.id.width)) {
    const StateId& id = block.id;
    if (!id.rows.is_even()) {
      for (std::int64_t i = 0; i < id.count; ++i) {
        listed_.emplace_back(id.rows.at(id.first + i), i);
      }
      std::sort(listed_.begin(), listed_.end());
    }
  }

  [[nodiscard]] bool wants(const StoredBlock& stored) const {
    const StateId& id = block_.id;
    const auto [least, greatest] = stored.bounds();
    const std::int64_t a = listed_.empty() ? id.rows.at(id.first) : listed_.front().first;
    const std::int64_t b =
        listed_.empty() ? id.rows.at(id.first + id.count - 1) : listed_.back().first;
    const bool columns = whole_rows() || stored.id.width != stored.id.columns
                             ? id.column == stored.id.column && id.columns == stored.id.columns
                             : id.column < stored.id.column + stored.id.columns &&
                                   stored.id.column < id.column + id.columns;
    return columns && least <= std::max(a, b) && std::min(a, b) <= greatest;
  }

  void take(const StoredBlock& stored, float* memory) {
    const StateId& id = block_.id;
    const std::int64_t from = whole_rows() ? 0 : std::max(id.column, stored.id.column);
    const std::int64_t to =
        whole_rows() ? 1 : std::min(id.column + id.columns, stored.id.column + stored.id.columns);
    const std::int64_t here = whole_rows() ? 0 : from - id.column;
    const std::int64_t there = whole_rows() ? 0 : from - stored.id.column;
    for (std::int64_t i = 0; i < stored.id.count; ++i) {
      const std::optional<std::int64_t> row = place_of_row(stored.row(i));
      if (!row) {
        continue;
      }
      std::copy_n(stored.numbers + i * stored.id.width + there, to - from,
                  memory + block_.offset + *row * block_.pitch + here);
      for (std::int64_t c = here; c < here + to - from; ++c) {
        auto flag = arrived_[static_cast<std::size_t>(*row * id.width + c)];
        missing_ -= flag ? 0 : 1;
        flag = true;
      }
    }
  }

  [[nodiscard]] const StateBlock& block() const { return block_; }
  [[nodiscard]] bool complete() const { return missing_ == 0; }

 private:
  /// One number stands for all columns.
  [[nodiscard]] bool whole_rows() const { return block_.id.width != block_.id.columns; }
  [[nodiscard]] std::optional<std::int64_t> place_of_row(std::int64_t row) const {
    const StateId& id = block_.id;
    if (listed_.empty()) {
      const std::int64_t distance = row - id.rows.at(id.first);
      const std::int64_t stride = std::max<std::int64_t>(1, id.rows.stride);
      const bool inside = distance >= 0 && distance % stride == 0 && distance / stride < id.count;
      return inside ? std::optional(distance / stride) : std::nullopt;
    }
    const auto at =
        std::lower_bound(listed_.begin(), listed_.end(), std::pair(row, std::int64_t{0}));
    return at != listed_.end() && at->first == row ? std::optional(at->second) : std::nullopt;
  }

  const StateBlock& block_;
  std::vector<std::pair<std::int64_t, std::int64_t>> listed_;  ///< row, place; ascending
  std::vector<bool> arrived_;
  std::int64_t missing_ = block_.id.count * block_.id.width;
};

using Targets = std::map<std::pair<std::uint64_t, std::int64_t>, std::vector<Target>>;

/// One file of a checkpoint, checked as far as it is read.
class StoredFile {
 public:
  explicit StoredFile(const std::filesystem::path& file) : name_(file.string()), data_(name_) {
    const std::string_view text = data_.text();
    words_ = {reinterpret_cast<const std::uint64_t*>(text.data()),
              text.size() / sizeof(std::uint64_t)};
    if (words_.size() < kFileWords || words_[kTag] != kMagic ||
        hash_of(words_.first(kFileHash)) != words_[kFileHash]) {
      throw InputError(name_, "is no part of a checkpoint, or its beginning is damaged");
    }
  }

  [[nodiscard]] std::int64_t ranks() const { return number(words_[kRanks]); }
  [[nodiscard]] std::int64_t step() const { return number(words_[kStep]); }

  void put_into(Targets& targets, const CheckpointImage::Memory& memory) const {
    std::size_t at = kFileWords;
    for (std::uint64_t b = 0; b < words_[kBlocks]; ++b) {
      const std::size_t begin = at;
      const auto rest = [&] { return words_.size() - at; };
      const auto expect = [&](bool sound, const char* what) {
        if (!sound) {
          throw InputError(
              name_, fmt::format("block {} of {} at byte {} {}; resume from an earlier "
                                 "step's folder",
                                 b + 1, words_[kBlocks], begin * sizeof(std::uint64_t), what));
        }
      };
      expect(rest() >= kBlockWords, "is cut off");
      const Words head = words_.subspan(at, kBlockWords);
      expect(hash_of(head.first(kBlockHash)) == head[kBlockHash], "is damaged");
      at += kBlockWords;
      StoredBlock block{
          .id = {.key = head[kKey],
                 .part = number(head[kPart]),
                 .rows = {.first = number(head[kFirst]), .stride = number(head[kStride])},
                 .count = number(head[kRows]),
                 .column = number(head[kColumn]),
                 .columns = number(head[kColumns]),
                 .width = number(head[kWidth])},
          .rows = {}};
      const auto rows = static_cast<std::size_t>(block.id.count);
      const std::size_t size =
          (head[kListed] != 0 ? rows : 0) + words_of(block.id.count * block.id.width);
      expect(rest() >= size, "is cut off");
      const Words body = words_.subspan(at, size);
      at += size;
      block.rows = head[kListed] != 0 ? body.first(rows) : Words();
      block.numbers = reinterpret_cast<const float*>(body.data() + block.rows.size());
      const auto wanted = targets.find({block.id.key, block.id.part});
      if (wanted == targets.end()) {
        continue;
      }
      bool sound = false;
      for (Target& target : wanted->second) {
        if (target.wants(block)) {
          sound = sound || hash_of(body) == head[kDataHash];
          expect(sound, "is damaged");
          target.take(block, memory(target.block().tensor));
        }
      }
    }
  }

 private:
  std::string name_;
  DataFile data_;
  Words words_;
};

/// Writes all of it and brings it to the disk.
void write_file(const std::filesystem::path& file, std::string_view bytes) {
  const int out = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  while (out >= 0 && !bytes.empty()) {
    const ssize_t written = write(out, bytes.data(), bytes.size());
    if (written <= 0 && errno != EINTR) {
      break;
    }
    bytes.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(0, written)));
  }
  const bool whole = out >= 0 && bytes.empty() && fsync(out) == 0;
  const int why = errno;
  if (out >= 0) {
    close(out);
  }
  if (!whole) {
    throw RunError(fmt::format("{}: the checkpoint could not be written: {}", file.string(),
                               std::strerror(why)));
  }
}

}  // namespace

std::string checkpoint_file(std::int32_t rank) { return fmt::format("rank-{:05}.state", rank); }

CheckpointImage::CheckpointImage(const std::vector<StateBlock>& blocks, std::int32_t rank,
                                 std::int32_t ranks, const Memory& memory) {
  std::size_t size = kFileWords;
  for (const StateBlock& b : blocks) {
    size += kBlockWords + words_of(b.id.count * b.id.width) +
            (b.id.rows.is_even() ? 0 : static_cast<std::size_t>(b.id.count));
  }
  words_.resize(size);
  words_[kTag] = kMagic;
  words_[kRank] = static_cast<std::uint64_t>(rank);
  words_[kRanks] = static_cast<std::uint64_t>(ranks);
  words_[kBlocks] = blocks.size();
  std::size_t at = kFileWords;
  for (const StateBlock& b : blocks) {
    const StateId& id = b.id;
    const auto words = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
    Part part{.header = at,
              .from = memory(b.tensor) + b.offset,
              .count = id.count,
              .width = id.width,
              .pitch = b.pitch};
    const std::uint64_t head[] = {id.key,
                                  words(id.part),
                                  words(id.column),
                                  words(id.columns),
                                  words(id.width),
                                  id.rows.is_even() ? 0U : 1U,
                                  words(id.rows.at(id.first)),
                                  words(id.rows.stride),
                                  words(id.count)};
    std::copy(std::begin(head), std::end(head), words_.begin() + static_cast<std::ptrdiff_t>(at));
    at += kBlockWords;
    if (!id.rows.is_even()) {
      const auto rows = words_.begin() + static_cast<std::ptrdiff_t>(at);
      for (std::int64_t i = 0; i < id.count; ++i) {
        rows[i] = words(id.rows.at(id.first + i));
      }
      const auto [least, greatest] = std::minmax_element(rows, rows + id.count);
      words_[part.header + kFirst] = *least;
      words_[part.header + kStride] = *greatest;
      at += static_cast<std::size_t>(id.count);
    }
    part.numbers = at;
    at += words_of(id.count * id.width);
    part.end = at;
    numbers_ += static_cast<std::size_t>(id.count * id.width);
    parts_.push_back(part);
  }
}

void CheckpointImage::copy() {
  for (const Part& p : parts_) {
    auto* to = reinterpret_cast<float*>(words_.data() + p.numbers);
    if (p.pitch == p.width) {
      std::copy_n(p.from, p.count * p.width, to);
      continue;
    }
    for (std::int64_t i = 0; i < p.count; ++i) {
      std::copy_n(p.from + i * p.pitch, p.width, to + i * p.width);
    }
  }
}

void CheckpointImage::write(std::int64_t step, const std::filesystem::path& file) {
  const Words words = words_;
  words_[kStep] = static_cast<std::uint64_t>(step);
  words_[kFileHash] = hash_of(words.first(kFileHash));
  for (const Part& p : parts_) {
    const std::size_t body = p.header + kBlockWords;
    words_[p.header + kDataHash] = hash_of(words.subspan(body, p.end - body));
    words_[p.header + kBlockHash] = hash_of(words.subspan(p.header, kBlockHash));
  }
  write_file(file, {reinterpret_cast<const char*>(words_.data()), bytes()});
}

std::int64_t load_checkpoint(const std::filesystem::path& folder,
                             const std::vector<StateBlock>& blocks,
                             const std::vector<std::uint64_t>& updated,
                             const CheckpointImage::Memory& memory,
                             const std::function<std::string(TensorId)>& name) {
  Targets targets;
  for (const StateBlock& block : blocks) {
    if (std::binary_search(updated.begin(), updated.end(), block.id.key)) {
      targets[{block.id.key, block.id.part}].emplace_back(block);
    }
  }
  std::int64_t ranks = 1, step = -1;
  for (std::int32_t r = 0; r < ranks; ++r) {
    const std::filesystem::path path = folder / checkpoint_file(r);
    const StoredFile file(path);
    if (r > 0 && (file.ranks() != ranks || file.step() != step)) {
      throw InputError(path.string(), "belongs to another checkpoint than the file of rank 0");
    }
    ranks = file.ranks();
    step = file.step();
    file.put_into(targets, memory);
  }
  for (const auto& [key, group] : targets) {
    for (const Target& t : group) {
      if (!t.complete()) {
        const StateId& id = t.block().id;
        throw InputError(
            folder.string(),
            fmt::format("has not all of {} of {}, rows from {}, columns {} to {}: what was "
                        "trained had another optimizer, or was cut otherwise",
                        id.part == 0 ? "the numbers" : "the optimizer's state",
                        name(t.block().tensor), id.rows.at(id.first), id.column,
                        id.column + id.columns - 1));
      }
    }
  }
  return step;
}

}  // namespace stepcast::runtime
