// A library that tests preload into ranks: one of them dies at a chosen place, states are written
// slowly.
//   DIE_RANK, DIE_IN=step|write, DIE_AT: that rank kills itself before its DIE_AT-th sum of a loss, or with half of its DIE_AT-th
//     state written
//   FULL_AT: the disk has no room for a rank's FULL_AT-th state
//   WRITE_MS: what writing a state takes besides
//   STEPS_MEANWHILE: file that gets a byte for each sum of a loss while the same rank writes a state
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::atomic<bool> writing{false};

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool dies(const char* place, int number) {
  return setting("DIE_RANK") == setting("OMPI_COMM_WORLD_RANK") && setting("DIE_IN") == place &&
         setting("DIE_AT") == std::to_string(number);
}

bool is_state(int file) {
  char path[PATH_MAX];
  const ssize_t size = readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, PATH_MAX);
  return size > 0 && std::string(path, static_cast<std::size_t>(size)).ends_with(".state");
}

using Write = ssize_t(int, const void*, size_t);
Write* real_write() {
  static auto* const real = reinterpret_cast<Write*>(dlsym(RTLD_NEXT, "write"));
  return real;
}

}  // namespace

extern "C" ssize_t write(int file, const void* data, size_t size) {
  static std::atomic<int> states{0};
  if (!is_state(file)) {
    return real_write()(file, data, size);
  }
  writing = true;
  if (dies("write", ++states)) {
    real_write()(file, data, size / 2);
    std::raise(SIGKILL);
  }
  if (setting("FULL_AT") == std::to_string(states)) {
    errno = ENOSPC;
    return -1;
  }
  usleep(1000 * static_cast<useconds_t>(std::atoi(setting("WRITE_MS").c_str())));
  const ssize_t written = real_write()(file, data, size);
  writing = false;
  return written;
}

extern "C" int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type,
                             MPI_Op op, MPI_Comm communicator) {
  static std::atomic<int> sums{0};
  if (count == 1 && type == MPI_DOUBLE && op == MPI_SUM) {
    if (dies("step", ++sums)) {
      std::raise(SIGKILL);
    }
    if (const std::string seen = setting("STEPS_MEANWHILE"); writing && !seen.empty()) {
      const int file = open(seen.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      real_write()(file, ".", 1);
      close(file);
    }
  }
  return PMPI_Allreduce(send, receive, count, type, op, communicator);
}
