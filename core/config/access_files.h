#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/access/access.h"

namespace stepcast::config {

/// A reuse histogram: bins and the number n0 of lookups it was taken from.
struct ReuseHistogram {
  std::vector<ReuseBin> bins;
  double sample_lookups = 0;
};

/// CSV with a header naming the columns reuse_low, reuse_high, unique_rows, accesses in any order;
/// a row stands for `unique_rows` rows seen (reuse_low, reuse_high] times, `reuse_high` may be
/// "inf". n0 is the sum of `accesses`, unless a column `n0` gives it (the same on every line).
/// Lines that begin with '#' are comments. `where` names the place that asked for the file. Errors:
/// InputError naming the file and line.
ReuseHistogram read_histogram(const std::filesystem::path& file, std::string_view where);

/// True if the first non-blank line of this text names these columns. Errors:
/// InputError when it cannot be read.
bool is_histogram(const std::filesystem::path& file, std::string_view where);

// Recorded lookups. `name` is a file, or FILE:PART where a file holds those of several tables; what
// a file is, its first bytes say. gzip and zstd are undone.
//
// - little-endian int64; FILE:3of26 is table 3 of 26 where FILE.offsets has tables x samples + 1
// - text: one id a line, or lists, or columns: FILE:item, FILE:2, FILE:C5 of a Criteo click log
// - .npy: ids, or samples x columns: FILE:2
// - .npz, and what torch.save wrote of tensors: FILE:name; or arrays indices (values) with offsets,
//   lengths or both, as FBGEMM has them, of one or several tables: FILE:3, FILE:3of26
//
// docs/reference/table-files.md shows each. All throw InputErrors that name the file and the first
// bad position; `where` names the place that asked.

using TakeIds = std::function<void(std::span<const std::int64_t>)>;

/// Row ids, some at a time: `sink` gets them in order, at most 2^18 in one call, so that memory
/// does not grow with the file. Hashed categories (Criteo) are taken modulo `rows` where that is
/// above 0.
void stream_indices(const std::filesystem::path& name, std::string_view where, const TakeIds& sink,
                    std::int64_t rows = 0);

/// All row ids, at most 2^31.
std::vector<std::int64_t> read_indices(const std::filesystem::path& name, std::string_view where,
                                       std::int64_t rows = 0);

/// Begin of each bag of these ids: by the file itself (offsets, lengths, the rows of an array
/// of two dimensions) or by FILE.offsets in any form of id files: from 0, ascending; one more entry
/// may close the last bag. Empty where nothing says.
std::vector<std::int64_t> recorded_bags(const std::filesystem::path& name, std::int64_t lookups,
                                        std::string_view where);

/// Mean lookups per bag; nullopt where nothing says.
std::optional<double> recorded_pooling(const std::filesystem::path& name, std::int64_t lookups,
                                       std::string_view where);

}  // namespace stepcast::config
