#include "core/error.h"

namespace stepcast {

InputError::InputError(std::string_view where, std::string_view what)
    : std::runtime_error(where.empty() ? std::string(what) : fmt::format("{}: {}", where, what)),
      where_(where),
      problem_(what) {}

void fail_check(const char* file, int line, std::string_view condition, std::string_view message) {
  throw InternalError(fmt::format("{}:{}: {}{}{}", file, line, condition,
                                  condition.empty() ? "" : " failed: ", message));
}

}  // namespace stepcast
