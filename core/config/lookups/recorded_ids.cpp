#include <algorithm>
#include <optional>
#include <utility>

#include "core/config/access_files.h"
#include "core/config/lookups/chosen_lookups.h"
#include "core/config/lookups/id_sink.h"
#include "core/config/lookups/text_ids.h"
#include "core/error.h"
#include "core/input/input.h"

namespace stepcast::config {
namespace {

constexpr std::uint64_t kMostKept = std::uint64_t{1} << 31;  // ids, 16 GB of them

/// All ids of the file, or of the array or column that is meant.
void stream_chosen(const ChosenLookups& c, IdSink& to, std::int64_t rows) {
  if (c.kind == ChosenLookups::Kind::kArray) {
    stream_elements(c.arrays, *c.ids, c.which, to);
  } else {
    Input input = Input::of_file(c.name.file);
    if (c.kind == ChosenLookups::Kind::kText) {
      stream_text_ids(input, {c.part || c.name.parts.empty() ? "" : c.name.parts.front(), rows},
                      to);
    } else {
      stream_raw_ids(input, to);
    }
  }
  to.flush();
  if (to.passed() == 0) {
    throw InputError(label_of(c.name), "no ids in it, expected at least one");
  }
}

/// Begin of each of the table's bags in the file and, last, the end of the last of them.
std::vector<std::int64_t> bounds_in_offsets_file(const ChosenLookups& c, std::string_view where) {
  std::vector<std::int64_t> bounds;
  const std::filesystem::path offsets = offsets_file(c.name);
  if (!c.part) {
    stream_indices(offsets, where, [&](std::span<const std::int64_t> some) {
      bounds.insert(bounds.end(), some.begin(), some.end());
    });
    return bounds;
  }
  std::uint64_t count = 0;  // one pass to count, so that only those of one table are kept
  stream_indices(offsets, where, [&](std::span<const std::int64_t> some) { count += some.size(); });
  const auto tables = static_cast<std::uint64_t>(c.part->tables);
  if (count < tables + 1 || (count - 1) % tables != 0) {
    throw InputError(offsets.string(),
                     fmt::format("holds {} offsets, expected a whole number for each of {} tables "
                                 "and one more: tables x samples + 1",
                                 count, tables));
  }
  const std::uint64_t samples = (count - 1) / tables;
  const std::uint64_t first = static_cast<std::uint64_t>(c.part->table) * samples;
  std::uint64_t at = 0;
  stream_indices(offsets, where, [&](std::span<const std::int64_t> some) {
    for (const std::int64_t o : some) {
      if (at >= first && at <= first + samples) {
        bounds.push_back(o);
      }
      ++at;
    }
  });
  return bounds;
}

/// Bags that begin where they should and follow each other; `lookups` ids are theirs.
std::vector<std::int64_t> checked_bags(std::vector<std::int64_t> begins, std::int64_t lookups,
                                       const std::string& file, const std::string& ids) {
  std::int64_t before = 0;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const bool first = i == 0;
    if (first ? begins[i] != 0 : begins[i] < before || begins[i] > lookups) {
      throw InputError(file, fmt::format("bag {} begins at {}, expected {}", i, begins[i],
                                         first ? std::string("0: the first id of the first bag")
                                               : fmt::format("{} to {}: bags follow each other, "
                                                             "and {} holds {} ids",
                                                             before, lookups, ids, lookups)));
    }
    before = begins[i];
  }
  if (begins.empty()) {
    throw InputError(file, "no bags in it, expected where each bag of ids begins");
  }
  return begins;
}

}  // namespace

void stream_indices(const std::filesystem::path& name, std::string_view where, const TakeIds& sink,
                    std::int64_t rows) {
  const ChosenLookups c = choose_lookups(name, where);
  if (!c.part) {
    IdSink to(label_of(c.name), sink);
    stream_chosen(c, to, rows);
    return;
  }
  const std::vector<std::int64_t> bounds = bounds_in_offsets_file(c, where);
  const std::int64_t first = bounds.front();
  const std::int64_t last = bounds.back();
  std::int64_t at = 0;
  const TakeIds within = [&](std::span<const std::int64_t> some) {
    const auto size = static_cast<std::int64_t>(some.size());
    const std::int64_t from = std::clamp<std::int64_t>(first - at, 0, size);
    const std::int64_t to = std::clamp<std::int64_t>(last - at, from, size);
    at += size;
    if (to > from) {
      sink(some.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from)));
    }
  };
  IdSink to(label_of(c.name), within);
  stream_chosen(c, to, rows);
  if (first >= last || last > at) {
    throw InputError(offsets_file(c.name).string(),
                     fmt::format("the bags of table {} take ids {} to {}, but {} holds {}",
                                 c.part->table, first, last, c.name.file.string(), at));
  }
}

std::vector<std::int64_t> read_indices(const std::filesystem::path& name, std::string_view where,
                                       std::int64_t rows) {
  std::vector<std::int64_t> ids;
  stream_indices(
      name, where,
      [&](std::span<const std::int64_t> some) {
        if (ids.size() + some.size() > kMostKept) {
          throw InputError(name.string(),
                           fmt::format("holds more than the {} ids that are kept in memory; make "
                                       "a histogram of it with stepcast hitcurve --sketch",
                                       kMostKept));
        }
        ids.insert(ids.end(), some.begin(), some.end());
      },
      rows);
  return ids;
}

std::vector<std::int64_t> recorded_bags(const std::filesystem::path& name, std::int64_t lookups,
                                        std::string_view where) {
  const ChosenLookups c = choose_lookups(name, where);
  const std::string ids = label_of(c.name);
  if (c.bag_size > 0) {
    std::vector<std::int64_t> begins;
    for (std::int64_t at = 0; at < lookups; at += c.bag_size) {
      begins.push_back(at);
    }
    return begins;
  }
  if (c.bounds != nullptr) {
    std::vector<std::int64_t> begins = elements(c.arrays, *c.bounds, c.bags);
    std::int64_t before = 0;
    for (std::int64_t& b : begins) {
      if (c.are_lengths) {
        before += std::exchange(b, before);
      } else {
        b -= c.which.first;
      }
    }
    return checked_bags(std::move(begins), lookups, label_of({c.name.file, {c.bounds->name}}), ids);
  }
  if (!has_offsets_file(c.name) || (!c.name.parts.empty() && !c.part)) {
    return {};
  }
  std::vector<std::int64_t> begins = bounds_in_offsets_file(c, where);
  if (c.part) {
    begins.pop_back();
    const std::int64_t first = begins.front();
    for (std::int64_t& b : begins) {
      b -= first;
    }
  } else if (begins.size() > 1 && begins.back() == lookups) {
    begins.pop_back();  // the last entry only closes the last bag
  }
  return checked_bags(std::move(begins), lookups, offsets_file(c.name).string(), ids);
}

std::optional<double> recorded_pooling(const std::filesystem::path& name, std::int64_t lookups,
                                       std::string_view where) {
  const std::vector<std::int64_t> bags = recorded_bags(name, lookups, where);
  if (bags.empty()) {
    return std::nullopt;
  }
  return static_cast<double>(lookups) / static_cast<double>(bags.size());
}

}  // namespace stepcast::config
