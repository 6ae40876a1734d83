#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/error.h"
#include "planner/parallel/parallel_search.h"
#include "planner/parallel/search_front.h"

// Results of a search between processes: as bytes, and those of several as one.
namespace stepcast::planner {

SearchCounts& SearchCounts::operator+=(const SearchCounts& o) {
  space += o.space;
  weights_too_large += o.weights_too_large;
  memory_too_large += o.memory_too_large;
  bounded += o.bounded;
  evaluated += o.evaluated;
  left_out += o.left_out;
  rough += o.rough;
  return *this;
}

std::string packed(const ParallelSearchResult& result) {
  static_assert(std::is_trivially_copyable_v<ParallelCandidate> &&
                std::is_trivially_copyable_v<SearchCounts>);
  std::string bytes;
  const auto put = [&bytes](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  };
  put(&result.counts, sizeof result.counts);
  put(&result.others_at_least, sizeof result.others_at_least);
  put(&result.least_bytes, sizeof result.least_bytes);
  put(&result.cut, sizeof result.cut);
  for (const auto* list : {&result.best, &result.of_families, &result.front}) {
    const std::size_t size = list->size();
    put(&size, sizeof size);
    put(list->data(), size * sizeof(ParallelCandidate));
  }
  return bytes;
}

ParallelSearchResult unpacked(const std::string& bytes) {
  ParallelSearchResult result;
  std::size_t at = 0;
  const auto get = [&](void* data, std::size_t size) {
    STEPCAST_CHECK(at + size <= bytes.size(), "a search result of {} bytes is cut short",
                   bytes.size());
    std::memcpy(data, bytes.data() + at, size);
    at += size;
  };
  get(&result.counts, sizeof result.counts);
  get(&result.others_at_least, sizeof result.others_at_least);
  get(&result.least_bytes, sizeof result.least_bytes);
  get(&result.cut, sizeof result.cut);
  for (auto* list : {&result.best, &result.of_families, &result.front}) {
    std::size_t size = 0;
    get(&size, sizeof size);
    for (std::size_t i = 0; i < size; ++i) {
      get(&list->emplace_back(), sizeof(ParallelCandidate));
    }
  }
  return result;
}

ParallelSearchResult merged(std::vector<ParallelSearchResult> parts,
                            const ParallelSearchOptions& options) {
  CandidateShelf shelf(options);
  ParallelSearchResult all;
  for (const ParallelSearchResult& part : parts) {
    for (const auto* list : {&part.best, &part.of_families, &part.front}) {
      for (const ParallelCandidate& c : *list) {
        shelf.offer(c);
      }
    }
    all.others_at_least = std::min(all.others_at_least, part.others_at_least);
    all.counts += part.counts;
    all.cut = all.cut || part.cut;
    if (part.best.empty() && (all.least_bytes == 0 || part.least_bytes < all.least_bytes)) {
      all.least_bytes = part.least_bytes;
    }
  }
  all.best = shelf.best();
  all.of_families = shelf.of_families();
  all.front = shelf.front();
  all.others_at_least = std::min(all.others_at_least, shelf.others_at_least());
  all.least_bytes = all.best.empty() ? all.least_bytes : 0;
  return all;
}

}  // namespace stepcast::planner
