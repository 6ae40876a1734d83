#include "core/config/lookups/zip_members.h"

#include <archive.h>
#include <archive_entry.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "core/error.h"

namespace stepcast::config {
namespace {

constexpr std::size_t kChunk = std::size_t{1} << 18;

[[noreturn]] void fail(archive* a, const std::string& file) {
  const char* why = archive_error_string(a);
  throw InputError(file, fmt::format("the zip archive cannot be read ({}); fetch or write it again",
                                     why != nullptr ? why : "no reason given"));
}

/// A compressed archive, undone as it is read.
struct Unpacked {
  Input input;
  std::vector<char> chunk = std::vector<char>(kChunk);
  std::string error;
};

la_ssize_t read_unpacked(archive* a, void* data, const void** buffer) {
  auto* from = static_cast<Unpacked*>(data);
  *buffer = from->chunk.data();
  try {  // no exception may pass through the library
    return static_cast<la_ssize_t>(from->input.read(from->chunk.data(), from->chunk.size()));
  } catch (const InputError& e) {
    from->error = e.what();
    archive_set_error(a, EIO, "%s", "its compression is damaged");
    return -1;
  }
}

class MemberBytes final : public ByteSource {
 public:
  MemberBytes(archive* a, std::string label) : archive_(a), label_(std::move(label)) {}
  std::size_t read(char* to, std::size_t size) override {
    const la_ssize_t got = archive_read_data(archive_, to, size);
    if (got < 0) {
      fail(archive_, label_);
    }
    return static_cast<std::size_t>(got);
  }

 private:
  archive* archive_;
  std::string label_;
};

}  // namespace

void each_zip_member(const std::filesystem::path& file,
                     const std::function<bool(const std::string& member, Input& input)>& use) {
  const std::string label = file.string();
  Unpacked unpacked{.input = Input::of_file(file), .error = ""};
  const std::unique_ptr<archive, int (*)(archive*)> owned(archive_read_new(), archive_read_free);
  archive* a = owned.get();
  STEPCAST_CHECK(a != nullptr, "libarchive does not start");
  archive_read_support_format_zip(a);
  const auto checked = [&](int state) {
    if (state < ARCHIVE_WARN) {
      if (!unpacked.error.empty()) {
        throw InputError("", unpacked.error);
      }
      fail(a, label);
    }
    return state;
  };
  checked(unpacked.input.compressed()
              ? archive_read_open(a, &unpacked, nullptr, read_unpacked, nullptr)
              : archive_read_open_filename(a, label.c_str(), kChunk));
  archive_entry* entry = nullptr;
  while (checked(archive_read_next_header(a, &entry)) != ARCHIVE_EOF) {
    const char* name = archive_entry_pathname(entry);
    const std::string member = name != nullptr ? name : "";
    Input input(label + "/" + member, std::make_unique<MemberBytes>(a, label + "/" + member));
    try {
      if (!use(member, input)) {
        return;
      }
    } catch (const InputError&) {
      if (!unpacked.error.empty()) {
        throw InputError("", unpacked.error);
      }
      throw;
    }
  }
}

}  // namespace stepcast::config
