#include "runtime/issue_order.h"

namespace stepcast::runtime {

IssueOrder issue_order(const Program& program) {
  IssueOrder order;
  std::vector<std::uint32_t> recorded(static_cast<std::size_t>(program.events), 0);
  order.issues.reserve(program.executed_ops());
  for (std::uint32_t c = 0; c < program.calls.size(); ++c) {
    const Call& call = program.calls[c];
    const Segment& segment = program.segments[call.segment];
    for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      const Op& op = program.ops[o];
      Issue issue{
          &op, {c, o}, call.microbatch, static_cast<std::uint32_t>(order.wait_targets.size()), 0};
      for (const std::int32_t event : program.waits_of(op)) {
        order.wait_targets.push_back(recorded.at(static_cast<std::size_t>(event)));
      }
      if (op.record >= 0) {
        issue.generation = ++recorded.at(static_cast<std::size_t>(op.record));
      }
      order.pipelined = order.pipelined || (op.flags & op_flags::kNextBatch) != 0;
      order.issues.push_back(issue);
    }
  }
  return order;
}

}  // namespace stepcast::runtime
