#include "cli/support/checkpoints.h"

#include <algorithm>

#include "cli/print/human.h"
#include "cli/version.h"
#include "core/config/config.h"
#include "core/config/document.h"
#include "core/error.h"
#include "core/statistics.h"
#include "studies/predict/training_run.h"

namespace stepcast::cli {
namespace {

/// The keys of a job that its numbers follow from.
Json trained_of(const Job& job) {
  const Json all = Json::parse(config::job_to_json(job, -1));
  Json kept = Json::object();
  for (const char* key : {"/workload", "/batch/global", "/batch/sequence", "/optimizer", "/lora"}) {
    const Json::json_pointer at(key);
    if (all.contains(at)) {
      kept[at] = all.at(at);
    }
  }
  return kept;
}

/// Cost that flows predict of the state of CPU ranks, which keep every number in four bytes.
studies::FlowCost predicted_cost(Job job, Seconds step, std::int64_t every) {
  job.formats = {Format::kFp32, Format::kFp32, Format::kFp32, Format::kFp32, Format::kFp32};
  if (LayeredWorkload* model = std::get_if<LayeredWorkload>(&job.workload.model)) {
    for (EmbeddingTable& t : model->tables) {
      t.format.reset();
    }
  }
  std::erase_if(job.flows, [](const Flow& f) { return f.what != Flow::What::kState; });
  if (job.flows.empty()) {
    Flow& flow = job.flows.emplace_back();
    flow.name = "checkpoint";
    flow.every = step * static_cast<double>(every);
    flow.what = Flow::What::kState;
    flow.via = "ddr";
    flow.stall = Flow::Stall::kHostCopy;
  }
  auto& tiers = job.system.tiers;
  if (std::none_of(tiers.begin(), tiers.end(), [](const Tier& t) { return t.name == "ddr"; })) {
    // A rank whose memory is the host's: a copy reads and writes it.
    tiers.push_back({"ddr", {}, job.system.device.bandwidth / 2, 1});
  }
  return studies::flow_costs(job, step).front();
}

}  // namespace

std::string checkpoint_manifest(const Job& job, const RunFacts& facts, std::int64_t step) {
  return Json{{"stepcast_checkpoint", 1}, {"program", kVersionText}, {"step", step},
              {"seed", facts.seed},       {"data", facts.data},      {"job", trained_of(job)}}
             .dump(2) +
         "\n";
}

std::int64_t checkpoint_step(const std::filesystem::path& checkpoint, const Job& job,
                             const RunFacts& facts) {
  const std::string file = checkpoint / runtime::kCheckpointManifest;
  const Json saved = config::parse_json(config::file_source(file).text, file);
  const auto reject = [&](const std::string& what, const Json& there, const Json& here) {
    throw InputError(file, fmt::format("{} was {:.200}, and is {:.200} here; ranks and plan may be "
                                       "others, model, batch, optimizer, seed and data not",
                                       what, there.dump(), here.dump()));
  };
  if (!saved.is_object() || saved.value("stepcast_checkpoint", Json()) != 1 ||
      !saved.value("step", Json()).is_number_unsigned() || !saved.contains("job")) {
    throw InputError(file, "describes no checkpoint of this version");
  }
  const Json now = trained_of(job);
  for (const Json& change : Json::diff(saved["job"], now)) {
    const Json::json_pointer at(change.at("path").get<std::string>());
    const auto value = [&](const Json& in) { return in.contains(at) ? in.at(at) : Json(); };
    std::string name = at.to_string().substr(1);
    std::replace(name.begin(), name.end(), '/', '.');
    reject(name, value(saved["job"]), value(now));
  }
  if (saved.value("seed", Json()) != facts.seed) {
    reject("--seed", saved.value("seed", Json()), facts.seed);
  }
  if (saved.value("data", Json()) != facts.data) {
    reject("--data", saved.value("data", Json()), facts.data);
  }
  return saved["step"];
}

void add_checkpoints(const Job& job, const runtime::RunResult& run, std::int64_t every,
                     Report& report) {
  const runtime::CheckpointUse& use = run.checkpoints;
  if (use.count == 0) {
    return;
  }
  std::vector<double> steps;
  for (const runtime::StepRecord& s : run.steps) {
    steps.push_back(s.time.base());
  }
  std::vector<double> stalls;
  for (const Seconds s : use.stalls) {
    stalls.push_back(s.base());
  }
  const Seconds stall(median_of(stalls));
  const studies::FlowCost predicted = predicted_cost(job, Seconds(median_of(steps)), every);
  report.fact("checkpoints", {{"count", use.count},
                              {"bytes", use.bytes.base()},
                              {"predicted_bytes", predicted.moved.base()},
                              {"stall_s", stall.base()},
                              {"predicted_stall_s", predicted.stall.base()},
                              {"waited_s", use.waited.base()},
                              {"write_s", use.written.base()}});
  report.line(
      fmt::format("{} checkpoints of {} (predicted {}): training waited {} for each to be "
                  "copied (predicted {}), {} in all for writes, which took up to {}",
                  use.count, human(use.bytes), human(predicted.moved), human(stall),
                  human(predicted.stall), human(use.waited), human(use.written)));
}

}  // namespace stepcast::cli
