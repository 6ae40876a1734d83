#include "core/config/internal/unsupported.h"

#include <algorithm>
#include <array>

namespace stepcast::config {
namespace {

struct Missing {
  std::string_view feature;
  std::string_view what;
  std::string_view instead;
};

/// All that CONTRACT promises and this version lacks. Keep it shrinking.
constexpr std::array<Missing, 0> kMissing{};

const Missing* find(std::string_view feature) {
  const auto it = std::find_if(kMissing.begin(), kMissing.end(),
                               [&](const Missing& m) { return m.feature == feature; });
  return it == kMissing.end() ? nullptr : &*it;
}

}  // namespace

bool is_not_implemented(std::string_view feature) { return find(feature) != nullptr; }

std::string not_implemented_text(std::string_view found, std::string_view feature) {
  const Missing* m = find(feature);
  STEPCAST_CHECK(m != nullptr, "'{}' is not in the table of missing features", feature);
  return fmt::format("found {}: {} not implemented in this version; {}", found, m->what,
                     m->instead);
}

void not_implemented(const Value& value, std::string_view feature) {
  value.refuse(not_implemented_text(shown(value.json()), feature));
}

}  // namespace stepcast::config
