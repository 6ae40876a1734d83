#pragma once
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "validation/suite.h"

namespace stepcast::validation::testing {

inline const Group& group(const Suite& of, const std::string& name) {
  INFO(name);
  const auto found = std::find_if(of.groups.begin(), of.groups.end(),
                                  [&](const Group& g) { return g.name == name; });
  REQUIRE(found != of.groups.end());
  return *found;
}

}  // namespace stepcast::validation::testing
