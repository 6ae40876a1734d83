#include "studies/fit/paced_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "core/error.h"
#include "models/collectives/collective_curves.h"
#include "models/collectives/collective_form.h"
#include "runtime/launch.h"
#include "studies/fit/calibrate.h"
#include "studies/fit/error_statistics.h"
#include "studies/fit_rows.h"
#include "studies/run/recorded_run.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

using runtime::calibration::LinkSample;

/// The two ranks a pair's messages went between, and their size.
struct PairMessage {
  std::int64_t a = 0, b = 0;
  double bytes = 0;
  double seconds = 0;
};

PairMessage message_of(const LinkSample& s) {
  const auto n = static_cast<std::int64_t>(s.ranks.size());
  for (std::int64_t i = 0; i < n * n; ++i) {
    if (s.send[static_cast<std::size_t>(i)] > 0) {
      const std::int64_t a = i / n, b = i % n;
      return {a, b, s.send[static_cast<std::size_t>(i)],
              std::max(s.time[static_cast<std::size_t>(a)], s.time[static_cast<std::size_t>(b)])
                  .base()};
    }
  }
  STEPCAST_FAIL("a pair's sample without bytes");
}

FabricLevel level_of(const std::vector<PairMessage>& messages, std::string name,
                     std::int64_t size) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::map<double, double>> by_pair;
  for (const PairMessage& m : messages) {
    by_pair[{m.a, m.b}][m.bytes] = m.seconds;
  }
  std::vector<double> bandwidths, latencies;
  for (const auto& [pair, times] : by_pair) {
    const auto last = std::prev(times.end());
    const auto before = std::prev(last);
    bandwidths.push_back((last->first - before->first) /
                         std::max(last->second - before->second, 1e-9));
    latencies.push_back(times.begin()->second);
  }
  FabricLevel level;
  level.name = std::move(name);
  level.size = size;
  level.bandwidth = BytesPerSecond(median_of(bandwidths));
  level.latency = seconds(median_of(latencies));
  return level;
}

double ideal_time(const models::CollectiveForm& form, const System& system, const LinkSample& s,
                  std::span<const double> c, std::size_t member) {
  const GroupShape group = group_shape(system, s.ranks);
  if (s.send.empty()) {
    return form.predict(s.kind, s.bytes, group, system, c).time.base();
  }
  const std::size_t levels = system.fabric.size();
  const std::size_t n = s.ranks.size();
  const std::vector<double> ports = models::exchange_ports(s.send, s.ranks, system).ends;
  return form
      .exchange({ports.data() + member * levels, levels}, s.send[member * n + member],
                static_cast<double>(n - 1), group, system, c)
      .base();
}

/// Ranks of one node share the machine's cores evenly where that comes out whole.
void share_cores(System& system, std::int64_t node, std::int64_t ranks) {
  const std::int64_t cores = system.host.cores * node;
  if (node < ranks && cores % ranks == 0) {
    system.host.devices = node;
    system.host.cores = cores / ranks;
  }
}

void measure(FitRows& all, const Job& job, const PacedCalibrationOptions& options,
             runtime::MpiSession& session) {
  ExecutionGraph graph = workloads::build_graph(job);
  runtime::RunOptions run;
  run.warmup = 3;
  run.steps = 11;
  run.seed = options.seed;
  run.real_time = true;
  run.emulate = options.emulate;
  RecordedRun recorded = run_recorded(job, graph, run, session);
  if (session.rank() == 0) {
    add_steps(all, job, std::move(graph), std::move(recorded.trace));
  }
}

}  // namespace

std::vector<FabricLevel> recovered_fabric(std::span<const LinkSample> pairs, std::int64_t ranks) {
  std::vector<PairMessage> messages;
  for (const LinkSample& s : pairs) {
    messages.push_back(message_of(s));
  }
  const auto largest = std::max_element(
      messages.begin(), messages.end(),
      [](const PairMessage& x, const PairMessage& y) { return x.bytes < y.bytes; });
  STEPCAST_CHECK(largest != messages.end(), "no pairs were measured");
  constexpr double kMarkedly = 1.3;
  for (std::int64_t node = ranks - 1; node > 1; --node) {
    if (ranks % node != 0) {
      continue;
    }
    double slowest_inside = 0;
    double fastest_across = 1e300;
    std::vector<PairMessage> inside, across;
    for (const PairMessage& m : messages) {
      const bool near = m.a / node == m.b / node;
      (near ? inside : across).push_back(m);
      if (m.bytes == largest->bytes) {
        slowest_inside = near ? std::max(slowest_inside, m.seconds) : slowest_inside;
        fastest_across = near ? fastest_across : std::min(fastest_across, m.seconds);
      }
    }
    if (fastest_across > kMarkedly * slowest_inside) {
      return {level_of(inside, "inside", node), level_of(across, "across", ranks / node)};
    }
  }
  return {level_of(messages, "link", ranks)};
}

FittedModels fit_links(const System& system, std::span<const LinkSample> samples,
                       const std::string& source) {
  const models::CollectiveForm& form = *models::collective_form_named("collective.fabric");
  std::vector<double> ideal;
  FittedModel model;
  model.form = form.name();
  model.source = source;
  for (const models::Constant& c : form.constants(system)) {
    ideal.push_back(c.name == "start" ? 0 : c.ideal);
    model.constants[std::string(c.name)] = ideal.back();
  }
  std::map<OpKind, std::vector<const LinkSample*>> by_kind;
  for (const LinkSample& s : samples) {
    by_kind[s.kind].push_back(&s);
  }
  FittedModels models;
  for (const auto& [kind, of_kind] : by_kind) {
    FittedModel m = model;
    std::vector<double> measured, predicted, starts;
    for (const LinkSample* s : of_kind) {
      for (std::size_t r = 0; r < s->time.size(); ++r) {
        measured.push_back(s->time[r].base());
        predicted.push_back(ideal_time(form, system, *s, ideal, r));
        starts.push_back(measured.back() - predicted.back());
      }
    }
    const double start = std::max(median_of(starts), 1e-7);
    m.constants["start"] = start;
    std::vector<double> with_start = ideal;
    with_start[0] = start;
    if (kind != OpKind::kAllToAllV && kind != OpKind::kBarrier) {
      for (const LinkSample* s : of_kind) {
        const models::CollectivePlace place =
            models::place_of(s->bytes, group_shape(system, s->ranks));
        const Seconds slowest = *std::max_element(s->time.begin(), s->time.end());
        m.points.push_back(
            {{place.log_bytes, place.log_size, place.log_members},
             std::log(slowest.base() / ideal_time(form, system, *s, with_start, 0))});
      }
    } else {
      for (double& p : predicted) {
        p += start;
      }
      m.error = models::error_of(predicted, measured);
    }
    m.samples = static_cast<std::int64_t>(measured.size());
    models[std::string(name_of(kind))] = std::move(m);
  }
  return models;
}

System calibrate_paced(const PacedCalibrationOptions& options, runtime::MpiSession& session) {
  const auto told = [&](double done, const std::string& what) {
    if (session.rank() == 0 && options.progress) {
      options.progress(done, what);
    }
  };
  System system = local_machine(session);
  system.name = "local-cpu-paced";
  system.host.collectives_hold_core = false;
  told(0, "links");
  const auto pairs = runtime::calibration::sweep_pairs(options.emulate, session);
  std::vector<FabricLevel> fabric;
  session.rank_zero_does([&] { fabric = recovered_fabric(pairs, session.size()); });
  const std::int64_t node = session.from_rank_zero(fabric.empty() ? 0 : fabric.front().size);
  const auto links = runtime::calibration::sweep_collectives(node, options.emulate, session);
  share_cores(system, node, session.size());

  FitRows rows;
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  std::int64_t jobs = 0;
  while (true) {
    const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    if (session.from_rank_zero(elapsed < options.seconds || jobs < 8 ? 1 : 0) == 0) {
      break;
    }
    Job job = options.job(jobs);
    job.system = system;
    told(std::min(1.0, elapsed / std::max(options.seconds, 1.0)), job.workload.name);
    measure(rows, job, options, session);
    ++jobs;
  }
  session.rank_zero_does([&] {
    if (const std::uint64_t dropped = dropped_records(rows)) {
      throw RunError(fmt::format(
          "the recorders of the training jobs lost {} records; their times are not used", dropped));
    }
    set_measured_rates(system, rows);
    models::FitOptions fit;
    fit.max_points = 600;
    fit.source = fmt::format("{} training jobs on {} ranks of an emulated fabric, {}", jobs,
                             session.size(), options.date);
    fit_steps(system, rows, fit);
    system.fabric = fabric;
    system.fitted =
        fit_links(system, links,
                  fmt::format("sweep of links between {} ranks, {}", session.size(), options.date));
  });
  return system;
}

}  // namespace stepcast::studies
