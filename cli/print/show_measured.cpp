#include "cli/print/show_measured.h"

#include <fmt/format.h>

#include <cmath>

#include "cli/print/human.h"

namespace stepcast::cli {

Tables measured_tables(const studies::MeasuredShow& s) {
  const bool trusted = std::abs(s.replay_error) <= studies::kTrustedReplay;
  DataTable facts("critical_path",
                  trusted ? "Critical path of a step (all steps replayed with their own times)" : "",
                  {{"fact"}, {"value"}}, trusted ? 0 : kInJson);
  facts.as_object();
  const auto fact = [&facts](const char* key, const char* title, Cell value) {
    facts.row({name_cell(key, title), std::move(value)});
  };
  const auto part = [trusted](Seconds t) { return trusted ? cell(t) : empty_cell(); };
  fact("compute_s", "compute", part(s.path_compute));
  fact("transfer_s", "transfers", part(s.path_transfer));
  fact("host_s", "host", part(s.path_host));
  fact("gap_s", "gaps", part(s.path_gap));
  facts.row({name_cell("replay_error", "error of that replay"),
             {percent_signed(s.replay_error), s.replay_error}});
  DataTable ranks("idle", "Main stream of each rank (means; parts sum to the step)",
                  {{"rank"},
                   {"stream", "", true},
                   {"step_s", "step"},
                   {"compute_s", "compute"},
                   {"communication_s", "transfers"},
                   {"host_s", "idle: host"},
                   {"exposed_communication_s", "idle: transfer"},
                   {"wait_for_rank_s", "idle: a rank"},
                   {"wait_for_stream_s", "idle: a stream"},
                   {"gap_s", "idle: gaps"},
                   {"drain_s", "after its last"}});
  DataTable queues("queues", "Launch queue of each rank: ops launched and not ended",
                   {{"rank"}, {"mean"}, {"most"}});
  for (const studies::StreamUse& r : s.ranks) {
    const Cell rank = cell(std::int64_t{r.rank});
    ranks.row({rank, cell(r.stream), cell(r.step), cell(r.compute), cell(r.communication),
               cell(r.host), cell(r.for_communication), cell(r.for_rank), cell(r.for_stream),
               cell(r.gap), cell(r.drain)});
    queues.row({rank, cell(r.queue_mean), cell(r.queue_most)});
  }
  ranks.note(
      "idle: host: the next op was not launched yet; a rank: a collective waits for its last "
      "member; a stream: another stream computes");
  DataTable kernels(
      "slack",
      "Longest kernels of all ranks",
      {{"kernel"},
       {"kind", "", true},
       {"launches"},
       {"time_s", "time"},
       {"critical_path_s", "on critical path"},
       {"slack_s", "least slack"}});
  for (const studies::MeasuredKernel& k : s.kernels) {
    kernels.row({short_name(k.name), cell(shown_kind(k.kind, k.kernel)), cell(k.launches),
                 cell(k.time), part(k.on_critical_path), part(k.slack)});
  }
  if (!trusted) {
    kernels.note(fmt::format("No critical path: a replay is {} off the recorded step.",
                             percent_signed(s.replay_error)));
  }
  kernels.limit(20);
  return {facts, ranks, queues, kernels};
}

}  // namespace stepcast::cli
