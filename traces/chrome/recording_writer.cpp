#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "traces/chrome/chrome_writer.h"
#include "traces/chrome/internal/chrome_events.h"
#include "traces/chrome/internal/recording_arguments.h"
#include "traces/input/gzip.h"
#include "traces/input/rank_files.h"

namespace stepcast::traces {
namespace {

using internal::ArgumentWriter;
using internal::ChromeEvents;
using internal::microseconds_of;

/// An event of a rank on a track, with its end of an arrow.
void add_event(ChromeEvents& to, const ArgumentWriter& writer, const RankRecording& rank, EventId i,
               std::int64_t process, std::int64_t track, Nanoseconds at, std::int64_t arrow) {
  const Events& e = rank.events;
  to.slice({internal::kineto_category(e.category[i]), writer.name(e.name[i]), process, track,
            microseconds_of(at), microseconds_of(e.duration[i])},
           [&](fmt::memory_buffer& text) { writer.write(text, rank, i); });
  if (e.link[i] != kNoEvent && e.correlation[i] != 0) {
    to.arrow(on_device(e.category[i]) ? 'f' : 's', arrow, process, track, microseconds_of(at));
  }
}

std::string document_of(const Recording& recording, const ArgumentWriter& writer,
                        const RankRecording& rank) {
  ChromeEvents events;
  const Nanoseconds shift = recording.absolute ? Nanoseconds{0} : recording.origin;
  for (const Lane& lane : rank.lanes) {
    const std::int64_t process =
        lane.kind == Lane::Kind::kStream ? std::int64_t{lane.device} : lane.process;
    if (lane.name != kNoName) {
      events.label("thread_name", process, lane.thread, writer.name(lane.name));
    }
    for (EventId i = lane.first; i < lane.first + lane.count; ++i) {
      add_event(events, writer, rank, i, process, lane.thread, rank.events.begin[i] + shift,
                rank.events.correlation[i]);
    }
  }
  nlohmann::ordered_json head;
  head["schemaVersion"] = 1;
  for (std::size_t i = 0; i < rank.devices.size(); ++i) {
    head["deviceProperties"].push_back({{"id", i}, {"name", rank.devices[i]}});
  }
  nlohmann::ordered_json info;
  info["backend"] = rank.metadata.contains("backend") ? rank.metadata.at("backend") : "nccl";
  info["rank"] = rank.rank;
  if (const auto given = std::ssize(recording.ranks); rank.world_size > 0 || rank.rank < given) {
    info["world_size"] = rank.world_size > 0 ? rank.world_size : given;
  }
  for (const Group& g : rank.groups) {
    info["pg_config"].push_back(
        {{"pg_name", g.name}, {"pg_desc", g.description}, {"pg_size", g.size}, {"ranks", g.ranks}});
  }
  if (rank.metadata.contains("nccl_version")) {
    info["nccl_version"] = rank.metadata.at("nccl_version");
  }
  head["distributedInfo"] = info;
  head["displayTimeUnit"] = "ns";
  if (recording.absolute) {
    head["baseTimeNanoseconds"] = recording.origin.count();
  }
  for (const auto& [key, value] : rank.metadata) {
    if (!head.contains(key) && key != "backend" && key != "nccl_version" && key != "traceEvents") {
      head[key] = value;
    }
  }
  std::string text = head.dump(1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize(text.rfind('}') - 1);  // the line's end before it too
  return events.document(text + ",\n \"traceEvents\": [");
}

Losses losses_of(const Recording& recording) {
  Losses losses;
  std::uint64_t edges = 0;
  std::uint64_t fields = 0;
  for (const RankRecording& rank : recording.ranks) {
    edges += rank.dependencies.targets.size();
    fields += rank.node_fields.size();
  }
  add_loss(losses, "dependencies", edges);
  add_loss(losses, "outputs and attributes of nodes", fields);
  add_loss(losses, "job", recording.job.empty() ? 0 : 1);
  return losses;
}

}  // namespace

Losses write_kineto(const std::filesystem::path& out, const Recording& recording) {
  internal::check_timeline(recording, "kineto");
  const ArgumentWriter writer(recording);
  if (recording.ranks.size() == 1) {
    write_by_extension(out, document_of(recording, writer, recording.ranks.front()));
    return losses_of(recording);
  }
  std::vector<std::int32_t> ranks;
  for (const RankRecording& rank : recording.ranks) {
    ranks.push_back(rank.rank);
  }
  write_rank_files(out, "rank-", ".json", ranks, [&](std::size_t r) {
    return document_of(recording, writer, recording.ranks[r]);
  });
  return losses_of(recording);
}

Losses write_timeline(const std::filesystem::path& file, const Recording& recording) {
  internal::check_timeline(recording, "perfetto");
  const ArgumentWriter writer(recording);
  ChromeEvents events;
  Losses losses = losses_of(recording);
  std::int64_t tracks = 0;
  std::uint64_t moved = 0;
  for (const RankRecording& rank : recording.ranks) {
    events.label("process_name", rank.rank, 0, fmt::format("\"rank {}\"", rank.rank));
    for (const Lane& lane : rank.lanes) {
      const std::string label = lane.name != kNoName ? std::string(recording.names.view(lane.name))
                                : lane.kind == Lane::Kind::kStream
                                    ? fmt::format("device {} stream {}", lane.device, lane.stream)
                                    : fmt::format("thread {}", lane.thread);
      std::vector<std::vector<Nanoseconds>> open;  // per track: ends of the slices around now
      const std::int64_t first_track = tracks;
      for (EventId i = lane.first; i < lane.first + lane.count; ++i) {
        const Nanoseconds begin = rank.events.begin[i];
        const Nanoseconds end = rank.events.end(i);
        std::size_t t = 0;
        for (; t < open.size(); ++t) {
          while (!open[t].empty() && open[t].back() <= begin) {
            open[t].pop_back();
          }
          if (open[t].empty() || end <= open[t].back()) {
            break;
          }
        }
        if (t == open.size()) {
          open.emplace_back();
          events.label("thread_name", rank.rank, first_track + std::ssize(open) - 1,
                       internal::json_text(label));
        }
        open[t].push_back(end);
        moved += t > 0 ? 1 : 0;
        constexpr std::int64_t kRank = std::int64_t{1} << 40;  // ids are those of a rank
        add_event(events, writer, rank, i, rank.rank, first_track + static_cast<std::int64_t>(t),
                  begin, rank.rank * kRank + rank.events.correlation[i] % kRank);
      }
      tracks += std::ssize(open);
    }
  }
  write_by_extension(file, events.document(R"({"displayTimeUnit":"ns","traceEvents":[)"));
  add_loss(losses, "slices that cross others, on a track of their own", moved);
  return losses;
}

}  // namespace stepcast::traces
