#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace stepcast {

enum class CachePolicy : std::uint8_t { kPinned, kLru };
enum class AccessKind : std::uint8_t { kUniform, kZipf, kHistogram, kIndices };
enum class RowRemap : std::uint8_t { kMod, kFrequency, kLru, kLfu };

/// An answer, and whether the data behind it can carry it. `low` and `high` bound the answer where
/// `outside_sample` is set (rule 7 of P3) and equal `value` elsewhere.
struct AccessAnswer {
  double value = 0;
  bool outside_sample = false;
  double low = 0;
  double high = 0;
};

/// One bin of a recorded reuse histogram: `unique_rows` rows were each seen (reuse_low, reuse_high]
/// times, `accesses` times in all. `reuse_high` may be infinite.
struct ReuseBin {
  double reuse_low = 0;
  double reuse_high = 0;
  double unique_rows = 0;
  double accesses = 0;
};

/// How often the rows of one table are looked up (primitive P3): the popularity law behind lookup
/// cost, deduplication, caches, per-row sharding and incremental checkpoints. Exact for small
/// tables, binned over popularity ranks for large ones (relative error of unique() below 1e-4 for
/// exponents up to 4); every query is O(bins) in time and memory, whatever the number of rows.
///
///   const Access a = Access::zipf(1'000'000'000, 1.05);
///   double u = a.unique(2'000'000).value;           // distinct rows among 2 M lookups
///   double h = a.hit_rate(1'000'000, CachePolicy::kPinned).value;
///
/// Errors: InputError on invalid arguments. Copies share one immutable law; thread-safe.
class Access {
 public:
  /// Every row equally likely. Row ids are the ranks.
  static Access uniform(std::int64_t rows);
  /// p(rank k) proportional to k^-exponent, k = 1..rows, exponent in 0..100. Row ids are a
  /// permutation of the ranks drawn with `seed`.
  static Access zipf(std::int64_t rows, double exponent, std::uint64_t seed = 0);
  /// Reuse counts of `sample_lookups` (n0) recorded lookups, all of which are in a bin (within 1 %,
  /// for rounded shares). It knows nothing beyond its own sample.
  static Access histogram(std::int64_t rows, std::vector<ReuseBin> bins, double sample_lookups);
  /// Recorded row ids, at least one; the order of popularity is that of the recording.
  static Access indices(std::int64_t rows, std::vector<std::int64_t> recorded);

  /// Kind of the law; a derived law (ranks, random_subset, remapped) keeps its
  /// parent's.
  [[nodiscard]] AccessKind kind() const;
  [[nodiscard]] std::int64_t rows() const;
  [[nodiscard]] double exponent() const;  ///< of the zipf law or its parent, else 0
  [[nodiscard]] std::uint64_t seed() const;
  [[nodiscard]] double sample_lookups() const;  ///< n0 of a histogram or recording, else 0
  [[nodiscard]] const std::vector<std::int64_t>& recorded() const;  ///< of `indices`, else empty

  /// Expected distinct rows in n independent lookups: U(n) = sum_i 1 - (1 - p_i)^n for a law,
  /// rarefaction of the counts inside a sample, sum_c f_c (1 - C(n0-c, n) / C(n0, n)). Beyond a
  /// sample the bounds are [U(n0), min(rows, U(n0) + (n - n0) f_1 / n0)], U being concave with
  /// slope f_1 / n0 at n0, and `value` is the extrapolation U(n0) + f_0 (1 - exp(-(n - n0) f_1 /
  /// (n0 f_0))) with f_0 = f_1^2 / (2 f_2) (Chao, Scand. J. Statist. 11, 1984): a fitted law, often
  /// low.
  [[nodiscard]] AccessAnswer unique(double lookups) const;
  /// Expected rows seen exactly once in n lookups, sum_i n p_i (1 - p_i)^(n-1); f_1 of the sample.
  [[nodiscard]] AccessAnswer seen_once(double lookups) const;
  /// Share of lookups that go to the k most popular rows. A sample overstates the head where its
  /// counts are few: flagged from the first row seen fewer than 10 times, each of the k rows then
  /// lying between its count less two standard deviations and its count.
  [[nodiscard]] AccessAnswer cdf(double k) const;
  /// Hit rate of a cache of `capacity` rows: pinned = cdf(capacity); LRU by Che's approximation,
  /// solve sum_i 1 - exp(-p_i t) = capacity, hit = sum_i p_i (1 - exp(-p_i t)) (Che, Tung, Wang,
  /// JSAC 20(7), 2002). Warm cache, independent lookups.
  [[nodiscard]] AccessAnswer hit_rate(double capacity, CachePolicy policy) const;
  /// Share of lookups that go to the row of rank floor(rank), 0 = hottest; 0 for an unseen row.
  [[nodiscard]] double probability(double rank) const;

  /// The law over popularity ranks [first, last), renormalised, and the share of lookups that fall
  /// there. Where that share is 0 the law is uniform. Row ids are 0..last-first-1.
  [[nodiscard]] std::pair<Access, double> ranks(std::int64_t first, std::int64_t last) const;
  /// The law over a random `rows` of the rows, renormalised: a shard by shuffled id (`block`,
  /// `stripe`). Answers are means over the draw: with s = rows / this->rows(), U_s(n) = s U(n / s),
  /// so that the shards of a table add up to the table.
  [[nodiscard]] Access random_subset(std::int64_t rows) const;

  /// The law over some of the rows, renormalised, and the share of lookups that fall there: those
  /// of popularity `ranks` (ascending, each once, below `followed`), and of the rows from rank
  /// `followed` on a random `others`. Where that share is 0 the law is uniform.
  [[nodiscard]] std::pair<Access, double> chosen(std::span<const std::int64_t> ranks,
                                                 std::int64_t followed, std::int64_t others) const;

  /// Hashing rows into fewer buckets: q_j = sum of p_i over i -> j. `mod` mixes hot and cold rows
  /// at random (recorded ids: id % buckets), `frequency` keeps the `buckets - 1` hottest rows apart
  /// and folds the rest together. Under `mod` a bucket is its hottest row plus the mean of its
  /// others. So are slots of `lru` and `lfu`, which rows leave for others (row_cache_model.h):
  /// batches touch fewer slots than ids, as far as both are many of them.
  using Remap = RowRemap;
  [[nodiscard]] Access remapped(std::int64_t buckets, Remap kind) const;

  /// Row id of a popularity rank: a bijection of [0, rows) in O(1) memory, drawn with the seed
  /// (zipf and derived laws); the identity (uniform); the recording's own ids (indices).
  [[nodiscard]] std::int64_t row_of_rank(std::int64_t rank) const;

 private:
  friend class AccessSampler;
  friend struct StoredAccess;  ///< core/stored_access.h: a law as a file holds it
  struct Data;
  explicit Access(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  [[nodiscard]] Access derived(Data data) const;
  std::shared_ptr<const Data> data_;
};

/// Draws popularity ranks from an Access law; deterministic for a seed, about 10 ns per draw, no
/// O(rows) table: an alias table picks the bin, rejection the rank inside it (exact for zipf).
/// A recording is replayed in its order, around and around, from lookup `seed` modulo its length.
/// A copy continues independently from the same place.
class AccessSampler {
 public:
  AccessSampler(const Access& access, std::uint64_t seed);
  void reseed(std::uint64_t seed);  ///< as if newly made with this seed, but cheap
  std::int64_t next_rank();
  std::int64_t next_row();                     ///< row_of_rank of the next rank
  void fill_rows(std::span<std::int64_t> to);  ///< the next to.size() rows

 private:
  struct Table;
  Access access_;
  std::shared_ptr<const Table> table_;
  std::uint64_t state_ = 0;
};

/// Deduplication of feature values inside a session (RecD, arXiv 2211.05239): S >= 1 samples per
/// session, each value kept from the previous sample with probability d in [0, 1].
/// DF = 1 / (1 - ((S - 1) / S) d).
double dedup_factor(double samples_per_session, double keep_probability);

}  // namespace stepcast
