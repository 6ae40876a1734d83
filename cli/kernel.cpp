#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>

#include "cli/command.h"
#include "cli/print/data_table.h"
#include "cli/print/report.h"
#include "cli/support/checks.h"
#include "core/config/suggest.h"
#include "core/error.h"
#include "core/json_text.h"
#include "models/ptx/arguments.h"
#include "models/ptx/estimate.h"

namespace stepcast::cli {
namespace {

namespace ptx = models::ptx;

struct KernelCommand {
  std::string file;
  std::string entry;
  std::vector<std::uint32_t> grid, block;
  std::vector<std::string> arguments;
  std::string device;
  std::size_t shared = 0;
  std::uint64_t blocks = 256;
  OutputFormat format = OutputFormat::kText;
};

/// The entry point named, or one whose name has `wanted` in it and no other has.
std::string entry_of(const ptx::Module& module, const KernelCommand& options) {
  const std::vector<std::string> all = module.entries();
  std::vector<std::string> found;
  for (const std::string& name : all) {
    if (name == options.entry) {
      return name;
    }
    if (name.find(options.entry) != std::string::npos) {
      found.push_back(name);
    }
  }
  if (found.size() != 1) {
    throw InputError("--entry",
                     fmt::format("found '{}', which {} of the {} entry points of {} have in their "
                                 "names; expected exactly one of {}",
                                 options.entry, found.size(), all.size(), options.file,
                                 config::list_of(found.empty() ? all : found, 8)));
  }
  return found.front();
}

std::array<std::uint32_t, 3> sizes(const std::vector<std::uint32_t>& given) {
  std::array<std::uint32_t, 3> all{1, 1, 1};
  std::copy(given.begin(), given.end(), all.begin());
  return all;
}

DataTable counts_table(const ptx::Counts& c, std::uint64_t blocks) {
  Facts t("counts", fmt::format("counts of {} of {} blocks", c.blocks, blocks), 0, "count");
  t.add("instructions", "instructions of warps", c.instructions);
  t.add("branches", "conditional branches", c.branches);
  t.add("divergent_branches", "of which divergent", c.divergent);
  t.add("barriers", "barriers", c.barriers);
  t.add("load_bytes", "global bytes loaded", c.loads.bytes);
  t.add("load_sectors", "sectors loaded", c.loads.sectors);
  t.add("distinct_load_bytes", "different bytes loaded, in sectors", c.loads.distinct);
  t.add("store_bytes", "global bytes stored", c.stores.bytes);
  t.add("store_sectors", "sectors stored", c.stores.sectors);
  t.add("distinct_store_bytes", "different bytes stored, in sectors", c.stores.distinct);
  t.add("atomics", "global atomics", c.atomics);
  t.add("shared_passes", "passes of shared memory", c.shared_passes);
  t.add("shared_conflicts", "of which by bank conflicts", c.shared_conflicts);
  t.add("local_bytes", "local bytes", c.local_bytes);
  t.add("flops", "floating-point operations", c.flops);
  t.add("special_operations", "special functions", c.special);
  t.add("matrix_products", "mma instructions", c.tensor_products);
  t.add("tensor_flops", "their operations", c.tensor_flops);
  return t;
}

DataTable terms_table(const ptx::Estimate& e, const Device& device) {
  DataTable t("time", "least time on " + device.name,
              {{"resource", "", true}, {"amount"}, {"unit", "", true}, {"time_s", "time"}});
  for (const ptx::Term& term : e.terms) {
    t.row({cell(term.name), cell(term.amount), cell(term.unit), cell(term.time)});
  }
  t.row({cell(std::string_view("longest")), empty_cell(), cell(e.terms[e.longest].name),
         cell(e.time)});
  t.note("A lower bound: latencies, the launch and clocks below the peak's are not in it.");
  return t;
}

int kernel(const KernelCommand& options, const Context& context) {
  const ptx::Module module(read_document_text(options.file),
                           std::filesystem::path(options.file).filename());
  const ptx::Kernel kernel = module.kernel(entry_of(module, options));
  const ptx::Arguments arguments(options.arguments, kernel);
  ptx::Launch launch;
  launch.grid = sizes(options.grid);
  launch.block = sizes(options.block);
  launch.dynamic_shared = options.shared;
  launch.parameters = arguments.parameters();
  launch.most_blocks = options.blocks;
  const ptx::Counts counts = run(kernel, launch, arguments);
  const std::uint64_t blocks = std::uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  std::vector<DataTable> tables{counts_table(counts, blocks)};
  if (!options.device.empty()) {
    const Device device = config::load_device(options.device, {context.library});
    tables.push_back(terms_table(estimate(counts, blocks, device, module.target()), device));
  }
  print_tables(tables, options.format, std::cout);
  return 0;
}

}  // namespace

void add_kernel(CLI::App& app, Context& context) {
  auto options = std::make_shared<KernelCommand>();
  CLI::App* command =
      app.add_subcommand("kernel", "What a CUDA kernel's PTX does, and its least time on a device");
  command->add_option("ptx", options->file, "PTX, as `nvcc -ptx` writes it")->required();
  command->add_option("--entry", options->entry,
                      "Its entry point, or a part of the name that no other has");
  command->add_option("--grid", options->grid, "Blocks of the launch: x[,y[,z]]")
      ->required()
      ->delimiter(',')
      ->expected(1, 3)
      ->check(whole_number(1));
  command->add_option("--block", options->block, "Threads of a block: x[,y[,z]]")
      ->required()
      ->delimiter(',')
      ->expected(1, 3)
      ->check(whole_number(1));
  command->add_option("--args", options->arguments,
                      "In the order of the parameters: u32:4096, f32:0.5 ...; mem:BYTES, "
                      "mem:BYTES:f32 or mem:BYTES:u32<N for memory of zeros, numbers or indices");
  command->add_option("--shared", options->shared, "Bytes of dynamic shared memory")
      ->check(whole_number(0));
  command
      ->add_option("--blocks", options->blocks,
                   "Run so many blocks, spread over the grid, and scale (0: all)")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_option("--device", options->device, "Device whose time is bounded");
  add_format_option(*command, options->format);
  command->callback([options, &context] { context.exit_code = kernel(*options, context); });
}

}  // namespace stepcast::cli
