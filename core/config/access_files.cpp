#include "core/config/access_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "core/config/document.h"
#include "core/config/lookups/lookup_name.h"
#include "core/error.h"
#include "core/input/csv.h"
#include "core/portable.h"

namespace stepcast::config {
namespace {

double cell_number(std::string_view cell, const std::string& where, std::string_view column) {
  double v = 0;
  const auto [end, error] = read_decimal(cell.data(), cell.data() + cell.size(), v);
  const bool infinite = std::isinf(v) && v > 0 && column == "reuse_high";
  if (error != std::errc() || end != cell.data() + cell.size() || !(v >= 0) ||
      (std::isinf(v) && !infinite)) {
    throw InputError(where, fmt::format("column {} holds \"{}\", expected a number of at least 0",
                                        column, cell.substr(0, 40)));
  }
  return v;
}

/// The columns of a histogram file, by name.
std::map<std::string, std::size_t> header_columns(std::span<const std::string_view> names,
                                                  const std::string& where) {
  const std::vector<std::string> known = {"reuse_low", "reuse_high", "unique_rows", "accesses",
                                          "n0"};
  std::map<std::string, std::size_t> columns;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string_view name = trimmed(names[i]);
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      throw InputError(where, fmt::format("unknown column \"{}\"; {}", name.substr(0, 40),
                                          suggestion(name, known)));
    }
    if (!columns.emplace(name, i).second) {
      throw InputError(where, fmt::format("column \"{}\" appears twice; remove one", name));
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

bool is_histogram(const std::filesystem::path& file, std::string_view where) {
  const std::filesystem::path name = lookup_name(file).file;
  (void)open_file(name, where);
  Input input = Input::of_file(name);
  constexpr std::size_t kHead = std::size_t{1} << 16;
  std::string_view text = input.peek(kHead);
  text.remove_prefix(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
  std::string_view line;
  while (!text.empty() && (line.empty() || line.front() == '#')) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const auto has = [&](std::string_view column) { return line.find(column) != line.npos; };
  return has("unique_rows") && has("accesses");
}

ReuseHistogram read_histogram(const std::filesystem::path& file, std::string_view where) {
  (void)open_file(file, where);
  CsvReader lines(file, '#');
  ReuseHistogram histogram;
  std::map<std::string, std::size_t> columns;
  std::optional<double> n0;
  double accesses = 0;
  while (lines.next()) {
    const auto values = lines.fields();
    const std::string at = lines.place();
    if (columns.empty()) {
      columns = header_columns(values, at);
      continue;
    }
    if (values.size() != columns.size()) {
      throw InputError(at, fmt::format("found {} columns, expected {} as in the header",
                                       values.size(), columns.size()));
    }
    const auto value = [&](const char* column) {
      return cell_number(trimmed(values[columns.at(column)]), at, column);
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
  }
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

}  // namespace stepcast::config
