// Host-side gaps around operators, microseconds, per workload and batch size.
#include <fmt/format.h>

#include "models/measured/internal/schema.h"

namespace stepcast::models {
namespace {

void read_gap(const Row& row, TableBuilder& to, MeasuredTable::HostRow::Part part) {
  MeasuredTable::HostRow h;
  h.part = part;
  h.workload = fmt::format("{} {}", row.text("model"), row.count("batch_size"));
  h.mean = 1e-6 * row.positive("mean_us");
  h.deviation = 1e-6 * row.number("std_us");
  h.count = static_cast<double>(row.count("count"));
  to.host(std::move(h));
}

}  // namespace

void read_gap_between_ops(const Row& row, TableBuilder& to) {
  read_gap(row, to, MeasuredTable::HostRow::Part::kBetweenOps);
}
void read_gap_before_launch(const Row& row, TableBuilder& to) {
  read_gap(row, to, MeasuredTable::HostRow::Part::kBeforeLaunch);
}

}  // namespace stepcast::models
