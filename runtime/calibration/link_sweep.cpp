#include "runtime/calibration/link_sweep.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>

#include "core/graph/program.h"
#include "runtime/emulation/emulated_collectives.h"
#include "runtime/futex.h"

namespace stepcast::runtime::calibration {
namespace {

constexpr int kRepeats = 7;

enum Groups { kWorld, kNode, kAcross };

ExecutionGraph groups_of(std::int64_t node, int ranks) {
  ExecutionGraph graph;
  graph.mesh.data = ranks;
  std::vector<std::int32_t> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  graph.communicators.push_back({"world", {}, {all}});
  if (node > 1 && node < ranks) {
    Communicator inside{"node", {}, {}};
    Communicator across{"across", {}, {}};
    for (std::int64_t first = 0; first < ranks; first += node) {
      inside.groups.emplace_back(all.begin() + first, all.begin() + first + node);
    }
    for (std::int64_t place = 0; place < node; ++place) {
      across.groups.emplace_back();
      for (std::int64_t r = place; r < ranks; r += node) {
        across.groups.back().push_back(static_cast<std::int32_t>(r));
      }
    }
    graph.communicators.push_back(std::move(inside));
    graph.communicators.push_back(std::move(across));
  }
  return graph;
}

/// Times collectives of some groups of ranks, paced or not.
class Stopwatch {
 public:
  Stopwatch(ExecutionGraph graph, const System* emulate, MpiSession& session)
      : graph_(std::move(graph)), session_(session) {
    collectives_ =
        session.communicators(graph_, emulate != nullptr ? Waiting::kBlocking : Waiting::kYield);
    if (emulate != nullptr) {
      emulation_.emplace(*emulate, graph_, session.cores(), session);
      collectives_ = emulation_->paced(std::move(collectives_));
    }
  }

  /// The groups of a communicator all do the same at the same time; rank 0's is reported.
  LinkSample equal(OpKind kind, Groups which, double bytes) {
    LinkSample sample{kind, graph_.members(which, 0), bytes, {}, {}};
    Collectives& c = *collectives_[static_cast<std::size_t>(which)];
    const auto n = static_cast<std::size_t>(c.size());
    const auto each = std::max<std::size_t>(static_cast<std::size_t>(bytes) / 4 / n, 1);
    send_.assign(each * n, 0);
    receive_.assign(each * n, 0);
    if (kind == OpKind::kAllToAllV) {
      sample.send.assign(n * n, static_cast<double>(4 * each));
    }
    return timed(std::move(sample), [&] {
      if (kind == OpKind::kAllReduce) {
        c.all_reduce(send_.data(), each * n);
      } else if (kind == OpKind::kAllGather) {
        c.all_gather(send_.data(), receive_.data(), each);
      } else if (kind == OpKind::kReduceScatter) {
        c.reduce_scatter(send_.data(), receive_.data(), each);
      } else if (kind == OpKind::kBarrier) {
        c.barrier();
      } else {
        exchange(c, std::vector<double>(n * n, static_cast<double>(4 * each)));
      }
    });
  }

  LinkSample unequal(Groups which, const std::vector<double>& bytes) {
    LinkSample sample{OpKind::kAllToAllV, graph_.members(which, 0), 0, bytes, {}};
    Collectives& c = *collectives_[static_cast<std::size_t>(which)];
    return timed(std::move(sample), [&] { exchange(c, bytes); });
  }

 private:
  template <typename Work>
  LinkSample timed(LinkSample sample, const Work& work) {
    const auto own = static_cast<std::size_t>(session_.rank());
    std::vector<std::vector<double>> durations(static_cast<std::size_t>(session_.size()));
    for (int repeat = 0; repeat < kRepeats + 1; ++repeat) {
      session_.world().barrier();
      std::vector<double> times(2 * durations.size(), 0);
      times[own] = static_cast<double>(steady_ns());
      work();
      times[durations.size() + own] = static_cast<double>(steady_ns());
      times = session_.maximum(std::move(times));
      double start = 0;
      for (const std::int32_t r : sample.ranks) {
        start = std::max(start, times[static_cast<std::size_t>(r)]);
      }
      for (std::size_t r = 0; repeat > 0 && r < durations.size(); ++r) {  // the first warms up
        durations[r].push_back(times[durations.size() + r] - start);
      }
    }
    for (const std::int32_t r : sample.ranks) {
      auto& d = durations[static_cast<std::size_t>(r)];
      std::nth_element(d.begin(), d.begin() + kRepeats / 2, d.end());
      sample.time.push_back(nanoseconds(d[kRepeats / 2]));
    }
    return sample;
  }

  void exchange(Collectives& c, const std::vector<double>& bytes) {
    const auto n = static_cast<std::size_t>(c.size());
    const auto own = static_cast<std::size_t>(c.rank());
    std::vector<std::int64_t> counts[2], offsets[2];
    for (std::size_t p = 0; p < n; ++p) {
      counts[0].push_back(static_cast<std::int64_t>(bytes[own * n + p]) / 4);
      counts[1].push_back(static_cast<std::int64_t>(bytes[p * n + own]) / 4);
    }
    for (int way = 0; way < 2; ++way) {
      offsets[way].assign(n, 0);
      std::exclusive_scan(counts[way].begin(), counts[way].end(), offsets[way].begin(),
                          std::int64_t{0});
      std::vector<float>& buffer = way == 0 ? send_ : receive_;
      buffer.resize(std::max(buffer.size(),
                             static_cast<std::size_t>(offsets[way].back() + counts[way].back())));
    }
    c.all_to_all_v(send_.data(), counts[0], offsets[0], receive_.data(), counts[1], offsets[1], 4);
  }

  ExecutionGraph graph_;
  MpiSession& session_;
  std::optional<Emulation> emulation_;
  std::vector<std::unique_ptr<Collectives>> collectives_;
  std::vector<float> send_, receive_;
};

}  // namespace

std::vector<LinkSample> sweep_pairs(const System* emulate, MpiSession& session) {
  const auto n = static_cast<std::size_t>(session.size());
  Stopwatch stopwatch(groups_of(session.size(), session.size()), emulate, session);
  std::vector<LinkSample> samples;
  for (std::size_t a = 0; a < n; ++a) {
    for (std::size_t b = a + 1; b < n; ++b) {
      for (const double bytes : {64.0, 65536.0, 524288.0}) {
        std::vector<double> send(n * n, 0);
        send[a * n + b] = send[b * n + a] = bytes;
        samples.push_back(stopwatch.unequal(kWorld, send));
      }
    }
  }
  return samples;
}

std::vector<LinkSample> sweep_collectives(std::int64_t node, const System* emulate,
                                          MpiSession& session) {
  const auto n = static_cast<std::size_t>(session.size());
  ExecutionGraph graph = groups_of(node, session.size());
  const bool nodes = graph.communicators.size() > 1;
  Stopwatch stopwatch(std::move(graph), emulate, session);
  std::vector<LinkSample> samples{stopwatch.equal(OpKind::kBarrier, kWorld, 0)};
  for (double bytes = 1024; bytes < 3e6; bytes *= 4) {
    for (const OpKind kind :
         {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllToAllV}) {
      samples.push_back(stopwatch.equal(kind, kWorld, bytes));
      if (nodes) {
        samples.push_back(stopwatch.equal(kind, kNode, bytes));
        samples.push_back(stopwatch.equal(kind, kAcross, bytes));
      }
    }
  }
  // One sender, one receiver, and a few between.
  for (const double bytes : {32e3, 128e3, 400e3}) {
    for (std::size_t busy = 0; busy < n; ++busy) {
      std::vector<double> out(n * n, bytes / 8), in(n * n, bytes / 8);
      for (std::size_t p = 0; p < n; ++p) {
        out[busy * n + p] = bytes;
        in[p * n + busy] = bytes;
      }
      samples.push_back(stopwatch.unequal(kWorld, out));
      samples.push_back(stopwatch.unequal(kWorld, in));
    }
  }
  return samples;
}

}  // namespace stepcast::runtime::calibration
