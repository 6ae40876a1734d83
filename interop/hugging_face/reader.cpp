#include "interop/hugging_face/reader.h"

namespace stepcast::interop {
namespace {

/// Whole numbers, flags and lists that change no shape. Texts, fractions and values that are off,
/// zero or empty need no entry, nor do numbers of tokens ("..._token_id").
const std::set<std::string_view> kHarmless{
    // Names, and how text is generated.
    "architectures", "auto_map", "task_specific_params", "use_cache", "return_dict", "id2label",
    "label2id", "verbose", "output_past", "output_attentions", "output_hidden_states",
    "output_scores", "return_dict_in_generate", "use_return_dict", "torchscript", "use_bfloat16",
    "pruned_heads", "do_sample", "early_stopping", "max_length", "min_length", "temperature",
    "top_k", "top_p", "num_beams", "num_beam_groups", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "num_return_sequences", "bad_words_ids", "suppress_tokens",
    "begin_suppress_tokens", "remove_invalid_values",
    // Lengths (batch_of reads them), positions, norms, dropout.
    "max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len",
    "original_max_position_embeddings", "initial_context_length", "init_config", "rope_theta",
    "rope_scaling", "rope_parameters", "rope_interleave", "rotary_emb_base", "rotary_dim",
    "no_rope_layers", "no_rope_layer_interval", "learned_pos_emb", "embedding_fraction",
    "offset_alibi", "summary_first_dropout", "summary_proj_to_labels", "summary_use_proj",
    "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn",
    "masked_softmax_fusion", "apply_residual_connection_post_layernorm",
    "attention_softmax_in_fp32", "bias_dropout_fusion", "slow_but_exact", "skip_bias_add",
    "skip_bias_add_qkv", "pretraining_tp", "query_pre_attn_scalar", "clip_qkv", "swiglu_limit",
    "embedding_multiplier", "hc_sinkhorn_iters", "attn_temperature_tuning", "floor_scale",
    "qk_head_dim",
    // Biases of single projections: below a thousandth of the work.
    "attention_bias", "mlp_bias", "no_bias", "use_qkv_bias", "qkv_bias", "bias", "use_bias",
    // Routing details; the balance of the experts is moe.routing.
    "output_router_logits", "norm_topk_prob", "seq_aux", "use_expert_bias", "ep_size",
    "use_routing_bias",
    // Not trained by the published model code.
    "quantization_config", "compression_config", "max_window_layers"};

}  // namespace

void ConfigReader::name_unread() {
  std::string names;
  for (const auto& [key, value] : v_.members()) {
    const Json& j = value.json();
    const bool shapeless = j.is_null() || j.is_string() || j.is_number_float() || j == false ||
                           j == 0 || ((j.is_array() || j.is_object()) && j.empty());
    const bool token =
        key.ends_with("_token_id") || key.ends_with("_token_index") || key.ends_with("_token_ids");
    if (!shapeless && !token && seen_.count(key) == 0 && kHarmless.count(key) == 0) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", key.substr(0, 80));
    }
  }
  if (!names.empty()) {
    approximate(fmt::format("keys that are not read: {}", names));
  }
}

}  // namespace stepcast::interop
