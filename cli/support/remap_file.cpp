#include "cli/support/remap_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "cli/support/output_files.h"
#include "core/access/row_order.h"
#include "core/error.h"
#include "core/input/archive.h"
#include "workloads/embedding_plan/plan.h"

namespace stepcast::cli {
namespace {

static_assert(std::endian::native == std::endian::little,
              "arrays are written as they lie in memory");

/// NumPy's format 1.0: magic, version, length of the header, a Python literal padded to 64 bytes,
/// then the numbers. https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
std::string npy(const std::vector<std::int64_t>& values) {
  std::string header =
      fmt::format("{{'descr': '<i8', 'fortran_order': False, 'shape': ({},), }}", values.size());
  constexpr std::size_t kBefore = 10;
  constexpr std::size_t kAligned = 64;
  header.append(kAligned - (kBefore + header.size() + 1) % kAligned, ' ');
  header += '\n';
  std::string text = "\x93NUMPY";
  text += '\x01';
  text += '\0';
  text += static_cast<char>(header.size() & 0xff);
  text += static_cast<char>(header.size() >> 8);
  text += header;
  const std::size_t begin = text.size();
  text.resize(begin + values.size() * sizeof(std::int64_t));
  std::memcpy(text.data() + begin, values.data(), values.size() * sizeof(std::int64_t));
  return text;
}

/// Writes as numpy.savez does.
std::string npz(const std::vector<RowRemap>& remaps) {
  std::vector<std::pair<std::string, std::string>> arrays;
  for (const RowRemap& r : remaps) {
    arrays.emplace_back(r.table + ".npy", npy(r.row_of_id));
  }
  return zipped(arrays);
}

}  // namespace

std::vector<RowRemap> row_remaps(const Job& job, const EmbeddingPlan& plan) {
  std::vector<RowRemap> remaps;
  const auto& tables = job.workload.layered()->tables;
  for (const PlanTable& planned : plan.tables) {
    const auto table = std::find_if(tables.begin(), tables.end(), [&](const EmbeddingTable& t) {
      return t.name == planned.name;
    });
    if (!planned.frequency_order || table == tables.end()) {
      continue;
    }
    PlanTable named = planned;
    if (named.order == nullptr) {
      workloads::name_hot_rows(*table, named);
    }
    if (named.order == nullptr) {
      throw InputError(
          "--remap-out",
          fmt::format("nothing says which rows of table '{}' are hot: a histogram has "
                      "no ids; give recorded ones ({{\"indices\": FILE}}), or --no-row-replication",
                      planned.name));
    }
    RowRemap remap{planned.name, std::vector<std::int64_t>(static_cast<std::size_t>(table->rows))};
    for (std::int64_t row = 0; row < table->rows; ++row) {
      remap.row_of_id[static_cast<std::size_t>(named.order->row_at(row))] = row;
    }
    remaps.push_back(std::move(remap));
  }
  if (remaps.empty()) {
    throw InputError("--remap-out",
                     "no table of the plan has its rows in order of popularity, so that nothing is "
                     "to be remapped; leave it out");
  }
  return remaps;
}

void expect_remap_file(const std::filesystem::path& file, std::size_t tables) {
  if (file.extension() != ".npy" && file.extension() != ".npz") {
    throw InputError("--remap-out",
                     fmt::format("found {}, expected FILE.npy or FILE.npz", file.string()));
  }
  if (file.extension() == ".npy" && tables > 1) {
    throw InputError("--remap-out",
                     fmt::format("{} holds one array, and {} tables have their rows in order of "
                                 "popularity; write {}.npz",
                                 file.string(), tables, file.stem().string()));
  }
}

void write_remaps(const std::filesystem::path& file, const std::vector<RowRemap>& remaps) {
  if (file.extension() == ".npy") {
    write_output(file, npy(remaps.front().row_of_id));
  } else {
    write_output(file, npz(remaps));
  }
}

}  // namespace stepcast::cli
