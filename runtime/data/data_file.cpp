#include "runtime/data/data_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/input/input.h"

namespace stepcast::runtime {

DataFile::DataFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // of a pipe: at once
  struct stat status {};
  if (file >= 0 && fstat(file, &status) == 0 && status.st_size > 0) {
    void* address =
        mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    if (address != MAP_FAILED) {
      mapped_ = static_cast<const char*>(address);
      size_ = static_cast<std::size_t>(status.st_size);
    }
  }
  if (file >= 0) {
    close(file);
  }
  if (mapped_ == nullptr) {
    throw InputError(path, "cannot be read, or is empty; expected a data file");
  }
  if (Input::of_file(path).compressed()) {
    munmap(const_cast<char*>(mapped_), size_);
    mapped_ = nullptr;
    decompress(path);
  }
}

void DataFile::decompress(const std::string& path) {
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  Input input = Input::of_file(path);
  decompressed_.reserve(input.expected());
  for (std::size_t got = 1; got > 0;) {
    const std::size_t before = decompressed_.size();
    decompressed_.resize(before + kChunk);
    got = input.read(decompressed_.data() + before, kChunk);
    decompressed_.resize(before + got);
  }
  if (decompressed_.empty()) {
    throw InputError(path, "is empty once decompressed; expected a data file");
  }
}

DataFile::~DataFile() {
  if (mapped_ != nullptr) {
    munmap(const_cast<char*>(mapped_), size_);
  }
}

}  // namespace stepcast::runtime
