#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan_request.h"

/// JSON to and from jobs, workloads, devices, systems and embedding plans, as CONTRACT sections 3
/// and 5 define them: the one place in the toolkit that parses configuration. Strict: unknown or
/// duplicate keys, missing units, wrong types and numbers out of range are InputErrors that name
/// file, JSON path, the value found, what was expected and the nearest valid name. Comments are
/// allowed.
///
///   const Library library{data_root};
///   const Source source = text_source(R"({"workload": "gpt3-175b"})", "stdin");
///   Job job = load_job(source, {"system=dgx-a100-80gb", "parallel.tensor=8"}, library);
///   std::string resolved = job_to_json(job);   // loads back to an equal job
namespace stepcast::config {

struct ForeignFormat;  // core/config/foreign.h
class Catalogue;       // core/config/catalogue.h

/// Place of the built-in data: `root`/workloads/zoo, `root`/models/devices,
/// `root`/models/systems; which files of other tools may stand where ours do; and what keeps the
/// files that were read.
struct Library {
  std::filesystem::path root;
  const std::vector<ForeignFormat>* foreign = nullptr;  ///< null: none
  Catalogue* catalogue = nullptr;                       ///< null: each is read when it is asked for
};

/// A JSON text, the name errors give it, and the folder that files named inside it are relative to.
struct Source {
  std::string label;
  std::string text;
  std::filesystem::path folder;
};
/// Errors: InputError when the file cannot be read (with the nearest file name of its folder).
Source file_source(const std::filesystem::path& file);
/// For standard input and for text made by programs. An empty text is an empty object.
Source text_source(std::string text, std::string label, std::filesystem::path folder = ".");

/// A fully resolved, checked job. `overrides` are `key=value` as given to `--set`, applied in
/// order: the key is the dotted path that errors print ("parallel.tensor",
/// "workload.tables[3].rows", "system.device.memory"), the value is JSON, else a string. Objects on
/// the way are created; a workload, system or device given by name is opened. Paths in overrides
/// are relative to the current folder.
Job load_job(const Source& source, const std::vector<std::string>& overrides,
             const Library& library);

/// By zoo name, or by path when the text has a '/' or ends in ".json".
Workload load_workload(std::string_view name_or_path, const Library& library);
Device load_device(std::string_view name_or_path, const Library& library);
System load_system(std::string_view name_or_path, const Library& library);
/// From text. A plan is checked on its own (ranges, ranks, overlaps); load_job checks it against
/// the tables.
Workload read_workload(const Source& source);
Device read_device(const Source& source);
System read_system(const Source& source, const Library& library);
EmbeddingPlan read_plan(const Source& source);
/// The plan file that `--from` names, ours or of another system, whether or not it is for the
/// tables and devices of the job: planner/embedding/adapt_plan.h carries it over.
EmbeddingPlan load_plan(const std::filesystem::path& file, const Job& job, const Library& library);

/// JSON text; every value explicit, workload, system and device inline, amounts with units.
/// `indent` < 0 gives one line. Files of access distributions are written as absolute paths.
std::string job_to_json(const Job& job, int indent = 2);
std::string workload_to_json(const Workload& workload, int indent = 2);
std::string device_to_json(const Device& device, int indent = 2);
/// With its device inline, fitted constants included: what `stepcast calibrate` writes; or naming
/// it, as the built-in files do.
enum class DeviceAs { kInline, kName };
std::string system_to_json(const System& system, int indent = 2,
                           DeviceAs device = DeviceAs::kInline);
std::string plan_to_json(const EmbeddingPlan& plan, int indent = 2);

/// One key in which two jobs differ, by the dotted path that `--set` takes; values are JSON texts.
struct Difference {
  std::string key, before, after;
};
/// Settings that turn job `a` into job `b` when set in this order. Objects with the same keys are
/// compared key by key; a workload or system of another name is one difference. The data degree is
/// left out: it follows from the device count and the other degrees.
std::vector<Difference> differences(const Job& a, const Job& b);

/// A built-in file: its name and one line of facts ("transformer, 96 layers, hidden 12288, 174.6 B
/// parameters").
struct Entry {
  std::string name;
  std::string facts;
};
std::vector<Entry> list_workloads(const Library& library);
std::vector<Entry> list_systems(const Library& library);
std::vector<Entry> list_devices(const Library& library);

/// Trainable parameters: embedding tables or token embeddings, positions, projections, norms,
/// biases.
double parameter_count(const Workload& workload);

}  // namespace stepcast::config
