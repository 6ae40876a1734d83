#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "core/access/access.h"
#include "core/error.h"
#include "runtime/data/batch_source.h"
#include "runtime/data/counter_random.h"
#include "runtime/data/dlrm_source.h"
#include "tests/folder.h"
#include "tests/packed.h"

using namespace stepcast;
using namespace stepcast::runtime;

namespace {

EmbeddingTable table(std::int64_t rows, double pooling, Access access) {
  EmbeddingTable t;
  t.name = fmt::format("t{}", rows);
  t.rows = rows;
  t.dim = 8;
  t.pooling = pooling;
  t.access = std::make_shared<const Access>(std::move(access));
  return t;
}

StepInputs clicks(std::int64_t global) {
  StepInputs inputs{.batch = {.global = global}, .dense_features = 13, .tables = {}};
  inputs.tables = {table(1000, 3, Access::zipf(1000, 1.1)), table(50, 2.5, Access::uniform(50)),
                   table(100000, 1, Access::zipf(100000, 0.8, 7))};
  inputs.tables[0].session = Session{5, 0.6};
  return inputs;
}

StepInputs tokens(std::int64_t vocabulary, std::int64_t sequence, std::int64_t global) {
  return {.batch = {global, 1, sequence}, .vocabulary = vocabulary, .tables = {}};
}

HostBatch drawn(const StepInputs& inputs, std::int32_t ranks, std::int32_t rank, std::int64_t step,
                const std::string& file = {}) {
  Mesh mesh;
  mesh.data = ranks;
  HostBatch batch;
  make_batch_source(inputs, mesh, rank, 11, file)->draw(step, batch);
  return batch;
}

}  // namespace

TEST_CASE("any number of ranks draws the same global batch", "[runtime][data]") {
  const StepInputs inputs = clicks(360);
  const auto whole = drawn(inputs, 1, 0, 4);
  const std::int32_t ranks = GENERATE(2, 3, 8);
  CAPTURE(ranks);
  std::size_t sample = 0;
  std::vector<std::size_t> lookup(3, 0);
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    const auto part = drawn(inputs, ranks, rank, 4);
    REQUIRE(part.labels.size() == 360U / static_cast<std::size_t>(ranks));
    for (std::size_t s = 0; s < part.labels.size(); ++s, ++sample) {
      REQUIRE(part.labels[s] == whole.labels[sample]);
      for (std::size_t f = 0; f < 13; ++f) {
        REQUIRE(part.dense[s * 13 + f] == whole.dense[sample * 13 + f]);
      }
    }
    for (std::size_t t = 0; t < 3; ++t) {
      REQUIRE(part.offsets[t].size() == part.labels.size() + 1);
      REQUIRE(static_cast<std::size_t>(part.offsets[t].back()) == part.lookups[t].size());
      for (const std::int64_t row : part.lookups[t]) {
        REQUIRE(row == whole.lookups[t][lookup[t]++]);
      }
    }
  }
  CHECK(sample == whole.labels.size());
  for (std::size_t t = 0; t < 3; ++t) {
    CHECK(lookup[t] == whole.lookups[t].size());
  }
}

TEST_CASE("threads draw the batch that one draws", "[runtime][data]") {
  // A rank of three has 25,000 samples, from within a session on: 75,000 lookups of the first table
  // are three parts.
  const StepInputs inputs = clicks(75'000);
  Mesh mesh;
  mesh.data = 3;
  const auto drawn_on = [&](int threads) {
    HostBatch batch;
    const auto source = make_batch_source(inputs, mesh, 1, 11, {}, threads);
    source->draw(7, batch);  // memory of a step before
    source->draw(4, batch);
    return batch;
  };
  const HostBatch one = drawn_on(1);
  CHECK(one.lookups.front().size() > 2 * 32 * 1024);
  for (const int threads : {0, 2, 5}) {
    CAPTURE(threads);
    const HostBatch several = drawn_on(threads);
    CHECK(several.labels == one.labels);
    CHECK(several.dense == one.dense);
    CHECK(several.lookups == one.lookups);
    CHECK(several.offsets == one.offsets);
    CHECK(several.ranks == one.ranks);
  }
}

TEST_CASE("steps differ, repeats do not", "[runtime][data]") {
  const StepInputs inputs = clicks(64);
  CHECK(drawn(inputs, 1, 0, 1).lookups == drawn(inputs, 1, 0, 1).lookups);
  CHECK(drawn(inputs, 1, 0, 1).lookups != drawn(inputs, 1, 0, 2).lookups);
}

TEST_CASE("lookups follow pooling and access law", "[runtime][data]") {
  const StepInputs inputs = clicks(4096);
  const auto batch = drawn(inputs, 1, 0, 0);
  // Exact pooling is exact; Poisson pooling of mean 2.5 over 4096 samples has deviation
  // sqrt(2.5 / 4096) = 0.025 of its mean count.
  CHECK(batch.lookups[0].size() == 3 * 4096U);
  CHECK(batch.lookups[2].size() == 4096U);
  CHECK(static_cast<double>(batch.lookups[1].size()) / 4096 == Approx(2.5).margin(5 * 0.025));
  for (std::size_t t = 0; t < 3; ++t) {
    REQUIRE(batch.ranks[t].size() == batch.lookups[t].size());
    for (std::size_t i = 0; i < batch.lookups[t].size(); ++i) {
      REQUIRE(batch.lookups[t][i] >= 0);
      REQUIRE(batch.lookups[t][i] < inputs.tables[t].rows);
      REQUIRE(inputs.tables[t].access->row_of_rank(batch.ranks[t][i]) == batch.lookups[t][i]);
    }
  }
  // Table 2: 4096 lookups of one each; the share of the hottest row is p(0), within 5 deviations.
  const double p = inputs.tables[2].access->probability(0);
  const auto hot = static_cast<double>(std::count(batch.ranks[2].begin(), batch.ranks[2].end(), 0));
  CHECK(hot / 4096 == Approx(p).margin(5 * std::sqrt(p / 4096)));
}

TEST_CASE("values stay inside a session with the given probability", "[runtime][data]") {
  // Sessions of 5 samples keep with 0.6: 4 of 5 samples may keep. A fresh draw repeats by chance
  // with the small probability that three zipf lookups agree.
  const auto batch = drawn(clicks(5000), 1, 0, 0);
  int same = 0;
  int first_same = 0;
  for (std::size_t s = 1; s < 5000; ++s) {
    const auto begin = batch.lookups[0].begin() + static_cast<std::ptrdiff_t>(3 * s);
    const bool equal = std::equal(begin, begin + 3, begin - 3);
    (s % 5 == 0 ? first_same : same) += equal ? 1 : 0;
  }
  CHECK(same / 4000.0 == Approx(0.6).margin(0.04));
  CHECK(first_same < 50);
}

TEST_CASE("labels depend on the features", "[runtime][data]") {
  // The best linear score of the planted dense part alone must separate labels: the mean score of
  // the positive samples is higher by several standard errors.
  const auto batch = drawn(clicks(4096), 1, 0, 0);
  double sums[2] = {0, 0};
  double counts[2] = {0, 0};
  for (std::size_t s = 0; s < 4096; ++s) {
    double score = 0;
    for (std::size_t f = 0; f < 13; ++f) {
      score += static_cast<double>(batch.dense[s * 13 + f]) *
               planted_effect(SIZE_MAX, static_cast<std::int64_t>(f));
    }
    const int label = batch.labels[s] > 0.5F ? 1 : 0;
    sums[label] += score;
    counts[label] += 1;
  }
  CHECK(counts[0] > 800);
  CHECK(counts[1] > 800);
  // A score's deviation is about sqrt(13 * 2/3 * 1/3) = 1.7; that of a mean of 2000, 0.04.
  CHECK(sums[1] / counts[1] - sums[0] / counts[0] > 5 * 0.06);
}

TEST_CASE("synthetic text can be learnt and covers the vocabulary's range", "[runtime][data]") {
  const auto batch = drawn(tokens(5120, 100, 40), 2, 1, 3);
  REQUIRE(batch.tokens.size() == 20 * 101);
  std::map<std::int32_t, std::map<std::int32_t, int>> followers;
  for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
    REQUIRE(batch.tokens[i] >= 0);
    REQUIRE(batch.tokens[i] < 5120);
    if (i % 101 != 0) {
      ++followers[batch.tokens[i - 1]][batch.tokens[i]];
    }
  }
  int predicted = 0;
  for (const auto& [token, next] : followers) {
    predicted += std::max_element(next.begin(), next.end(), [](auto& a, auto& b) {
                   return a.second < b.second;
                 })->second;
  }
  CHECK(predicted > 0.7 * 2000);
  CHECK(followers.rbegin()->first > 5120 / 2);
}

TEST_CASE("text files are read as bytes", "[runtime][data]") {
  const fixtures::Folder folder;
  const std::string file = folder.file("text", "the quick brown fox jumps over the lazy dog");
  const auto batch = drawn(tokens(256, 10, 8), 1, 0, 0, file);
  const std::string text = "the quick brown fox jumps over the lazy dog";
  for (std::size_t s = 0; s < 8; ++s) {
    const std::string piece(batch.tokens.begin() + static_cast<std::ptrdiff_t>(s * 11),
                            batch.tokens.begin() + static_cast<std::ptrdiff_t>((s + 1) * 11));
    CHECK(text.find(piece) != std::string::npos);
  }
  CHECK_THROWS_AS(drawn(tokens(100, 10, 8), 1, 0, 0, file), InputError);
  CHECK_THROWS_AS(drawn(tokens(256, 43, 8), 1, 0, 0, file), InputError);
  CHECK_THROWS_AS(drawn(tokens(256, 10, 8), 1, 0, 0, "/no/such/file"), InputError);
}

TEST_CASE("Criteo lines become samples", "[runtime][data]") {
  const auto line = [](const std::string& label, const std::string& first_category) {
    std::string text = label;
    for (int i = 0; i < 13; ++i) {
      text += fmt::format("\t{}", i == 1 ? "" : i == 2 ? "-3" : fmt::format("{}", i));
    }
    text.append("\t").append(first_category);
    for (int i = 1; i < 26; ++i) {
      text += "\t68fd1e64";
    }
    return text;
  };
  const StepInputs inputs = clicks(4);
  const std::string three =
      line("1", "05db9164") + "\r\n" + line("0", "") + "\n" + line("0", "05db9164");
  const fixtures::Folder folder;
  const std::string good = folder.file("criteo", three);
  const auto batch = drawn(inputs, 1, 0, 0, good);  // 3 lines: the 4th starts over
  CHECK(batch.labels == std::vector<float>{1, 0, 0, 1});
  CHECK(batch.dense[0] == 0.0F);
  CHECK(batch.dense[1] == 0.0F);  // empty
  CHECK(batch.dense[2] == 0.0F);  // negative
  CHECK(batch.dense[7] == Approx(std::log1p(7.0)));
  // Hashes modulo the rows, 0 where one is missing: what the readers of access laws make of them.
  CHECK(batch.lookups[0] ==
        std::vector<std::int64_t>{0x05db9164 % 1000, 0, 0x05db9164 % 1000, 0x05db9164 % 1000});
  CHECK(batch.lookups[1] == std::vector<std::int64_t>(4, 0x68fd1e64 % 50));
  CHECK(batch.offsets[2] == std::vector<std::int64_t>{0, 1, 2, 3, 4});
  const std::string zstd = folder.file("criteo.zst", packed_text(three, "zstd"));
  CHECK(drawn(inputs, 1, 0, 0, zstd).lookups == batch.lookups);
  const std::string packed = packed_text(three, "zstd");
  const std::string cut = folder.file("criteo_cut.zst", packed.substr(0, packed.size() / 2));
  CHECK_THROWS_AS(drawn(inputs, 1, 0, 0, cut), InputError);

  const std::string short_line = folder.file("criteo_short", line("1", "a") + "\n0\t1\t2\n");
  CHECK_THROWS_WITH(drawn(inputs, 1, 0, 0, short_line),
                    Catch::Contains(":2") && Catch::Contains("3 columns"));
  // Beyond 64 bits: the third integer, which was "-3".
  std::string large = line("1", "a");
  large.replace(large.find("-3"), 2, "99999999999999999999");
  const std::string beyond = folder.file("criteo_large", large);
  CHECK_THROWS_WITH(drawn(inputs, 1, 0, 0, beyond),
                    Catch::Contains(":1") && Catch::Contains("'99999999999999999999' in column 4"));
  const std::string category =
      folder.file("criteo_category", line("1", "a") + "\n" + line("1", "user7"));
  CHECK_THROWS_WITH(drawn(inputs, 1, 0, 0, category),
                    Catch::Contains(":2") && Catch::Contains("'user7' in column 15; expected"));
  const std::string label = folder.file("criteo_label", line("yes", "a"));
  CHECK_THROWS_WITH(drawn(inputs, 1, 0, 0, label), Catch::Contains("label 'yes'"));
}
