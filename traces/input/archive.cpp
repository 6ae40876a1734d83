#include "traces/input/archive.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace stepcast::traces {
namespace {

class MemberSource final : public ByteSource {
 public:
  MemberSource(Input& archive, std::uint64_t size) : archive_(archive), left_(size) {}
  std::size_t read(char* to, std::size_t size) override {
    const std::size_t wanted = static_cast<std::size_t>(std::min<std::uint64_t>(size, left_));
    const std::size_t got = archive_.read(to, wanted);
    if (got < wanted) {
      archive_.fail(archive_.offset(), "the archive ends inside a member; it was cut");
    }
    left_ -= got;
    return got;
  }
  [[nodiscard]] std::uint64_t left() const { return left_; }

 private:
  Input& archive_;
  std::uint64_t left_;
};

constexpr std::size_t kTarBlock = 512;

/// A number of a tar header: octal digits, ended by a blank or zero.
std::uint64_t octal(const Input& archive, std::string_view field) {
  std::uint64_t value = 0;
  for (const char c : field) {
    if (c == '\0' || c == ' ') {
      break;
    }
    if (c < '0' || c > '7') {
      archive.fail(archive.offset(), "is no tar header: its size is not an octal number");
    }
    value = value * 8 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

std::string_view text_field(std::string_view header, std::size_t at, std::size_t size) {
  const std::string_view field = header.substr(at, size);
  return field.substr(0, field.find('\0'));
}

}  // namespace

bool is_tar(Input& input) {
  const std::string_view head = input.peek(kTarBlock);
  return head.size() == kTarBlock && head.substr(257, 5) == "ustar";
}

void for_each_member(Input& archive, const std::function<void(const std::string&, Input&)>& use) {
  char block[kTarBlock];
  std::string long_name;
  while (true) {
    const std::uint64_t at = archive.offset();
    const std::size_t got = archive.read(block, kTarBlock);
    const std::string_view header(block, kTarBlock);
    if (got == 0 || (got == kTarBlock && block[0] == '\0')) {
      return;
    }
    if (got < kTarBlock || header.substr(257, 5) != "ustar") {
      archive.fail(at, "expected the header of an archive member; the archive is cut or damaged");
    }
    const std::uint64_t size = octal(archive, header.substr(124, 12));
    const std::string prefix(text_field(header, 345, 155));
    std::string name(text_field(header, 0, 100));
    if (header[262] == '\0' && header[263] != '\0' && !prefix.empty()) {
      name.insert(0, prefix + "/");
    }
    if (!long_name.empty()) {
      name = std::exchange(long_name, {});
    }
    auto source = std::make_unique<MemberSource>(archive, size);
    const MemberSource& member = *source;
    Input input(archive.label() + "/" + name, std::move(source));
    const char type = header[156];
    const std::size_t slash = name.rfind('/');
    const std::string_view base =
        std::string_view(name).substr(slash == std::string::npos ? 0 : slash + 1);
    if (type == 'L' && size < 4096) {  // GNU: the next member's name
      long_name.resize(static_cast<std::size_t>(size));
      input.read(long_name.data(), long_name.size());
      long_name.resize(std::strlen(long_name.c_str()));
    } else if ((type == '0' || type == '\0') && !base.starts_with("._")) {
      use(name, input);
    }
    char rest[4096];
    while (member.left() > 0) {
      input.read(rest, sizeof rest);
    }
    const std::size_t padding =
        static_cast<std::size_t>((kTarBlock - size % kTarBlock) % kTarBlock);
    if (archive.read(rest, padding) < padding) {
      archive.fail(archive.offset(), "the archive ends inside a member; it was cut");
    }
  }
}

}  // namespace stepcast::traces
