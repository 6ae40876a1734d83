#pragma once
#include <string>

#include "core/config/catalogue.h"
#include "core/config/config.h"
#include "core/error.h"
#include "interop/import.h"

namespace stepcast::test {

/// The files of the project, each read once.
inline const config::Library kLibrary = [] {
  static config::Catalogue known;
  config::Library library = interop::library(STEPCAST_SOURCE_DIR);
  library.catalogue = &known;
  return library;
}();

/// Why a text is not imported.
inline std::string message(const std::string& text) {
  try {
    return "accepted: " + interop::import_to_json(config::text_source(text, "config.json"));
  } catch (const InputError& e) {
    return e.what();
  }
}

}  // namespace stepcast::test
