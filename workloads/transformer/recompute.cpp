#include <fmt/format.h>

#include "workloads/transformer/stage.h"

// Recomputation per op: the forward pass keeps what attention, every second matrix product and the
// sums over tensor ranks made. The backward pass of a layer makes the rest again, in the order of
// the forward pass, up to the last value it reads.
//
// Products count in the order query, key, value, projection, fc1 (its gate first), fc2; the odd
// ones are kept. Here query, key and value are columns of one matrix, gate and fc1 of another, so
// the columns of the others are made again.
// Source: torchtitan at 004b3148, torchtitan/parallelisms/parallelize_llama.py, selective
// activation checkpointing, option "op".
namespace stepcast::workloads {

/// What the forward pass keeps beside attention's results, declared for a layer.
void TransformerStage::keep_products(const std::string& at, LayerTensors& t) {
  const std::int64_t n = shape_.tokens;
  const std::int64_t h = shape_.model.hidden;
  const auto keep = [&](const char* name, std::int64_t rows, std::int64_t columns) {
    return writer_.builder().activation(at + name, rows, columns, compute_);
  };
  const std::int64_t keys = shape_.kv_heads * shape_.core_dim;
  t.products.push_back(keep("query_and_value", n, shape_.qkv_width - keys));
  if (shape_.model.gated()) {
    t.products.push_back(keep("gate", n, shape_.ffn));
    t.products.push_back(keep("fc2", n, h));  // the seventh; without a gate it is the sixth
  }
  if (shape_.sequence_parallel) {
    t.products.push_back(keep("sums", shape_.rows, h));  // the other is `middle`
  }
}

void TransformerStage::products_again(std::int64_t layer, const LayerTensors& t) {
  const TransformerWorkload& m = shape_.model;
  const std::string at = fmt::format("layer.{}.", layer);
  const std::int64_t n = shape_.tokens;
  const std::int64_t h = m.hidden;
  const TensorId partial = writer_.workspace("partial", n, h, compute_);
  norm_forward("layer.norm1", at + "norm1", t.input, t.norm1, t.norm1_statistics, true);
  const Gathered x = gathered_for_product("layer.attention.gather", t.norm1, Rows::kInput);
  gemm({"layer.attention.key", n, shape_.kv_heads * shape_.core_dim, h, x.tensor,
        parameter(at + "attention.qkv.weight").weight, t.qkv},
       x);
  std::vector<TensorId> in{t.qkv};
  in.insert(in.end(), t.products.begin(), t.products.end());
  writer_
      .compute(OpKind::kRopeForward, "layer.attention.rope",
               {n, shape_.heads + shape_.kv_heads, m.head_dim, m.head_dim})
      .in(in)
      .out({t.qkv});
  gemm({"layer.attention.projection", n, h, shape_.query_width, t.attention,
        parameter(at + "attention.projection.weight").weight, partial});
  Gathered attended{t.middle, -1};
  if (!shape_.sequence_parallel) {
    attended = reduced("layer.attention.reduce", partial);
    writer_.await(attended.ready);
  }
  add("layer.attention.add", t.input, attended.tensor, "", t.middle, t.attention_masks);
  norm_forward("layer.norm2", at + "norm2", t.middle, t.norm2, t.norm2_statistics, true);
  if (m.gated()) {
    const Gathered y = gathered_for_product("layer.mlp.gather", t.norm2, Rows::kInput);
    gemm({"layer.mlp.fc1", n, shape_.ffn, h, y.tensor, parameter(at + "mlp.fc1.weight").weight,
          t.fc1},
         y);
  }
  writer_.compute(OpKind::kActivationForward, "layer.mlp.activation", {n, shape_.ffn})
      .in({t.fc1})
      .out({t.activated})
      .attributes(ActivationAttributes{m.activation});
}

}  // namespace stepcast::workloads
