#include <spawn.h>

#include "cli/support/interrupt.h"

/// A page starts no programs: the solver that a baseline asks for is not there.
extern "C" int posix_spawnp(pid_t* /*child*/, const char* /*file*/,
                            const posix_spawn_file_actions_t* /*actions*/,
                            const posix_spawnattr_t* /*attributes*/, char* const* /*arguments*/,
                            char* const* /*environment*/) {
  return ENOSYS;
}

namespace stepcast::cli {

/// A search in a page ends with its worker.
InterruptWatch::InterruptWatch() : watches_(false) {}
InterruptWatch::~InterruptWatch() = default;
bool InterruptWatch::interrupted() { return false; }
std::optional<int> InterruptWatch::code(bool /*found*/) { return std::nullopt; }

}  // namespace stepcast::cli
