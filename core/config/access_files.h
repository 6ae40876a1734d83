#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/access.h"

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

/// Recorded row ids, some at a time: `sink` gets them in order, at most 2^18 in one call, so that
/// memory does not grow with the file. Errors: as read_indices.
void stream_indices(const std::filesystem::path& file, std::string_view where,
                    const std::function<void(std::span<const std::int64_t>)>& sink);

/// Recorded row ids: little-endian int64, or text with one id per line (told apart by content).
/// Errors: InputError naming the file and the first bad position.
std::vector<std::int64_t> read_indices(const std::filesystem::path& file, std::string_view where);

/// Where each bag of recorded ids begins: FILE.offsets, as below; empty where there is no such
/// file.
std::vector<std::int64_t> recorded_bags(const std::filesystem::path& file, std::int64_t lookups,
                                        std::string_view where);

/// Mean lookups per bag that FILE.offsets, beside the file of ids, says: where each bag begins,
/// from 0, ascending, in either form of id files; one more entry may close the last bag. nullopt:
/// no such file. Errors: InputError naming the file and the first bad bag.
std::optional<double> recorded_pooling(const std::filesystem::path& file, std::int64_t lookups,
                                       std::string_view where);

}  // namespace stepcast::config
