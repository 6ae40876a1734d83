#include "workloads/passes/hide_exchanges.h"

#include <optional>
#include <string>
#include <vector>

#include "workloads/passes/program_editor.h"

namespace stepcast::workloads {
namespace {

/// The exchanges of tokens of a pass; those of what is computed again are not among them.
std::vector<AsyncHandle> exchanges_of(const Segment& s, const Program& p,
                                      const DependencyInfo& order) {
  std::vector<AsyncHandle> exchanges;
  for (std::size_t i = s.first_op; i < std::size_t{s.first_op} + s.op_count; ++i) {
    const DependencyInfo::OfOp& of = order.ops[i];
    if (of.transfers && of.channel == Channel::kExpert && p.ops[i].phase != Phase::kRecompute) {
      exchanges.push_back(of.transfer);
    }
  }
  return exchanges;
}

void hide(Program& program, DependencyInfo& order) {
  ProgramEditor edit(program, order, ProgramEditor::Tables::kSaved);
  for (const Segment& s : edit.program().segments) {
    edit.begin_segment(s, s.name, s.microbatches);
    const std::vector<AsyncHandle> exchanges = exchanges_of(s, edit.program(), edit.order());
    if (!exchanges.empty()) {
      edit.await_in_next_call(exchanges);
    }
    edit.end_segment();
  }
  for (const Call& call : edit.program().calls) {
    edit.writer().builder().call(call.segment, call.microbatch);
  }
  edit.finish(program, order);
}

void run_hide(GraphUnderConstruction& draft, const Job&) {
  for (std::size_t i = 0; i < draft.orders.size(); ++i) {
    hide(draft.graph.programs[i], draft.orders[i]);
  }
}

}  // namespace

GraphPass hide_exchanges_pass() {
  return {
      "hide_exchanges", "exchanges of experts' tokens overlap with another micro-batch",
      [](const Job& job) { return job.parallel.overlap.expert_batch && job.parallel.expert > 1; },
      run_hide,
      [](const GraphUnderConstruction&) -> std::optional<std::string> { return std::nullopt; }};
}

}  // namespace stepcast::workloads
