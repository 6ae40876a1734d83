#include "core/config/access_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "core/config/internal/document.h"
#include "core/error.h"

namespace stepcast::config {
namespace {

constexpr std::uintmax_t kLargestFile = std::uintmax_t{16} << 30U;

std::string_view trimmed(std::string_view s) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!s.empty() && blank(s.front())) {
    s.remove_prefix(1);
  }
  while (!s.empty() && blank(s.back())) {
    s.remove_suffix(1);
  }
  return s;
}

/// Calls `line(number from 1, text)` for each line.
template <class F>
void for_each_line(std::string_view text, F&& line) {
  std::size_t number = 1;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    line(number++, trimmed(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

std::vector<std::string_view> cells(std::string_view line) {
  std::vector<std::string_view> all;
  while (true) {
    const std::size_t comma = line.find(',');
    all.push_back(trimmed(line.substr(0, comma)));
    if (comma == std::string_view::npos) {
      return all;
    }
    line.remove_prefix(comma + 1);
  }
}

double cell_number(std::string_view cell, const std::string& where, std::string_view column) {
  double v = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), v);
  const bool infinite = std::isinf(v) && v > 0 && column == "reuse_high";
  if (error != std::errc() || end != cell.data() + cell.size() || !(v >= 0) ||
      (std::isinf(v) && !infinite)) {
    throw InputError(where, fmt::format("column {} holds \"{}\", expected a number of at least 0",
                                        column, cell.substr(0, 40)));
  }
  return v;
}

/// The columns of a histogram file, by name.
std::map<std::string, std::size_t> header_columns(std::string_view line, const std::string& where) {
  const std::vector<std::string> known = {"reuse_low", "reuse_high", "unique_rows", "accesses",
                                          "n0"};
  std::map<std::string, std::size_t> columns;
  const auto names = cells(line);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(known.begin(), known.end(), names[i]) == known.end()) {
      throw InputError(where, fmt::format("unknown column \"{}\"; {}", names[i].substr(0, 40),
                                          suggestion(names[i], known)));
    }
    if (!columns.emplace(names[i], i).second) {
      throw InputError(where, fmt::format("column \"{}\" appears twice; remove one", names[i]));
    }
  }
  for (std::size_t i = 0; i < 4; ++i) {
    if (columns.count(known[i]) == 0) {
      throw InputError(
          where,
          fmt::format(
              "column \"{}\" is missing, expected reuse_low, reuse_high, unique_rows and accesses",
              known[i]));
    }
  }
  return columns;
}

/// A bin must be able to hold what it claims: low < mean reuse <= high, with the slack of rounded
/// counts.
void check_bin(const ReuseBin& bin, const std::string& where) {
  constexpr double kSlack = 1.02;
  if (bin.reuse_low >= bin.reuse_high) {
    throw InputError(where,
                     fmt::format("reuse_low {} is not below reuse_high {}; swap or widen the bin",
                                 bin.reuse_low, bin.reuse_high));
  }
  const bool empty = bin.unique_rows == 0;
  if (empty != (bin.accesses == 0) ||
      bin.accesses * kSlack < bin.unique_rows * std::max(1.0, bin.reuse_low) ||
      bin.accesses > bin.unique_rows * bin.reuse_high * kSlack) {
    throw InputError(where,
                     fmt::format("{} accesses to {} rows cannot have reuse in ({}, {}]; each row "
                                 "of the bin must be seen that often",
                                 bin.accesses, bin.unique_rows, bin.reuse_low, bin.reuse_high));
  }
}

}  // namespace

ReuseHistogram read_histogram(const std::filesystem::path& file, std::string_view where) {
  const std::string text = read_whole_file(file, where, kLargestFile);
  ReuseHistogram histogram;
  std::map<std::string, std::size_t> columns;
  std::optional<double> n0;
  double accesses = 0;
  for_each_line(text, [&](std::size_t number, std::string_view line) {
    if (line.empty() || line.front() == '#') {
      return;
    }
    const std::string at = fmt::format("{}: line {}", file.string(), number);
    if (columns.empty()) {
      columns = header_columns(line, at);
      return;
    }
    const auto values = cells(line);
    if (values.size() != columns.size()) {
      throw InputError(at, fmt::format("found {} columns, expected {} as in the header",
                                       values.size(), columns.size()));
    }
    const auto value = [&](const char* column) {
      return cell_number(values[columns.at(column)], at, column);
    };
    ReuseBin bin{value("reuse_low"), value("reuse_high"), value("unique_rows"), value("accesses")};
    check_bin(bin, at);
    if (columns.count("n0") != 0) {
      const double v = value("n0");
      if (n0 && *n0 != v) {
        throw InputError(
            at, fmt::format(
                    "n0 is {} here and {} above, expected one number of lookups for the whole file",
                    v, *n0));
      }
      n0 = v;
    }
    if (bin.unique_rows > 0) {
      if (std::isinf(bin.reuse_high)) {
        bin.reuse_high = std::max(bin.reuse_low + 1, bin.accesses);
      }
      accesses += bin.accesses;
      histogram.bins.push_back(bin);
    }
  });
  if (histogram.bins.empty()) {
    throw InputError(file.string(),
                     "no bins with rows in it; expected a header and at least one line "
                     "reuse_low,reuse_high,unique_rows,accesses");
  }
  histogram.sample_lookups = n0.value_or(accesses);
  if (accesses > histogram.sample_lookups * 1.02) {
    throw InputError(
        file.string(),
        fmt::format("accesses sum to {}, more than n0 = {}; n0 is the number of lookups recorded",
                    accesses, *n0));
  }
  return histogram;
}

namespace {

constexpr std::size_t kChunk = 1U << 18;  // ids

/// Hands ids on in chunks; refuses negative ones.
class IdSink {
 public:
  IdSink(std::string file, const std::function<void(std::span<const std::int64_t>)>& sink)
      : file_(std::move(file)), sink_(sink) {
    ids_.reserve(kChunk);
  }
  void add(std::int64_t id) {
    if (id < 0) {
      throw InputError(file_,
                       fmt::format("id {} at position {} is negative, expected row ids from 0", id,
                                   passed_ + ids_.size()));
    }
    ids_.push_back(id);
    if (ids_.size() == kChunk) {
      flush();
    }
  }
  void flush() {
    if (!ids_.empty()) {
      sink_(ids_);
      passed_ += ids_.size();
      ids_.clear();
    }
  }
  [[nodiscard]] std::size_t passed() const { return passed_; }

 private:
  std::string file_;
  const std::function<void(std::span<const std::int64_t>)>& sink_;
  std::vector<std::int64_t> ids_;
  std::size_t passed_ = 0;
};

/// A read that fails is no end of the file.
void check_read(const std::ifstream& in, const std::filesystem::path& file) {
  if (in.bad()) {
    throw InputError(file.string(), "cannot be read to its end: the system reports an error");
  }
}

/// Fills `buffer` as far as the file goes; the bytes read.
std::size_t read_some(std::ifstream& in, const std::filesystem::path& file,
                      std::vector<char>& buffer) {
  in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
  check_read(in, file);
  return static_cast<std::size_t>(in.gcount());
}

std::uint64_t word_at(std::span<const char> bytes, std::size_t at) {
  std::uint64_t v = 0;
  for (std::size_t b = 0; b < 8; ++b) {
    v |= std::uint64_t{static_cast<unsigned char>(bytes[at + b])} << (8 * b);
  }
  return v;
}

/// Pairs of 32-bit ids: both halves of every word are below 2^31 and most upper halves are not 0.
/// Of true 64-bit ids the lower half is as often above as below.
bool looks_like_int32(std::span<const char> bytes) {
  constexpr std::size_t kFewest = 32;
  constexpr std::uint64_t kSigns = 0x8000'0000'8000'0000U;
  const std::size_t words = bytes.size() / 8;
  std::size_t large = 0;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t v = word_at(bytes, 8 * i);
    if ((v & kSigns) != 0) {
      return false;
    }
    large += v >> 32U != 0 ? 1 : 0;
  }
  return words >= kFewest && 4 * large > 3 * words;
}

void stream_binary(std::ifstream& in, const std::filesystem::path& file, std::uintmax_t size,
                   IdSink& to) {
  if (size % 8 != 0) {
    throw InputError(file.string(), fmt::format("holds {} bytes, expected a multiple of 8 "
                                                "(little-endian int64), or text with one id per "
                                                "line",
                                                size));
  }
  std::vector<char> buffer(kChunk * 8);
  bool first = true;
  for (std::size_t got = 0; (got = read_some(in, file, buffer)) > 0; first = false) {
    if (first && looks_like_int32({buffer.data(), got})) {
      throw InputError(file.string(),
                       "read as 64-bit ids, nearly all are above 4 billion and both their halves "
                       "look like row ids: the file seems to hold int32; write it as little-endian "
                       "int64 (NumPy: ids.astype('<i8').tofile(FILE))");
    }
    for (std::size_t at = 0; at + 8 <= got; at += 8) {
      to.add(static_cast<std::int64_t>(word_at(buffer, at)));
    }
  }
}

void stream_text(std::ifstream& in, const std::filesystem::path& file, IdSink& to) {
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    const std::string_view text = trimmed(line);
    if (text.empty() || text.front() == '#') {
      continue;
    }
    std::int64_t v = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
    if (error != std::errc() || end != text.data() + text.size()) {
      throw InputError(fmt::format("{}: line {}", file.string(), number),
                       fmt::format("found \"{}\", expected one row id", text.substr(0, 40)));
    }
    to.add(v);
  }
  check_read(in, file);
}

}  // namespace

void stream_indices(const std::filesystem::path& file, std::string_view where,
                    const std::function<void(std::span<const std::int64_t>)>& sink) {
  std::ifstream in = open_file(file, where);
  std::vector<char> head(4096);
  head.resize(read_some(in, file, head));
  if (head.empty()) {
    throw InputError(file.string(), "the file is empty, expected row ids: int64, or one per line");
  }
  const bool text = std::all_of(head.begin(), head.end(), [](char c) {
    return (c >= '0' && c <= '9') || c == '\n' || c == '\r' || c == ' ' || c == '\t' || c == '-' ||
           c == '#';
  });
  in.clear();
  in.seekg(0);
  IdSink to(file.string(), sink);
  if (text) {
    stream_text(in, file, to);
  } else {
    stream_binary(in, file, std::filesystem::file_size(file), to);
  }
  to.flush();
  if (to.passed() == 0) {
    throw InputError(file.string(), "no ids in it, expected one per line");
  }
}

std::vector<std::int64_t> read_indices(const std::filesystem::path& file, std::string_view where) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (!error && size > kLargestFile) {
    throw InputError(file.string(),
                     fmt::format("holds {} bytes, more than the {} that are kept in memory; make a "
                                 "histogram of it with stepcast hitcurve --sketch",
                                 size, kLargestFile));
  }
  std::vector<std::int64_t> ids;
  stream_indices(file, where, [&ids](std::span<const std::int64_t> some) {
    ids.insert(ids.end(), some.begin(), some.end());
  });
  return ids;
}

std::vector<std::int64_t> recorded_bags(const std::filesystem::path& file, std::int64_t lookups,
                                        std::string_view where) {
  std::filesystem::path beside = file;
  beside += ".offsets";
  std::error_code error;
  if (!std::filesystem::exists(beside, error)) {
    return {};
  }
  std::vector<std::int64_t> bags;
  std::int64_t before = 0;
  stream_indices(beside, where, [&](std::span<const std::int64_t> offsets) {
    for (const std::int64_t o : offsets) {
      const bool first = bags.empty();
      if (first ? o != 0 : o < before || o > lookups) {
        throw InputError(beside.string(),
                         fmt::format("bag {} begins at {}, expected {}", bags.size(), o,
                                     first ? std::string("0: the first id of the first bag")
                                           : fmt::format("{} to {}: bags follow each other, and {} "
                                                         "holds {} ids",
                                                         before, lookups, file.string(), lookups)));
      }
      before = o;
      bags.push_back(o);
    }
  });
  if (!bags.empty() && before == lookups) {
    bags.pop_back();  // the last entry only closes the last bag
  }
  if (bags.empty()) {
    throw InputError(beside.string(), "no bags in it, expected where each bag of ids begins");
  }
  return bags;
}

std::optional<double> recorded_pooling(const std::filesystem::path& file, std::int64_t lookups,
                                       std::string_view where) {
  const std::vector<std::int64_t> bags = recorded_bags(file, lookups, where);
  if (bags.empty()) {
    return std::nullopt;
  }
  return static_cast<double>(lookups) / static_cast<double>(bags.size());
}

}  // namespace stepcast::config
