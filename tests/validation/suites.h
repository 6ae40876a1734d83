#pragma once
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "validation/suite.h"

namespace stepcast::validation::testing {

inline const Group& group(const Suite& of, const std::string& name) {
  INFO(name);
  const auto found = std::find_if(of.groups.begin(), of.groups.end(),
                                  [&](const Group& g) { return g.name == name; });
  REQUIRE(found != of.groups.end());
  return *found;
}

/// A further figure by its key.
inline double figure(const std::vector<Figure>& of, const std::string& key) {
  INFO(key);
  const auto found =
      std::find_if(of.begin(), of.end(), [&](const Figure& f) { return f.key == key; });
  REQUIRE(found != of.end());
  return std::get<double>(found->value);
}

}  // namespace stepcast::validation::testing
