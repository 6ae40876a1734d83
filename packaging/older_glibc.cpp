// Linked into the packaged executable and Python's module, so that one built with the C library of today starts with those of the last years (2.27 on). References
// to functions whose symbols got new versions since then are bound to the versions before; the few functions that are new are put in
// place of. cmake/StepcastPortable.cmake has the linker take `__wrap_X` for each X named here.
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include <cstddef>
#include <cstdint>

// A symbol of today, and the version that the same function had before.
#define OLDER(name, version)                                       \
  asm(".symver older_" #name ", " #name "@" version                \
      "\n.globl __wrap_" #name "\n.hidden __wrap_" #name           \
      "\n.type __wrap_" #name ", @function\n__wrap_" #name ":\n\t" \
      "jmp older_" #name "@PLT\n")

// Without the change of errno that came with the new versions; nothing here reads it.
OLDER(exp, "GLIBC_2.2.5");
OLDER(exp2, "GLIBC_2.2.5");
OLDER(log, "GLIBC_2.2.5");
OLDER(log2, "GLIBC_2.2.5");
OLDER(pow, "GLIBC_2.2.5");
OLDER(hypot, "GLIBC_2.2.5");
// Since 2.34 in the C library itself; before, in libraries of their own.
OLDER(dlclose, "GLIBC_2.2.5");
OLDER(dlopen, "GLIBC_2.2.5");
OLDER(dlsym, "GLIBC_2.2.5");
OLDER(dlerror, "GLIBC_2.2.5");
OLDER(__pthread_key_create, "GLIBC_2.2.5");
OLDER(pthread_condattr_setclock, "GLIBC_2.3.3");
OLDER(pthread_create, "GLIBC_2.2.5");
OLDER(pthread_detach, "GLIBC_2.2.5");
OLDER(pthread_getspecific, "GLIBC_2.2.5");
OLDER(pthread_join, "GLIBC_2.2.5");
OLDER(pthread_key_create, "GLIBC_2.2.5");
OLDER(pthread_key_delete, "GLIBC_2.2.5");
OLDER(pthread_mutex_trylock, "GLIBC_2.2.5");
OLDER(pthread_mutexattr_destroy, "GLIBC_2.2.5");
OLDER(pthread_mutexattr_init, "GLIBC_2.2.5");
OLDER(pthread_mutexattr_settype, "GLIBC_2.2.5");
OLDER(pthread_once, "GLIBC_2.2.5");
OLDER(pthread_rwlock_rdlock, "GLIBC_2.2.5");
OLDER(pthread_rwlock_unlock, "GLIBC_2.2.5");
OLDER(pthread_rwlock_wrlock, "GLIBC_2.2.5");
OLDER(pthread_setaffinity_np, "GLIBC_2.3.4");
OLDER(pthread_setspecific, "GLIBC_2.2.5");
OLDER(pthread_sigmask, "GLIBC_2.2.5");

// Functions put in place of new ones.
#define REPLACED(name) __attribute__((visibility("hidden"))) __wrap_##name

extern "C" {

// Threads count references atomically, always: before 2.32 the C library did not tell whether there is but one.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

int __fxstat(int version, int file, struct stat* out);
int __xstat(int version, const char* path, struct stat* out);
int __lxstat(int version, const char* path, struct stat* out);
int __fxstatat(int version, int folder, const char* path, struct stat* out, int flags);
constexpr int kStatVersion = 1;  // of x86-64
int REPLACED(stat)(const char* path, struct stat* out) { return __xstat(kStatVersion, path, out); }
int REPLACED(stat64)(const char* path, struct stat* out) { return __xstat(kStatVersion, path, out); }
int REPLACED(lstat64)(const char* path, struct stat* out) { return __lxstat(kStatVersion, path, out); }
int REPLACED(lstat)(const char* path, struct stat* out) { return __lxstat(kStatVersion, path, out); }
int REPLACED(fstat)(int file, struct stat* out) { return __fxstat(kStatVersion, file, out); }
int REPLACED(fstat64)(int file, struct stat* out) { return __fxstat(kStatVersion, file, out); }
int REPLACED(fstatat)(int folder, const char* path, struct stat* out, int flags) {
  return __fxstatat(kStatVersion, folder, path, out, flags);
}

// On 64-bit systems fcntl has always had 64-bit locks.
int REPLACED(fcntl64)(int file, int command, void* argument) { return fcntl(file, command, argument); }

void REPLACED(arc4random_buf)(void* data, std::size_t size) {
  auto* bytes = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = getrandom(bytes, size < 256 ? size : 256, 0);
    if (got > 0) {
      bytes += got;
      size -= static_cast<std::size_t>(got);
    }
  }
}

std::uint32_t REPLACED(arc4random)() {
  std::uint32_t value = 0;
  __wrap_arc4random_buf(&value, sizeof value);
  return value;
}

// A wait until a time of another clock than the condition's: until the same time from now.
int REPLACED(pthread_cond_clockwait)(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  constexpr long kSecond = 1'000'000'000;
  timespec there{};
  timespec here{};
  clock_gettime(clock, &there);
  clock_gettime(CLOCK_REALTIME, &here);
  here.tv_sec += until->tv_sec - there.tv_sec;
  here.tv_nsec += until->tv_nsec - there.tv_nsec;
  if (here.tv_nsec < 0) {
    here.tv_sec -= 1;
    here.tv_nsec += kSecond;
  } else if (here.tv_nsec >= kSecond) {
    here.tv_sec += 1;
    here.tv_nsec -= kSecond;
  }
  return pthread_cond_timedwait(condition, mutex, &here);
}

// Finds, for the unwinder, the frames of the code at `address`: of all loaded objects, the one that holds it.
int REPLACED(_dl_find_object)(void* address, dl_find_object* found) {
  struct Search {
    ElfW(Addr) address;
    dl_find_object* found;
  } search{reinterpret_cast<ElfW(Addr)>(address), found};
  const auto look = [](dl_phdr_info* object, std::size_t, void* data) {
    auto* wanted = static_cast<Search*>(data);
    ElfW(Addr) frames = 0;
    bool holds = false;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = object->dlpi_phdr[i];
      const ElfW(Addr) begin = object->dlpi_addr + part.p_vaddr;
      if (part.p_type == PT_GNU_EH_FRAME) {
        frames = begin;
      } else if (part.p_type == PT_LOAD && wanted->address >= begin &&
                 wanted->address < begin + part.p_memsz) {
        holds = true;
      }
    }
    if (!holds || frames == 0) {
      return 0;
    }
    wanted->found->dlfo_eh_frame = reinterpret_cast<void*>(frames);
    return 1;
  };
  return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}

#ifdef __PIE__  // no module
// Since 2.34 the C library runs a program's constructors; before, the program brought the function that does.
asm(".symver older_libc_start_main, __libc_start_main@GLIBC_2.2.5");
using Main = int(int, char**, char**);
int older_libc_start_main(Main* main, int argc, char** argv, Main* init, void (*fini)(), void (*loader_fini)(), void* stack_end);
using Constructor = void(int, char**, char**);
extern Constructor* __preinit_array_start[];
extern Constructor* __preinit_array_end[];
extern Constructor* __init_array_start[];
extern Constructor* __init_array_end[];
void _init();

static int run_constructors(int argc, char** argv, char** environment) {
  for (Constructor** c = __preinit_array_start; c < __preinit_array_end; ++c) {
    (*c)(argc, argv, environment);
  }
  _init();
  for (Constructor** c = __init_array_start; c < __init_array_end; ++c) {
    (*c)(argc, argv, environment);
  }
  return 0;
}

int REPLACED(__libc_start_main)(Main* main, int argc, char** argv, Main*, void (*)(), void (*loader_fini)(), void* stack_end) {
  return older_libc_start_main(main, argc, argv, run_constructors, nullptr, loader_fini, stack_end);
}
#endif

}  // extern "C"
