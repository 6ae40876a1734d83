#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "core/error.h"
#include "studies/traces/internal/job_sketch.h"

namespace stepcast::studies {

std::string optimizer_of(std::string_view torch_class) {
  constexpr std::array<std::pair<std::string_view, OptimizerKind>, 7> kNames{{
      {"SGD", OptimizerKind::kSgd},
      {"Adam", OptimizerKind::kAdam},
      {"AdamW", OptimizerKind::kAdam},
      {"FusedAdam", OptimizerKind::kAdam},
      {"DistributedOptimizer", OptimizerKind::kAdam},
      {"Adagrad", OptimizerKind::kAdagrad},
      {"RowWiseAdagrad", OptimizerKind::kRowwiseAdagrad},
  }};
  for (const auto& [name, kind] : kNames) {
    if (name == torch_class) {
      return std::string(name_of(kind));
    }
  }
  return {};
}

namespace {

constexpr double kOneModel = 0.8;  ///< share of the layers that are as wide as each other

/// Attention as a rank computes it.
struct Attention {
  std::size_t first = 0, last = 0;  ///< its ops
  std::int64_t batch = 0;           ///< 0: together with heads
  std::int64_t heads = 0, kv_heads = 0, length = 0, keys = 0, dim = 0;
  bool fused = false;
};

std::int64_t batched(const SeenOp& o) {
  return o.op.kind == OpKind::kGemm && o.op.shape[3] > 1 ? o.op.shape[3] : 0;
}

/// Fused kernels, or pairs of batched products: queries by keys, weights by values.
std::vector<Attention> attentions_of(const SeenRank& rank) {
  std::vector<Attention> all;
  for (std::size_t i = 0; i < rank.ops.size(); ++i) {
    const SeenOp& o = rank.ops[i];
    const auto& s = o.op.shape;
    if (o.backward) {
      continue;
    }
    if (o.op.kind == OpKind::kAttentionForward) {
      all.push_back({i, i, s[0], s[1], s[2], s[3], s[4], s[5], true});
      continue;
    }
    if (batched(o) == 0) {
      continue;
    }
    std::size_t j = i + 1;
    while (j < rank.ops.size() && rank.ops[j].op.kind != OpKind::kGemm) {
      ++j;
    }
    if (j < rank.ops.size() && batched(rank.ops[j]) == s[3] && rank.ops[j].op.shape[0] == s[0] &&
        rank.ops[j].op.shape[2] == s[1] && rank.ops[j].op.shape[1] == s[2]) {
      all.push_back({i, j, 0, s[3], s[3], s[0], s[1], s[2], false});
      i = j;
    }
  }
  return all;
}

/// One layer of a rank.
struct Layer {
  Attention attention;
  std::int64_t tokens = 0, hidden = 0, projected = 0;  ///< columns of queries, keys and values
  std::int64_t ffn = 0, into_ffn = 0;                  ///< its width; columns of what leads there
  std::int64_t experts = 0, copies = 0;                ///< rows that experts computed
  std::int64_t head = 0;                               ///< columns of the last product
  bool head_after = false;
};

/// Products between two places.
std::vector<const Op*> products(const SeenRank& rank, std::size_t from, std::size_t to) {
  std::vector<const Op*> all;
  for (std::size_t i = from; i < to; ++i) {
    if (is_product(rank.ops[i])) {
      all.push_back(&rank.ops[i].op);
    }
  }
  return all;
}

std::optional<Layer> layer_of(const SeenRank& rank, const std::vector<Attention>& all,
                              std::size_t which) {
  Layer layer{.attention = all[which]};
  const std::size_t next = which + 1 < all.size() ? all[which + 1].first : rank.ops.size();
  const auto after = products(rank, layer.attention.last + 1, next);
  if (after.empty()) {
    return std::nullopt;
  }
  const auto rows = [](const Op* o) { return o->shape[0]; };
  const auto out = [](const Op* o) { return o->shape[1]; };
  const auto in = [](const Op* o) { return o->shape[2]; };
  layer.tokens = rows(after.front());
  layer.hidden = out(after.front());
  layer.attention.heads = in(after.front()) / std::max<std::int64_t>(1, layer.attention.dim);
  std::size_t last_down = 0;
  std::int64_t to_first = 0, downs = 0;
  for (std::size_t i = 1; i < after.size(); ++i) {
    if (out(after[i]) == layer.hidden && in(after[i]) != layer.hidden) {
      layer.ffn = layer.ffn == 0 ? in(after[i]) : layer.ffn;
      layer.copies += rows(after[i]);
      ++downs;
      last_down = i;
    } else if (downs == 0 && in(after[i]) == layer.hidden) {
      const bool router = i == 1 && 4 * out(after[i]) <= layer.hidden && after.size() > 3;
      layer.experts = router ? out(after[i]) : layer.experts;
      to_first += router ? 0 : out(after[i]);
    }
  }
  layer.into_ffn = to_first;
  if (which + 1 == all.size() && last_down + 1 < after.size() && in(after.back()) == layer.hidden) {
    layer.head = out(after.back());
    layer.head_after = true;
  }
  const std::size_t before = which == 0 ? 0 : all[which - 1].last + 1;
  const auto leading = products(rank, before, layer.attention.first);
  for (auto o = leading.rbegin(); o != leading.rend() && in(*o) == layer.hidden; ++o) {
    layer.projected += out(*o);
  }
  return layer;
}

/// How groups are used, by what they move.
struct Axes {
  std::int64_t tensor = 1, expert = 1, data = 0;
  bool sequence = false, pipelined = false;
  int zero = 0;
};

Axes axes_of(const std::vector<SeenRank>& ranks, std::int64_t world, double activations) {
  Axes axes;
  bool gathers_weights = false, scatters_gradients = false;
  for (const SeenRank& rank : ranks) {
    for (const SeenCollective& c : rank.collectives) {
      const std::int64_t size = c.size > 0 ? c.size : world;
      const bool moves_activations =
          std::abs(static_cast<double>(c.bytes) - activations) < 0.01 * activations;
      const bool sums = c.kind == OpKind::kAllReduce || c.kind == OpKind::kReduceScatter;
      if (c.kind == OpKind::kSend || c.kind == OpKind::kRecv) {
        axes.pipelined = true;
      } else if (c.kind == OpKind::kAllToAll || c.kind == OpKind::kAllToAllV) {
        axes.expert = c.integers ? axes.expert : std::max(axes.expert, size);
      } else if (moves_activations && (sums || c.kind == OpKind::kAllGather)) {
        axes.tensor = std::max(axes.tensor, size);
        axes.sequence = axes.sequence || c.kind != OpKind::kAllReduce;
      } else if (c.bytes > 0 && sums && c.backward) {
        axes.data = std::max(axes.data, size);
        scatters_gradients = scatters_gradients || c.kind == OpKind::kReduceScatter;
      } else if (c.bytes > 0 && c.kind == OpKind::kAllGather && !c.backward) {
        gathers_weights = true;
      }
    }
  }
  axes.zero = scatters_gradients ? (gathers_weights ? 3 : 1) : 0;
  return axes;
}

std::int64_t microbatches_of(const std::vector<SeenRank>& ranks, std::int64_t hidden) {
  std::int64_t most = 0;
  for (const SeenRank& rank : ranks) {
    std::int64_t rows = 0, count = 0;
    for (const SeenOp& o : rank.ops) {
      if (!o.backward && o.op.kind == OpKind::kTokenEmbeddingForward && o.op.shape[1] == hidden) {
        count = o.op.shape[2] > rows ? 1 : count + (o.op.shape[2] == rows ? 1 : 0);
        rows = std::max(rows, o.op.shape[2]);
      }
    }
    most = std::max(most, count);
  }
  return most;
}

std::int64_t vocabulary_of(const std::vector<SeenRank>& ranks, std::int64_t hidden) {
  std::int64_t rows = 0;
  for (const SeenRank& rank : ranks) {
    for (const SeenOp& o : rank.ops) {
      if (o.op.kind == OpKind::kTokenEmbeddingForward && o.op.shape[1] == hidden) {
        rows = std::max(rows, o.op.shape[2]);
      }
    }
  }
  return rows;
}

void sketch_ffn(const Layer& layer, const SeenRank& rank, std::int64_t tensor,
                InferredWorkload& sketch) {
  if (layer.ffn == 0) {
    sketch.assume("workload.ffn_hidden", 4 * layer.hidden,
                  "no product with a shape follows attention's: four times the hidden size");
    sketch.assume("workload.activation", "gelu", "the trace does not tell");
    return;
  }
  const bool gated = layer.into_ffn >= 2 * layer.ffn;
  const bool gelu = std::any_of(rank.ops.begin(), rank.ops.end(), [](const SeenOp& o) {
    return o.op.kind == OpKind::kActivationForward &&
           o.op.as<ActivationAttributes>().activation == Activation::kGelu;
  });
  sketch.tell("workload.ffn_hidden", layer.ffn * (layer.experts > 0 ? 1 : tensor),
              "input of the product back to the hidden size");
  sketch.tell("workload.activation", gated ? (gelu ? "geglu" : "swiglu") : "gelu",
              gated ? "twice as many columns lead there" : "as many columns lead there");
  if (layer.experts > 0) {
    const double copies = static_cast<double>(layer.copies) / static_cast<double>(layer.tokens);
    sketch.tell(
        "workload.moe",
        {{"experts", layer.experts},
         {"per_token", std::max<std::int64_t>(1, std::llround(copies))},
         {"ffn_hidden", layer.ffn}},
        fmt::format("columns of the router; rows that experts computed: {:.3g} a token", copies));
  }
}

void sketch_recompute(const SeenRank& rank, InferredWorkload& sketch) {
  std::int64_t forward = 0, backward = 0, attention = 0;
  for (const SeenOp& o : rank.ops) {
    forward += is_product(o) ? 1 : 0;
    backward += o.backward && o.op.kind == OpKind::kGemm && o.op.shape[3] == 1 ? 1 : 0;
    attention += o.backward && o.op.kind == OpKind::kAttentionForward ? 1 : 0;
  }
  if (backward == 0) {
    sketch.tell("phase", "prefill", "there is no backward pass");
    return;
  }
  const double ratio = static_cast<double>(backward) / static_cast<double>(forward);
  sketch.tell(
      "parallel.recompute",
      ratio > 2.6     ? "full"
      : attention > 0 ? "selective"
                      : "none",
      fmt::format("{:.3g} products in the backward pass for one in the forward pass", ratio));
}

/// The format that most of the FLOPs of products and attention have, with their share.
std::pair<Format, double> format_of(const SeenRank& rank) {
  std::map<Format, double> flops;
  double all = 0;
  for (const SeenOp& o : rank.ops) {
    if (o.op.kind == OpKind::kGemm || o.op.kind == OpKind::kAttentionForward) {
      flops[o.op.format] += o.op.flops.base();
      all += o.op.flops.base();
    }
  }
  const auto most = std::max_element(flops.begin(), flops.end(), [](const auto& a, const auto& b) {
    return a.second < b.second;
  });
  return {most->first, all > 0 ? most->second / all : 1};
}

/// Layers by hidden size, in the order they come: those of several models are no job.
void reject_several(const SeenRank& rank, const std::vector<Attention>& all,
                    const std::string& source) {
  std::vector<std::pair<std::int64_t, std::int64_t>> widths;
  std::int64_t layers = 0, most = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto layer = layer_of(rank, all, i);
    if (!layer) {
      continue;
    }
    auto known = std::find_if(widths.begin(), widths.end(),
                              [&](const auto& w) { return w.first == layer->hidden; });
    known = known != widths.end() ? known : widths.insert(widths.end(), {layer->hidden, 0});
    most = std::max(most, ++known->second);
    ++layers;
  }
  // The first layer stands for all.
  if (widths.front().second == most &&
      static_cast<double>(most) >= kOneModel * static_cast<double>(layers)) {
    return;
  }
  std::string text;
  for (const auto& [hidden, count] : widths) {
    text += fmt::format("{}{} layers of {}", text.empty() ? "" : ", ", count, hidden);
  }
  throw InputError(source, fmt::format("holds several models in one step, and a job is of one: {}; "
                                       "name the ranges of one of them with --mark",
                                       text));
}

struct Plan {
  std::int64_t tensor = 1, pipeline = 1, data = 1;
};

Plan sketch_plan(const Axes& axes, std::int64_t world, InferredWorkload& sketch) {
  Plan plan{axes.tensor, 1, 1};
  if (axes.pipelined && axes.data > 0) {
    plan.pipeline = std::max<std::int64_t>(1, world / (axes.tensor * axes.data));
    sketch.tell("parallel.pipeline", plan.pipeline,
                "sends and receives; ranks left by other groups");
  } else if (axes.pipelined) {
    plan.pipeline = std::max<std::int64_t>(1, world / axes.tensor);
    sketch.assume("parallel.pipeline", plan.pipeline,
                  "sends and receives, but no sum of gradients tells the replicas: taken as one");
  }
  plan.data = std::max<std::int64_t>(1, world / (plan.tensor * plan.pipeline));
  sketch.tell("devices", world, "ranks of the run");
  sketch.tell("parallel.tensor", plan.tensor,
              plan.tensor > 1 ? "groups that move activations" : "no group moves activations");
  sketch.tell("parallel.data", plan.data, "the ranks that are left");
  if (axes.expert > 1) {
    sketch.tell("parallel.expert", axes.expert, "groups that exchange rows in the forward pass");
  }
  if (plan.tensor > 1) {
    sketch.tell(
        "parallel.sequence_parallel", axes.sequence,
        axes.sequence ? "activations are gathered and scattered" : "activations are summed");
  }
  if (plan.data > 1) {
    sketch.tell("parallel.zero", axes.zero,
                axes.zero == 0   ? "gradients are summed on every rank"
                : axes.zero == 3 ? "weights are gathered in the forward pass"
                                 : "gradients are scattered (stage 2 looks alike)");
  }
  return plan;
}

}  // namespace

bool sketch_transformer(const std::vector<SeenRank>& ranks, std::int64_t world,
                        const std::string& source, InferredWorkload& sketch) {
  const SeenRank& rank = ranks.front();
  const std::vector<Attention> all = attentions_of(rank);
  const auto layer = all.empty() ? std::nullopt : layer_of(rank, all, 0);
  if (!layer || layer->attention.dim == 0 || layer->attention.heads == 0) {
    return false;
  }
  reject_several(rank, all, source);
  const auto last = layer_of(rank, all, all.size() - 1);
  const Attention& a = layer->attention;
  const std::int64_t sequence = a.length;
  const std::int64_t micro =
      a.batch > 0 ? a.batch : std::max<std::int64_t>(1, layer->tokens / sequence);
  const auto [format, flops_share] = format_of(rank);
  const Axes axes =
      axes_of(ranks, world, format_bytes(format, layer->tokens, layer->hidden).base());
  sketch.set("workload.kind", "transformer");
  sketch.set("workload.name", "recorded");
  const Plan plan = sketch_plan(axes, world, sketch);
  const std::int64_t batches = std::max<std::int64_t>(1, microbatches_of(ranks, layer->hidden));
  const std::int64_t heads = a.heads * plan.tensor;
  std::int64_t kv_heads = a.fused ? a.kv_heads : a.heads;
  if (const std::int64_t left = layer->projected / a.dim - a.heads; left > 1 && left % 2 == 0) {
    kv_heads = left / 2;
  }
  sketch.tell("workload.layers", static_cast<std::int64_t>(all.size()) / batches * plan.pipeline,
              fmt::format("attention, {} times on a rank in {} microbatches", all.size(), batches));
  sketch.tell("workload.hidden", layer->hidden, "output of the product after attention");
  sketch.tell("workload.heads", heads, "attention, times the tensor-parallel ranks");
  sketch.tell("workload.kv_heads", kv_heads * plan.tensor, "columns of keys and values");
  if (a.dim * heads != layer->hidden) {
    sketch.tell("workload.head_dim", a.dim, "attention");
  }
  sketch_ffn(*layer, rank, plan.tensor, sketch);
  const std::int64_t rows = vocabulary_of(ranks, layer->hidden);
  const std::int64_t columns = last && last->head_after ? last->head : 0;
  if (const std::int64_t vocabulary = std::max(rows, columns); vocabulary > 0) {
    sketch.tell("workload.vocabulary",
                columns > 0 && columns < rows ? rows : vocabulary * plan.tensor,
                "rows of the token embedding, columns of the last product");
  } else {
    sketch.assume("workload.vocabulary", 32000, "neither an embedding nor a last product is there");
  }
  sketch.assume("workload.tied_embeddings", nullptr, "shapes do not tell whether weights are one");
  sketch.tell("batch.global", micro * batches * plan.data,
              fmt::format("{} sequences, {} microbatches, {} replicas", micro, batches, plan.data));
  sketch.tell("batch.micro", micro, "attention");
  sketch.tell("batch.sequence", sequence, "attention");
  sketch.tell("formats.compute", name_of(format),
              fmt::format("type of {:.1f} % of the FLOPs of products", 100 * flops_share));
  const bool trains = std::any_of(rank.ops.begin(), rank.ops.end(),
                                  [](const SeenOp& o) { return o.backward; });
  if (a.fused || trains) {
    sketch.tell("attention", a.fused ? "flash" : "unfused",
                a.fused ? "a fused kernel" : "two batched products");
  } else {
    sketch.assume("attention", "flash",
                  "two batched products were recorded; inference is modelled fused: the nearest");
  }
  sketch_recompute(rank, sketch);
  if (const std::string optimizer = optimizer_of(rank.optimizer); !optimizer.empty()) {
    sketch.tell("optimizer", optimizer, "torch.optim's step");
  } else {
    sketch.assume("optimizer", nullptr, "no step of a known optimizer was recorded");
  }
  return true;
}

}  // namespace stepcast::studies
