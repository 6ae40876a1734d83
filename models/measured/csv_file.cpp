#include "models/measured/csv_file.h"

#include <zlib.h>

#include <array>
#include <fstream>

#include "core/error.h"

namespace stepcast::models {

std::string read_bytes(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) {
    throw InputError(file.string(), "no such file; check the path");
  }
  if (!std::filesystem::is_regular_file(status)) {
    throw InputError(file.string(), "is not a regular file; name a CSV file or a folder of them");
  }
  std::ifstream in(file, std::ios::binary);
  std::string bytes(std::filesystem::file_size(file, error), '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (error || !in) {
    throw InputError(file.string(), "cannot be read; check its permissions");
  }
  return bytes;
}

std::string gunzip(std::string bytes, const std::string& label) {
  if (bytes.size() < 2 || bytes[0] != '\x1f' || bytes[1] != '\x8b') {
    return bytes;
  }
  constexpr std::size_t kLimit = std::size_t{1} << 30U;
  z_stream stream{};
  STEPCAST_CHECK(inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK, "zlib does not start");
  std::string text;
  std::array<char, 1 << 16> buffer{};
  // zlib's interface takes the input as non-const; it does not write to it.
  stream.next_in = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  int status = Z_OK;
  while (status == Z_OK && text.size() <= kLimit) {
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    status = inflate(&stream, Z_NO_FLUSH);
    text.append(buffer.data(), buffer.size() - stream.avail_out);
    if (status == Z_STREAM_END && stream.avail_in > 0) {
      status = inflateReset(&stream);
    }
  }
  inflateEnd(&stream);
  if (text.size() > kLimit) {
    throw InputError(label, "holds more than 1 GiB of text; split it");
  }
  if (status != Z_STREAM_END) {
    throw InputError(label,
                     "is a damaged or truncated gzip file; fetch it again and check its SHA-256");
  }
  return text;
}

bool CsvLines::next(std::vector<std::string_view>& fields) {
  fields.clear();
  unquoted_.clear();
  while (at_ < text_.size()) {
    std::size_t end = text_.find('\n', at_);
    end = end == std::string_view::npos ? text_.size() : end;
    std::string_view line = text_.substr(at_, end - at_);
    at_ = end + 1;
    ++line_;
    if (!line.empty() && line.back() == '\r') {
      line.remove_suffix(1);
    }
    if (line.empty()) {
      continue;
    }
    if (line.find('"') == std::string_view::npos) {
      for (std::size_t begin = 0; begin <= line.size();) {
        std::size_t comma = line.find(',', begin);
        comma = comma == std::string_view::npos ? line.size() : comma;
        fields.push_back(line.substr(begin, comma - begin));
        begin = comma + 1;
      }
      return true;
    }
    std::string field;
    bool quoted = false;
    for (std::size_t i = 0; i <= line.size(); ++i) {
      if (i == line.size() || (line[i] == ',' && !quoted)) {
        unquoted_.push_back(std::move(field));
        field.clear();
      } else if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
        field += line[i++];
      } else if (line[i] == '"') {
        quoted = !quoted;
      } else {
        field += line[i];
      }
    }
    fields.assign(unquoted_.begin(), unquoted_.end());
    return true;
  }
  return false;
}

}  // namespace stepcast::models
