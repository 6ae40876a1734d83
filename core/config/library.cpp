#include <algorithm>

#include "core/config/aliases.h"
#include "core/config/internal/loaders.h"
#include "core/device_names.h"
#include "core/job/layers.h"
#include "core/job/parameter_count.h"

namespace stepcast::config {
namespace {

std::string_view noun(FileKind kind) {
  switch (kind) {
    case FileKind::kWorkload:
      return "workload";
    case FileKind::kDevice:
      return "device";
    case FileKind::kSystem:
      return "system";
  }
  return "file";
}

Source read_source(const std::filesystem::path& file, const std::string& where) {
  return {file.string(), read_whole_file(file, where, kLargestJson), file.parent_path()};
}
Document read_document(const std::filesystem::path& file, const std::string& where) {
  return parse_document(read_source(file, where));
}

Document open_top(std::string_view name, FileKind kind, const Library& library) {
  return open_named(std::string(name), kind, ".", std::string(noun(kind)), library);
}

std::string transformer_facts(const Workload& w, const TransformerWorkload& t) {
  std::string experts;
  if (t.moe) {
    const std::int64_t sequence = w.default_batch ? w.default_batch->sequence : 0;
    experts = fmt::format(", {:.4g} B active ({} of {} experts{})",
                          static_cast<double>(transformer_active_parameters(t, sequence)) / 1e9,
                          t.moe->per_token, t.moe->experts,
                          t.moe->shared > 0 ? fmt::format(" and {} shared", t.moe->shared) : "");
  }
  return fmt::format("transformer, {} layers, hidden {}, {} heads{}, {:.4g} B parameters{}",
                     t.layers, t.hidden, t.heads,
                     t.kv_heads == t.heads ? "" : fmt::format(" ({} kv)", t.kv_heads),
                     parameter_count(w) / 1e9, experts);
}

std::string dlrm_facts(const Workload& w, const LayeredWorkload& d) {
  if (d.layers != nullptr) {
    const LayerList list = layers_of(d);
    return fmt::format("{}, {}{:.4g} B parameters, {:.4g} GFLOP forward per sample",
                       d.layers->kind(),
                       d.tables.empty() ? "" : fmt::format("{} tables, ", d.tables.size()),
                       parameter_count(w) / 1e9, forward_flops(list) / 1e9);
  }
  double lookups = 0;
  for (const EmbeddingTable& t : d.tables) {
    lookups += t.pooling;
  }
  return fmt::format("dlrm, {} tables, {:.4g} lookups per sample, {:.4g} B parameters",
                     d.tables.size(), lookups, parameter_count(w) / 1e9);
}

double dlrm_parameters(const LayeredWorkload& w) {
  auto count = static_cast<double>(stepcast::parameter_count(layers_of(w)));
  for (const EmbeddingTable& t : w.tables) {
    count += static_cast<double>(t.rows) * static_cast<double>(t.dim);
  }
  return count;
}

template <class Facts>
std::vector<Entry> entries(FileKind kind, const Library& library, Facts&& facts) {
  std::vector<Entry> all;
  for (const std::string& name : built_in_names(kind, library)) {
    all.push_back({name, facts(name)});
  }
  return all;
}

}  // namespace

std::filesystem::path built_in_folder(FileKind kind, const Library& library) {
  switch (kind) {
    case FileKind::kWorkload:
      return library.root / "workloads" / "zoo";
    case FileKind::kDevice:
      return library.root / "models" / "devices";
    case FileKind::kSystem:
      return library.root / "models" / "systems";
  }
  return library.root;
}

std::vector<std::string> built_in_names(FileKind kind, const Library& library) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(built_in_folder(kind, library), error), end;
       !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".json") {
      names.push_back(it->path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> built_in_workloads(const Library& library) {
  return built_in_names(FileKind::kWorkload, library);
}
std::vector<std::string> built_in_systems(const Library& library) {
  return built_in_names(FileKind::kSystem, library);
}
std::vector<std::string> built_in_devices(const Library& library) {
  return built_in_names(FileKind::kDevice, library);
}

bool names_file(const std::string& text, FileKind kind) {
  return text.find('/') != std::string::npos || (text.size() > 5 && text.ends_with(".json")) ||
         (kind == FileKind::kWorkload && text.ends_with(".csv"));
}

/// The built-in file that a name stands for by another name; "" where a path or none is.
std::string called(const std::string& text, FileKind kind, const std::filesystem::path& folder,
                   const Library& library) {
  std::error_code ignored;
  if (kind == FileKind::kDevice ||
      (text.find('/') != std::string::npos && std::filesystem::exists(folder / text, ignored))) {
    return {};
  }
  return kind == FileKind::kWorkload ? workload_called(text, library)
                                     : system_called(text, library);
}

Document open_named(const std::string& text, FileKind kind, const std::filesystem::path& folder,
                    const std::string& where, const Library& library) {
  if (const std::string name = called(text, kind, folder, library); !name.empty()) {
    return read_document(built_in_folder(kind, library) / (name + ".json"), where);
  }
  if (names_file(text, kind)) {
    const std::filesystem::path file = (folder / text).lexically_normal();
    if (kind != FileKind::kWorkload) {
      return read_document(file, where);
    }
    OpenedSource opened = open_source(read_source(file, where), Expected::kModel, library);
    const bool told = opened.format != nullptr && opened.format->workload_of != nullptr;
    return told ? opened.format->workload_of(std::move(opened.document))
                : std::move(opened.document);
  }
  const std::vector<std::string> names = built_in_names(kind, library);
  if (names.empty()) {
    throw InputError(
        where,
        fmt::format(
            "found \"{}\", but no built-in {}s lie in {}; give a path or the right data folder",
            text.substr(0, 60), noun(kind), built_in_folder(kind, library).string()));
  }
  if (kind == FileKind::kSystem && text == "local-cpu") {
    throw InputError(where,
                     "found \"local-cpu\", the system of this machine, which has to be measured "
                     "first: `stepcast calibrate --backend cpu --out local-cpu.json`, then give "
                     "the path local-cpu.json");
  }
  if (kind == FileKind::kDevice) {
    const auto device = device_named(text);
    const bool exact = std::find(names.begin(), names.end(), text) != names.end();
    if (exact || device) {
      const std::string name = exact ? text : std::string(device->device);
      return read_document(built_in_folder(kind, library) / (name + ".json"), where);
    }
  }
  if (kind == FileKind::kWorkload && !system_called(text, library).empty()) {
    throw InputError(where, fmt::format("\"{}\" is a system, not a model; name a model and predict "
                                        "it there: `stepcast llama3-8b --on {}`",
                                        text, text));
  }
  if (kind == FileKind::kSystem && !workload_called(text, library).empty()) {
    throw InputError(where, fmt::format("\"{}\" is a model, not a system; predict it on a system: "
                                        "`stepcast {} --on h100`",
                                        text, text));
  }
  throw InputError(where, fmt::format("no {} is called \"{}\"; {}, or give a path ending in .json",
                                      noun(kind), text.substr(0, 60), suggestion(text, names)));
}

Workload load_workload(std::string_view name, const Library& library) {
  const Document d = open_top(name, FileKind::kWorkload, library);
  return workload_from(Value::root_of(d));
}
Device load_device(std::string_view name, const Library& library) {
  const Document d = open_top(name, FileKind::kDevice, library);
  return device_from(Value::root_of(d));
}
System load_system(std::string_view name, const Library& library) {
  const Document d = open_top(name, FileKind::kSystem, library);
  return system_from(Value::root_of(d), library);
}

Workload read_workload(const Source& source) {
  const Document d = parse_document(source);
  return workload_from(Value::root_of(d));
}
Device read_device(const Source& source) {
  const Document d = parse_document(source);
  return device_from(Value::root_of(d));
}
System read_system(const Source& source, const Library& library) {
  const Document d = parse_document(source);
  return system_from(Value::root_of(d), library);
}
EmbeddingPlan read_plan(const Source& source) {
  const Document d = parse_document(source);
  return plan_from(Value::root_of(d));
}

std::vector<Entry> list_workloads(const Library& library) {
  return entries(FileKind::kWorkload, library, [&](const std::string& name) {
    const Workload w = load_workload(name, library);
    return w.transformer() != nullptr ? transformer_facts(w, *w.transformer())
                                      : dlrm_facts(w, *w.layered());
  });
}

namespace {

/// Origin of constants: rows measured on this very hardware, or another's.
std::string calibration_of(const char* what, const FittedModels& fitted) {
  std::size_t measured = 0;
  std::size_t classes = 0;
  std::int64_t rows = 0;
  for (const auto& [name, model] : fitted) {
    if (model.form == "step.spread") {  // of whole steps, by others
      continue;
    }
    ++classes;
    measured += model.samples > 0 ? 1 : 0;
    rows += model.samples;
  }
  if (fitted.empty()) {
    return fmt::format("{} from hardware facts", what);
  }
  if (measured == 0) {
    return fmt::format("{} transferred from other hardware", what);
  }
  return fmt::format("{} measured ({} rows{})", what, rows,
                     measured < classes ? fmt::format("; {} of {} classes transferred",
                                                      classes - measured, classes)
                                        : "");
}

}  // namespace

std::vector<Entry> list_systems(const Library& library) {
  return entries(FileKind::kSystem, library, [&](const std::string& name) {
    const System s = load_system(name, library);
    std::string levels;
    for (const FabricLevel& l : s.fabric) {
      levels += fmt::format(", {} {} x {}", l.name, l.size, quantity_text(l.bandwidth));
    }
    return fmt::format("{} per machine of {}{}; {}", s.host.devices, s.device.name, levels,
                       calibration_of("collectives", s.fitted));
  });
}

std::vector<Entry> list_devices(const Library& library) {
  return entries(FileKind::kDevice, library, [&](const std::string& name) {
    const Device d = load_device(name, library);
    std::string peaks;
    for (const Format f : {Format::kBf16, Format::kFp16, Format::kFp32}) {
      if (const auto peak = d.peak.find(f); peak != d.peak.end()) {
        peaks = fmt::format(", {} {}", quantity_text(peak->second), name_of(f));
        break;
      }
    }
    return fmt::format("{}, {}{}; {}", quantity_text(d.memory), quantity_text(d.bandwidth), peaks,
                       calibration_of("kernels", d.fitted));
  });
}

double parameter_count(const Workload& workload) {
  if (const TransformerWorkload* t = workload.transformer()) {
    const std::int64_t sequence = workload.default_batch ? workload.default_batch->sequence : 0;
    return static_cast<double>(transformer_parameters(*t, sequence));
  }
  return dlrm_parameters(*workload.layered());
}

}  // namespace stepcast::config
