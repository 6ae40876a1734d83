#include "traces/chrome/internal/chrome_events.h"

#include <nlohmann/json.hpp>

namespace stepcast::traces::internal {

std::string json_text(std::string_view text) {
  using nlohmann::json;
  return json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace stepcast::traces::internal
