#include "ranks_scenarios.h"

#include <unistd.h>

#include <cmath>
#include <csignal>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "core/graph/program_builder.h"
#include "runtime/trainer.h"

namespace stepcast::runtime::scenarios {
namespace {

/// Element i of rank r's buffer in the checks below; small integers, so sums are exact.
float value(int rank, std::size_t i) {
  return static_cast<float>((rank + 1) * 100 + static_cast<int>(i % 50));
}

std::vector<float> buffer_of(int rank, std::size_t n) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) {
    v[i] = value(rank, i);
  }
  return v;
}

}  // namespace

ExecutionGraph bare_graph(int ranks) {
  ExecutionGraph graph;
  graph.mesh.data = ranks;
  Communicator all{.name = "all", .axes = {Axis::kData}, .groups = {}};
  Communicator pairs{.name = "pairs", .axes = {}, .groups = {}};
  for (int r = 0; r + 1 < ranks; r += 2) {
    pairs.groups.push_back({r, r + 1});
  }
  graph.communicators = {all, pairs};
  return graph;
}

System flat_system(int ranks, double bytes_per_second, double latency_seconds) {
  System s;
  s.name = "flat";
  s.fabric.push_back(
      {"link", ranks, BytesPerSecond(bytes_per_second), seconds(latency_seconds), 1, false});
  return s;
}

void check_collectives(Collectives& c, int first) {
  const int n = c.size();
  const int rank = c.rank();
  const auto ranks = static_cast<std::size_t>(n);
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{70001}}) {
    auto data = buffer_of(first + rank, count);
    c.all_reduce(data.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int r = 0; r < n; ++r) {
        sum += value(first + r, i);
      }
      require(data[i] == sum, "all_reduce");
    }
    data = buffer_of(first + rank, count);
    c.all_reduce(data.data(), count, Collectives::Reduction::kMax);
    require(data[count - 1] == value(first + n - 1, count - 1), "all_reduce of maxima");

    std::vector<float> gathered(count * ranks);
    data = buffer_of(first + rank, count);
    c.all_gather(data.data(), gathered.data(), count);
    std::vector<float> in_place(count * ranks);
    std::copy(data.begin(), data.end(),
              in_place.begin() + static_cast<std::ptrdiff_t>(count) * rank);
    c.all_gather(in_place.data() + count * static_cast<std::size_t>(rank), in_place.data(), count);
    for (int r = 0; r < n; ++r) {
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = static_cast<std::size_t>(r) * count + i;
        require(gathered[at] == value(first + r, i), "all_gather");
        require(in_place[at] == value(first + r, i), "all_gather in place");
      }
    }

    const auto input = buffer_of(first + rank, count * ranks);
    std::vector<float> part(count);
    c.reduce_scatter(input.data(), part.data(), count);
    auto whole = input;
    float* own = whole.data() + static_cast<std::size_t>(rank) * count;
    c.reduce_scatter(whole.data(), own, count);
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int r = 0; r < n; ++r) {
        sum += value(first + r, static_cast<std::size_t>(rank) * count + i);
      }
      require(part[i] == sum, "reduce_scatter");
      require(own[i] == sum, "reduce_scatter in place");
    }

    const int root = n - 1;
    data = buffer_of(first + rank, count);
    c.broadcast(data.data(), count, root);
    require(data[count - 1] == value(first + root, count - 1), "broadcast");

    // Ring of sends with tags, received in the other order.
    const auto mine = buffer_of(first + rank, count);
    std::vector<float> one(count);
    std::vector<float> two(count);
    c.post_send(mine.data(), count, (rank + 1) % n, 1);
    c.post_send(mine.data() + count - 1, 1, (rank + 1) % n, 2);
    c.receive(two.data(), 1, (rank + n - 1) % n, 2);
    c.receive(one.data(), count, (rank + n - 1) % n, 1);
    c.finish_sends();
    require(one[count - 1] == value(first + (rank + n - 1) % n, count - 1), "receive");
    require(two[0] == one[count - 1], "receive by tag");
  }
  // Rank r sends r + 2 s + 1 elements of 12 bytes to rank s.
  const auto amount = [](int from, int to) { return std::int64_t{from} + 2 * to + 1; };
  std::vector<std::int64_t> send_counts, send_offsets, receive_counts, receive_offsets;
  std::int64_t sent = 0;
  std::int64_t received = 0;
  for (int r = 0; r < n; ++r) {
    send_counts.push_back(amount(rank, r));
    send_offsets.push_back(sent);
    sent += send_counts.back();
    receive_counts.push_back(amount(r, rank));
    receive_offsets.push_back(received);
    received += receive_counts.back();
  }
  const auto out = buffer_of(first + rank, static_cast<std::size_t>(3 * sent));
  std::vector<float> in(static_cast<std::size_t>(3 * received));
  c.all_to_all_v(out.data(), send_counts, send_offsets, in.data(), receive_counts, receive_offsets,
                 12);
  for (int r = 0; r < n; ++r) {
    std::int64_t theirs = 0;  // where the part for this rank begins in rank r's buffer
    for (int s = 0; s < rank; ++s) {
      theirs += amount(r, s);
    }
    for (std::int64_t i = 0; i < 3 * amount(r, rank); ++i) {
      const auto at =
          static_cast<std::size_t>(3 * receive_offsets[static_cast<std::size_t>(r)] + i);
      require(in[at] == value(first + r, static_cast<std::size_t>(3 * theirs + i)), "all_to_all_v");
    }
  }
  c.barrier();
}

void collectives(MpiSession& session) {
  const ExecutionGraph graph = bare_graph(session.size());
  for (const Waiting waiting : {Waiting::kBlocking, Waiting::kYield}) {
    const auto communicators = session.communicators(graph, waiting);
    check_collectives(*communicators[0], 0);
    check_collectives(*communicators[1], session.rank() / 2 * 2);
  }
}

namespace {

/// Every rank adds its own gradient to a shared sum and follows it: w -= 0.1 * sum over ranks of
/// (w x_r), with x_r the constant r + 1. All ranks must hold equal weights afterwards.
ExecutionGraph training_graph(int ranks) {
  ExecutionGraph graph = bare_graph(ranks);
  graph.inputs = {.batch = {ranks, 1, 8}, .vocabulary = 64, .tables = {}};
  for (int r = 0; r < ranks; ++r) {
    ProgramBuilder b;
    ParameterPiece piece;
    piece.key = parameter_key("w");
    piece.columns = 32;
    piece.scale = 1;
    const auto w = b.parameter("w", 32, 32, Format::kFp32, Format::kFp32, {piece});
    ParameterPiece diagonal;  // columns of (r + 1) / ranks / 32: the product is a mean over rows
    diagonal.columns = 32;
    diagonal.constant = (r + 1) / 32.0 / ranks;
    const TensorId x = b.tensor({.name = "x",
                                 .role = TensorRole::kBuffer,
                                 .format = Format::kFp32,
                                 .rows = 32,
                                 .columns = 32,
                                 .per_microbatch = false,
                                 .pieces = {diagonal}});
    const auto done = b.event();
    const auto reduced = b.event();
    const auto s = b.begin_segment("step");
    b.op(OpKind::kGemm, "gradient", {32, 32, 32, 1})
        .in({x, w.weight})
        .out({w.gradient})
        .records(done);
    b.op(OpKind::kAllReduce, "sync", {1024})
        .in({w.gradient})
        .out({w.gradient})
        .on("data")
        .communicator(0)
        .waits(done)
        .records(reduced);
    b.op(OpKind::kOptimizer, "sgd", {1024}).in({w.gradient}).out({w.weight}).waits(reduced);
    b.op(OpKind::kBarrier, "together", {}).communicator(1);
    b.end_segment();
    b.call(s);
    graph.programs.push_back(std::move(b).finish());
    graph.classes.push_back({r, {r}});
  }
  return graph;
}

class BytesSent : public Observer {
 public:
  void on_op(const OpSpan& span) override { bytes += span.bytes; }
  double bytes = 0;
};

}  // namespace

void training(MpiSession& session) {
  const int n = session.size();
  const ExecutionGraph graph = training_graph(n);
  RunOptions options;
  options.steps = 5;
  options.warmup = 2;
  int seen = 0;
  options.on_step = [&seen](const StepRecord&) { ++seen; };
  BytesSent observer;
  const RunResult result = run_training(graph, {}, options, session, &observer);
  require(result.steps.size() == 5 && result.warmup.size() == 2, "number of records");
  require(seen == (session.rank() == 0 ? 7 : 0), "rank 0 hears of every step");
  require(result.steps[4].step == 6, "steps count from the first warm-up");
  require(result.steps[0].time > Seconds{}, "a step takes time");
  require(result.allocated >= Bytes(3 * 4096.0), "allocated");
  require(result.peak_resident > result.allocated, "resident");
  // Each of the 5 observed steps sends 2 (n - 1) / n * 4096 bytes.
  require(std::abs(observer.bytes - 5 * 2.0 * (n - 1) / n * 4096) < 1, "bytes sent");

  System flat = flat_system(n, 1e9, 1e-4);
  options.emulate = &flat;
  run_training(graph, {}, options, session, nullptr);
}

void killed(MpiSession& session) {
  const auto communicators = session.communicators(bare_graph(session.size()));
  std::vector<float> data(1000);
  for (int i = 0;; ++i) {
    communicators[0]->all_reduce(data.data(), data.size());
    if (i == 100 && session.rank() == 1) {
      std::raise(SIGKILL);
    }
  }
}

void hanging(MpiSession& session) {
  const auto communicators = session.communicators(bare_graph(session.size()));
  if (session.rank() == 1) {
    sleep(50);
  }
  communicators[0]->barrier();
}

void setting_up(MpiSession& session) {
  const auto communicators = session.communicators(bare_graph(session.size()));
  session.set_up(true);
  if (session.rank() == 1) {
    sleep(8);
  }
  communicators[0]->barrier();
}

void failing(MpiSession& session) {
  ExecutionGraph graph = training_graph(session.size());
  RunOptions options;
  options.data_file = session.rank() == 1 ? "/no/such/file" : "";
  run_training(graph, {}, options, session, nullptr);
}

void too_large(MpiSession& session) {
  ExecutionGraph graph = training_graph(session.size());
  for (Program& program : graph.programs) {
    program.tensors[0].rows = std::int64_t{1} << 40;  // 128 TB
  }
  run_training(graph, {}, {}, session, nullptr);
}

}  // namespace stepcast::runtime::scenarios
