#include "cli/support/plan_export.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/error.h"
#include "core/whole_file.h"
#include "interop/hugectr/plan.h"
#include "interop/torchrec/plan.h"

namespace stepcast::cli {

namespace {

struct Export {
  bool torchrec = false;
  std::filesystem::path plan, script;
};

/// torchrec=FILE.json or hugectr=FILE.json.
Export export_of(const std::string& option) {
  const std::size_t equals = option.find('=');
  const std::string name = option.substr(0, equals);
  const std::string file = equals == std::string::npos ? "" : option.substr(equals + 1);
  if (name != "torchrec" && name != "hugectr") {
    throw InputError("--export", fmt::format("found \"{}\", expected torchrec=FILE or hugectr=FILE "
                                             "for a recommendation model",
                                             option));
  }
  if (file.empty()) {
    throw InputError("--export", fmt::format("found \"{}\", expected {}=FILE", option, name));
  }
  Export e{name == "torchrec", file, file};
  e.script.replace_extension(".py");
  if (const std::string stem = e.script.stem().string();
      stem == "torch" || stem == "torchrec" || stem == "fbgemm_gpu" || stem == "hugectr") {
    throw InputError("--export",
                     fmt::format("found \"{}\": {}.py next to it would hide the package of "
                                 "that name; call it sharding.json",
                                 file, stem));
  }
  if (e.script == e.plan) {
    throw InputError("--export", fmt::format("found \"{}\": the script takes that name; call the "
                                             "plan FILE.json",
                                             file));
  }
  return e;
}

}  // namespace

void expect_exportable(const std::string& option, const Job& job) {
  if (!option.empty()) {
    const Export e = export_of(option);
    expect_writable(e.plan);
    expect_writable(e.script);
    if (e.torchrec) {
      interop::expect_torchrec_tables(job);
    }
  }
}

std::vector<ExportedFile> exported_plan(const std::string& option, const Job& job,
                                        const EmbeddingPlan& plan) {
  if (option.empty()) {
    return {};
  }
  const Export e = export_of(option);
  const std::string name = e.plan.filename().string();
  return {{e.plan.string(),
           e.torchrec ? interop::plan_to_torchrec(job, plan) : interop::plan_to_hugectr(job, plan)},
          {e.script.string(),
           e.torchrec ? interop::torchrec_loader(name) : interop::hugectr_loader(name)}};
}

}  // namespace stepcast::cli
