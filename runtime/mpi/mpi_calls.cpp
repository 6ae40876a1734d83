#include "runtime/mpi/mpi_calls.h"

#include <array>

#include "core/error.h"
#include "runtime/loaded_module.h"

namespace stepcast::runtime {

const MpiApi& loaded_mpi() {
  static const LoadedModule module(
      "libstepcast_mpi.so",
      "several ranks need it and an MPI library: install Open MPI (openmpi-bin, libopenmpi3), or make the "
      "module for another MPI as `stepcast doctor` says");
  const MpiApi* api = module.function<MpiEntry>(kMpiEntry)(kMpiApiVersion);
  if (api == nullptr) {
    throw EnvironmentError(fmt::format(
        "{} was built from other sources than this program; build both together", module.name()));
  }
  return *api;
}

void check_mpi(const MpiApi& mpi, int code, const char* call, std::string_view communicator) {
  if (code == 0) {
    return;
  }
  std::array<char, kMpiTextSize> text{};
  mpi.error_text(code, text.data());
  throw RunError(fmt::format("{} on '{}' failed: {}", call, communicator, text.data()));
}

}  // namespace stepcast::runtime
