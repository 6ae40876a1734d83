// The one-pass sketch of an id stream against counting every id.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <random>
#include <unordered_map>

#include "core/access/access.h"
#include "core/access/id_sketch.h"
#include "core/access/stack_distance.h"

using namespace stepcast;

namespace {

std::vector<std::int64_t> draws(const Access& law, std::size_t count) {
  std::vector<std::int64_t> ids(count);
  AccessSampler sampler(law, 7);
  sampler.fill_rows(ids);
  return ids;
}

std::unordered_map<std::int64_t, std::int64_t> counted(const std::vector<std::int64_t>& ids) {
  std::unordered_map<std::int64_t, std::int64_t> counts;
  for (const std::int64_t id : ids) {
    ++counts[id];
  }
  return counts;
}

IdSketch sketch_of(const std::vector<std::int64_t>& ids) {
  IdSketch s;
  s.add(ids);
  return s;
}

/// A stream that wants to hide its hot row: it comes only after 2 million others, seen once each.
std::vector<std::int64_t> late_hot_row() {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 2'000'000; ++i) {
    ids.push_back(i * 977);
  }
  ids.insert(ids.end(), 20'000, 5);
  return ids;
}

}  // namespace

TEST_CASE("a sketch of few rows is exact", "[core][sketch]") {
  const auto ids = draws(Access::zipf(50'000, 1.1), 400'000);
  const IdSketch s = sketch_of(ids);
  const auto counts = counted(ids);
  CHECK(s.exact());
  CHECK(s.distinct() == static_cast<double>(counts.size()));
  CHECK(s.distinct_error() == 0);
  CHECK(s.floor() == 0);
  CHECK(s.hot_rows().front().count == counts.at(s.hot_rows().front().row));
  const auto bins = s.bins();
  const auto exact = reuse_bins(ids);
  REQUIRE(bins.size() == exact.size());
  for (std::size_t i = 0; i < bins.size(); ++i) {
    CHECK(bins[i].unique_rows == Approx(exact[i].unique_rows));
    CHECK(bins[i].accesses == Approx(exact[i].accesses));
  }
}

TEST_CASE("a sketch keeps its bounds on streams of every shape", "[core][sketch][oracle]") {
  struct Case {
    const char* name;
    std::vector<std::int64_t> ids;
  };
  const std::vector<Case> cases{{"zipf 0.6", draws(Access::zipf(5'000'000, 0.6), 3'000'000)},
                                {"zipf 1.05", draws(Access::zipf(20'000'000, 1.05), 3'000'000)},
                                {"zipf 1.4", draws(Access::zipf(100'000'000, 1.4), 3'000'000)},
                                {"uniform", draws(Access::uniform(1'000'000), 3'000'000)},
                                {"late hot row", late_hot_row()}};
  for (const Case& c : cases) {
    const std::string& name = c.name;
    CAPTURE(name);
    const IdSketch s = sketch_of(c.ids);
    const auto counts = counted(c.ids);
    const auto n = static_cast<double>(c.ids.size());
    CHECK(s.lookups() == n);
    CHECK(s.memory_bytes() < 5'000'000);
    CHECK(s.distinct_error() <= 0.006);
    // Four standard errors.
    CHECK(std::abs(s.distinct() / static_cast<double>(counts.size()) - 1) <=
          4 * s.distinct_error());
    CHECK(static_cast<double>(s.floor()) <= n / 2048);
    std::unordered_map<std::int64_t, std::int64_t> found;
    for (const IdSketch::HotRow& h : s.hot_rows()) {
      const std::int64_t truth = counts.at(h.row);
      REQUIRE(h.count <= truth);
      REQUIRE(truth <= h.count + h.missed);
      found.emplace(h.row, h.count);
    }
    if (!s.exact()) {
      for (const auto& [row, count] : counts) {
        if (count > s.floor()) {
          REQUIRE(found.count(row) == 1);
        }
      }
    }
    // The law: shares of lookups by reuse within 1.5 % of all lookups in every bin, and what a job
    // asks of it within 2 %.
    const auto bins = s.bins();
    const auto exact = reuse_bins(c.ids);
    double accesses = 0;
    for (std::size_t i = 0; i < std::max(bins.size(), exact.size()); ++i) {
      const double mine = i < bins.size() ? bins[i].accesses : 0;
      const double theirs = i < exact.size() ? exact[i].accesses : 0;
      CAPTURE(i, mine / n, theirs / n);
      CHECK(std::abs(mine - theirs) <= 0.015 * n);
      accesses += mine;
    }
    CHECK(accesses == Approx(n).epsilon(1e-9));
    const std::int64_t rows = s.largest_id() + 1;
    const Access sketched = Access::histogram(rows, s.bins(rows), s.lookups());
    const Access whole = Access::histogram(rows, exact, n);
    for (const double part : {0.01, 0.1, 0.5}) {
      CHECK(sketched.unique(part * n).value == Approx(whole.unique(part * n).value).epsilon(0.02));
    }
    for (const double k : {10.0, 1000.0, 100'000.0}) {
      CHECK(std::abs(sketched.cdf(k).value - whole.cdf(k).value) <= 0.02);
    }
  }
}

TEST_CASE("a sketch does not depend on how its stream is cut", "[core][sketch][property]") {
  const auto ids = draws(Access::zipf(3'000'000, 0.9), 700'000);
  const IdSketch whole = sketch_of(ids);
  IdSketch parts;
  std::mt19937 rng(3);
  for (std::size_t at = 0; at < ids.size();) {
    const std::size_t take = std::min<std::size_t>(ids.size() - at, rng() % 5000);
    parts.add(std::span(ids).subspan(at, take));
    at += take;
  }
  CHECK(parts.distinct() == whole.distinct());
  CHECK(parts.floor() == whole.floor());
  const auto a = parts.bins();
  const auto b = whole.bins();
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].unique_rows == b[i].unique_rows);
    CHECK(a[i].accesses == b[i].accesses);
  }
}

TEST_CASE("a sketch counts no more rows than the table has", "[core][sketch]") {
  // Every row is looked up, so the estimate may lie above the truth.
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 900'000; ++i) {
    ids.push_back(i % 300'000);
  }
  const IdSketch s = sketch_of(ids);
  double rows = 0;
  for (const ReuseBin& b : s.bins(300'000)) {
    rows += b.unique_rows;
  }
  CHECK(rows <= 300'000 * 1.0000001);
  CHECK(rows >= 300'000 * 0.98);
  CHECK(IdSketch().distinct() == 0);
  CHECK(IdSketch().bins().empty());
}
