#include <cctype>

#include "traces/events/operators.h"

namespace stepcast::traces {

std::vector<std::string> items_of(std::string_view text) {
  std::vector<std::string> items;
  const std::size_t open = text.find('[');
  if (open == std::string_view::npos) {
    return items;
  }
  std::string item;
  bool quoted = false;
  int depth = 0;
  for (std::size_t i = open + 1; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      quoted = !quoted;
      continue;
    }
    if (!quoted) {
      depth += c == '[' ? 1 : 0;
      if ((c == ',' || c == ']') && depth == 0) {
        if (c == ',' || !items.empty() || !item.empty() || text[i - 1] == '"') {
          items.push_back(std::move(item));
        }
        item.clear();
        if (c == ']') {
          break;
        }
        continue;
      }
      depth -= c == ']' ? 1 : 0;
      if (std::isspace(static_cast<unsigned char>(c)) != 0) {
        continue;
      }
    }
    item += c;
  }
  return items;
}

}  // namespace stepcast::traces
