#pragma once
// Jobs of the library, made of settings as `--set` takes them.
#include "core/config/config.h"
#include "tests/words.h"

namespace stepcast::fixtures {

inline const config::Library kLibrary{STEPCAST_SOURCE_DIR};

inline Job loaded(const Words& settings, const std::string& job = "{}") {
  return config::load_job(config::text_source(job, "test"), settings, kLibrary);
}
inline Job zoo_job(const std::string& workload, const std::string& system, const Words& more = {}) {
  return loaded(Words{"workload=" + workload, "system=" + system} + more);
}

}  // namespace stepcast::fixtures
