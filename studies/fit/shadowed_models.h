#pragma once
#include <string>
#include <vector>

#include "core/system.h"

namespace stepcast::studies {

/// A base model that is more specific than a fitted one would answer in its place: of `keys` (most
/// specific first) those before the first that was fitted are taken out of `base`. Where none was
/// fitted the base stays.
inline void forget_shadowing(FittedModels& base, const FittedModels& fitted,
                             const std::vector<std::string>& keys) {
  for (std::size_t first = 0; first < keys.size(); ++first) {
    if (fitted.contains(keys[first])) {
      for (std::size_t k = 0; k < first; ++k) {
        base.erase(keys[k]);
      }
      return;
    }
  }
}

}  // namespace stepcast::studies
