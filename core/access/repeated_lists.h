#pragma once
#include <cstdint>
#include <span>

#include "core/job/workload.h"

namespace stepcast {

/// How many of n samples' lists of ids differ, and how many ids these hold.
struct DistinctLists {
  double lists = 0;
  double ids = 0;
};

/// Expected distinct lists of ids that `samples` samples carry for a table, one beside the other
/// (RecD, arXiv 2211.05239). Lists kept inside a session are not drawn anew, so only
/// n = samples / DF lists are (`dedup_factor`). Some of those are equal by chance: with P(T) the
/// probability that a drawn list is T,
///   E = sum_T 1 - exp(-n P(T)) = n E_T[(1 - exp(-n P(T))) / (n P(T))],
/// an expectation over ln P(T), which is the sum of ln p over the list's ids: the law of ln p
/// convolved with itself, on a grid. Pooling that is no integer is the mean of a Poisson. Within
/// 1 % of sampled lists (tests/core/repeated_lists_test.cpp). `samples` >= 1.
DistinctLists distinct_lists(const EmbeddingTable& table, double samples);

/// The same of recorded lists: list i has the ids [begins[i], begins[i + 1]), the last one the
/// rest. Means over batches of `samples` lists, one after the other; lists that fill no batch are
/// left out, unless there are fewer in all. At least one list; `samples` >= 1. Lists are
/// distinguished by a hash of 64 bits.
DistinctLists distinct_lists(std::span<const std::int64_t> ids,
                             std::span<const std::int64_t> begins, std::int64_t samples);

/// How many of n - 1 recorded lists are that of the sample before, as a share; 0 for one list.
double kept_lists(std::span<const std::int64_t> ids, std::span<const std::int64_t> begins);

}  // namespace stepcast
