#include "studies/traces/shaped_work.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

#include "core/graph/op_codes.h"
#include "studies/fit/error_statistics.h"
#include "studies/internal/whole_steps.h"
#include "studies/traces/step_times.h"

namespace stepcast::studies {
namespace {

void longest_first(std::vector<Unexplained>& list) {
  std::stable_sort(list.begin(), list.end(), [](const Unexplained& a, const Unexplained& b) {
    return a.seconds > b.seconds;
  });
}

double in_seconds(std::int64_t ticks) { return static_cast<double>(ticks) * 1e-12; }

class Gathering {
 public:
  Gathering(const traces::MeasuredRun& run, const System& system) : run_(run), system_(system) {}

  ShapedWork gather() {
    for (const traces::MeasuredStep& step : run_.steps) {
      for (std::size_t r = 0; r < step.ranks.size(); ++r) {
        add_rank(step, r);
      }
      close_meetings();
    }
    work_.program.names = {"recorded"};
    unexplained_.move_to(work_.unexplained);
    longest_first(work_.unexplained);
    return std::move(work_);
  }

 private:
  void add_rank(const traces::MeasuredStep& step, std::size_t r) {
    const traces::MeasuredRank& rank = step.ranks[r];
    const auto id = static_cast<std::int32_t>(r);
    const Program& program = step.graph->program_of(id);
    std::map<std::int32_t, double> calls;  // by the first op of an operator's call
    std::map<std::int32_t, std::size_t> met;
    for (const OpSpan& span : rank.spans) {
      const Op& op = program.ops[span.ref.op];
      const double time = in_seconds(std::max<std::int64_t>(0, rank.duration[span.ref.op]));
      const std::int32_t part = rank.part_of.empty() ? -1 : rank.part_of[span.ref.op];
      work_.seconds += time;
      if (part >= 0) {
        calls[part] += time;
      } else if (is_collective(op.kind)) {
        meet(*step.graph, program, op, span, id, met[op.communicator]++, time);
      } else {
        const std::int32_t told = rank.unshaped_of.empty() ? -1 : rank.unshaped_of[span.ref.op];
        reject("no op kind, or no shape recorded",
               told >= 0 ? rank.unshaped[static_cast<std::size_t>(told)].name : program.name(op),
               time);
      }
    }
    for (const auto& [part, time] : calls) {
      add_kernel(program, program.ops[static_cast<std::size_t>(part)], time);
    }
  }

  /// Kernels are named without what their templates were made for.
  void reject(const char* reason, std::string name, double time) {
    name.resize(std::min(name.size(), name.find_first_of("<(", 1)));
    unexplained_.add(reason, name, 1, time);
  }

  void add_kernel(const Program& program, const Op& op, double time) {
    if (time <= 0) {
      reject("shorter than the clock's tick", program.name(op), 0);
      return;
    }
    std::int64_t rows = 0;
    const EmbeddingGroup* group = program.group_of(op);
    if (group != nullptr) {
      rows = group->shards.front().rows;
    }
    const OpCodes codes = codes_of(op);
    const Key key{op.kind,
                  op.format,
                  op.flags & ~op_flags::kHostWaits,
                  codes.variant,
                  codes.sizes,
                  rows,
                  op.bytes_read.base(),
                  op.bytes_written.base()};
    const auto [at, fresh] = distinct_.try_emplace(key, work_.kernels.size());
    if (fresh) {
      Op own = op;
      own.flags &= static_cast<std::uint8_t>(~op_flags::kHostWaits);
      own.communicator = own.record = -1;
      own.name = own.first_operand = own.first_wait = own.waits = 0;
      own.inputs = own.outputs = 0;
      own.stream = 0;
      if (auto* lookup = std::get_if<EmbeddingAttributes>(&own.attributes)) {
        lookup->group = rows > 0 ? static_cast<std::int32_t>(work_.program.embeddings.size()) : -1;
      }
      if (rows > 0) {
        work_.program.embeddings.push_back(*group);
      }
      work_.kernels.push_back({static_cast<std::uint32_t>(work_.program.ops.size()), {}});
      work_.program.ops.push_back(own);
    }
    work_.kernels[at->second].seconds.push_back(time);
  }

  void meet(const ExecutionGraph& graph, const Program& program, const Op& op, const OpSpan& span,
            std::int32_t rank, std::size_t number, double time) {
    if (op.communicator < 0) {
      reject("not all members in the trace: wait and transfer cannot be separated",
             program.name(op), time);
      return;
    }
    if (op.shape[0] <= 0 && op.kind != OpKind::kBarrier) {
      reject("collective of unknown size", program.name(op), time);
      return;
    }
    const auto members = graph.members(op.communicator, rank);
    Meeting& m = meetings_[{op.communicator, number}];
    if (m.members == 0) {
      m.transfer.op = op;
      m.transfer.op.kind = op.kind == OpKind::kAllToAllV ? OpKind::kAllToAll : op.kind;
      m.transfer.group = group_shape(system_, members);
      m.transfer.seconds = time;
    }
    ++m.members;
    m.transfer.seconds = std::min(m.transfer.seconds, time);
    m.transfer.wait += in_seconds(ticks(span.ready) - ticks(span.begin));
    m.transfer.bytes += format_bytes(op.format, 1, op.shape[0]).base();
  }

  void close_meetings() {
    for (auto& [key, m] : meetings_) {
      m.transfer.wait /= m.members;
      m.transfer.bytes /= m.members;
      work_.transfers.push_back(m.transfer);
    }
    meetings_.clear();
  }

  using Key = std::tuple<OpKind, Format, int, std::uint8_t, std::array<std::int64_t, 6>,
                         std::int64_t, double, double>;
  struct Meeting {
    double members = 0;
    ShapedWork::Transfer transfer;
  };
  const traces::MeasuredRun& run_;
  const System& system_;
  ShapedWork work_;
  std::map<Key, std::size_t> distinct_;
  std::map<std::pair<std::int32_t, std::size_t>, Meeting> meetings_;
  internal::Unused unexplained_;
};

/// Every gap between two issues of a rank in a step; of all gaps the mean, and what the step has
/// after its last op.
void add_gaps(FitRows::HostOfJob& host, const traces::MeasuredRank& rank,
              std::span<const std::int64_t> issue) {
  std::vector<double> gaps;
  for (const std::int64_t gap : issue) {
    gaps.push_back(in_seconds(std::max<std::int64_t>(0, gap)));
  }
  if (gaps.empty()) {
    return;
  }
  const double mean =
      std::accumulate(gaps.begin(), gaps.end(), 0.0) / static_cast<double>(gaps.size());
  host.all.issue.insert(host.all.issue.end(), gaps.begin(), gaps.end());
  host.medians.issue.push_back(mean);
  for (models::MeasuredHost* h : {&host.all, &host.medians}) {
    h->dispatch.push_back(in_seconds(rank.dispatch));
    h->step.push_back(in_seconds(std::max<std::int64_t>(0, rank.finish)));
  }
}

bool same_work(const Op& a, const Op& b) {
  return a.kind == b.kind && a.format == b.format && a.flags == b.flags && a.shape == b.shape &&
         codes_of(a).variant == codes_of(b).variant && a.bytes_read == b.bytes_read &&
         a.bytes_written == b.bytes_written;
}

/// Equal ops of several captures are one configuration: none may be held out while another is seen.
std::int64_t configuration_of(const Op& op, const std::vector<models::MeasuredOp>& rows) {
  const auto known = std::find_if(rows.begin(), rows.end(), [&](const models::MeasuredOp& row) {
    return same_work(*row.op, op);
  });
  return known == rows.end() ? static_cast<std::int64_t>(rows.size()) : known->configuration;
}

}  // namespace

ShapedWork shaped_work(const traces::MeasuredRun& run, const System& system) {
  return Gathering(run, system).gather();
}

void add_shaped_work(FitRows& rows, const traces::MeasuredRun& run, const std::string& name,
                     const System& system) {
  ShapedWork work = shaped_work(run, system);
  ExecutionGraph& graph = rows.graphs.emplace_back();
  graph.programs.push_back(std::move(work.program));
  const Program& program = graph.programs.front();
  rows.seconds += work.seconds;
  StepSample step;
  for (const ShapedWork::Kernel& k : work.kernels) {
    const Op& op = program.ops[k.op];
    const auto samples = static_cast<std::int64_t>(k.seconds.size());
    step.flops += op.flops.base() * static_cast<double>(samples);
    step.bytes += (op.bytes_read + op.bytes_written).base() * static_cast<double>(samples);
    rows.add_op(name, "",
                {&program, &op, seconds(median_of(k.seconds)), configuration_of(op, rows.ops)},
                samples);
  }
  for (const ShapedWork::Transfer& t : work.transfers) {
    rows.add_collective(name, "", {t.op.kind, t.bytes, t.group, seconds(t.seconds), t.op.format},
                        codes_of(t.op).sizes);
  }
  std::vector<double> walls;
  for (const Seconds wall : wall_times(run)) {
    walls.push_back(wall.base());
  }
  FitRows::HostOfJob& host = rows.hosts.emplace_back();
  for (const traces::MeasuredStep& s : run.steps) {
    for (const traces::MeasuredRank& rank : s.ranks) {
      for (std::size_t k = 0; k < rank.step_marks.size(); ++k) {
        const auto [first, last] = traces::ops_of_step(rank, k);
        add_gaps(host, rank, std::span(rank.issue).subspan(first, last - first));
      }
    }
  }
  host.step_seconds = step.seconds = median_of(walls);
  const auto parts = static_cast<double>(walls.size() * run.steps.front().ranks.size());
  step.flops /= parts;
  step.bytes /= parts;
  rows.add_step(name, step, static_cast<std::int64_t>(walls.size()));
  internal::add_unexplained(rows.unexplained, work.unexplained);
  longest_first(rows.unexplained);
}

}  // namespace stepcast::studies
