#include "cli/print_details.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/human.h"
#include "cli/text_table.h"

namespace stepcast::cli {
namespace {

using studies::OpRow;
using studies::StepPrediction;

void print_split(std::int32_t rank, const studies::TimeSplit& split, Seconds step,
                 std::ostream& out) {
  TextTable table({fmt::format("where the step goes (rank {})", rank), "time", "share"});
  const auto row = [&](const char* name, Seconds t) {
    table.row({name, human(t), percent(t / step)});
  };
  row("compute", split.compute);
  row("exposed communication", split.exposed_communication);
  row("bubble", split.bubble);
  row("host", split.host);
  row("other", split.other);
  table.print(out);
}

/// What the host's models take for granted, in the unit in which a reader knows their own stack.
void print_issued(const std::vector<OpRow>& rows, Seconds step, std::ostream& out) {
  std::int64_t ops = 0;
  for (const OpRow& r : rows) {
    ops += r.executions;
  }
  if (ops > 0) {
    out << fmt::format(
        "the host issues {} ops: a stack that takes more than {} for each sets the pace itself\n",
        ops, human(step / static_cast<double>(ops)));
  }
}

std::string outside_note(const OpRow& r) {
  const std::string share = percent(r.outside / r.time);
  return r.outside < r.time ? fmt::format(" ({} of it outside calibrated range)", share)
                            : " (outside calibrated range)";
}

void print_ops(const std::vector<OpRow>& rows, std::ostream& out) {
  TextTable table({"op kind", "count", "time", "wait", "bound by", "model"});
  table.left(4);
  table.left(5);
  constexpr std::size_t kShown = 12;
  for (std::size_t i = 0; i < std::min(rows.size(), kShown); ++i) {
    const OpRow& r = rows[i];
    table.row({r.name, std::to_string(r.executions), human(r.time),
               r.wait > Seconds{} ? human(r.wait) : "", r.bound,
               r.model + (r.in_range ? "" : outside_note(r))});
  }
  table.print(out);
  if (rows.size() > kShown) {
    Seconds rest;
    for (std::size_t i = kShown; i < rows.size(); ++i) {
      rest += rows[i].time + rows[i].wait;
    }
    out << fmt::format("... and {} more kinds, {}; --format json names every op\n",
                       rows.size() - kShown, human(rest));
  }
}

void print_memory(const StepPrediction& p, std::ostream& out) {
  TextTable table(
      {"memory of the fullest device (rank " + std::to_string(p.fullest_rank) + ")", "size"});
  const auto row = [&](std::string_view name, Bytes b) {
    if (b > Bytes{}) {
      table.row({std::string(name), human(b)});
    }
  };
  for (const auto& [name, bytes] : p.ledger.lines()) {
    row(name, bytes);
  }
  table.row({"total", human(p.memory.total() + p.reserve)});
  table.row({"capacity", human(p.capacity)});
  table.print(out);
}

}  // namespace

void print_details(const StepPrediction& p, std::ostream& out) {
  out << '\n';
  print_split(p.critical_rank, p.split, p.iteration, out);
  print_issued(p.by_kind, p.iteration, out);
  out << '\n';
  if (p.pace) {
    out << fmt::format(
        "ops below are at the hardware's pace; the step takes {:.3f} times as long\n",
        p.iteration / p.hardware);
  }
  print_ops(p.by_kind, out);
  if (p.busiest) {
    out << fmt::format("\nrank {} ends last but waits; rank {} waits least:\n\n", p.critical_rank,
                       p.busiest->rank);
    print_split(p.busiest->rank, p.busiest->split, p.iteration, out);
    out << '\n';
    print_ops(p.busiest->by_kind, out);
  }
  out << '\n';
  print_memory(p, out);
  if (!p.out_of_range.empty()) {
    out << '\n' << p.out_of_range << '\n';
  }
}

}  // namespace stepcast::cli
