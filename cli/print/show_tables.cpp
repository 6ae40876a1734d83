#include "cli/print/show_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/print/human.h"
#include "core/config/config.h"
#include "core/error.h"
#include "core/graph/memory_use.h"
#include "planner/parallel/plan_point.h"
#include "studies/predict/memory_fix.h"
#include "studies/predict/show.h"
#include "workloads/build_graph.h"

namespace stepcast::cli {
namespace {

std::int64_t signed_size(std::size_t n) { return static_cast<std::int64_t>(n); }

std::string plan_text(const Job& job) {
  if (const LayeredWorkload* dlrm = job.workload.layered()) {
    const Parallel& p = job.parallel;
    return fmt::format(
        "{}DP{}{}", p.tensor > 1 ? fmt::format("TP{} ", p.tensor * p.context * p.pipeline) : "",
        p.data, dlrm->tables.empty() ? "" : ", embedding plan " + job.embedding_choice);
  }
  return planner::describe(job);
}

DataTable class_table(const ExecutionGraph& graph) {
  DataTable table("classes", "Classes of ranks with equal programs, per rank and step",
                  {{"class"},
                   {"ranks"},
                   {"which", "", true},
                   {"segments"},
                   {"calls"},
                   {"op_templates", "op templates"},
                   {"executed_ops", "executed ops"},
                   {"tensors"},
                   {"flops", "FLOPs"},
                   {"traffic_bytes", "memory traffic"},
                   {"memory_bytes", "memory"}});
  table.limit(24);
  for (std::size_t c = 0; c < graph.classes.size(); ++c) {
    const RankClass& of = graph.classes[c];
    const Program& program = graph.programs[static_cast<std::size_t>(of.program)];
    ExecutionGraph one;  // work of one rank of the class
    one.programs = {program};
    one.classes = {{0, {0}}};
    Flops flops;
    Bytes traffic;
    for (const studies::WorkRow& w : studies::work_by_kind(one, false)) {
      flops += w.flops;
      traffic += w.read + w.written;
    }
    table.row({cell(signed_size(c)), cell(signed_size(of.ranks.size())), cell(rank_list(of.ranks)),
               cell(signed_size(program.segments.size())), cell(signed_size(program.calls.size())),
               cell(signed_size(program.ops.size())),
               cell(static_cast<std::int64_t>(program.executed_ops())),
               cell(signed_size(program.tensors.size())), cell(flops), cell(traffic),
               cell(memory_use(program).total())});
  }
  return table;
}

DataTable phase_table(const ExecutionGraph& graph) {
  std::map<Phase, studies::WorkRow> phases;
  Flops all;
  for (const studies::WorkRow& w : studies::work_by_kind(graph, true)) {
    studies::WorkRow& row = phases[w.phase];
    row.executions += w.executions;
    row.flops += w.flops;
    row.read += w.read;
    row.written += w.written;
    all += w.flops;
  }
  DataTable table("phases", "Compute by phase, all ranks, one step",
                  {{"phase"},
                   {"executions"},
                   {"flops", "FLOPs"},
                   {"share"},
                   {"read_bytes", "read"},
                   {"written_bytes", "written"}});
  for (const auto& [phase, w] : phases) {
    table.row({cell(name_of(phase)), cell(w.executions), cell(w.flops),
               share(all > Flops{} ? w.flops / all : 0), cell(w.read), cell(w.written)});
  }
  return table;
}

DataTable traffic_table(const ExecutionGraph& graph) {
  DataTable table("communication", "Communication of one step",
                  {{"communicator"},
                   {"op_kind", "op kind", true},
                   {"group"},
                   {"executions"},
                   {"buffers_bytes", "buffers, all ranks"},
                   {"sent_bytes", "sent, all ranks"},
                   {"sent_most_bytes", "sent by most"},
                   {"rank"}});
  for (const studies::TrafficRow& t : studies::traffic(graph)) {
    table.row({cell(t.communicator), cell(name_of(t.kind)), cell(signed_size(t.group)),
               cell(t.executions), cell(t.buffers), cell(t.sent), cell(t.sent_most),
               cell(std::int64_t{t.rank_most})});
  }
  table.note("sent: least bytes that a rank must send, such as 2 (n-1)/n of an all-reduce");
  return table;
}

std::string shape_text(const Op& op) {
  std::size_t n = op.shape.size();
  while (n > 1 && op.shape[n - 1] == 0) {
    --n;
  }
  return fmt::format("{}",
                     fmt::join(op.shape.begin(), op.shape.begin() + static_cast<int>(n), " x "));
}

DataTable lookup_table(const Job& job) {
  DataTable table("lookups", "Embedding lookups of one step, all ranks, forward",
                  {{"table"},
                   {"rows"},
                   {"dim"},
                   {"pooling"},
                   {"features"},
                   {"format"},
                   {"weights_bytes", "weights"},
                   {"lookups"},
                   {"unique_rows", "unique rows"},
                   {"looked_up_bytes", "looked up"},
                   {"unique_bytes", "of unique rows"}});
  studies::LookupRow sum;
  bool sampled = false;
  const std::vector<studies::LookupRow> rows = studies::lookups(job);
  for (const studies::LookupRow& r : rows) {
    table.row({cell(r.table), cell(static_cast<double>(r.rows)), cell(r.dim), cell(r.pooling),
               cell(r.features), cell(std::string(name_of(r.format))), cell(r.weights),
               cell(r.lookups), cell(r.unique), cell(r.looked_up), cell(r.looked_up_unique)});
    sum.weights += r.weights;
    sum.lookups += r.lookups;
    sum.looked_up += r.looked_up;
    sum.looked_up_unique += r.looked_up_unique;
    sampled = sampled || r.sampled;
  }
  table.limit(40);
  table.note(fmt::format("{} tables: weights {}, {} lookups, {} looked up, {} of unique rows",
                         rows.size(), human(sum.weights), count(sum.lookups), human(sum.looked_up),
                         human(sum.looked_up_unique)));
  if (sampled) {
    table.note("Unique rows of some tables are extrapolated beyond their recorded sample.");
  }
  return table;
}

}  // namespace

std::string rank_list(const std::vector<std::int32_t>& ranks) {
  std::string text;
  int pieces = 0;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) {
      ++j;
    }
    if (pieces == 3) {
      return text + ", ...";
    }
    text += pieces++ > 0 ? ", " : "";
    text += i == j ? std::to_string(ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[j]);
    i = j + 1;
  }
  return text;
}

Tables summary_tables(const Job& job, const ExecutionGraph& graph,
                      const std::string& default_framework) {
  Facts facts("step", "One training step of " + job.workload.name, kLeft);
  facts.add("workload", "workload", job.workload.name);
  facts.add("system", "system", job.system.name);
  facts.add("devices", "devices", job.devices);
  facts.add("parallel", "parallel", plan_text(job));
  if (!default_framework.empty()) {
    facts.add("framework", "framework", default_framework);
    facts.row({name_cell("framework_implied", "framework is implied"), cell(true)});
  }
  facts.add("batch_global", "batch.global", job.batch.global);
  if (job.workload.transformer() != nullptr) {
    facts.add("batch_micro", "batch.micro", job.batch.micro);
    facts.add("batch_sequence", "batch.sequence", job.batch.sequence);
    facts.add("microbatches", "microbatches", job.microbatches());
  }
  facts.add("compute_format", "compute format", name_of(job.formats.compute));
  facts.add("parameters", "parameters", config::parameter_count(job.workload));
  const workloads::StepFlops flops = workloads::step_flops(job);
  facts.add("model_flops", "model FLOPs", flops.model);
  facts.add("hardware_flops", "hardware FLOPs", flops.hardware);
  facts.add("model_flops_per_sample", "model FLOPs per sample",
            flops.model / static_cast<double>(job.batch.global));
  Bytes looked_up;
  for (const studies::LookupRow& r : studies::lookups(job)) {
    looked_up += r.looked_up;
  }
  if (looked_up > Bytes{}) {
    facts.add("embedding_lookup_bytes", "embedding bytes looked up", looked_up);
  }
  facts.add("rank_classes", "rank classes", graph.classes.size());
  facts.add("communicators", "communicators", graph.communicators.size());
  return {facts, class_table(graph), phase_table(graph), traffic_table(graph)};
}

Tables graph_tables(const ExecutionGraph& graph, std::optional<std::int32_t> rank) {
  const std::vector<studies::OpContent> ops = studies::op_list(graph);
  const std::int32_t only = rank ? graph.class_of(*rank) : -1;
  DataTable table("ops",
                  "Ops in issue order; FLOPs and bytes of one execution; awaits: indices of ops "
                  "waited for",
                  {{"class"},
                   {"segment", "", true},
                   {"calls"},
                   {"op"},
                   {"name", "", true},
                   {"kind", "", true},
                   {"phase", "", true},
                   {"format", "", true},
                   {"shape", "", true},
                   {"stream", "", true},
                   {"communicator", "", true},
                   {"awaits", "", true},
                   {"flops", "FLOPs"},
                   {"read_bytes", "read"},
                   {"written_bytes", "written"}});
  std::int32_t current = -1;
  std::int64_t index = 0;
  for (const studies::OpContent& o : ops) {
    index = o.rank_class == current ? index + 1 : 0;
    current = o.rank_class;
    if (only >= 0 && o.rank_class != only) {
      continue;
    }
    table.row({cell(std::int64_t{o.rank_class}), cell(o.segment), cell(o.calls), cell(index),
               cell(o.name), cell(name_of(o.op->kind)), cell(name_of(o.op->phase)),
               cell(name_of(o.op->format)), cell(shape_text(*o.op)), cell(o.stream),
               cell(o.communicator), cell(fmt::format("{}", fmt::join(o.waits, " "))),
               cell(o.op->flops), cell(o.op->bytes_read), cell(o.op->bytes_written)});
  }
  return {class_table(graph), table};
}

Tables flops_tables(const Job* job, const ExecutionGraph& graph) {
  Tables tables;
  Flops executed;
  const std::vector<studies::WorkRow> rows = studies::work_by_kind(graph, true);
  for (const studies::WorkRow& w : rows) {
    executed += w.flops;
  }
  if (job != nullptr) {
    const workloads::StepFlops f = workloads::step_flops(*job);
    DataTable table("conventions", "FLOPs of one step by convention",
                    {{"convention"},
                     {"per_step", "per step"},
                     {"per_sample", "per sample"},
                     {"per_device", "per device"},
                     {"counts", "", true}});
    const auto row = [&](const char* name, Flops flops, const char* counts) {
      table.row({cell(std::string(name)), cell(flops),
                 cell(flops / static_cast<double>(job->batch.global)),
                 cell(flops / static_cast<double>(job->devices)), cell(std::string(counts))});
    };
    row("model", f.model, "matrix products and full attention, no recomputation (mfu)");
    row("causal", f.model_causal, "the same with causal attention at half (mfu_causal)");
    row("hardware", f.hardware, "model and what is recomputed (hfu)");
    row("executed", executed, "all ops as they run, elementwise ones too");
    tables.push_back(table);
  }
  DataTable table("flops", "Executed FLOPs by op kind and phase",
                  {{"op_kind", "op kind"},
                   {"phase", "", true},
                   {"executions"},
                   {"flops", "all ranks"},
                   {"share"},
                   {"flops_most", "busiest rank"},
                   {"flops_per_byte", "FLOP/byte"}});
  for (const studies::WorkRow& w : rows) {
    const Bytes bytes = w.read + w.written;
    table.row({cell(name_of(w.kind)), cell(name_of(w.phase)), cell(w.executions), cell(w.flops),
               share(executed > Flops{} ? w.flops / executed : 0), cell(w.flops_most),
               bytes > Bytes{} ? cell(w.flops.base() / bytes.base()) : empty_cell()});
  }
  tables.push_back(table);
  return tables;
}

Tables bytes_tables(const Job* job, const ExecutionGraph& graph) {
  std::vector<studies::WorkRow> rows = studies::work_by_kind(graph, false);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const studies::WorkRow& a, const studies::WorkRow& b) {
                     return a.read + a.written > b.read + b.written;
                   });
  Bytes all;
  for (const studies::WorkRow& w : rows) {
    all += w.read + w.written;
  }
  DataTable table("memory_traffic", "Memory traffic of one step by op kind, before caches",
                  {{"op_kind", "op kind"},
                   {"executions"},
                   {"read_bytes", "read, all ranks"},
                   {"written_bytes", "written, all ranks"},
                   {"share"},
                   {"most_bytes", "busiest rank"}});
  for (const studies::WorkRow& w : rows) {
    table.row({cell(name_of(w.kind)), cell(w.executions), cell(w.read), cell(w.written),
               share(all > Bytes{} ? (w.read + w.written) / all : 0), cell(w.bytes_most)});
  }
  Tables tables{table, traffic_table(graph)};
  if (job != nullptr && job->workload.layered() != nullptr &&
      !job->workload.layered()->tables.empty()) {
    tables.push_back(lookup_table(*job));
  }
  return tables;
}

Tables memory_tables(const Job& job, const ExecutionGraph& graph,
                     std::optional<std::int32_t> rank) {
  const std::vector<studies::MemoryContent> content = studies::memory_content(graph, 20);
  DataTable ledger("ledger",
                   fmt::format("Memory of one rank by class; the device has {}",
                               human(job.system.device.memory)),
                   {{"class"},
                    {"ranks"},
                    {"which", "", true},
                    {"weights_bytes", "weights"},
                    {"gradients_bytes", "gradients"},
                    {"optimizer_bytes", "optimizer"},
                    {"activations_bytes", "activations"},
                    {"temporary_bytes", "temporary"},
                    {"communication_bytes", "communication"},
                    {"embeddings_bytes", "embeddings"},
                    {"cache_bytes", "cache"},
                    {"context_bytes", "context"},
                    {"total_bytes", "total"}});
  const studies::MemoryContent* chosen = &content.front();
  Bytes most;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const studies::MemoryContent& c = content[i];
    const simulator::MemoryLedger m = simulator::memory_ledger(graph, i, job.system.device);
    std::vector<Cell> row{cell(std::int64_t{c.rank_class}), cell(signed_size(c.ranks.size())),
                          cell(rank_list(c.ranks))};
    for (const auto& [name, bytes] : m.parts()) {
      row.push_back(cell(bytes));
    }
    row.push_back(cell(m.total()));
    ledger.row(row);
    chosen = m.total() > most ? &c : chosen;
    most = std::max(most, m.total());
  }
  if (job.system.device.memory > Bytes{} && most > job.system.device.memory) {
    ledger.note(studies::memory_reason(simulator::fullest_ledger(graph, job.system.device),
                                       job.system.device) +
                "; `stepcast predict` looks for a fix");
  }
  if (rank) {
    chosen = &content.at(static_cast<std::size_t>(graph.class_of(*rank)));
  }
  DataTable largest("largest_tensors",
                    fmt::format("Largest tensors of class {} ({})", chosen->rank_class,
                                rank ? "as chosen" : "the fullest"),
                    {{"tensor"},
                     {"role", "", true},
                     {"format", "", true},
                     {"rows"},
                     {"columns"},
                     {"instances", "live at once"},
                     {"bytes", "size"}});
  for (const auto& a : chosen->largest) {
    largest.row({cell(a.name), cell(name_of(a.role)), cell(name_of(a.format)), cell(a.rows),
                 cell(a.columns), cell(a.instances), cell(a.bytes)});
  }
  return {ledger, largest};
}

namespace {

DataTable recorded_ops(const studies::RecordedStep& s) {
  DataTable ops("ops", "Longest ops, per rank and step",
                {{"op"},
                 {"kind", "", true},
                 {"phase", "", true, kMinor},
                 {"executions"},
                 {"time_s", "time"},
                 {"share"},
                 {"wait_s", "wait"},
                 {"fastest_rank_s", "fastest rank", false, kMinor},
                 {"slowest_rank_s", "slowest rank", false, kMinor},
                 {"slowest", "which", false, kMinor},
                 {"flops_per_s", "FLOP/s"},
                 {"bytes_per_s", "B/s"}});
  ops.limit(20);
  for (const studies::RecordedOp& o : s.ops) {
    const auto rate = [](double v, std::string text) {
      return v > 0 ? Cell{std::move(text), v} : empty_cell();
    };
    ops.row({short_name(o.name), cell(shown_kind(o.kind, o.kernel)), cell(name_of(o.phase)),
             cell(o.executions), cell(o.time), share(s.step > Seconds{} ? o.time / s.step : 0),
             is_collective(o.kind) ? cell(o.wait) : empty_cell(), cell(o.fastest_rank),
             cell(o.slowest_rank), cell(std::int64_t{o.slowest}),
             rate(o.flops_per_second, human(FlopsPerSecond(o.flops_per_second))),
             rate(o.bytes_per_second, human(BytesPerSecond(o.bytes_per_second)))});
  }
  return ops;
}

}  // namespace

Tables recorded_tables(const studies::RecordedStep& s, const studies::MeasuredShow* show) {
  Facts facts(
      "step",
      fmt::format("{} of {}{}", counted(s.steps, "recorded step"), counted(s.ranks, "rank"),
                  s.first_counted == 1  ? ", without the first, which fills the pipeline"
                  : s.first_counted > 1 ? fmt::format(", without the first {}", s.first_counted)
                                        : ""),
      kLeft);
  facts.add("step_s", "step", s.step);
  if (!s.marked_by.empty()) {
    facts.add("marked_by", "steps marked by", short_name(s.marked_by));
  }
  facts.add("median_s", "median step", s.median);
  facts.add("p5_s", "p5", s.p5);
  facts.add("p95_s", "p95", s.p95);
  if (show != nullptr && !show->bound.empty()) {
    facts.add("bound", "bound by", show->bound);
    facts.add("bound_share", "its share of the critical path", share(show->bound_share));
    facts.add("half_compute", "change with half the compute", signed_share(show->half_compute));
    facts.add("half_host", "change with half the host time", signed_share(show->half_host));
  }
  facts.add("mostly", "most time goes to", s.mostly);
  facts.add("mostly_share", "its share of the step", share(s.mostly_share));
  facts.add("critical_rank", "busiest rank", std::int64_t{s.critical_rank});
  facts.add("compute_imbalance", "compute imbalance", share(s.imbalance));
  if (!s.ops.empty()) {
    const studies::RecordedOp& longest = s.ops.front();
    facts.add("longest_op", "longest op", short_name(longest.name));
    facts.add("longest_op_share", "its share of the step",
              share(s.step > Seconds{} ? (longest.time + longest.wait) / s.step : 0));
  }
  facts.add("dropped_records", "dropped records", static_cast<std::int64_t>(s.dropped));
  DataTable ranks("ranks", "Time of each rank (means; parts sum to the step)",
                  {{"rank"},
                   {"median_s", "median step"},
                   {"mean_s", "mean step"},
                   {"compute_s", "compute"},
                   {"exposed_communication_s", "exposed comm"},
                   {"bubble_s", "bubble"},
                   {"host_s", "host"},
                   {"other_s", "other"},
                   {"host_share", "host share"}});
  DataTable meetings("stragglers", "Communication and waiting, per rank and step",
                     {{"rank"},
                      {"communication_s", "transfers"},
                      {"exposed_share", "exposed"},
                      {"wait_s", "waits"},
                      {"last_arrivals", "straggler count"},
                      {"caused_wait_s", "delay caused"},
                      {"issuing_s", "host launch time"},
                      {"queue_full_s", "launch queue full"},
                      {"dropped_records", "dropped", false, kMinor},
                      {"clock_offset_s", "clock offset", false, kMinor},
                      {"clock_residual_s", "clock residual", false, kMinor}});
  for (const studies::RankStep& r : s.by_rank) {
    const Cell rank = cell(std::int64_t{r.rank});
    ranks.row({rank, cell(r.median), cell(r.mean), cell(r.compute), cell(r.exposed_communication),
               cell(r.bubble), cell(r.host), cell(r.other),
               share(r.mean > Seconds{} ? r.host / r.mean : 0)});
    meetings.row({rank, cell(r.communication),
                  r.communication > Seconds{} ? share(r.exposed_communication / r.communication)
                                              : empty_cell(),
                  cell(r.wait), cell(r.last_arrivals), cell(r.caused_wait), cell(r.issuing),
                  cell(r.queue_full), cell(static_cast<std::int64_t>(r.dropped)),
                  cell(r.clock_offset), cell(r.clock_residual)});
  }
  meetings.note(
      "waits: in collectives, for members that came later; straggler count: collectives of a step "
      "at which the rank came last");
  return {facts, ranks, meetings, recorded_ops(s)};
}

}  // namespace stepcast::cli
