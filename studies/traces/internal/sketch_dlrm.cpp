#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "studies/traces/internal/job_sketch.h"

namespace stepcast::studies {
namespace {

using Json = InferredWorkload::Json;

struct Product {
  std::int64_t rows = 0, out = 0, in = 0;
};
using Chain = std::vector<Product>;

/// Products of which each takes what the one before made.
std::vector<Chain> chains_of(const SeenRank& rank) {
  std::vector<Chain> chains;
  for (const SeenOp& o : rank.ops) {
    if (!is_product(o)) {
      continue;
    }
    const Product p{o.op.shape[0], o.op.shape[1], o.op.shape[2]};
    if (chains.empty() || chains.back().back().out != p.in || chains.back().back().rows != p.rows) {
      chains.emplace_back();
    }
    chains.back().push_back(p);
  }
  return chains;
}

Json widths_of(const Chain& chain) {
  Json widths = Json::array();
  for (const Product& p : chain) {
    widths.push_back(p.out);
  }
  return widths;
}

/// Low-rank cross layers at the head of a chain: down to a rank and up to the same width again.
std::size_t cross_layers(const Chain& chain) {
  std::size_t layers = 0;
  while (2 * layers + 1 < chain.size()) {
    const Product& down = chain[2 * layers];
    const Product& up = chain[2 * layers + 1];
    if (down.in != chain.front().in || up.out != down.in || down.out != chain.front().out ||
        down.out >= down.in) {
      break;
    }
    ++layers;
  }
  return layers;
}

/// Tables as the lookups of one rank show them.
struct Tables {
  const EmbeddingGroup* group = nullptr;
  std::int32_t rank = 0;
  bool shared = false;  ///< every rank has its own copy
};

std::vector<Tables> tables_of(const std::vector<SeenRank>& ranks, std::int64_t local,
                              std::int64_t world) {
  std::vector<Tables> all;
  for (const SeenRank& rank : ranks) {
    for (const SeenOp& o : rank.ops) {
      if (o.backward || !o.tables || o.op.kind != OpKind::kEmbeddingForward) {
        continue;
      }
      const bool shared = world > 1 && std::llround(o.tables->shards.front().bags) == local;
      if (!shared || &rank == ranks.data()) {
        all.push_back({&*o.tables, rank.rank, shared});
      }
    }
  }
  return all;
}

void sketch_tables(const std::vector<Tables>& found, std::int64_t world, InferredWorkload& sketch) {
  Json tables = Json::array(), shards = Json::array();
  std::int64_t copied = 0;
  Json everyone = Json::array();
  for (std::int64_t r = 0; r < world; ++r) {
    everyone.push_back(r);
  }
  for (const Tables& t : found) {
    for (const EmbeddingShard& s : t.group->shards) {
      const std::string name = fmt::format("table{}", tables.size());
      const double pooling = std::round(s.lookups / s.bags * 1e6) / 1e6;
      tables.push_back({{"name", name},
                        {"rows", s.table_rows},
                        {"dim", s.dim},
                        {"pooling", pooling == std::round(pooling) ? Json(std::llround(pooling))
                                                                   : Json(pooling)}});
      copied += t.shared ? 1 : 0;
      shards.push_back({{"name", name},
                        {"shards",
                         {{{"rows", {0, s.table_rows}},
                           {"columns", {0, s.dim}},
                           {"sharding", t.shared ? "data_parallel" : "table_wise"},
                           {"groups", Json::array({t.shared ? everyone : Json::array({t.rank})})},
                           {"split", t.shared ? "replicate" : "block"}}}}});
    }
  }
  const std::size_t count = tables.size();
  sketch.set("workload.tables", std::move(tables));
  sketch.told.push_back({"workload.tables", fmt::format("{} tables", count),
                         "lookups: columns, bags and ids of each rank's tables"});
  sketch.assume("workload.tables.rows", nullptr,
                "a lookup tells the rows of its tables together: taken as equal");
  sketch.assume("workload.tables.pooling", nullptr,
                "a lookup tells the ids of its tables together: taken as alike");
  sketch.assume("workload.tables.access", nullptr,
                "which rows were looked up is in no trace: taken as uniform");
  if (world > 1) {
    sketch.set("embedding.plan", {{"stepcast", 1},
                                  {"kind", "embedding"},
                                  {"workload", "recorded"},
                                  {"system", "recorded"},
                                  {"devices", world},
                                  {"tables", std::move(shards)}});
    sketch.told.push_back({"embedding.plan",
                           fmt::format("{} table-wise, {} data-parallel",
                                       count - static_cast<std::size_t>(copied), copied),
                           "samples per lookup: those of all ranks, or a rank's own"});
  }
}

void sketch_interaction(const SeenRank& rank, const Chain& bottom, Chain& top,
                        InferredWorkload& sketch) {
  if (const std::size_t layers = cross_layers(top); layers > 0) {
    sketch.tell("workload.interaction",
                {{"kind", "dcnv2"}, {"layers", layers}, {"rank", top.front().out}},
                "products down to a rank and up again");
    top.erase(top.begin(), top.begin() + static_cast<std::ptrdiff_t>(2 * layers));
    return;
  }
  for (const SeenOp& o : rank.ops) {
    if (!o.backward && o.op.kind == OpKind::kGemm && o.op.shape[3] == bottom.front().rows &&
        o.op.shape[0] == o.op.shape[1] && o.op.shape[2] == bottom.back().out) {
      sketch.tell("workload.interaction", {{"kind", "dot"}},
                  fmt::format("a product of {0} x {0} for each sample", o.op.shape[0]));
      return;
    }
  }
  sketch.tell("workload.interaction", {{"kind", "cat"}},
              "nothing between the lookups and the top MLP");
}

void sketch_exchanges(const SeenRank& rank, InferredWorkload& sketch) {
  std::size_t lookup = SIZE_MAX;
  for (std::size_t i = 0; i < rank.ops.size() && lookup == SIZE_MAX; ++i) {
    lookup = rank.ops[i].op.kind == OpKind::kEmbeddingForward ? i : lookup;
  }
  bool ahead = false;
  for (const SeenCollective& c : rank.collectives) {
    const bool exchange = c.kind == OpKind::kAllToAll || c.kind == OpKind::kAllToAllV;
    if (exchange && c.integers) {
      ahead = ahead || c.after > lookup;
    } else if (exchange && c.bytes > 0) {
      sketch.set(c.backward ? "formats.all_to_all_backward" : "formats.all_to_all_forward",
                 c.halves ? "fp16" : "fp32");
    }
  }
  sketch.tell("parallel.dlrm_pipeline", ahead ? "sparse_dist" : "none",
              ahead ? "indices are exchanged after the lookups: those of the next batch"
                    : "indices are exchanged before the lookups");
}

}  // namespace

bool infer_dlrm(const std::vector<SeenRank>& ranks, std::int64_t world, InferredWorkload& sketch) {
  const SeenRank& rank = ranks.front();
  std::vector<Chain> chains = chains_of(rank);
  if (chains.size() < 2) {
    return false;
  }
  const Chain& bottom = chains.front();
  Chain& top = chains.back();
  const std::int64_t local = bottom.front().rows;
  const std::vector<Tables> tables = tables_of(ranks, local, world);
  if (tables.empty() || top.back().out != 1) {
    return false;
  }
  sketch.set("workload.kind", "dlrm");
  sketch.set("workload.name", "recorded");
  sketch.tell("workload.dense_features", bottom.front().in, "the first product's input");
  sketch.tell("workload.bottom_mlp", widths_of(bottom), "products in a chain before the lookups");
  sketch_interaction(rank, bottom, top, sketch);
  sketch.tell("workload.top_mlp", widths_of(top), "products in a chain up to one output");
  sketch_tables(tables, world, sketch);
  sketch.tell("devices", world, "ranks of the run");
  sketch.tell("batch.global", local * world, fmt::format("{} samples on each rank", local));
  const auto product = std::find_if(rank.ops.begin(), rank.ops.end(), is_product);
  sketch.tell("formats.compute", name_of(product->op.format), "type of the first product");
  sketch.tell("formats.embedding", name_of(tables.front().group->format), "type of the tables");
  sketch_exchanges(rank, sketch);
  const std::string dense = optimizer_of(rank.optimizer);
  Json optimizer;
  if (!dense.empty()) {
    optimizer["dense"] = dense;
    optimizer["embedding"] = name_of(tables.front().group->optimizer);
    sketch.tell("optimizer", optimizer, "torch.optim's step and the lookups' own update");
  } else {
    sketch.assume("optimizer", nullptr, "no step of a known optimizer was recorded");
  }
  if (static_cast<std::int64_t>(ranks.size()) < world) {
    sketch.assume("workload.tables", nullptr,
                  fmt::format("{} of {} ranks are in the trace: tables of the others are missing",
                              ranks.size(), world));
  }
  return true;
}

}  // namespace stepcast::studies
