#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "core/error.h"
#include "core/input/csv.h"
#include "models/measured/internal/schema.h"
#include "models/measured/sha256.h"

namespace stepcast::models {
namespace {

using Fields = std::vector<std::string_view>;

struct DataFile {
  std::filesystem::path path;
  bool named = false;  ///< by the user, not found in a folder
};

std::vector<DataFile> files_of(std::span<const std::filesystem::path> paths) {
  std::vector<DataFile> files;
  for (const std::filesystem::path& path : paths) {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) {
      throw InputError(path.string(), "no such file; check the path");
    }
    if (!std::filesystem::is_directory(path, error)) {
      files.push_back({path, true});
      continue;
    }
    const std::size_t first = files.size();
    for (std::filesystem::recursive_directory_iterator it(path, error), end; !error && it != end;
         it.increment(error)) {
      if (it->is_regular_file(error) && is_csv_name(it->path())) {
        files.push_back({it->path(), false});
      }
    }
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(first), files.end(),
              [](const DataFile& a, const DataFile& b) { return a.path < b.path; });
    if (files.size() == first) {
      throw InputError(path.string(),
                       "holds no .csv, .csv.gz or .csv.zst file; name a folder of measurements");
    }
  }
  return files;
}

std::size_t missing_columns(const Schema& schema, const Fields& header) {
  return static_cast<std::size_t>(
      std::count_if(schema.columns.begin(), schema.columns.end(), [&](std::string_view c) {
        return std::find(header.begin(), header.end(), c) == header.end();
      }));
}

/// The schema all of whose columns the header has; of several, the one with the most.
const Schema& schema_of(const Fields& header, const std::string& path) {
  const Schema* best = nullptr;
  const Schema* nearest = nullptr;
  double nearest_share = 0.5;
  for (const Schema& s : measured_schemas()) {
    const std::size_t missing = missing_columns(s, header);
    if (missing == 0 && (best == nullptr || s.columns.size() > best->columns.size())) {
      best = &s;
    }
    const double share = 1 - static_cast<double>(missing) / static_cast<double>(s.columns.size());
    if (share > nearest_share) {
      nearest_share = share;
      nearest = &s;
    }
  }
  if (best != nullptr) {
    return *best;
  }
  std::string names;
  if (nearest == nullptr) {
    for (const Schema& s : measured_schemas()) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", s.name);
    }
    throw InputError(path + ":1",
                     fmt::format("found the columns \"{}\", expected those of one of: {} "
                                 "(docs/reference/measurement-tables.md lists them)",
                                 fmt::join(header, ","), names));
  }
  for (const std::string_view c : nearest->columns) {
    if (std::find(header.begin(), header.end(), c) == header.end()) {
      names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", c);
    }
  }
  throw InputError(path + ":1", fmt::format("missing column {} of a {} table; found \"{}\"; add it "
                                            "or name another file",
                                            names, nearest->name, fmt::join(header, ",")));
}

std::vector<int> positions_of(const Schema& schema, const Fields& header) {
  std::vector<int> positions;
  for (const auto* list : {&schema.columns, &schema.optional}) {
    for (const std::string_view c : *list) {
      const auto at = std::find(header.begin(), header.end(), c);
      positions.push_back(at == header.end() ? -1 : static_cast<int>(at - header.begin()));
    }
  }
  return positions;
}

std::string sha256_as_stored(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return sha256(std::string(std::istreambuf_iterator<char>(in), {}));
}

void read_file(const DataFile& file, TableBuilder& to) {
  const std::string path = file.path.string();
  CsvReader lines(file.path);
  if (!lines.next()) {
    throw InputError(path, "is empty; expected a header line and rows");
  }
  const std::vector<std::string> header_text(lines.fields().begin(), lines.fields().end());
  const Fields header(header_text.begin(), header_text.end());
  const Schema& schema = schema_of(header, path);
  const std::vector<int> positions = positions_of(schema, header);
  to.begin_file(schema, path, sha256_as_stored(file.path), file.named);
  const std::size_t first_collective = to.table().collectives.size();
  while (lines.next()) {
    const auto fields = lines.fields();
    to.begin_line(lines.line());
    ++to.table().files.back().rows;
    try {
      if (fields.size() != header.size()) {
        throw RowError(fmt::format("{} fields, expected {}; mend or remove the line", fields.size(),
                                   header.size()));
      }
      schema.read(Row(schema, positions, fields), to);
    } catch (const RowError& e) {
      to.skip(e.what());
    }
  }
  if (to.table().files.back().rows == 0) {
    throw InputError(path, "has a header but no rows");
  }
  if (schema.finish != nullptr) {
    schema.finish(to, first_collective);
  }
}

}  // namespace

MeasuredTable read_measured(std::span<const std::filesystem::path> paths,
                            const ReadOptions& options) {
  MeasuredTable table;
  table.program = std::make_unique<Program>();
  TableBuilder builder(table, options);
  for (const DataFile& file : files_of(paths)) {
    read_file(file, builder);
  }
  builder.take_off_quantisation();
  return table;
}

}  // namespace stepcast::models
