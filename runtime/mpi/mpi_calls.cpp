#include "runtime/mpi/mpi_calls.h"

#include <mpi.h>

#include <array>

#include "core/error.h"

namespace stepcast::runtime {

void check_mpi(int code, const char* call, std::string_view communicator) {
  if (code == MPI_SUCCESS) {
    return;
  }
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw RunError(fmt::format("{} on '{}' failed: {}", call, communicator,
                             std::string_view(text.data(), static_cast<std::size_t>(length))));
}

}  // namespace stepcast::runtime
