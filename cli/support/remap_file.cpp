#include "cli/support/remap_file.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "cli/support/output_files.h"
#include "core/error.h"
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

la_ssize_t append(archive* /*of*/, void* to, const void* bytes, std::size_t count) {
  static_cast<std::string*>(to)->append(static_cast<const char*>(bytes), count);
  return static_cast<la_ssize_t>(count);
}

/// A zip archive of arrays, not compressed, as numpy.savez writes it.
std::string npz(const std::vector<RowRemap>& remaps) {
  std::string text;
  const std::unique_ptr<archive, int (*)(archive*)> zip(archive_write_new(), archive_write_free);
  const auto check = [&](int result) {
    STEPCAST_CHECK(
        result == ARCHIVE_OK, "libarchive: {}",
        archive_error_string(zip.get()) != nullptr ? archive_error_string(zip.get()) : "");
  };
  check(archive_write_set_format_zip(zip.get()));
  check(archive_write_zip_set_compression_store(zip.get()));
  check(archive_write_set_bytes_in_last_block(zip.get(), 1));
  check(archive_write_open(zip.get(), &text, nullptr, append, nullptr));
  for (const RowRemap& r : remaps) {
    const std::string array = npy(r.row_of_id);
    const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(),
                                                                         archive_entry_free);
    archive_entry_set_pathname(entry.get(), (r.table + ".npy").c_str());
    archive_entry_set_size(entry.get(), static_cast<la_int64_t>(array.size()));
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), 0644);
    check(archive_write_header(zip.get(), entry.get()));
    STEPCAST_CHECK(archive_write_data(zip.get(), array.data(), array.size()) ==
                       static_cast<la_ssize_t>(array.size()),
                   "libarchive wrote less than the {} bytes of {}", array.size(), r.table);
  }
  check(archive_write_close(zip.get()));
  return text;
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
                      "no ids; give recorded ones ({{\"indices\": FILE}}), or --no-tiers",
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
