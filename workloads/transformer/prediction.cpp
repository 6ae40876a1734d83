#include <fmt/format.h>

#include "workloads/transformer/stage.h"

// Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2, as Megatron-LM has it): after
// the last layer, once for each token further,
//
//   hidden -> norm ---> product -+-> layer -> hidden of the next prediction
//   token  -> embedding -> norm -> product -+
//
// Both products together are the projection of the two vectors side by side; their matrices are
// whole on every tensor rank. The head then reads the rows of the model and of all predictions. A
// last stage without the embedding has a copy of it.
namespace stepcast::workloads {

using op_flags::kAccumulate;

void TransformerStage::plan_predictions(TensorId hidden) {
  for (std::int64_t k = 0; k < shape_.predictions; ++k) {
    const std::int64_t layer = shape_.model.layers + k;
    const std::string at = fmt::format("layer.{}.", layer);
    const auto rows = [&](const char* name) {
      return kept(true, at + name, shape_.rows, shape_.model.hidden, compute_);
    };
    const auto statistics = [&](const char* name) {
      return kept(true, at + name, shape_.rows, 2, Format::kFp32);
    };
    Prediction p;
    p.hidden = hidden;
    p.hidden_norm = rows("prediction.hidden_norm");
    p.hidden_statistics = statistics("prediction.hidden_norm_statistics");
    p.embedded = rows("prediction.embedded");
    p.embedded_norm = rows("prediction.embedded_norm");
    p.embedded_statistics = statistics("prediction.embedded_norm_statistics");
    p.layer = layer_tensors(layer);
    p.layer.input = rows("prediction.input");
    p.output = hidden = rows("output");
    predictions_.push_back(std::move(p));
  }
}

void TransformerStage::add_prediction_parameters(std::int64_t layer,
                                                 std::vector<ParameterSpec>& specs) const {
  const std::string at = fmt::format("layer.{}.prediction.", layer);
  for (const char* of : {"embedded", "hidden"}) {
    add_whole_matrix(at + of + ".weight", shape_.model.hidden, shape_.model.hidden, specs);
    add_norm(at + of + "_norm.gamma", shape_.model.hidden, specs);
  }
}

/// The unit whose weights and gradients the lookups of predictions work on.
std::int64_t TransformerStage::lookup_unit() const {
  return shape_.ends_apart() ? kHeadUnit : kEmbeddingUnit;
}

void TransformerStage::predictions_forward() {
  for (const Prediction& p : predictions_) {
    const std::string at = fmt::format("layer.{}.prediction.", p.layer.layer);
    if (shape_.ends_apart() || !shape_.model.tied_embeddings) {  // others are there still
      writer_.uses_weights(lookup_unit());
    }
    embedding_forward(p.embedded, false);
    writer_.uses_weights(p.layer.layer);
    quantise_layer(p.layer.layer);
    norm_forward("prediction.embedded_norm", at + "embedded_norm", p.embedded, p.embedded_norm,
                 p.embedded_statistics, true);
    norm_forward("prediction.hidden_norm", at + "hidden_norm", p.hidden, p.hidden_norm,
                 p.hidden_statistics, true);
    gemm(product(whole_linear("prediction.hidden", at + "hidden"), p.hidden_norm, p.layer.input));
    gemm(product(whole_linear("prediction.embedded", at + "embedded"), p.embedded_norm,
                 p.layer.input, kAccumulate));
    writer_.part(LayerPart::kLayer, p.layer.layer, [&] { layer_forward(p.layer, p.output); });
  }
  writer_.builder().set_layer(kNoLayer);
}

std::vector<TensorId> TransformerStage::predicted() const {
  std::vector<TensorId> all;
  for (const Prediction& p : predictions_) {
    all.push_back(p.output);
  }
  return all;
}

TensorId TransformerStage::prediction_gradient(std::size_t k) {
  return writer_.workspace(fmt::format("prediction.gradient.{}", k), shape_.rows,
                           shape_.model.hidden, compute_);
}

/// Adds to the gradient of the model's last layer.
void TransformerStage::predictions_backward(TensorId hidden_gradient) {
  const std::int64_t h = shape_.model.hidden;
  for (std::size_t k = predictions_.size(); k-- > 0;) {
    const Prediction& p = predictions_[k];
    const std::string at = fmt::format("layer.{}.prediction.", p.layer.layer);
    writer_.uses_weights(p.layer.layer);
    quantise_layer(p.layer.layer);
    writer_.adds_gradients(p.layer.layer);
    scope_ = fmt::format("layer.{}.input_", p.layer.layer);
    const TensorId d_input = gradient("prediction.input_gradient", shape_.rows, h);
    scope_.clear();
    layer_backward(p.layer, prediction_gradient(k), d_input);
    const auto through = [&](const char* of, TensorId normed, TensorId d_norm) {
      both_gradients(whole_linear(std::string("prediction.") + of, at + of), normed, d_input,
                     d_norm);
    };
    const TensorId d_norm = writer_.workspace("prediction.norm_gradient", shape_.rows, h, compute_);
    through("hidden", p.hidden_norm, d_norm);
    const TensorId d_hidden = k == 0 ? hidden_gradient : prediction_gradient(k - 1);
    norm_backward("prediction.hidden_norm_gradient", at + "hidden_norm",
                  {d_norm, p.hidden, p.hidden_statistics, d_hidden, d_hidden});
    through("embedded", p.embedded_norm, d_norm);
    norm_backward("prediction.embedded_norm_gradient", at + "embedded_norm",
                  {d_norm, p.embedded, p.embedded_statistics, d_norm, d_norm});
    writer_.adds_gradients(lookup_unit());
    embedding_backward(d_norm);
  }
}

}  // namespace stepcast::workloads
