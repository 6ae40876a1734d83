// Every loader on arbitrary text: the only way out is a struct or an InputError. What loads must
// also write and load back equal.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/config/config.h"
#include "core/error.h"
#include "interop/import.h"

namespace config = stepcast::config;

namespace {

const config::Library kLibrary = stepcast::interop::library(STEPCAST_SOURCE_DIR);

void expect(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void job(const std::string& text, const std::vector<std::string>& overrides) {
  const stepcast::Job loaded =
      config::load_job(config::text_source(text, "fuzz"), overrides, kLibrary);
  const std::string written = config::job_to_json(loaded);
  const stepcast::Job again = config::load_job(config::text_source(written, "again"), {}, kLibrary);
  expect(config::job_to_json(again) == written);
}

void system(const std::string& text) {
  const stepcast::System loaded = config::read_system(config::text_source(text, "fuzz"), kLibrary);
  const std::string written = config::system_to_json(loaded);
  expect(config::system_to_json(
             config::read_system(config::text_source(written, "again"), kLibrary)) == written);
}

void plan(const std::string& text) {
  const stepcast::EmbeddingPlan loaded = config::read_plan(config::text_source(text, "fuzz"));
  const std::string written = config::plan_to_json(loaded);
  expect(config::plan_to_json(config::read_plan(config::text_source(written, "again"))) == written);
}

void one(std::uint8_t kind, const std::string& text) {
  switch (kind % 5) {
    case 0:
      return job(text, {});
    case 1: {  // lines of overrides
      std::vector<std::string> overrides;
      for (std::size_t from = 0; from < text.size() && overrides.size() < 16;) {
        const std::size_t end = std::min(text.find('\n', from), text.size());
        overrides.push_back(text.substr(from, end - from));
        from = end + 1;
      }
      return job(R"({"workload": "rm1", "system": "dgx-h100"})", overrides);
    }
    case 2:
      return system(text);
    case 3:
      return plan(text);
    default:
      (void)config::read_workload(config::text_source(text, "fuzz"));
      (void)config::read_device(config::text_source(text, "fuzz"));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  try {
    one(data[0], std::string(reinterpret_cast<const char*>(data + 1), size - 1));
  } catch (const stepcast::InputError& e) {
    expect(std::string(e.what()).size() < 4000);
  }
  return 0;
}
