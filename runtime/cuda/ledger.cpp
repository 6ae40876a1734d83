#include "runtime/cuda/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace stepcast::runtime::cuda {
namespace {

std::string gigabytes(double bytes) { return fmt::format("{:.3f} GB", bytes * 1e-9); }

}  // namespace

Bytes Ledger::total() const {
  double sum = 0;
  for (const auto& [what, bytes] : entries_) {
    sum += bytes;
  }
  return Bytes(sum);
}

std::string Ledger::text() const {
  std::vector<std::pair<std::string, double>> rows(entries_.begin(), entries_.end());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [what, bytes] : rows) {
    if (bytes > 0) {
      text += fmt::format("  {:<24} {:>14}\n", what, gigabytes(bytes));
    }
  }
  return text + fmt::format("  {:<24} {:>14}", "together", gigabytes(total().base()));
}

std::string out_of_memory(const Ledger& ledger, const std::string& what, std::size_t wanted,
                          std::size_t free, std::size_t capacity) {
  return fmt::format(
      "out of device memory: {} needs {}, {} of {} are free; this rank has taken\n{}\nuse fewer "
      "rows, a smaller micro-batch, recomputation, ZeRO or more ranks",
      what, gigabytes(static_cast<double>(wanted)), gigabytes(static_cast<double>(free)),
      gigabytes(static_cast<double>(capacity)), ledger.text());
}

}  // namespace stepcast::runtime::cuda
