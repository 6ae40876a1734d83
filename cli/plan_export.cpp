#include "cli/plan_export.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/config/foreign_plans.h"
#include "core/error.h"

namespace stepcast::cli {

std::vector<ExportedFile> exported_plan(const std::string& option, const Job& job,
                                        const EmbeddingPlan& plan) {
  if (option.empty()) {
    return {};
  }
  const std::size_t equals = option.find('=');
  const std::string name = option.substr(0, equals);
  const std::string file = equals == std::string::npos ? "" : option.substr(equals + 1);
  const bool torchrec = name == "torchrec";
  if (!torchrec && name != "hugectr") {
    throw InputError("--export", fmt::format("found \"{}\", expected torchrec=FILE or hugectr=FILE "
                                             "for a recommendation model",
                                             option));
  }
  if (file.empty()) {
    throw InputError("--export", fmt::format("found \"{}\", expected {}=FILE", option, name));
  }
  std::filesystem::path script = file;
  script.replace_extension(".py");
  if (script == std::filesystem::path(file)) {
    throw InputError("--export", fmt::format("found \"{}\": the script takes that name; call the "
                                             "plan FILE.json",
                                             file));
  }
  const std::string json_name = std::filesystem::path(file).filename().string();
  return {
      {file, torchrec ? config::plan_to_torchrec(job, plan) : config::plan_to_hugectr(job, plan)},
      {script.string(),
       torchrec ? config::torchrec_loader(json_name) : config::hugectr_loader(json_name)}};
}

}  // namespace stepcast::cli
