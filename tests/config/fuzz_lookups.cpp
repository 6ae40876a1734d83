// Every reader of recorded lookups on arbitrary bytes: the only way out is ids from 0 with bags
// that lie among them, a histogram, or an InputError of reasonable length.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/config/access_files.h"
#include "core/config/lookups/arrays.h"
#include "core/error.h"

namespace config = stepcast::config;

namespace {

void expect(bool condition) {
  if (!condition) {
    std::abort();
  }
}

template <typename Read>
void reads_or_rejects(const Read& read) {
  try {
    read();
  } catch (const stepcast::InputError& e) {
    expect(std::string(e.what()).size() < 4000);
  }
}

/// A file in memory, under a name that every reader can open.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size) : file_(memfd_create("fuzz", 0)) {
    expect(file_ >= 0 && write(file_, data, size) == static_cast<ssize_t>(size));
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(file_); }
  [[nodiscard]] std::string name() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const MemoryFile file(data, size);
  for (const char* part : {"", ":0", ":1of2", ":C5", ":item", ":0:1", ":indices"}) {
    reads_or_rejects([&] {
      std::int64_t ids = 0;
      config::stream_indices(
          file.name() + part, "fuzz",
          [&ids](std::span<const std::int64_t> some) {
            for (const std::int64_t id : some) {
              expect(id >= 0);
            }
            ids += static_cast<std::int64_t>(some.size());
          },
          1000);
      expect(ids > 0);
      for (const std::int64_t bag : config::recorded_bags(file.name() + part, ids, "fuzz")) {
        expect(bag >= 0 && bag <= ids);
      }
    });
  }
  reads_or_rejects([&] {
    if (config::is_histogram(file.name(), "fuzz")) {
      expect(!config::read_histogram(file.name(), "fuzz").bins.empty());
    }
  });
  // Inside an archive a changed pickle would fail its checksum.
  reads_or_rejects([&] {
    (void)config::tensors_of_pickle({reinterpret_cast<const char*>(data), size}, "f/", "fuzz");
  });
  return 0;
}
