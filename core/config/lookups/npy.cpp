#include <algorithm>
#include <charconv>
#include <optional>

#include "core/config/lookups/arrays.h"
#include "core/error.h"

// The header of a .npy file: magic, version, length, and a Python dictionary of three keys
// (numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
namespace stepcast::config {
namespace {

constexpr std::size_t kPrelude = 8;  // magic and version
constexpr std::size_t kLongest = 1U << 16;

/// Text after `'key':` in the dictionary, without blanks before it.
std::string_view value_of(std::string_view header, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = quote + std::string(key) + quote;
    const std::size_t at = header.find(quoted);
    if (at == std::string_view::npos) {
      continue;
    }
    std::string_view rest = header.substr(at + quoted.size());
    const std::size_t first = rest.find_first_not_of(" :");
    return first == std::string_view::npos ? std::string_view() : rest.substr(first);
  }
  return {};
}

std::optional<std::string> quoted_text(std::string_view value) {
  if (value.empty() || (value.front() != '\'' && value.front() != '"')) {
    return std::nullopt;
  }
  const std::size_t end = value.find(value.front(), 1);
  return end == std::string_view::npos ? std::nullopt
                                       : std::optional(std::string(value.substr(1, end - 1)));
}

/// "(3, 4)", "(3,)", "()".
std::optional<std::vector<std::int64_t>> shape_of(std::string_view value) {
  if (value.empty() || value.front() != '(') {
    return std::nullopt;
  }
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
  for (value.remove_prefix(1);;) {
    value.remove_prefix(std::min(value.find_first_not_of(" ,"), value.size()));
    if (value.starts_with(')')) {
      return shape;
    }
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
    if (error != std::errc() || n < 0 || n > kMostElements ||
        (n > 0 && elements > kMostElements / n) || shape.size() >= 8) {
      return std::nullopt;
    }
    elements *= std::max<std::int64_t>(n, 1);
    shape.push_back(n);
    value.remove_prefix(static_cast<std::size_t>(end - value.data()));
    if (value.starts_with('L')) {  // Python 2
      value.remove_prefix(1);
    }
  }
}

/// "<i8", "|u1"; anything else has no bytes.
ElementType type_of(const std::string& descr) {
  if (descr.size() == 3 && (descr[0] == '<' || descr[0] == '|') &&
      (descr[1] == 'i' || descr[1] == 'u') &&
      std::string_view("1248").find(descr[2]) != std::string_view::npos) {
    return {descr[2] - '0', descr[1] == 'i', descr};
  }
  return {0, true, "elements of type " + descr};
}

}  // namespace

Array npy_header(Input& input) {
  const auto reject = [&](std::string_view what) -> void { throw InputError(input.label(), what); };
  std::string prelude(kPrelude, '\0');
  prelude.resize(input.read(prelude.data(), kPrelude));
  if (prelude.size() < kPrelude || !prelude.starts_with("\x93NUMPY")) {
    reject("is no array of NumPy: expected a header that begins with \\x93NUMPY");
  }
  const int version = prelude[6];
  if (version < 1 || version > 3) {
    reject(fmt::format("a .npy header of version {}, expected 1, 2 or 3", version));
  }
  std::string length(version == 1 ? 2 : 4, '\0');
  length.resize(input.read(length.data(), length.size()));
  std::size_t size = 0;
  for (std::size_t i = length.size(); i-- > 0;) {
    size = size << 8U | static_cast<unsigned char>(length[i]);
  }
  std::string header(std::min(size, kLongest), '\0');
  header.resize(input.read(header.data(), header.size()));
  if (header.size() < size) {
    reject("the .npy header ends early or is longer than 65536 bytes; the file is cut or damaged");
  }
  Array a;
  const auto descr = quoted_text(value_of(header, "descr"));
  const auto shape = shape_of(value_of(header, "shape"));
  const std::string_view order = value_of(header, "fortran_order");
  if (!shape || (!order.starts_with("True") && !order.starts_with("False"))) {
    reject("the .npy header has no shape or order of NumPy; write the array again with numpy.save");
  }
  a.type = descr ? type_of(*descr) : ElementType{0, true, "records"};
  a.shape = *shape;
  if (order.starts_with("True") && a.shape.size() > 1) {
    reject("is stored in Fortran order; write numpy.ascontiguousarray(ids) instead");
  }
  a.offset = kPrelude + length.size() + size;
  return a;
}

}  // namespace stepcast::config
