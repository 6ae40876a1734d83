#include "core/input/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>

#include "core/error.h"

namespace stepcast {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 18;
using Handle = std::unique_ptr<archive, int (*)(archive*)>;

/// A file that libarchive reads, member by member.
class Archive {
 public:
  /// `add_formats` names the formats it may have.
  Archive(const std::filesystem::path& file, void (*add_formats)(archive*))
      : label_(file.string()), read_(archive_read_new(), archive_read_free) {
    STEPCAST_CHECK(read_ != nullptr, "libarchive does not start");
    archive_read_support_filter_gzip(read_.get());
    archive_read_support_filter_zstd(read_.get());
    add_formats(read_.get());
    checked(archive_read_open_filename(read_.get(), label_.c_str(), kBlock));
  }

  /// Entry of the next member; null at the end.
  archive_entry* next() {
    archive_entry* entry = nullptr;
    return checked(archive_read_next_header(read_.get(), &entry)) == ARCHIVE_EOF ? nullptr : entry;
  }
  std::size_t read(char* to, std::size_t size) {
    const la_ssize_t got = checked(archive_read_data(read_.get(), to, size));
    if (got < 0) {  // a warning of libarchive: the sum of a zip's member is another
      fail(fmt::format("the packed data are damaged ({}); fetch or write the file again",
                       archive_error_string(read_.get())));
    }
    return static_cast<std::size_t>(got);
  }
  [[nodiscard]] const std::string& label() const { return label_; }
  [[noreturn]] void fail(std::string_view what) const {
    const auto at = std::max<la_int64_t>(0, archive_filter_bytes(read_.get(), -1));  // -1: unopened
    throw InputError(fmt::format("{}: byte {}", label_, at), what);
  }

 private:
  la_ssize_t checked(la_ssize_t state) const {
    if (state < ARCHIVE_WARN) {
      const char* why = archive_error_string(read_.get());
      if (why == nullptr || std::string_view(why).find("runcated") != std::string_view::npos) {
        fail("the packed data end early; the file was cut, fetch or write it again");
      }
      fail(fmt::format("the packed data are damaged ({}); fetch or write the file again", why));
    }
    return state;
  }

  std::string label_;
  Handle read_;
};

/// libarchive does not compare the sum at the end of a gzip member with what it unpacked.
class GzipSum {
 public:
  explicit GzipSum(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    in.seekg(-static_cast<std::streamoff>(sizeof end_), std::ios::end);
    in.read(reinterpret_cast<char*>(end_.data()), sizeof end_);
  }
  void add(const char* data, std::size_t size) {
    sum_ = static_cast<std::uint32_t>(crc32_z(sum_, reinterpret_cast<const Bytef*>(data), size));
    size_ += static_cast<std::uint32_t>(size);
  }
  /// The last member tells its own size; where that is all of the file, its sum is too.
  [[nodiscard]] bool differs() const { return end_[1] == size_ && end_[0] != sum_; }

 private:
  std::array<std::uint32_t, 2> end_{};  ///< sum and size
  std::uint32_t sum_ = 0, size_ = 0;
};

class UnpackedBytes final : public ByteSource {
 public:
  UnpackedBytes(const std::filesystem::path& file, bool gzip)
      : archive_(file, [](archive* a) {
          archive_read_support_format_raw(a);
          archive_read_support_format_empty(a);
        }) {
    if (gzip) {
      sum_.emplace(file);
    }
    ended_ = archive_.next() == nullptr;
  }
  std::size_t read(char* to, std::size_t size) override {
    const std::size_t got = ended_ ? 0 : archive_.read(to, size);
    if (sum_) {
      sum_->add(to, got);
      if (got == 0 && size > 0 && sum_->differs()) {
        archive_.fail("the packed data are damaged (their sum is another); fetch the file again");
      }
    }
    return got;
  }

 private:
  Archive archive_;
  std::optional<GzipSum> sum_;
  bool ended_ = false;
};

class MemberBytes final : public ByteSource {
 public:
  explicit MemberBytes(Archive& archive) : archive_(archive) {}
  std::size_t read(char* to, std::size_t size) override { return archive_.read(to, size); }

 private:
  Archive& archive_;
};

void check(archive* write, la_ssize_t state) {
  STEPCAST_CHECK(state >= ARCHIVE_OK, "libarchive: {}",
                 archive_error_string(write) != nullptr ? archive_error_string(write) : "");
}

la_ssize_t append(archive* /*of*/, void* to, const void* bytes, std::size_t count) {
  static_cast<std::string*>(to)->append(static_cast<const char*>(bytes), count);
  return static_cast<la_ssize_t>(count);
}

void write_member(archive* to, const std::string& name, std::string_view bytes) {
  const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(),
                                                                       archive_entry_free);
  archive_entry_set_pathname(entry.get(), name.c_str());
  archive_entry_set_size(entry.get(), static_cast<la_int64_t>(bytes.size()));
  archive_entry_set_filetype(entry.get(), AE_IFREG);
  archive_entry_set_perm(entry.get(), 0644);
  check(to, archive_write_header(to, entry.get()));
  const la_ssize_t written = archive_write_data(to, bytes.data(), bytes.size());
  check(to, written);
  STEPCAST_CHECK(written == std::ssize(bytes), "libarchive wrote {} of {} bytes", written,
                 bytes.size());
}

/// `choose` says what is written.
std::string packed(const std::vector<std::pair<std::string_view, std::string_view>>& members,
                   int (*choose)(archive*)) {
  std::string text;
  const Handle to(archive_write_new(), archive_write_free);
  check(to.get(), choose(to.get()));
  check(to.get(), archive_write_set_bytes_in_last_block(to.get(), 1));
  check(to.get(), archive_write_open(to.get(), &text, nullptr, append, nullptr));
  for (const auto& [name, bytes] : members) {
    write_member(to.get(), std::string(name), bytes);
  }
  check(to.get(), archive_write_close(to.get()));
  return text;
}

}  // namespace

std::unique_ptr<ByteSource> unpacked(const std::filesystem::path& file, bool gzip) {
  return std::make_unique<UnpackedBytes>(file, gzip);
}

bool is_tar(Input& input) {
  constexpr std::size_t kHeader = 512, kMagic = 257;
  const std::string_view head = input.peek(kHeader);
  return head.size() == kHeader && head.substr(kMagic, 5) == "ustar";
}

bool is_zip(Input& input) { return input.peek(4) == "PK\x03\x04" || input.peek(4) == "PK\x05\x06"; }

void each_member(const std::filesystem::path& file,
                 const std::function<bool(const std::string& member, Input& input)>& use) {
  Archive archive(file, [](auto* a) {
    archive_read_support_format_tar(a);
    archive_read_support_format_zip(a);
  });
  while (archive_entry* entry = archive.next()) {
    const char* name = archive_entry_pathname(entry);
    name = name == nullptr ? archive_entry_pathname_utf8(entry) : name;
    const std::string member = name != nullptr ? name : "";
    const bool of_macos = member.substr(member.rfind('/') + 1).starts_with("._");
    if (archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == nullptr &&
        !of_macos) {
      Input input(archive.label() + "/" + member, std::make_unique<MemberBytes>(archive));
      if (!use(member, input)) {
        return;
      }
    }
  }
}

std::string gzipped(std::string_view text) {
  return packed({{"text", text}}, [](archive* to) {
    const int added = archive_write_add_filter_gzip(to);
    archive_write_set_filter_option(to, "gzip", "timestamp", nullptr);
    return added == ARCHIVE_OK ? archive_write_set_format_raw(to) : added;
  });
}

std::string zipped(const std::vector<std::pair<std::string, std::string>>& members) {
  return packed({members.begin(), members.end()}, [](archive* to) {
    const int chosen = archive_write_set_format_zip(to);
    return chosen == ARCHIVE_OK ? archive_write_zip_set_compression_store(to) : chosen;
  });
}

}  // namespace stepcast
