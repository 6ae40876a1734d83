#include "traces/open_trace.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/input/archive.h"
#include "core/lower.h"
#include "traces/formats.h"

namespace stepcast::traces {
namespace {

namespace fs = std::filesystem;

struct Part {
  const TraceFormat* format = nullptr;
  std::vector<RankRecording> ranks;
};

/// The format that is certain of a file, else the first that it may be of.
const TraceFormat* format_of(std::string_view head) {
  for (const auto asked : {&TraceFormat::is_file, &TraceFormat::may_be_file}) {
    for (const TraceFormat& f : formats()) {
      if (f.*asked != nullptr && (f.*asked)(head)) {
        return &f;
      }
    }
  }
  return nullptr;
}

Part read_part(Input& input, Names& names) {
  constexpr std::size_t kHead = 4096;
  if (input.peek(kByteOrderMark.size()) == kByteOrderMark) {
    input.skip(kByteOrderMark.size());
  }
  const std::string_view head = input.peek(kHead);
  if (head.empty()) {
    input.fail(0, "the file is empty; expected a trace");
  }
  if (const TraceFormat* format = format_of(head)) {
    return {format, format->read(input, names)};
  }
  std::string known;
  for (const TraceFormat& f : formats()) {
    if (f.read != nullptr || f.read_folder != nullptr) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", f.name);
    }
  }
  input.fail(0, fmt::format("is in no format known here; expected one of {}", known));
}

/// The rank in a file's name: the number behind "rank" or "worker", else the only number that
/// stands between marks.
std::optional<std::int32_t> rank_in_name(std::string_view source) {
  const std::size_t slash = source.rfind('/');
  const std::string name = lower(source.substr(slash == std::string_view::npos ? 0 : slash + 1));
  const auto number_at = [&name](std::size_t at) -> std::optional<std::int32_t> {
    std::int32_t value = 0;
    const auto [end, error] = std::from_chars(name.data() + at, name.data() + name.size(), value);
    return error == std::errc{} && value >= 0 ? std::optional(value) : std::nullopt;
  };
  for (const std::string_view word : {"rank", "worker"}) {
    if (std::size_t at = name.find(word); at != std::string::npos) {
      at += word.size();
      at += at < name.size() && (name[at] == '-' || name[at] == '_' || name[at] == '.') ? 1 : 0;
      if (const auto number = number_at(at)) {
        return number;
      }
    }
  }
  // "chakra.0.et", "dlrm_eg_0.json.gz": a number of its own, between marks.
  const auto mark = [](char c) { return c == '.' || c == '_' || c == '-'; };
  std::optional<std::int32_t> found;
  int numbers = 0;
  for (std::size_t i = 1; i < name.size(); ++i) {
    if (mark(name[i - 1]) && std::isdigit(static_cast<unsigned char>(name[i])) != 0) {
      std::size_t end = i;
      while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end])) != 0) {
        ++end;
      }
      if (end < name.size() && mark(name[end])) {
        found = number_at(i);
        ++numbers;
      }
      i = end - 1;
    }
  }
  return numbers == 1 ? found : std::nullopt;
}

/// Ranks that stand in no metadata: from the names if these tell them apart, else by order.
void guess_ranks(std::vector<RankRecording>& ranks) {
  const auto unknown = [](const RankRecording& r) { return r.rank < 0; };
  if (std::none_of(ranks.begin(), ranks.end(), unknown)) {
    return;
  }
  std::map<std::int32_t, int> named;
  bool all = true;
  for (const RankRecording& r : ranks) {
    const auto rank = r.rank >= 0 ? r.rank : rank_in_name(r.source);
    all = all && rank && ++named[*rank] == 1;
  }
  std::int32_t next = 0;
  for (RankRecording& r : ranks) {
    if (unknown(r)) {
      r.rank = all ? *rank_in_name(r.source) : next;
      r.oddities.add(ParseWarning::kRankGuessed,
                     [&r] { return fmt::format("{}: taken for rank {}", r.source, r.rank); });
    }
    next = std::max(next, r.rank + 1);
  }
}

void check_ranks(Recording& recording, bool whole) {
  auto& ranks = recording.ranks;
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const RankRecording& a, const RankRecording& b) { return a.rank < b.rank; });
  std::int32_t world = 0;
  std::string said_by;
  for (const RankRecording& r : ranks) {
    if (r.world_size > 0 && r.rank >= r.world_size) {
      throw InputError(r.source, fmt::format("is rank {} of {}; expected a rank below that number; "
                                             "correct its distributedInfo",
                                             r.rank, r.world_size));
    }
    if (world > 0 && r.world_size > 0 && r.world_size != world) {
      throw InputError(r.source, fmt::format("is of a run of {} ranks, {} of one of {}; expected "
                                             "one run; give the files of one run",
                                             r.world_size, said_by, world));
    }
    if (r.world_size > world) {
      world = r.world_size;
      said_by = r.source;
    }
  }
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i].rank == ranks[i - 1].rank) {
      throw InputError(ranks[i].source,
                       fmt::format("is rank {}, and so is {}; expected each rank once; give the "
                                   "file you mean, or name the files by rank",
                                   ranks[i].rank, ranks[i - 1].source));
    }
  }
  const auto given = static_cast<std::int32_t>(ranks.size());
  if (world > given) {
    if (whole && given > 1) {
      throw InputError(ranks.front().source,
                       fmt::format("is of a run of {} ranks, but {} are here; to go on without the "
                                   "others give the files one by one",
                                   world, given));
    }
    recording.oddities.add(
        ParseWarning::kMissingRank,
        [&] { return fmt::format("{}: {} of {} ranks given", ranks.front().source, given, world); },
        static_cast<std::uint64_t>(world - given));
  }
}

/// Facts of a rank by which files are told to be of one run.
struct Kinship {
  explicit Kinship(const RankRecording& r)
      : of_several(r.world_size > 1), timed(r.timing == Timing::kTimeline) {
    for (const CollectiveInfo& c : r.collectives) {
      collectives.insert(c.kind);
    }
    if (r.events.size() > 0) {
      const auto [first, last] = std::minmax_element(r.events.begin.begin(), r.events.begin.end());
      begin = *first;
      end = *last;
    }
  }
  /// Both say that they are of a run of several ranks, or ran the same kinds of collectives, or at
  /// the same time. Execution graphs have no times.
  [[nodiscard]] bool may_be_of_run(const Kinship& b) const {
    return !timed || !b.timed || (of_several && b.of_several) ||
           (!collectives.empty() && collectives == b.collectives) ||
           (begin <= b.end && b.begin <= end);
  }
  bool of_several, timed;
  std::set<OpKind> collectives;
  Nanoseconds begin{}, end{};
};

/// A folder or an archive is one run.
void check_related(const std::vector<RankRecording>& ranks) {
  const std::vector<Kinship> all(ranks.begin(), ranks.end());
  std::vector<std::size_t> reached{0};
  std::vector<bool> seen(all.size(), false);
  seen[0] = true;
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (std::size_t other = 0; other < all.size(); ++other) {
      if (!seen[other] && all[reached[i]].may_be_of_run(all[other])) {
        seen[other] = true;
        reached.push_back(other);
      }
    }
  }
  const auto stranger = std::find(seen.begin(), seen.end(), false);
  if (stranger != seen.end()) {
    throw InputError(
        ranks[static_cast<std::size_t>(stranger - seen.begin())].source,
        fmt::format("shares no time, collective or run with {}, which lies beside it; a "
                    "folder or an archive is one run: give one file",
                    ranks.front().source));
  }
}

/// Makes the earliest event of all ranks the origin.
void set_origin(Recording& recording) {
  std::optional<Nanoseconds> origin;
  std::optional<Nanoseconds> latest_first;
  std::optional<Nanoseconds> earliest_last;
  for (const RankRecording& rank : recording.ranks) {
    const auto& begin = rank.events.begin;
    if (begin.empty() || rank.timing != Timing::kTimeline) {
      continue;
    }
    const auto [first, last] = std::minmax_element(begin.begin(), begin.end());
    origin = std::min(origin.value_or(*first), *first);
    latest_first = std::max(latest_first.value_or(*first), *first);
    earliest_last = std::min(earliest_last.value_or(*last), *last);
  }
  if (!origin) {
    return;
  }
  if (*latest_first > *earliest_last) {
    recording.oddities.add(ParseWarning::kClockApart, [&] {
      return fmt::format("{}: one rank begins {} ns after another has ended",
                         recording.ranks.front().source, (*latest_first - *earliest_last).count());
    });
  }
  constexpr Nanoseconds kThisCentury = std::chrono::hours(24 * 365 * 35);
  recording.absolute = *origin > kThisCentury;
  recording.origin = *origin;
  for (RankRecording& rank : recording.ranks) {
    if (rank.timing != Timing::kTimeline) {
      continue;
    }
    for (Nanoseconds& t : rank.events.begin) {
      t -= *origin;
    }
    for (StepRange& s : rank.steps) {
      s.begin -= *origin;
      s.end -= *origin;
    }
    for (MemoryChange& m : rank.memory) {
      m.at -= *origin;
    }
  }
}

class Opener {
 public:
  void add(const fs::path& path) {
    if (Input input = Input::of_file(path); !is_tar(input)) {
      add(input);
      return;
    }
    each_member(path, [this](const std::string&, Input& member) {
      add(member);
      return true;
    });
  }
  void add_folder(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (entry.is_regular_file() && !entry.path().filename().string().starts_with('.')) {
        files.push_back(entry.path());
      }
    }
    if (files.empty()) {
      throw InputError(folder.string(), "holds no file; expected the ranks of a trace");
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
      add(file);
    }
  }
  /// A path that goes on inside an archive: "traces.tar.gz/member".
  bool add_member(const fs::path& path) {
    fs::path archive = path;
    while (archive.has_relative_path() && !fs::exists(archive)) {
      archive = archive.parent_path();
    }
    if (!fs::is_regular_file(archive)) {
      return false;
    }
    const std::string wanted = path.lexically_relative(archive).generic_string();
    bool found = false;
    if (Input input = Input::of_file(archive); is_tar(input)) {
      each_member(archive, [&](const std::string& name, Input& member) {
        found = name == wanted;
        if (found) {
          add(member);
        }
        return !found;
      });
    }
    if (!found) {
      throw InputError(
          path.string(),
          fmt::format("is not in {}; expected a file or a member of an archive", archive.string()));
    }
    return true;
  }
  Recording finish(bool whole) && {
    link_graphs();
    if (recording_.ranks.empty()) {
      throw InputError("trace", "no file given; expected at least one");
    }
    guess_ranks(recording_.ranks);
    if (whole) {
      check_related(recording_.ranks);
    }
    check_ranks(recording_, whole);
    set_origin(recording_);
    return std::move(recording_);
  }

 private:
  void add(Input& input) {
    Part part = read_part(input, recording_.names);
    if (const TraceFormat& f = *part.format; f.link != nullptr) {
      std::move(part.ranks.begin(), part.ranks.end(), std::back_inserter(graphs_));
      graph_format_ = &f;
      return;
    }
    const std::string_view format = part.format->name;
    if (!recording_.format.empty() && recording_.format != format) {
      throw InputError(input.label(),
                       fmt::format("is a {} trace, {} a {} trace; expected one format in one run",
                                   format, recording_.ranks.front().source, recording_.format));
    }
    recording_.format = format;
    std::move(part.ranks.begin(), part.ranks.end(), std::back_inserter(recording_.ranks));
  }

  /// Execution graphs stand beside the timelines of the same ranks, or alone.
  void link_graphs() {
    if (graphs_.empty()) {
      return;
    }
    if (recording_.ranks.empty()) {
      recording_.format = graph_format_->name;
      recording_.ranks = std::move(graphs_);
      return;
    }
    if (graphs_.size() != recording_.ranks.size()) {
      throw InputError(graphs_.front().source,
                       fmt::format("is one of {} execution traces among {} timelines; expected "
                                   "one of each rank",
                                   graphs_.size(), recording_.ranks.size()));
    }
    guess_ranks(recording_.ranks);
    guess_ranks(graphs_);
    const auto by_rank = [](const RankRecording& a, const RankRecording& b) {
      return a.rank < b.rank;
    };
    std::stable_sort(recording_.ranks.begin(), recording_.ranks.end(), by_rank);
    std::stable_sort(graphs_.begin(), graphs_.end(), by_rank);
    for (std::size_t i = 0; i < graphs_.size(); ++i) {
      graph_format_->link(recording_.ranks[i], graphs_[i]);
    }
  }

  Recording recording_;
  std::vector<RankRecording> graphs_;
  const TraceFormat* graph_format_ = nullptr;
};

/// A trace is read more than once: first to tell its format.
void expect_file_or_folder(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status)) {
    throw InputError(path.string(),
                     "is a pipe or a device; a trace is read more than once: write it to a file");
  }
}

}  // namespace

Recording open_trace(const fs::path& path) {
  expect_file_or_folder(path);
  Opener opener;
  if (fs::is_directory(path)) {
    for (const TraceFormat& f : formats()) {
      if (f.is_folder != nullptr && f.is_folder(path)) {
        return f.read_folder(path);
      }
    }
    opener.add_folder(path);
  } else if (fs::exists(path)) {
    opener.add(path);
  } else if (!opener.add_member(path)) {
    throw InputError(path.string(), "does not exist; expected a trace file or folder");
  }
  return std::move(opener).finish(true);
}

Recording open_traces(std::span<const fs::path> paths) {
  if (paths.size() == 1) {
    return open_trace(paths.front());
  }
  Opener opener;
  for (const fs::path& path : paths) {
    if (fs::is_directory(path)) {
      throw InputError(path.string(), "is a folder; expected one folder, or files");
    }
    expect_file_or_folder(path);
    opener.add(path);
  }
  return std::move(opener).finish(false);
}

}  // namespace stepcast::traces
