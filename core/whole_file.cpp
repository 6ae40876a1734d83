#include "core/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

#include "core/error.h"

namespace stepcast {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void reject(const fs::path& file, std::error_code why) {
  throw InputError(file.string(), fmt::format("cannot be written ({}); check that the folder "
                                              "exists and may be written to",
                                              why.message()));
}

[[noreturn]] void stopped(const fs::path& file, std::error_code why) {
  throw RunError(fmt::format("{}: cannot be written to the end ({}); check that there is room",
                             file.string(), why.message()));
}

std::error_code last_error() { return {errno, std::generic_category()}; }

/// Writes and closes; the error of a full disk may come with either.
std::error_code fill(int descriptor, std::string_view text) {
  std::error_code failure;
  while (!text.empty() && !failure) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      failure = last_error();
    }
  }
  if (close(descriptor) != 0 && !failure) {
    failure = last_error();
  }
  return failure;
}

/// End of a chain of symbolic links, whether it exists or not.
fs::path target_of(const fs::path& file) {
  fs::path target = file;
  for (int links = 0; fs::is_symlink(fs::symlink_status(target)); ++links) {
    if (links == 40) {
      reject(file, std::make_error_code(std::errc::too_many_symbolic_link_levels));
    }
    target = target.parent_path() / fs::read_symlink(target);  // an absolute one replaces all
  }
  return target;
}

struct Temporary {
  fs::path path;
  int descriptor = -1;
};

/// A file of nobody else's in the folder of `target`, with the permissions of a new file.
Temporary open_beside(const fs::path& target) {
  static std::atomic<unsigned> count = 0;
  for (;;) {
    Temporary t{target.parent_path() / fmt::format(".stepcast-{}-{}", getpid(), count++)};
    t.descriptor = open(t.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (t.descriptor >= 0 || errno != EEXIST) {
      return t;
    }
  }
}

void replace(const fs::path& file, const fs::path& target, const struct stat* old,
             std::string_view text) {
  if (old != nullptr && access(target.c_str(), W_OK) != 0) {
    reject(file, last_error());
  }
  const Temporary t = open_beside(target);
  if (t.descriptor < 0) {
    reject(file, last_error());
  }
  std::error_code failure;
  if (old != nullptr && fchmod(t.descriptor, old->st_mode & 07777) != 0) {
    failure = last_error();
  }
  if (const std::error_code filled = fill(t.descriptor, text); !failure) {
    failure = filled;
  }
  if (!failure) {
    fs::rename(t.path, target, failure);
  }
  if (failure) {
    std::error_code ignored;
    fs::remove(t.path, ignored);
    stopped(file, failure);
  }
}

/// `folder`, where `output` is to appear, takes new files.
void expect_folder(const fs::path& output, const fs::path& folder) {
  struct stat found {};
  if (stat(folder.c_str(), &found) != 0) {
    reject(output, last_error());
  }
  if (!S_ISDIR(found.st_mode)) {
    reject(output, std::make_error_code(std::errc::not_a_directory));
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    reject(output, last_error());
  }
}

}  // namespace

void write_whole_file(const fs::path& file, std::string_view text) {
  struct stat old {};
  const bool exists = stat(file.c_str(), &old) == 0;
  if (!exists && errno != ENOENT) {
    reject(file, last_error());
  }
  if (!exists || S_ISREG(old.st_mode)) {
    replace(file, target_of(file), exists ? &old : nullptr, text);
    return;
  }
  const int descriptor = open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) {
    reject(file, last_error());
  }
  if (const std::error_code failure = fill(descriptor, text)) {
    stopped(file, failure);
  }
}

void expect_writable(const fs::path& file) {
  struct stat old {};
  const bool exists = stat(file.c_str(), &old) == 0;
  if (!exists && errno != ENOENT) {
    reject(file, last_error());
  }
  if (exists && S_ISDIR(old.st_mode)) {
    reject(file, std::make_error_code(std::errc::is_a_directory));
  }
  if (exists && access(file.c_str(), W_OK) != 0) {
    reject(file, last_error());
  }
  if (exists && !S_ISREG(old.st_mode)) {
    return;  // a device or a FIFO is filled, not replaced
  }
  const fs::path folder = target_of(file).parent_path();
  expect_folder(file, folder.empty() ? "." : folder);
}

void expect_writable_folder(const fs::path& folder) {
  fs::path nearest = folder.empty() ? "." : folder;
  std::error_code ignored;
  while (!fs::exists(fs::status(nearest, ignored)) && nearest.has_relative_path()) {
    const fs::path parent = nearest.parent_path();
    nearest = parent.empty() ? "." : parent;
  }
  expect_folder(folder, nearest);
}

}  // namespace stepcast
