#include "core/config/lookups/arrays.h"

#include <algorithm>

#include "core/error.h"
#include "core/input/archive.h"

namespace stepcast::config {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::size_t kLargestPickle = std::size_t{16} << 20;

/// The members of a .npz archive, without the ending.
Array named_member(const std::string& member, Input& input) {
  Array a = npy_header(input);
  a.member = member;
  a.name = member.substr(0, member.size() - 4);
  return a;
}

std::string whole(Input& input, std::size_t most) {
  std::string text(most + 1, '\0');
  text.resize(input.read(text.data(), text.size()));
  if (text.size() > most) {
    throw InputError(input.label(), fmt::format("holds more than {} bytes, expected the few that "
                                                "describe tensors",
                                                most));
  }
  return text;
}

std::int64_t element(const char* at, const ElementType& type) {
  std::uint64_t v = 0;
  for (int b = 0; b < type.bytes; ++b) {
    v |= std::uint64_t{static_cast<unsigned char>(at[b])} << (8 * b);
  }
  const int unused = 64 - 8 * type.bytes;
  return type.has_sign ? static_cast<std::int64_t>(v << unused) >> unused
                       : static_cast<std::int64_t>(v);
}

void stream_from(Input& input, const Array& array, Elements which, IdSink& to) {
  const auto bytes = static_cast<std::uint64_t>(array.type.bytes);
  const auto size = static_cast<std::size_t>(bytes);
  const std::uint64_t first = array.offset + bytes * static_cast<std::uint64_t>(which.first);
  const auto cut = [&](std::int64_t done) {
    input.fail(input.offset(), fmt::format("the data end after {} of {} values; the file was cut",
                                           done, which.count));
  };
  (void)input.skip(first - input.offset());  // what is missing shows below
  std::vector<char> chunk((std::size_t{1} << 18) / size * size);
  std::int64_t done = 0;
  std::int64_t wait = 0;  // elements until the next that is wanted
  while (done < which.count) {
    const std::int64_t left = wait + (which.count - done - 1) * which.step + 1;
    const std::size_t wanted = static_cast<std::size_t>(
        std::min<std::int64_t>(left, static_cast<std::int64_t>(chunk.size() / size)));
    const std::size_t got = input.read(chunk.data(), wanted * size);
    for (std::size_t i = 0; i < got / size; ++i) {
      if (wait-- == 0) {
        to.add(element(chunk.data() + i * size, array.type));
        wait = which.step - 1;
        ++done;
      }
    }
    if (got < wanted * size) {
      cut(done);
    }
  }
}

}  // namespace

std::int64_t Array::size() const {
  std::int64_t n = 1;
  for (const std::int64_t s : shape) {
    n *= s;  // checked where the shape was read
  }
  return n;
}

const Array* ArrayFile::find(std::string_view name) const {
  const auto it = std::find_if(arrays.begin(), arrays.end(),
                               [&](const Array& a) { return !name.empty() && a.name == name; });
  return it == arrays.end() ? nullptr : &*it;
}

std::string ArrayFile::names() const {
  constexpr std::size_t kShown = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, arrays.size()); ++i) {
    text += (i > 0 ? ", " : "") + arrays[i].name.substr(0, 40);
  }
  return arrays.size() > kShown ? fmt::format("{}, ... ({} in all)", text, arrays.size()) : text;
}

bool is_npy(Input& input) { return input.peek(kNpyMagic.size()) == kNpyMagic; }

ArrayFile arrays_of_npy(const std::filesystem::path& file) {
  Input input = Input::of_file(file);
  return {file, {npy_header(input)}};
}

ArrayFile arrays_of_zip(const std::filesystem::path& file) {
  ArrayFile found{file, {}};
  bool torch = false;
  each_member(file, [&](const std::string& member, Input& input) {
    if (member.ends_with("data.pkl")) {
      torch = true;
      const std::string folder = member.substr(0, member.size() - 8);
      found.arrays = tensors_of_pickle(whole(input, kLargestPickle), folder, input.label());
    } else if (torch && member.ends_with("byteorder")) {
      if (const std::string order = whole(input, 64); order != "little") {
        throw InputError(input.label(), fmt::format("found \"{}\", expected little: save it on a "
                                                    "machine of that byte order",
                                                    order.substr(0, 20)));
      }
    } else if (!torch && member.ends_with(".npy")) {
      found.arrays.push_back(named_member(member, input));
    }
    // Storages follow in an archive of PyTorch, but for a small member among the first.
    return !torch || member.find("/data/") == std::string::npos;
  });
  if (found.arrays.empty()) {
    throw InputError(file.string(),
                     "a zip archive with neither arrays of NumPy (.npz) nor a data.pkl of "
                     "torch.save in it; expected one of these");
  }
  return found;
}

void stream_elements(const ArrayFile& file, const Array& array, Elements which, IdSink& to) {
  const std::string label =
      file.file.string() + (array.name.empty() ? "" : fmt::format(": {}", array.name));
  if (array.type.bytes == 0) {
    throw InputError(
        label, fmt::format("holds {}, expected little-endian integers: write ids.astype('int64')",
                           array.type.name.substr(0, 40)));
  }
  STEPCAST_CHECK(
      which.first >= 0 && which.count >= 0 && which.step >= 1 &&
          (which.count == 0 || which.first + (which.count - 1) * which.step < array.size()),
      "elements {} + {} x {} of {}", which.first, which.count, which.step, array.size());
  if (array.member.empty()) {
    Input input = Input::of_file(file.file);
    stream_from(input, array, which, to);
    return;
  }
  bool met = false;
  each_member(file.file, [&](const std::string& member, Input& input) {
    met = member == array.member;
    if (met) {
      stream_from(input, array, which, to);
    }
    return !met;
  });
  if (!met) {
    throw InputError(label,
                     fmt::format("the archive has no member {}; it was truncated or has another "
                                 "version",
                                 array.member.substr(0, 80)));
  }
}

}  // namespace stepcast::config
