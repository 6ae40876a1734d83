#include <algorithm>

#include "tests/traces/shared_traces.h"
#include "traces/chakra/chakra_writer.h"
#include "traces/native/native_trace.h"
#include "traces/open_trace.h"

using namespace stepcast;
using namespace stepcast::traces;
using Catch::Contains;
using test::Folder;

TEST_CASE("an execution trace adds its dependencies to the timeline of its step", "[traces]") {
  const std::filesystem::path shared = test::shared_traces();
  if (shared.empty()) {
    return;
  }
  const Folder folder;
  const auto add = [&](const char* from, const std::string& as) {
    std::filesystem::copy_file(shared / from, folder.path() / as);
  };
  add("dlrm8-kineto/worker0_step_12.1694128201545.pt.trace.json.gz", "timeline-0.json.gz");
  add("dlrm8-pytorch-et/dlrm_eg_0.json.gz", "graph-0.json.gz");
  const std::vector<std::filesystem::path> both{folder.path() / "graph-0.json.gz",
                                                folder.path() / "timeline-0.json.gz"};
  const Recording linked = open_traces(both);
  const Recording timeline = open_trace(both[1]);
  CHECK(linked.format == "kineto");
  const RankRecording& rank = linked.ranks.front();
  CHECK(rank.events.begin == timeline.ranks[0].events.begin);
  // Edges go back in time, from operators to operators, as many as the trace's nodes have of data,
  // but for the few nodes (4 of 1,675) that the timeline lacks.
  std::size_t edges = 0, across = 0;
  for (EventId i = 0; i < rank.events.size(); ++i) {
    for (const EventId on : rank.dependencies.of(i)) {
      REQUIRE(rank.events.begin[on] <= rank.events.begin[i]);
      ++edges;
      across += rank.events.lane[on] != rank.events.lane[i] ? 1 : 0;
    }
  }
  const Dependencies given = open_trace(both[0]).ranks[0].dependencies;
  const auto data = static_cast<std::size_t>(
      std::count(given.kinds.begin(), given.kinds.end(), Dependencies::Kind::kData));
  CHECK(edges <= data);
  CHECK(edges > data * 95 / 100);
  CHECK(across > 50);  // the backward thread reads what the forward thread made

  // One Chakra graph: times and launches of the one, tensors of the other.
  write_chakra(folder.path() / "linked.et", linked);
  write_chakra(folder.path() / "alone.et", timeline);
  CHECK(test::text_of(folder.path() / "linked.et").size() >
        test::text_of(folder.path() / "alone.et").size());
  write_recording(folder.path() / "native", linked);
  CHECK(read_recording(folder.path() / "native").ranks[0].dependencies.added);

  add("param/linear_et.json.gz", "other-0.json.gz");
  const std::vector<std::filesystem::path> apart{folder.path() / "other-0.json.gz", both[1]};
  CHECK_THROWS_WITH(open_traces(apart), Contains("record both of one step"));
}
