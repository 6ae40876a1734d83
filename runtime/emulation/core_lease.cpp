#include "runtime/emulation/core_lease.h"

#include "runtime/futex.h"

namespace stepcast::runtime {

std::int64_t CoreLease::acquire() {
  const std::uint32_t ticket = token_.next_ticket.fetch_add(1);
  std::uint32_t serving = token_.serving.load();
  if (serving == ticket) {
    return 0;
  }
  const std::int64_t begin = steady_ns();
  while ((serving = token_.serving.load()) != ticket) {
    futex_wait(token_.serving, serving, true);
  }
  return steady_ns() - begin;
}

void CoreLease::release() {
  const std::uint32_t serving = token_.serving.fetch_add(1) + 1;
  if (token_.next_ticket.load() != serving) {
    futex_wake_all(token_.serving, true);
  }
}

}  // namespace stepcast::runtime
