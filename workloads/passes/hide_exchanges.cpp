#include "workloads/passes/hide_exchanges.h"

#include <utility>

#include "workloads/passes/program_editor.h"

namespace stepcast::workloads {
namespace {

/// Calls whose pass has one of another micro-batch beside it.
std::vector<bool> paired_calls(const Program& p) {
  std::vector<bool> paired(p.calls.size());
  for (std::size_t i = 0; i + 1 < p.calls.size(); ++i) {
    const Call& forward = p.calls[i];
    const Call& backward = p.calls[i + 1];
    if (p.segments[forward.segment].kind == SegmentKind::kForward &&
        p.segments[backward.segment].kind == SegmentKind::kBackward &&
        forward.microbatch != backward.microbatch) {
      paired[i] = paired[i + 1] = true;
    }
  }
  return paired;
}

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

void hide(Program& program, DependencyInfo& order, bool steady) {
  ProgramEditor edit(program, order, ProgramEditor::Tables::kSaved);
  const Program& was = edit.program();
  const std::vector<bool> paired =
      steady ? std::vector<bool>(was.calls.size(), true) : paired_calls(was);
  struct Written {
    bool called_alone = false;
    std::uint32_t alone = 0, beside = 0;  ///< segments
  };
  std::vector<Written> now(was.segments.size());
  for (std::size_t c = 0; c < was.calls.size(); ++c) {
    Written& segment = now[was.calls[c].segment];
    segment.called_alone = segment.called_alone || !paired[c];
  }
  for (std::size_t i = 0; i < now.size(); ++i) {
    const Segment& s = was.segments[i];
    const std::vector<AsyncHandle> exchanges = exchanges_of(s, was, edit.order());
    if (now[i].called_alone || exchanges.empty()) {
      now[i].alone = now[i].beside = edit.begin_segment(s, s.name, s.microbatches);
      edit.end_segment();
    }
    if (!exchanges.empty()) {
      std::string name = s.name;
      name.insert(name.find('.'), "_beside");
      now[i].beside = edit.begin_segment(s, std::move(name), s.microbatches);
      edit.await_in_next_call(exchanges);
      edit.end_segment();
    }
  }
  for (std::size_t c = 0; c < was.calls.size(); ++c) {
    const Call& call = was.calls[c];
    const Written& segment = now[call.segment];
    edit.writer().builder().call(paired[c] ? segment.beside : segment.alone, call.microbatch);
  }
  edit.finish(program, order);
}

void run_hide(GraphUnderConstruction& draft, const Job&) {
  for (std::size_t i = 0; i < draft.orders.size(); ++i) {
    hide(draft.graph.programs[i], draft.orders[i], draft.steady);
  }
}

}  // namespace

bool pairs_passes(const Job& job) {
  return job.parallel.overlap.expert_batch && job.parallel.expert > 1;
}

GraphPass hide_exchanges_pass() {
  return {"hide_exchanges", "exchanges of experts' tokens run beside another micro-batch",
          pairs_passes, run_hide,
          [](const GraphUnderConstruction&) -> std::optional<std::string> { return std::nullopt; }};
}

}  // namespace stepcast::workloads
