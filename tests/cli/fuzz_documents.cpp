// Documents that commands read again, on arbitrary text: pages of a report, and baselines of the
// guard, which must write and load back equal. The only other way out is an InputError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "cli/report/chapters.h"
#include "core/config/baseline.h"
#include "core/error.h"
#include "core/json_text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stepcast;
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    expect_shallow_json(text, "fuzz");
    cli::report::Document document{"fuzz", nlohmann::ordered_json::parse(text, nullptr, false)};
    if (!document.json.is_discarded()) {
      (void)cli::report::chapter_of(document);
    }
  } catch (const InputError&) {
  }
  try {
    const Baseline baseline = config::read_baseline(config::text_source(text, "fuzz"));
    const std::string written = config::baseline_to_json(baseline);
    if (config::baseline_to_json(config::read_baseline(config::text_source(written, "again"))) !=
        written) {
      std::abort();
    }
  } catch (const InputError&) {
  }
  return 0;
}
