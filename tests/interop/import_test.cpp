#include <catch2/catch.hpp>

#include "core/config/config.h"
#include "core/error.h"
#include "core/job/parameter_count.h"
#include "interop/import.h"
#include "tests/folder.h"
#include "tests/interop/imports.h"

using namespace stepcast;
using namespace stepcast::config;
using namespace stepcast::test;
using Catch::Contains;

namespace {

std::string in(const std::string& object, const std::string& more) {
  return object.substr(0, object.rfind('}')) + ", " + more + "}";
}

TransformerWorkload imported(const std::string& text) {
  return *read_workload(
              text_source(interop::import_to_json(text_source(text, "config.json")), "import"))
              .transformer();
}

// The published configurations, shortened to the keys that matter and some that do not.
const std::string kLlama = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64,
  "num_hidden_layers": 80, "num_key_value_heads": 8, "vocab_size": 32000, "hidden_act": "silu",
  "tie_word_embeddings": false, "rms_norm_eps": 1e-05, "rope_scaling": null})";
const std::string kMixtral = R"({"model_type": "mixtral", "hidden_size": 4096,
  "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": 8, "num_experts_per_tok": 2, "num_local_experts": 8, "vocab_size": 32000,
  "hidden_act": "silu", "sliding_window": null, "router_aux_loss_coef": 0.02})";
const std::string kDeepSeek = R"({"model_type": "deepseek_v3", "hidden_size": 7168,
  "intermediate_size": 18432, "num_attention_heads": 128, "num_key_value_heads": 128,
  "num_hidden_layers": 61, "vocab_size": 129280, "hidden_act": "silu", "first_k_dense_replace": 3,
  "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
  "moe_intermediate_size": 2048, "moe_layer_freq": 1, "q_lora_rank": 1536, "kv_lora_rank": 512,
  "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "n_group": 8})";
const std::string kGpt2 = R"({"model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 48,
  "n_ctx": 1024, "vocab_size": 50257, "activation_function": "gelu_new", "resid_pdrop": 0.1})";

}  // namespace

TEST_CASE("config.json of published models has their parameters", "[config][import][oracle]") {
  CHECK(transformer_parameters(imported(kLlama), 4096) == 68'976'648'192);
  CHECK(transformer_parameters(imported(kMixtral), 4096) == 46'702'792'704);
  CHECK(static_cast<double>(transformer_parameters(imported(kDeepSeek), 4096)) ==
        Approx(671e9).epsilon(1e-3));
  // GPT-2 XL: 1,557,611,200 with 1,024 positions.
  CHECK(transformer_parameters(imported(kGpt2), 1024) == 1'557'611'200);
  CHECK(imported(kGpt2).tied_embeddings);
  CHECK(imported(kDeepSeek).mla->q_rank == 1536);
  CHECK(imported(kDeepSeek).moe->first_dense_layers == 3);
}

TEST_CASE("groups of experts that a router is kept to are read", "[config][import]") {
  CHECK(imported(kDeepSeek).moe->groups == 1);  // no limit is stated
  const std::string limited = in(kDeepSeek, R"("topk_group": 4, "topk_method": "noaux_tc")");
  CHECK(imported(limited).moe->groups == 8);
  CHECK(imported(limited).moe->groups_per_token == 4);
  CHECK_FALSE(imported(in(kDeepSeek, R"("topk_group": 8)")).moe->limits_groups());
  CHECK(imported(in(kDeepSeek, R"("topk_group": 4, "topk_method": "greedy")")).moe->groups == 1);
}

struct Published {
  const char* config;
  double parameters;
  const char* source;
};

TEST_CASE("popular families have their published parameters", "[config][import][oracle]") {
  const std::vector<Published> all{
      {R"({"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192,
           "num_attention_heads": 32, "num_key_value_heads": 32, "num_hidden_layers": 32,
           "vocab_size": 32064, "hidden_act": "silu", "sliding_window": 2047,
           "original_max_position_embeddings": 4096})",
       3.8211e9, "arXiv 2404.14219, phi-3-mini: 3.8 B; its weights"},
      {R"({"model_type": "olmo2", "hidden_size": 4096, "intermediate_size": 11008,
           "num_attention_heads": 32, "num_key_value_heads": 32, "num_hidden_layers": 32,
           "vocab_size": 100352, "hidden_act": "silu", "tie_word_embeddings": false})",
       7.2986e9, "arXiv 2501.00656, OLMo 2 7B; its weights"},
      {R"({"model_type": "granite", "hidden_size": 4096, "intermediate_size": 12800,
           "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 40,
           "vocab_size": 49155, "hidden_act": "silu", "tie_word_embeddings": true,
           "embedding_multiplier": 12.0, "logits_scaling": 16.0})",
       8.1708e9, "Granite 3.0 8B base, its weights"},
      {R"({"model_type": "glm4", "hidden_size": 4096, "intermediate_size": 13696,
           "num_attention_heads": 32, "num_key_value_heads": 2, "num_hidden_layers": 40,
           "head_dim": 128, "vocab_size": 151552, "hidden_act": "silu",
           "partial_rotary_factor": 0.5, "attention_bias": true})",
       9.4003e9, "GLM-4-9B-0414, its weights"},
      {R"({"model_type": "internlm2", "hidden_size": 4096, "intermediate_size": 14336,
           "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32,
           "vocab_size": 92544, "hidden_act": "silu", "bias": false})",
       7.7377e9, "InternLM2-7B, its weights"},
      {R"({"model_type": "exaone", "hidden_size": 4096, "intermediate_size": 14336,
           "num_attention_heads": 32, "num_key_value_heads": 8, "num_layers": 32,
           "vocab_size": 102400, "activation_function": "silu", "tie_word_embeddings": false})",
       7.8184e9, "arXiv 2412.04862, EXAONE 3.5 7.8B; its weights"},
      {R"({"model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336,
           "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 42,
           "head_dim": 256, "vocab_size": 256000, "hidden_act": "gelu_pytorch_tanh",
           "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096,
           "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
           "query_pre_attn_scalar": 256})",
       917'962'752.0 + 8'324'201'984.0, "arXiv 2408.00118, table 2, 9B"},
      {R"({"model_type": "gemma2", "hidden_size": 4608, "intermediate_size": 36864,
           "num_attention_heads": 32, "num_key_value_heads": 16, "num_hidden_layers": 46,
           "head_dim": 128, "vocab_size": 256000, "sliding_window": 4096})",
       1'180'237'824.0 + 26'047'480'320.0, "arXiv 2408.00118, table 2, 27B"},
      {R"({"model_type": "gemma3", "mm_tokens_per_image": 256, "text_config":
           {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
            "num_hidden_layers": 34, "sliding_window": 1024}})",
       675e6 + 3209e6, "arXiv 2503.19786, table 1, 4B"},
      {R"({"model_type": "gemma3", "text_config":
           {"model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504,
            "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
            "num_hidden_layers": 62, "sliding_window": 1024, "query_pre_attn_scalar": 168}})",
       1416e6 + 25600e6, "arXiv 2503.19786, table 1, 27B"},
      {R"({"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
           "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
           "num_hidden_layers": 24, "num_local_experts": 32, "num_experts_per_tok": 4,
           "experts_per_token": 4, "vocab_size": 201088, "sliding_window": 128,
           "swiglu_limit": 7.0, "hidden_act": "silu",
           "layer_types": ["sliding_attention", "full_attention"]})",
       20.91e9, "arXiv 2508.10925, table 1, gpt-oss-20b"},
      {R"({"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
           "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
           "num_hidden_layers": 36, "num_local_experts": 128, "num_experts_per_tok": 4,
           "vocab_size": 201088, "sliding_window": 128,
           "layer_types": ["sliding_attention", "full_attention"]})",
       116.83e9, "arXiv 2508.10925, table 1, gpt-oss-120b"},
      {R"({"model_type": "cohere", "hidden_size": 8192, "intermediate_size": 22528,
           "num_attention_heads": 64, "num_key_value_heads": 64, "num_hidden_layers": 40,
           "vocab_size": 256000, "hidden_act": "silu", "logit_scale": 0.0625,
           "use_qk_norm": false})",
       34.981e9, "Command R v01 (35 B), its weights"},
      {R"({"model_type": "dbrx", "d_model": 6144, "n_layers": 40, "n_heads": 48,
           "vocab_size": 100352, "max_seq_len": 32768,
           "attn_config": {"kv_n_heads": 8, "clip_qkv": 8, "rope_theta": 500000},
           "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}})",
       131.597e9, "DBRX base (132 B), its weights"},
      {R"({"model_type": "starcoder2", "hidden_size": 3072, "intermediate_size": 12288,
           "num_attention_heads": 24, "num_key_value_heads": 2, "num_hidden_layers": 30,
           "vocab_size": 49152, "hidden_act": "gelu_pytorch_tanh", "use_bias": true,
           "norm_type": "layer_norm"})",
       3.0304e9, "arXiv 2402.19173, StarCoder2-3B; its weights"}};
  for (const Published& model : all) {
    CAPTURE(model.source);
    CHECK(static_cast<double>(transformer_parameters(imported(model.config), 1024)) ==
          Approx(model.parameters).epsilon(0.005));
  }
}

TEST_CASE("what a config.json has and a workload cannot say is named", "[config][import]") {
  const std::string gemma = R"({"model_type": "gemma2", "hidden_size": 2304,
      "intermediate_size": 9216, "num_attention_heads": 8, "num_key_value_heads": 4,
      "num_hidden_layers": 26, "head_dim": 256, "vocab_size": 256000, "sliding_window": 4096,
      "attn_logit_softcapping": 50.0})";
  CHECK(imported(gemma).activation == Activation::kGeGlu);
  CHECK(imported(gemma).tied_embeddings);
  CHECK_THAT(imported(gemma).approximated,
             Catch::VectorContains(std::string("attn_logit_softcapping (left out)")) &&
                 Catch::VectorContains(
                     std::string("norms after attention and feed-forward blocks (left out)")));
  CHECK(imported(kLlama).approximated.empty());
  CHECK_THAT(imported(in(kLlama, R"("num_nextn_predict_layers": 1)")).approximated.front(),
             Contains("multi-token prediction"));
  // Full first is not every second layer counted from one.
  const std::string turned = in(kLlama, R"("sliding_window": 512,
      "layer_types": ["full_attention", "sliding_attention"])");
  CHECK(imported(turned).window_of(0) == 0);
  CHECK(imported(turned).window_of(1) == 512);
  CHECK(imported(turned).window_of(2) == 0);
  CHECK_THAT(imported(turned).approximated.front(), Contains("2 kinds of layers for 80 layers"));
}

TEST_CASE("which layers of a config.json see a window", "[config][import]") {
  const auto windows = [](const std::string& text) {
    const TransformerWorkload w = imported(text);
    std::vector<std::int64_t> all;
    for (std::int64_t layer = 0; layer < 6; ++layer) {
      all.push_back(w.window_of(layer));
    }
    return all;
  };
  const std::string gemma2 = R"({"model_type": "gemma2", "hidden_size": 2304,
      "intermediate_size": 9216, "num_attention_heads": 8, "num_key_value_heads": 4,
      "num_hidden_layers": 26, "head_dim": 256, "vocab_size": 256000, "sliding_window": 4096})";
  CHECK(windows(gemma2) == std::vector<std::int64_t>{4096, 0, 4096, 0, 4096, 0});
  const std::string turns = R"("sliding_window": 512, "layer_types": [)";
  const std::string local = "\"sliding_attention\"";
  const std::string global = "\"full_attention\"";
  const auto types = [&](const std::string& list) { return in(kLlama, turns + list + "]"); };
  CHECK(windows(types(local + "," + local + "," + global + "," + local + "," + local + "," +
                      global)) == std::vector<std::int64_t>{512, 512, 0, 512, 512, 0});
  CHECK(windows(types(local + "," + local)) == std::vector<std::int64_t>(6, 512));
  CHECK(windows(types(global + "," + global)) == std::vector<std::int64_t>(6, 0));
  CHECK(windows(in(kLlama, R"("sliding_window": 512, "use_sliding_window": false)")) ==
        std::vector<std::int64_t>(6, 0));
}

TEST_CASE("models of other kinds are rejected by what they have", "[config][import][malformed]") {
  const auto with = [](const char* more) {
    return message(in(R"({"model_type": "some", "hidden_size": 64})", more));
  };
  CHECK_THAT(with(R"("mamba_dt_rank": 256)"), Contains("the first Mamba"));
  CHECK_THAT(message(in(kLlama, R"("mamba_d_state": 128)")),
             Contains("without a list that says which layers have a state"));
  CHECK_THAT(message(in(kLlama, R"("hybrid_override_pattern": "M-M*")")),
             Contains("has 4 blocks, and the model 80 layers"));
  CHECK_THAT(message(in(kLlama, R"("full_attention_interval": 0)")),
             Contains("full_attention_interval"));
  CHECK_THAT(message(R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
      "intermediate_size": 128, "vocab_size": 256, "num_hidden_layers": 1000000000})"),
             Contains("at most 10000"));
  CHECK_THAT(with(R"("mamba_d_ssm": 3072)"), Contains("state-space layers side by side"));
  CHECK_THAT(with(R"("num_mem_blocks": 2)"), Contains("blocks that several layers share"));
  CHECK_THAT(with(R"("block_configs": [{"ffn": {}}])"), Contains("layers of different sizes"));
  CHECK_THAT(with(R"("is_encoder_decoder": true)"), Contains("an encoder and a decoder"));
  CHECK_THAT(with(R"("type_vocab_size": 2)"), Contains("an encoder"));
  CHECK_THAT(message(in(kGpt2, R"("add_cross_attention": true)")),
             Contains("an encoder and a decoder"));
  CHECK_THAT(message(in(kLlama, R"("layer_types": ["retention"])")),
             Contains("layer_types") && Contains("layers of other kinds"));
}

TEST_CASE("the text part of a model of pictures is read", "[config][import]") {
  // Qwen2.5-VL keeps its decoder outside, Qwen3-VL in an object.
  const std::string flat = R"({"model_type": "qwen2_5_vl", "hidden_size": 3584,
      "intermediate_size": 18944, "num_attention_heads": 28, "num_hidden_layers": 28,
      "num_key_value_heads": 4, "vocab_size": 152064, "hidden_act": "silu",
      "vision_config": {"depth": 32}, "tie_word_embeddings": false})";
  CHECK(imported(flat).approximated == std::vector<std::string>{"what is not text (left out)"});
  const TransformerWorkload inner = imported(R"({"model_type": "qwen3_vl_moe",
      "vision_config": {"depth": 27}, "image_token_id": 151655, "text_config":
      {"model_type": "qwen3_vl_moe_text", "hidden_size": 2048, "intermediate_size": 6144,
       "num_attention_heads": 32, "num_hidden_layers": 48, "num_key_value_heads": 4,
       "head_dim": 128, "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8,
       "moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": []}})");
  CHECK(static_cast<double>(transformer_parameters(inner, 4096)) == Approx(30.5e9).epsilon(0.005));
  CHECK(inner.approximated == std::vector<std::string>{"what is not text (left out)",
                                                       "norms of queries and keys (left out)"});
  // Kimi-K2.5: an inner object that says all its defaults.
  const std::string kimi = in(kDeepSeek.substr(0, 1) + R"("chunk_size_feed_forward": 0,
      "cross_attention_hidden_size": null, "is_decoder": false, )" +
                                  kDeepSeek.substr(1),
                              R"("tie_encoder_decoder": false)");
  CHECK(imported(R"({"model_type": "kimi_k25", "vision_config": {"depth": 27}, "text_config": )" +
                 kimi + "}")
            .mla->kv_rank == 512);
}

TEST_CASE("models of 2025 and 2026 have their published parameters", "[config][import][oracle]") {
  const std::vector<Published> all{
      {R"({"model_type": "llama4", "vision_config": {"patch_size": 14}, "text_config":
           {"model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192,
            "intermediate_size_mlp": 16384, "num_attention_heads": 40, "num_key_value_heads": 8,
            "head_dim": 128, "num_hidden_layers": 48, "num_local_experts": 128,
            "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 8192,
            "vocab_size": 202048, "for_llm_compressor": false}})",
       400.7e9, "Llama 4 Maverick, its text weights"},
      {R"({"model_type": "glm_moe_dsa", "hidden_size": 6144, "intermediate_size": 12288,
           "moe_intermediate_size": 2048, "num_hidden_layers": 78, "num_attention_heads": 64,
           "num_key_value_heads": 64, "n_shared_experts": 1, "n_routed_experts": 256,
           "num_experts_per_tok": 8, "first_k_dense_replace": 3, "q_lora_rank": 2048,
           "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 192,
           "v_head_dim": 256, "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 32,
           "num_nextn_predict_layers": 1, "vocab_size": 154880, "hidden_act": "silu"})",
       744e9, "GLM-5, its model card"},
      {R"({"model_type": "minimax_m2", "hidden_size": 3072, "intermediate_size": 1536,
           "num_hidden_layers": 62, "num_attention_heads": 48, "num_key_value_heads": 8,
           "head_dim": 128, "num_local_experts": 256, "num_experts_per_tok": 8, "rotary_dim": 64,
           "attn_type_list": [1, 1, 1], "use_qk_norm": true, "vocab_size": 200064, "use_mtp": false})",
       228.7e9, "MiniMax-M2, its weights"},
      {R"({"model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008,
           "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
           "vocab_size": 128256, "tie_word_embeddings": true, "no_rope_layers": [1, 1, 1, 0],
           "no_rope_layer_interval": 4, "use_sliding_window": false})",
       3.075e9, "SmolLM3-3B, its weights"},
      {R"({"model_type": "glm4_moe", "hidden_size": 4096, "intermediate_size": 10944,
           "moe_intermediate_size": 1408, "num_hidden_layers": 46, "num_attention_heads": 96,
           "num_key_value_heads": 8, "head_dim": 128, "n_routed_experts": 128,
           "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1,
           "vocab_size": 151552, "partial_rotary_factor": 0.5})",
       106.85e9, "GLM-4.5-Air, its weights"}};
  for (const Published& model : all) {
    CAPTURE(model.source);
    CHECK(static_cast<double>(transformer_parameters(imported(model.config), 1024)) ==
          Approx(model.parameters).epsilon(0.005));
  }
  const TransformerWorkload llama = imported(all[0].config);
  CHECK(llama.chunked);
  CHECK(llama.window == 8192);
  CHECK(std::none_of(llama.approximated.begin(), llama.approximated.end(),
                     [](const std::string& what) { return Contains("chunk").match(what); }));
  const TransformerWorkload glm = imported(all[1].config);
  REQUIRE(glm.sparse);
  CHECK(glm.sparse->top_k == 2048);
  CHECK(glm.sparse->index_heads == 32);
  CHECK(glm.sparse->index_head_dim == 128);
  const TransformerWorkload maverick = imported(all.front().config);
  for (std::int64_t layer = 0; layer < 48; ++layer) {  // of two, of four
    CHECK(maverick.has_experts(layer) == (layer % 2 == 1));
    CHECK(maverick.window_of(layer) == (layer % 4 == 3 ? 0 : 8192));
  }
}

TEST_CASE("layers without experts are counted however a file says them", "[config][import]") {
  const std::string base = R"({"model_type": "ernie4_5_moe", "hidden_size": 64,
      "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 6,
      "vocab_size": 256, "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 32})";
  const auto dense = [&](const char* more) {
    const TransformerWorkload w = imported(in(base, more));
    CHECK(w.approximated.empty());
    std::string layers;
    for (std::int64_t layer = 0; layer < w.layers; ++layer) {
      layers += w.has_experts(layer) ? 'E' : 'm';
    }
    return layers;
  };
  CHECK(dense(R"("moe_layer_start_index": 2)") == "mmEEEE");
  CHECK(dense(R"("moe_layer_interval": 2)") == "mEmEmE");
  CHECK(dense(R"("moe_layer_freq": [0, 1, 1, 1, 1, 1])") == "mEEEEE");
  CHECK(dense(R"("mlp_only_layers": [0, 5])") == "mEEEEm");
  CHECK(dense(R"("mlp_layer_types": ["dense", "dense", "sparse", "sparse", "sparse", "sparse"])") ==
        "mmEEEE");
}

TEST_CASE("a type that is not known is read by its keys and named", "[config][import]") {
  const std::string plain = R"({"model_type": "llama-next", "num_hidden_layers": 2,
      "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256})";
  CHECK(imported(plain).approximated.empty());  // begins as llama does
  const std::string other = in(plain, R"("quantum": 1, "attn_softcap": 50.0, "use_mrope": true)");
  CHECK(imported(other).approximated ==
        std::vector<std::string>{"keys that are not read: quantum, use_mrope"});
  CHECK_THAT(imported(R"({"model_type": "opus", "num_hidden_layers": 2, "hidden_size": 64,
      "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256})")
                 .approximated.front(),
             Contains("type \"opus\" (not known; read as llama)"));
}

TEST_CASE("a config.json as Python writes it is read", "[config][import]") {
  CHECK(imported(in(kLlama, R"("time_step_limit": [0.0, Infinity], "x": -Infinity, "y": NaN)"))
            .layers == 80);
  CHECK_THAT(message(R"({"workload": "llama3-8b", "devices": NaN})"), Contains("NaN"));
}

TEST_CASE("hybrids are read layer by layer", "[config][import][pattern]") {
  const auto kinds = [](const TransformerWorkload& w) {
    std::string letters;
    for (std::int64_t layer = 0; layer < w.layers; ++layer) {
      const BlockKind kind = w.kind_of(layer);
      letters += kind.mixer == MixerKind::kRecurrent ? 'r' : kind.attends() ? 'a' : '-';
      letters += kind.feed_forward == FeedForwardKind::kExperts ? 'E'
                 : kind.feed_forward == FeedForwardKind::kDense ? 'm'
                                                                : '-';
    }
    return letters;
  };
  // Nemotron 3 Nano 4B: 3,973,556,832 parameters by its model card.
  const TransformerWorkload nano = imported(R"({"model_type": "nemotron_h", "hidden_size": 3136,
      "num_hidden_layers": 42, "hybrid_override_pattern":
      "M-M-M-MM-M-M*-M-M*-M-M-M*-M-M-MM*-MMM-M-M-", "intermediate_size": 12544,
      "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
      "mamba_num_heads": 96, "mamba_head_dim": 80, "n_groups": 8, "ssm_state_size": 128,
      "conv_kernel": 4, "chunk_size": 256, "expand": 2, "mlp_hidden_act": "relu2",
      "use_conv_bias": true, "vocab_size": 131072, "tie_word_embeddings": false})");
  CHECK(transformer_parameters(nano, 4096) == 3'973'556'832);
  CHECK(kinds(nano).substr(0, 16) == "r--mr--mr--mr-r-");
  CHECK(nano.approximated.empty());
  // Nemotron 3 Super, 120.7 B parameters: experts of latent vectors.
  const TransformerWorkload super = imported(R"({"model_type": "nemotron_h", "hidden_size": 4096,
      "num_hidden_layers": 88, "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM)"
                                             R"(*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*)"
                                             R"(EMEMEMEME", "intermediate_size": 2688,
      "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128,
      "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128,
      "conv_kernel": 4, "chunk_size": 128, "mlp_hidden_act": "relu2", "n_routed_experts": 512,
      "num_experts_per_tok": 22, "n_shared_experts": 1, "moe_intermediate_size": 2688,
      "moe_shared_expert_intermediate_size": 5376, "moe_latent_size": 1024,
      "time_step_limit": [0.0, Infinity], "vocab_size": 131072})");
  CHECK(static_cast<double>(transformer_parameters(super, 4096)) == Approx(120.7e9).epsilon(0.002));
  CHECK(super.expert_width() == 1024);
  const TransformerWorkload next = imported(R"({"model_type": "qwen3_next", "hidden_size": 2048,
      "num_hidden_layers": 48, "full_attention_interval": 4, "num_attention_heads": 16,
      "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16,
      "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
      "linear_conv_kernel_dim": 4, "num_experts": 512, "num_experts_per_tok": 10,
      "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
      "intermediate_size": 5120, "mlp_only_layers": [], "decoder_sparse_step": 1,
      "vocab_size": 151936, "hidden_act": "silu"})");
  CHECK(kinds(next).substr(0, 10) == "rErErEaErE");
  CHECK(next.output_gate);
  CHECK(next.recurrent->rule == RecurrentRule::kGatedDelta);
  // Kimi Linear names its layers from 1 on, its width of a head says nothing of delta attention.
  const TransformerWorkload kimi = imported(R"({"model_type": "kimi_linear", "hidden_size": 2304,
      "num_hidden_layers": 27, "num_attention_heads": 32, "num_key_value_heads": 32,
      "head_dim": 72, "kv_lora_rank": 512, "q_lora_rank": null, "qk_nope_head_dim": 128,
      "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 9216, "linear_attn_config":
      {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4,
       "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "kda_layers": [1, 2, 3]},
      "num_experts": 256, "num_experts_per_token": 8, "num_shared_experts": 1,
      "moe_intermediate_size": 1024, "first_k_dense_replace": 1, "moe_layer_freq": 1,
      "vocab_size": 163840})");
  CHECK(kinds(kimi).substr(0, 10) == "rmrErEaErE");
  CHECK(kinds(kimi).substr(52) == "aE");
  CHECK(kimi.recurrent->gate_rank == 128);
  // DeepSeek-V4-Flash, summed by hand of what transformers' modules of it have: 284,332,230,231.
  std::string ratios = "0, 0";
  for (int i = 0; i < 41; ++i) {
    ratios += i % 2 == 0 ? ", 4" : ", 128";
  }
  const std::string v4 = R"({"model_type": "deepseek_v4", "hidden_size": 4096,
      "num_hidden_layers": 43, "num_attention_heads": 64, "num_key_value_heads": 1,
      "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1024, "o_groups": 8,
      "o_lora_rank": 1024, "sliding_window": 128, "index_n_heads": 64, "index_head_dim": 128,
      "index_topk": 512, "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-06,
      "num_hash_layers": 3, "n_routed_experts": 256, "n_shared_experts": 1,
      "num_experts_per_tok": 6, "moe_intermediate_size": 2048, "hidden_act": "silu",
      "num_nextn_predict_layers": 1, "swiglu_limit": 10.0, "vocab_size": 129280,)";
  const TransformerWorkload flash = imported(v4 + R"("compress_ratios": [)" + ratios + ", 0]}");
  CHECK(transformer_parameters(flash, 4096) == 284'332'230'231);
  CHECK(flash.residual_streams == 4);
  CHECK(flash.compressed->rope_dim == 64);
  CHECK(flash.sparse->top_k == 512);
  CHECK(flash.approximated ==
        std::vector<std::string>{"3 layers whose experts a table of tokens chooses (as a router)",
                                 "multi-token prediction (left out)"});
  // The same layers by their names, as the file is written anew.
  std::string types = R"("sliding_attention", "sliding_attention")";
  for (int i = 0; i < 41; ++i) {
    types +=
        i % 2 == 0 ? R"(, "compressed_sparse_attention")" : R"(, "heavily_compressed_attention")";
  }
  CHECK(imported(v4 + R"("layer_types": [)" + types + "]}").pattern == flash.pattern);
  CHECK_THROWS_WITH(imported(v4 + R"("compress_ratios": [)" + ratios.replace(0, 1, "2") + "]}"),
                    Contains("compress_ratios[0]") && Contains("0, 4 or 128"));
  // LFM2 1.2B: 1.17 B parameters; its width of three matrices follows from that of two.
  const TransformerWorkload lfm = imported(R"({"model_type": "lfm2", "hidden_size": 2048,
      "num_hidden_layers": 16, "full_attn_idxs": [2, 5, 8, 10, 12, 14],
      "num_attention_heads": 32, "num_key_value_heads": 8, "block_ff_dim": 12288,
      "block_auto_adjust_ff_dim": true, "block_ffn_dim_multiplier": 1.0,
      "block_multiple_of": 256, "conv_L_cache": 3, "conv_dim": 2048, "vocab_size": 65536})");
  CHECK(static_cast<double>(transformer_parameters(lfm, 4096)) == Approx(1.17e9).epsilon(0.005));
  CHECK(kinds(lfm).substr(0, 8) == "rmrmamrm");
  // Granite keeps the sizes of state-space layers where all layers attend.
  const std::string granite = R"({"model_type": "granitemoehybrid", "hidden_size": 256,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "intermediate_size": 64, "shared_intermediate_size": 128, "num_local_experts": 8,
      "num_experts_per_tok": 2, "mamba_n_heads": 8, "mamba_d_head": 64, "mamba_n_groups": 1,
      "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_chunk_size": 256, "mamba_expand": 2,
      "vocab_size": 1024, "layer_types": [)";
  CHECK(kinds(imported(granite + R"("mamba", "attention"]})")) == "rEaE");
  CHECK(imported(granite + R"("mamba", "attention"]})").moe->shared == 2);
  CHECK_FALSE(imported(granite + R"("attention", "attention"]})").recurrent);
}

TEST_CASE("families of config.json say what they mean", "[config][import]") {
  const TransformerWorkload mistral =
      imported(in(R"({"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
             "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
             "vocab_size": 32000})",
                  R"("sliding_window": 4096)"));
  CHECK(mistral.window == 4096);
  const std::string qwen = R"({"model_type": "qwen3_moe", "hidden_size": 2048,
      "intermediate_size": 6144, "num_attention_heads": 32, "num_hidden_layers": 48,
      "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "num_experts": 128,
      "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1,
      "mlp_only_layers": [], "sliding_window": 4096, "use_sliding_window": false})";
  CHECK(imported(qwen).window == 0);
  CHECK(imported(qwen).head_dim == 128);
  CHECK(imported(qwen).approximated ==
        std::vector<std::string>{"norms of queries and keys (left out)"});  // Qwen3 has no flag
  CHECK(imported(qwen).moe->experts == 128);
  CHECK(static_cast<double>(transformer_parameters(imported(qwen), 4096)) ==
        Approx(30.5e9).epsilon(0.005));
  CHECK(static_cast<double>(transformer_active_parameters(imported(qwen), 4096)) ==
        Approx(3.3e9).epsilon(0.02));
  const std::string neox = R"({"model_type": "gpt_neox", "hidden_size": 6144,
      "intermediate_size": 24576, "num_attention_heads": 64, "num_hidden_layers": 44,
      "vocab_size": 50432, "hidden_act": "gelu_fast"})";
  CHECK(imported(neox).parallel_block);
  CHECK_FALSE(imported(in(neox, R"("use_parallel_residual": false)")).parallel_block);
  CHECK(imported(R"({"model_type": "nemotron", "hidden_size": 6144, "intermediate_size": 24576,
      "num_attention_heads": 48, "num_hidden_layers": 32, "num_key_value_heads": 8,
      "vocab_size": 256000, "hidden_act": "relu2"})")
            .activation == Activation::kSquaredRelu);
  CHECK(imported(R"({"model_type": "bloom", "n_embed": 1024, "n_layer": 24,
      "num_attention_heads": 16, "vocab_size": 250880})")
            .ffn_hidden == 4096);
  CHECK(imported(R"({"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32,
      "expansion_ratio": 4, "vocab_size": 50432, "attn_config": {"alibi": true}})")
            .hidden == 4096);
}

TEST_CASE("a config.json without what a model needs is rejected", "[config][import][malformed]") {
  CHECK_THAT(message(R"({"model_type": "llama", "vocab_size": 10})"),
             Contains("config.json: num_hidden_layers") && Contains("missing"));
  CHECK_THAT(message(in(kLlama.substr(0, kLlama.find("\"hidden_act\"")) +
                            kLlama.substr(kLlama.find("\"tie_word")),
                        R"("hidden_act": "tanh")")),
             Contains("hidden_act") && Contains("silu or gelu"));
  CHECK_THAT(message("{}"), Contains("is none of what stepcast reads"));
}

TEST_CASE("a job names a config.json where a workload stands", "[config][import]") {
  const fixtures::Folder folder;
  const std::string config = folder.file("config.json", kMixtral);
  const Job job = load_job(text_source("", "test"),
                           {"workload=" + config, "system=dgx-h100",
                            "batch={\"global\": 16, \"micro\": 1, \"sequence\": 4096}",
                            "workload.moe.capacity_factor=1.5", "parallel.expert=8"},
                           kLibrary);
  CHECK(job.workload.transformer()->moe->capacity_factor == 1.5);
  CHECK(job.parallel.expert == 8);
  // Or where a job stands.
  CHECK(load_job(file_source(config),
                 {"system=dgx-h100", "batch={\"global\": 16, \"micro\": 1, \"sequence\": 4096}"},
                 kLibrary)
            .workload.transformer()
            ->moe->per_token == 2);
}

TEST_CASE("how text is generated is no business of a workload", "[config][import]") {
  const std::string plain = interop::import_to_json(text_source(kGpt2, "config.json"));
  CHECK(interop::import_to_json(text_source(in(kGpt2, R"("output_past": true, "do_sample": true,
    "max_length": 50, "top_k": 40)"),
                                            "config.json")) == plain);
}

TEST_CASE("a library without formats of other tools reads our own files alone",
          "[config][import]") {
  const std::vector<std::string> more{"system=dgx-h100", "batch.global=8", "batch.micro=1",
                                      "batch.sequence=128"};
  const Source gpt2 = text_source(kGpt2, "config.json");
  CHECK_NOTHROW(load_job(gpt2, more, kLibrary));
  CHECK_THROWS_WITH(load_job(gpt2, more, Library{STEPCAST_SOURCE_DIR}), Contains("unknown key"));
}
