#include "cli/support/launch_ranks.h"

#include "core/error.h"

namespace stepcast {
namespace cli {

/// A page is one rank.
std::unique_ptr<runtime::MpiSession> join_ranks() { return nullptr; }

}  // namespace cli

// Stand-ins for what commands do with a session where there is one.
namespace runtime {

Watchdog::~Watchdog() = default;
RollCall::~RollCall() = default;
MpiSession::~MpiSession() = default;
std::vector<std::string> MpiSession::everyones(const std::string& /*own*/) {
  STEPCAST_FAIL("a page has no other ranks");
}
void MpiSession::abort(const std::exception& error) { throw RunError(error.what()); }

}  // namespace runtime
}  // namespace stepcast
