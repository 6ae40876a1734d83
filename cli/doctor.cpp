#include "cli/doctor.h"
#include "cli/support/console.h"

#include <fmt/format.h>

#include <functional>

#include "cli/command.h"
#include "cli/print/human.h"
#include "cli/print/report.h"
#include "cli/support/run_command.h"
#include "cli/version.h"
#include "core/config/aliases.h"
#include "core/error.h"
#include "runtime/cpu/kernels/gemm.h"
#include "runtime/cuda/backend.h"
#include "runtime/loaded_module.h"
#include "runtime/mpi/mpi_calls.h"

namespace stepcast::cli {
namespace {

/// Something stepcast works without, and what it gives where it is there.
struct Part {
  std::string name, gives, remedy;
  bool found = false;
  std::string detail;  ///< version or place; of what is missing, why
};

/// `look` returns what it found, or throws saying what is missing.
Part examined(std::string name, std::string gives, std::string remedy,
              const std::function<std::string()>& look) {
  Part part{std::move(name), std::move(gives), std::move(remedy), false, ""};
  try {
    part.detail = look();
    part.found = true;
  } catch (const EnvironmentError& e) {
    part.detail = e.what();
  } catch (const InputError& e) {
    part.detail = e.what();
  }
  return part;
}

std::string data_files(const Context& context) {
  const config::Library library{context.library};
  return fmt::format("{}: {} workloads, {} systems, {} devices", context.library.root.string(),
                     config::built_in_workloads(library).size(),
                     config::built_in_systems(library).size(),
                     config::built_in_devices(library).size());
}

/// A library that other parts load by this name.
std::string loaded(const char* library) {
  return runtime::LoadedModule(library, "not installed").name();
}

std::string module_beside(const Context& context, const char* name) {
  const auto file = runtime::cuda::module_of(context.executable).parent_path() / name;
  return runtime::LoadedModule(file).name();
}

std::string devices(const Context& context) {
  const runtime::cuda::Probe probe =
      runtime::cuda::loaded_module(runtime::cuda::module_of(context.executable)).probe();
  if (probe.devices == 0) {
    throw EnvironmentError(fmt::format("{} ({})", probe.missing, probe.versions));
  }
  return fmt::format("{} ({})", counted(probe.devices, "device"), probe.versions);
}

std::vector<Part> all_parts(const Context& context) {
  const std::string cuda = "a build with -DSTEPCAST_CUDA=ON (docs/how-to/run-on-gpus.md)";
  std::vector<Part> parts;
  parts.push_back(examined("data files", "workloads, systems and devices by name",
                           "install stepcast whole: share/stepcast belongs next to bin",
                           [&] { return data_files(context); }));
  parts.push_back(examined("oneDNN", "run, calibrate and validate on the CPU",
                           "apt-get install libdnnl2", runtime::kernels::products_library));
  parts.push_back(
      examined("MPI", "run --ranks",
               "apt-get install libopenmpi3 openmpi-bin; for another MPI, make the module from "
               "share/stepcast/mpi/module.cpp as its first lines say",
               [] {
                 const std::string library = runtime::loaded_mpi().library;
                 return library.substr(0, library.find_first_of(",\n"));
               }));
  parts.push_back(examined("mpirun", "run --ranks starts its ranks itself",
                           "apt-get install openmpi-bin, or start ranks with srun",
                           [] { return find_program("mpirun"); }));
  parts.push_back(examined("NVIDIA driver", "CUDA devices", "the driver of the machine's GPUs",
                           [] { return loaded("libcuda.so.1"); }));
  parts.push_back(examined("CUDA backend", "run and calibrate on GPUs", cuda,
                           [&] { return devices(context); }));
  parts.push_back(examined("CUPTI module", "profile, and exact op times of run --trace on GPUs",
                           cuda, [&] { return module_beside(context, "libstepcast_cupti.so"); }));
  parts.push_back(examined("CUPTI", "records of kernels",
                           "the CUDA Toolkit 13 or nvidia-cuda-cupti",
                           [] { return loaded("libcupti.so.13"); }));
  parts.push_back(examined("NCCL", "collectives between GPUs", "libnccl2 of NVIDIA's repository",
                           [] { return loaded("libnccl.so.2"); }));
  parts.push_back(examined("cuDNN", "fused attention; without it set attention=unfused",
                           "cuDNN 9.13 or newer", [] { return loaded("libcudnn.so.9"); }));
  return parts;
}

Report report_of(const std::vector<Part>& parts, OutputFormat format) {
  Report report(format);
  report.line(version_report());
  report.fact("build", {{"compiler", kCompiler},
                        {"type", kBuildType},
                        {"libraries", kLinked},
                        {"modules", kBuiltModules}});
  report.add(table_of(
      "parts", "",
      Columns<Part>{{"name", "part", &Part::name},
                    {"found", "state",
                     [](auto& p) {
                       return Cell{p.found ? "found" : "missing", p.found};
                     },
                     kLeft},
                    {"detail", "found",
                     [](auto& p) {
                       return Cell{p.found ? p.detail : "", p.detail};
                     },
                     kLeft},
                    {"gives", "", &Part::gives, kInJson | kInCsv},
                    {"fix", "", [](auto& p) { return p.found ? "" : p.remedy; }, kInJson | kInCsv}},
      parts));
  for (const Part& p : parts) {
    if (!p.found) {
      report.line(fmt::format("\n{}: not found ({}); needed for {}\n  fix: {}", p.name, p.detail,
                              p.gives, p.remedy));
    }
  }
  return report;
}

}  // namespace

std::string version_report() {
  return fmt::format("{}\ndata       {}\ncompiler   {}, {}\nlibraries  {}\nmodules    {}\n",
                     kVersionText, kDataVersion, kCompiler, kBuildType, kLinked, kBuiltModules);
}

void add_doctor(CLI::App& app, Context& context) {
  auto format = std::make_shared<OutputFormat>(OutputFormat::kText);
  CLI::App* command =
      app.add_subcommand("doctor", "Show installed and missing parts, and how to get them");
  add_format_option(*command, *format);
  command->callback([format, &context] { report_of(all_parts(context), *format).print(answer()); });
}

}  // namespace stepcast::cli
