// A program that trains on the fake GPU, for tests of `stepcast profile`.
//
//   fake_training [steps N] [ranges|calls|unmarked] [leave CODE|kill|_exit|fork] [sleep MS] [taken STEP]
//
// `taken`: in this step another tool takes CUPTI's buffers.
#include <dlfcn.h>
#include <nccl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "fake_gpu.h"

extern "C" int cuInit(unsigned flags);
extern "C" __attribute__((weak)) void stepcast_profile_step();

namespace {

void no_launch(const char*, std::uint32_t, std::uint64_t) {}
void no_event(std::uint32_t, std::uint32_t) {}
void nothing() {}
void no_range(const char*) {}
const FakeGpu kNoGpu{no_launch, no_event, no_event, nothing, no_range,
                     nothing,   nullptr,  nullptr,  nullptr,  // it makes no graphs
                     nothing,   nothing};

int number(const char* variable, int otherwise) {
  const char* value = std::getenv(variable);
  return value == nullptr ? otherwise : std::atoi(value);
}

}  // namespace

int main(int argc, char** argv) {
  int steps = 4, leave = 0, pause = 0, taken = -1;
  std::string marks = "ranges", end = "return";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "steps") {
      steps = std::atoi(argv[++i]);
    } else if (word == "leave") {
      leave = std::atoi(argv[++i]);
    } else if (word == "taken") {
      taken = std::atoi(argv[++i]);
    } else if (word == "sleep") {
      pause = std::atoi(argv[++i]);
    } else if (word == "ranges" || word == "calls" || word == "unmarked") {
      marks = word;
    } else {
      end = word;
    }
  }
  cuInit(0);
  void* cupti = dlopen("libcupti.so.13", RTLD_LAZY | RTLD_NOLOAD);
  void* entry = cupti == nullptr ? nullptr : dlsym(cupti, "fake_gpu");
  const FakeGpu& gpu = entry == nullptr ? kNoGpu : *reinterpret_cast<FakeGpuEntry*>(entry)();
  const int rank = number("OMPI_COMM_WORLD_RANK", 0), ranks = number("OMPI_COMM_WORLD_SIZE", 1);

  ncclUniqueId id{};
  std::strcpy(id.internal, "of this run");
  ncclComm_t world = nullptr;
  ncclCommInitRank(&world, ranks, id, rank);
  // Communicators that do not block: this one is there once the other says that it is done.
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t all = nullptr;
  ncclCommSplit(world, 0, rank, &all, &config);
  for (ncclResult_t state = ncclInProgress; state == ncclInProgress;) {
    ncclCommGetAsyncError(world, &state);
  }
  // One that grew out of it, of all ranks: none is left out.
  ncclComm_t grown = nullptr;
  ncclCommShrink(world, nullptr, 0, &grown, nullptr, 0);
  for (int step = 0; step < steps; ++step) {
    if (step == taken) {
      gpu.take_buffers();
    }
    if (marks == "ranges") {
      gpu.push(("step " + std::to_string(step)).c_str());
    } else if (marks == "calls" && stepcast_profile_step != nullptr) {
      stepcast_profile_step();
    }
    for (int layer = 0; layer < 3; ++layer) {
      gpu.launch("_Z4gemmPfS_i", 7, 400);
      gpu.record_event(5, 7);
      gpu.wait_event(5, 20);
      ncclAllReduce(nullptr, nullptr, 1000, ncclFloat32, ncclSum, all, nullptr);
    }
    ncclGroupStart();
    for (int peer = 0; peer < ranks; ++peer) {
      ncclSend(nullptr, static_cast<size_t>(10 + peer), ncclFloat32, peer, all, nullptr);
      ncclRecv(nullptr, static_cast<size_t>(10 + rank), ncclFloat32, peer, all, nullptr);
    }
    ncclGroupEnd();
    ncclGather(nullptr, nullptr, 50, ncclFloat32, 0, grown, nullptr);
    ncclScatter(nullptr, nullptr, 50, ncclFloat32, 0, grown, nullptr);
    gpu.launch("optimizer", 7, 100);
    gpu.synchronize();
    if (marks == "ranges") {
      gpu.pop();
    }
    usleep(static_cast<useconds_t>(pause) * 1000);
  }
  if (end == "kill") {
    raise(SIGKILL);
  } else if (end == "_exit") {
    _exit(leave);
  } else if (end == "fork") {
    const pid_t child = fork();
    if (child == 0) {
      gpu.launch("child", 7, 1);
      std::exit(0);  // its handlers must not write, nor wait for a thread it does not have
    }
    int status = 0;
    waitpid(child, &status, 0);
    leave = WIFEXITED(status) ? WEXITSTATUS(status) : 99;
  }
  ncclCommDestroy(grown);
  ncclCommDestroy(all);
  ncclCommDestroy(world);
  return leave;
}
