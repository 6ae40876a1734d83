// Schedules drawn by hand: when each op begins and ends, worked out on paper. The event engine, the
// walk of the closed form and the order that a runtime executes have to give the same, so that none
// of them is checked against another that reads waits as it does.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/graph/execution_order.h"
#include "core/graph/program_builder.h"
#include "planner/parallel/rank_timeline.h"
#include "simulator/reports/executed_graph.h"
#include "simulator/reports/timeline.h"
#include "simulator/simulate.h"
#include "tests/planner/drawn_schedules.h"

using namespace stepcast;
using planner::test::Drawn;
using planner::test::kDrawn;

namespace {

struct Span {
  std::int64_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};

/// Schedule that the text says, by rank; spans by executed op, in order of issue.
struct Parsed {
  ExecutionGraph graph;
  std::vector<std::vector<std::int64_t>> time;  // by program and op template
  std::vector<std::vector<Span>> expected;      // by rank
  bool host = false;
};

class Parser {
 public:
  Parsed parse(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string word;
      if (!(words >> word)) {
        continue;
      }
      if (word == "rank") {
        segments_.clear();
        ops_.clear();
      } else if (word == "segment") {
        words >> word;
        segments_.push_back(word);
      } else if (word == "calls") {
        finish_rank(words);
      } else {
        read_op(word, words);
      }
    }
    parsed_.graph.mesh.data = static_cast<std::int32_t>(parsed_.graph.programs.size());
    parsed_.graph.communicators.push_back({"world", {Axis::kData}, {}});
    return std::move(parsed_);
  }

 private:
  struct DrawnOp {
    std::size_t segment = 0;
    std::string name, stream;
    std::int64_t time = 0;
    std::int32_t record = -1;
    std::vector<std::int32_t> waits;
    bool meets = false, host = false;
    std::vector<Span> spans;
  };

  void read_op(const std::string& name, std::istringstream& words) {
    DrawnOp op;
    op.segment = segments_.size() - 1;
    op.name = name;
    words >> op.stream >> op.time;
    std::int32_t event = 0;
    for (std::string word; words >> word && word != "|";) {
      if (word == "records") {
        words >> op.record;
      } else if (word == "waits") {
        words >> event;
        op.waits.push_back(event);
      } else {
        REQUIRE((word == "meets" || word == "host"));
        (word == "meets" ? op.meets : op.host) = true;
      }
    }
    char dash = 0;
    for (Span s; words >> s.begin >> dash >> s.end;) {
      op.spans.push_back(s);
    }
    REQUIRE(!op.spans.empty());
    ops_.push_back(op);
  }

  void finish_rank(std::istringstream& calls) {
    ProgramBuilder b;
    std::vector<std::int64_t> time;
    std::map<std::int32_t, std::int32_t> events;
    const auto event = [&](std::int32_t label) {
      const auto it = events.find(label);
      return it != events.end() ? it->second : events.emplace(label, b.event()).first->second;
    };
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      b.begin_segment(segments_[s]);
      for (const DrawnOp& op : ops_) {
        if (op.segment != s) {
          continue;
        }
        auto edit = b.op(op.meets ? OpKind::kAllReduce : OpKind::kFill, op.name, {1});
        edit.on(op.stream);
        if (op.meets) {
          edit.communicator(0);
        }
        for (const std::int32_t e : op.waits) {
          edit.waits(event(e));
        }
        if (op.record >= 0) {
          edit.records(event(op.record));
        }
        if (op.host) {
          edit.flags(op_flags::kHostWaits);
        }
        parsed_.host = parsed_.host || op.host;
        time.push_back(op.time);
      }
      b.end_segment();
    }
    std::vector<Span> expected;
    std::map<std::string, std::size_t> called;
    for (std::string name; calls >> name;) {
      const auto at = std::find(segments_.begin(), segments_.end(), name);
      REQUIRE(at != segments_.end());
      const auto s = static_cast<std::size_t>(at - segments_.begin());
      b.call(static_cast<std::uint32_t>(s));
      for (const DrawnOp& op : ops_) {
        if (op.segment == s) {
          expected.push_back(op.spans.at(called[name]));
        }
      }
      ++called[name];
    }
    const auto rank = static_cast<std::int32_t>(parsed_.graph.programs.size());
    parsed_.graph.programs.push_back(std::move(b).finish());
    parsed_.graph.classes.push_back({rank, {rank}});
    parsed_.time.push_back(std::move(time));
    parsed_.expected.push_back(std::move(expected));
  }

  Parsed parsed_;
  std::vector<std::string> segments_;
  std::vector<DrawnOp> ops_;
};

/// Spans as the event engine has them; what its report of dependencies cannot explain is counted.
std::vector<std::vector<Span>> by_engine(const Parsed& p, std::uint64_t& unexplained) {
  simulator::StepCosts costs = simulator::blank_costs(p.graph, /*unfold=*/true);
  for (std::size_t r = 0; r < costs.ops.size(); ++r) {
    costs.ops[r].ticks = p.time[r];
    std::fill(costs.ops[r].path.begin(), costs.ops[r].path.end(), -1);  // no shared links
  }
  simulator::Timeline timeline;
  simulator::simulate(p.graph, costs, {}, &timeline);
  unexplained = simulator::executed_graph(p.graph, costs, timeline).unexplained;
  std::vector<std::vector<Span>> spans;
  for (const Program& program : p.graph.programs) {
    spans.emplace_back(program.executed_ops());
  }
  for (const OpSpan& span : timeline.ops()) {
    const auto r = static_cast<std::size_t>(span.rank);
    const Program& program = p.graph.programs[r];
    std::size_t before = 0;  // counted here, not asked of the order under test
    for (std::uint32_t c = 0; c < span.ref.call; ++c) {
      before += program.segments[program.calls[c].segment].op_count;
    }
    const Segment& segment = program.segments[program.calls[span.ref.call].segment];
    spans[r][before + span.ref.op - segment.first_op] = {ticks(span.begin), ticks(span.end)};
  }
  return spans;
}

/// Spans as a runtime has them that takes its unrolled order at its word: an op begins when its
/// stream is free, it was issued and the records it waits for are made.
class ByOrder {
 public:
  explicit ByOrder(const Parsed& p) : p_(p) {
    for (const Program& program : p.graph.programs) {
      const ExecutionOrder order(program, p.graph.communicators.size());
      Rank& rank = ranks_.emplace_back();
      rank.list = unrolled(order);
      rank.free.assign(program.streams.size(), 0);
      rank.recorded.assign(order.records() + 1, 0);
      rank.spans.resize(rank.list.issues.size());
      for (const Issue& issue : rank.list.issues) {
        rank.arrivals += issue.op->communicator >= 0 ? 1 : 0;
      }
    }
  }

  std::vector<std::vector<Span>> run() {
    // The ends of collectives are found by trying: each round knows one more arrival at least.
    std::size_t rounds = 1;
    for (const Rank& rank : ranks_) {
      rounds += rank.arrivals;
    }
    for (std::size_t i = 0; i < rounds; ++i) {
      for (Rank& rank : ranks_) {
        pass(rank);
      }
    }
    std::vector<std::vector<Span>> spans;
    for (const Rank& rank : ranks_) {
      spans.push_back(rank.spans);
    }
    return spans;
  }

 private:
  struct Rank {
    IssueList list;
    std::vector<std::int64_t> free, recorded;
    std::vector<std::int64_t> arrived;  // by collective, as the round before had it
    std::vector<Span> spans;
    std::size_t arrivals = 0;
  };

  void pass(Rank& rank) {
    std::fill(rank.free.begin(), rank.free.end(), 0);
    std::int64_t host = 0;
    std::vector<std::int64_t> arrived;
    const auto r = static_cast<std::size_t>(&rank - ranks_.data());
    for (std::size_t i = 0; i < rank.list.issues.size(); ++i) {
      const Issue& issue = rank.list.issues[i];
      std::int64_t awaited = 0;
      for (std::size_t w = 0; w < issue.op->waits; ++w) {
        const std::uint32_t record = rank.list.awaited[issue.first_wait + w];
        awaited = std::max(awaited, record > 0 ? rank.recorded[record] : 0);
      }
      host = (issue.op->flags & op_flags::kHostWaits) != 0 ? std::max(host, awaited) : host;
      const std::int64_t begin = std::max({rank.free[issue.op->stream], host, awaited});
      std::int64_t ready = begin;
      if (issue.op->communicator >= 0) {
        for (const Rank& other : ranks_) {
          const bool known = arrived.size() < other.arrived.size();
          ready = std::max(ready, known ? other.arrived[arrived.size()] : 0);
        }
        arrived.push_back(begin);
      }
      const std::int64_t end = ready + p_.time[r][issue.ref.op];
      rank.spans[i] = {begin, end};
      rank.free[issue.op->stream] = end;
      if (issue.record > 0) {
        rank.recorded[issue.record] = end;
      }
    }
    rank.arrived = arrived;
  }

  const Parsed& p_;
  std::vector<Rank> ranks_;
};

/// The ends of a rank's ops on the compute stream, and of all, as the closed form's walk has them.
void check_walk(const Parsed& p) {
  const Program& program = p.graph.programs.front();
  const std::vector<double> seconds(p.time.front().begin(), p.time.front().end());
  planner::RankTimeline walk(program, seconds, 0, 1);
  std::size_t at = 0;
  std::int64_t last = 0;
  for (const Call& call : program.calls) {
    const Segment& segment = program.segments[call.segment];
    for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o, ++at) {
      walk.run({segment.name, o, 1});
      const std::int64_t end = p.expected.front()[at].end;
      last = std::max(last, end);
      INFO("op " << program.name(program.ops[o]) << ", number " << at);
      if (program.ops[o].stream == 0) {
        CHECK(walk.now() == static_cast<double>(end));
      }
      CHECK(walk.drained() == static_cast<double>(last));
    }
  }
}

std::string shown(const std::vector<Span>& spans) {
  std::string text;
  for (const Span& s : spans) {
    text += fmt::format("{}-{} ", s.begin, s.end);
  }
  return text;
}

}  // namespace

TEST_CASE("schedules drawn by hand are what engine, closed form and runtime order make of them",
          "[schedules]") {
  for (const Drawn& drawn : kDrawn) {
    INFO(drawn.name);
    const Parsed p = Parser().parse(drawn.text);
    std::uint64_t unexplained = 0;
    const auto engine = by_engine(p, unexplained);
    const auto order = ByOrder(p).run();
    for (std::size_t r = 0; r < p.expected.size(); ++r) {
      INFO("rank " << r);
      CHECK(shown(engine[r]) == shown(p.expected[r]));
      CHECK(shown(order[r]) == shown(p.expected[r]));
    }
    CHECK(unexplained == 0);
    if (p.expected.size() == 1 && !p.host) {  // one rank whose host is never late
      check_walk(p);
    }
  }
}

TEST_CASE("collectives are numbered by communicator over calls, sends and receives apart",
          "[schedules]") {
  ProgramBuilder b({"compute", "comm"});
  const auto s = b.begin_segment("step");
  b.op(OpKind::kAllReduce, "a", {1}).communicator(0);
  b.op(OpKind::kSend, "s", {1, 0}).communicator(1, 1);
  b.op(OpKind::kAllGather, "g", {1}).on("comm").communicator(1);
  b.op(OpKind::kAllReduce, "alone", {1});
  b.op(OpKind::kAllReduce, "b", {1}).on("comm").communicator(0);
  b.end_segment();
  b.call(s);
  b.call(s);
  const Program program = std::move(b).finish();
  const ExecutionOrder order(program, 2);
  CHECK(order.collectives(0) == std::vector<std::uint32_t>{0, 4, 0, 4});
  CHECK(order.collectives(1) == std::vector<std::uint32_t>{2, 2});
  CHECK(order.sequence(0, 0) == 0);
  CHECK(order.sequence(0, 4) == 1);
  CHECK(order.sequence(1, 0) == 2);
  CHECK(order.sequence(1, 4) == 3);
  CHECK(order.sequence(1, 2) == 1);
  CHECK(order.role(3) == OpRole::kCompute);  // no partners
  CHECK(order.ops() == 10);
  CHECK(order.number(1, 2) == 7);
  CHECK(order.stream_ops() == std::vector<std::uint64_t>{6, 4});
}

TEST_CASE("an op on no stream of its program, or of no communicator, is refused", "[schedules]") {
  ProgramBuilder b;
  b.begin_segment("step");
  b.op(OpKind::kAllReduce, "a", {1}).communicator(1);
  b.end_segment();
  Program program = std::move(b).finish();
  CHECK_THROWS_AS(ExecutionOrder(program, 1), InternalError);
  program.ops[0].communicator = 0;
  CHECK_NOTHROW(ExecutionOrder(program, 1));
  program.ops[0].stream = 1;
  CHECK_THROWS_AS(ExecutionOrder(program, 1), InternalError);
}
