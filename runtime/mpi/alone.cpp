#include <cstdlib>
#include <cstring>

#include "runtime/mpi/api.h"

namespace stepcast::runtime {
namespace {

std::size_t bytes_of(int count, MpiType type) {
  const std::size_t each = type == MpiType::kByte ? 1 : type == MpiType::kFloat ? 4 : 8;
  return static_cast<std::size_t>(count) * each;
}

/// A request without a partner is complete.
int done(MpiHandle* request) {
  if (request != nullptr) {
    *request = nullptr;
  }
  return 0;
}

int copied(const void* send, void* receive, int count, MpiType type, MpiHandle* request) {
  if (send != nullptr) {
    std::memmove(receive, send, bytes_of(count, type));
  }
  return done(request);
}

/// No rank is there to send to.
int nobody() { return 1; }

MpiApi table() {
  static char self = 0;  // stands for the one communicator
  MpiApi api{};
  api.library = "one process";
  api.start = [](bool* granted) {
    *granted = true;
    return 0;
  };
  api.stop = [] { return 0; };
  api.stopped = [] { return false; };
  api.abort = [](int code) { std::_Exit(code); };
  api.error_text = [](int, char* text) { std::strcpy(text, "no other rank is there"); };
  api.world = &self;
  api.rank = [](MpiHandle, int* rank) {
    *rank = 0;
    return 0;
  };
  api.size = [](MpiHandle, int* size) {
    *size = 1;
    return 0;
  };
  api.split_by_machine = [](MpiHandle of, int, MpiHandle* part) {
    *part = of;
    return 0;
  };
  api.split = [](MpiHandle of, int color, int, MpiHandle* part) {
    *part = color < 0 ? nullptr : of;
    return 0;
  };
  api.duplicate = [](MpiHandle of, MpiHandle* copy) {
    *copy = of;
    return 0;
  };
  api.free_communicator = [](MpiHandle) {};
  api.make_type = [](int, MpiHandle* type) { return done(type); };
  api.free_type = [](MpiHandle) {};
  api.barrier = [](MpiHandle, MpiHandle* request) { return done(request); };
  api.all_reduce = [](MpiHandle, void*, int, MpiType, MpiReduction, MpiHandle* request) {
    return done(request);
  };
  api.all_gather = [](MpiHandle, const void* send, void* receive, int count, MpiType type,
                      MpiHandle* request) { return copied(send, receive, count, type, request); };
  api.reduce_scatter = [](MpiHandle, const void* send, void* receive, int count, MpiType type,
                          MpiReduction, MpiHandle* request) {
    return copied(send, receive, count, type, request);
  };
  api.broadcast = [](MpiHandle, void*, int, MpiType, int, MpiHandle* request) {
    return done(request);
  };
  api.all_to_all_v = [](MpiHandle, const void*, const int*, const int*, void*, const int*,
                        const int*, MpiHandle, MpiHandle*) { return nobody(); };
  api.send = [](MpiHandle, const void*, int, MpiType, int, int, MpiHandle*) { return nobody(); };
  api.receive = [](MpiHandle, void*, int, MpiType, int, int, MpiHandle*) { return nobody(); };
  api.test = [](MpiHandle* request, bool* finished) {
    *finished = true;
    return done(request);
  };
  api.wait = done;
  api.progress = [](MpiHandle) { return 0; };
  api.share = [](MpiHandle, std::size_t bytes, MpiHandle* window, void** base) {
    *window = *base = std::calloc(bytes, 1);
    return *base == nullptr ? 1 : 0;
  };
  api.unshare = [](MpiHandle window) { std::free(window); };
  return api;
}

}  // namespace

const MpiApi& alone() {
  static const MpiApi api = table();
  return api;
}

}  // namespace stepcast::runtime
