#include "cli/support/remap_file.h"

#include "core/error.h"

namespace stepcast::cli {
namespace {

[[noreturn]] void reject() {
  throw InputError("--remap-out", "the page writes no files of NumPy; use the executable");
}

}  // namespace

std::vector<RowRemap> row_remaps(const Job& /*job*/, const EmbeddingPlan& /*plan*/) { reject(); }
void expect_remap_file(const std::filesystem::path& /*file*/, std::size_t /*tables*/) { reject(); }
void write_remaps(const std::filesystem::path& /*file*/, const std::vector<RowRemap>& /*remaps*/) {
  reject();
}

}  // namespace stepcast::cli
