#include <unistd.h>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/config/config.h"
#include "core/error.h"
#include "interop/import.h"
#include "tests/folder.h"
#include "tests/interop/imports.h"

using namespace stepcast;
using namespace stepcast::config;
using namespace stepcast::test;
using Catch::Contains;

TEST_CASE("arguments of Megatron-LM are a job", "[config][import]") {
  const std::string text = R"(#!/bin/bash
torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --sequence-parallel \
  --num-layers-per-virtual-pipeline-stage 4 --expert-model-parallel-size 4 \
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --swiglu \
  --num-experts 8 --moe-router-topk 2 --moe-aux-loss-coeff 1e-2 --moe-grouped-gemm \
  --seq-length 4096 --max-position-embeddings 32768 --micro-batch-size 1 \
  --global-batch-size=256 --vocab-size 32000 --untie-embeddings-and-output-weights \
  --use-distributed-optimizer --overlap-grad-reduce --tp-comm-overlap --recompute-granularity selective \
  --ddp-bucket-size 10000000 --cp-comm-type a2a --context-parallel-size 1 \
  --bf16 --lr 1e-4 --data-path 0.5 a 0.5 b  # and so on
)";
  CHECK(interop::describes_model(config::text_source(text, "")));
  const Job job = load_job(text_source(text, "args.sh"), {"system=dgx-h100"}, kLibrary);
  const TransformerWorkload& m = *job.workload.transformer();
  CHECK(job.devices == 32);
  CHECK(job.parallel.tensor == 2);
  CHECK(job.parallel.pipeline == 4);
  CHECK(job.parallel.data == 4);
  CHECK(job.parallel.expert == 4);
  CHECK(job.parallel.virtual_stages == 2);
  CHECK(job.parallel.sequence_parallel);
  CHECK(job.parallel.zero == 1);
  CHECK(job.parallel.overlap.data);
  CHECK(job.parallel.overlap.tensor);
  CHECK(job.parallel.overlap.tensor_products);
  CHECK(job.parallel.bucket_elements == 10'000'000);
  CHECK(job.parallel.recompute.kind == RecomputeKind::kSelective);
  CHECK(job.batch.global == 256);
  CHECK(job.formats.compute == Format::kBf16);
  CHECK(m.moe->experts == 8);
  CHECK(m.kv_heads == 8);
  CHECK(m.activation == Activation::kSwiGlu);
  CHECK(m.vocabulary == 32000);  // padded to a multiple of 128 * 2: already one
  CHECK_FALSE(m.tied_embeddings);
  // Output of convert loads to the same job.
  const Job again =
      load_job(text_source(interop::import_to_json(text_source(text, "args.sh")), "job.json"),
               {"system=dgx-h100"}, kLibrary);
  CHECK(job_to_json(again) == job_to_json(job));
}

TEST_CASE("arguments of Megatron-LM that are not understood are refused",
          "[config][import][malformed]") {
  const std::string text =
      "--num-layers 2\n--hidden-size 64\n--num-attention-heads 4\n--seq-length 32\n"
      "--micro-batch-size 1\n--global-batch-size 8\n--vocab-size 128\n";
  CHECK_THAT(message(text), Contains("accepted"));
  CHECK_THAT(message(text + "--quirky-attention 0.1\n"),
             Contains("config.json:8: --quirky-attention") && Contains("remove it"));
  CHECK_THAT(message("--num-layers two\n" + text.substr(text.find("--hidden"))),
             Contains("config.json:1: --num-layers: found 'two'"));
  CHECK_THAT(message(text.substr(0, text.find("--vocab"))), Contains("--vocab-size: missing"));
  CHECK_THAT(message(text + "--recompute-granularity some\n"), Contains("full or selective"));
  CHECK_THAT(message(text + "--tp-comm-overlap --disable-tp-comm-overlap-rs\n"),
             Contains("expected both or none"));
}

TEST_CASE("zero-bubble forks of Megatron-LM say their schedule", "[interop][megatron]") {
  const auto schedule = [](const std::string& more) {
    const std::string text =
        "--hidden-size 64 --num-attention-heads 4 --seq-length 32 --micro-batch-size 1 "
        "--global-batch-size 8 --vocab-size 128 --nproc-per-node 4 --num-layers 16 "
        "--untie-embeddings-and-output-weights --pipeline-model-parallel-size 4 " +
        more;
    const Job job = load_job(text_source(text, "args.sh"), {"system=dgx-h100"}, kLibrary);
    CHECK(job.parallel.virtual_stages == traits_of(job.parallel.schedule).least_chunks);
    return job.parallel.schedule;
  };
  const std::string v = "--enable-zero-bubble --zero-bubble-v-schedule ";
  CHECK(schedule(v) == ScheduleKind::kZbV);
  CHECK(schedule(v + "--zero-bubble-v-schedule-mem-setup half") == ScheduleKind::kVHalf);
  CHECK(schedule("--zero-bubble-v-schedule --zero-bubble-v-schedule-mem-setup min") ==
        ScheduleKind::kVMin);
  CHECK(schedule("--enable-zero-bubble") == ScheduleKind::kZbH1);
  CHECK(schedule("--enable-zero-bubble --zero-bubble-max-pending-backward 4") ==
        ScheduleKind::kZbH1);
  CHECK(schedule("--enable-zero-bubble --zero-bubble-max-pending-backward 8") ==
        ScheduleKind::kZbH2);
  CHECK(schedule("") == ScheduleKind::kOneFOneB);
  CHECK_THROWS_WITH(schedule(v + "--num-layers-per-virtual-pipeline-stage 1"),
                    Contains("zero-bubble-v-schedule"));
}

TEST_CASE("layers that Megatron-LM's stages do not share equally are those of the job",
          "[config][import]") {
  const auto read = [](const std::string& layers, const std::string& more) {
    const std::string text =
        "--hidden-size 64 --num-attention-heads 4 --seq-length 32 --micro-batch-size 1 "
        "--global-batch-size 8 --vocab-size 128 --nproc-per-node 4 "
        "--pipeline-model-parallel-size 4 --num-layers " +
        layers + " " + more;
    try {
      const Job job = load_job(text_source(text, "args.sh"), {"system=dgx-h100"}, kLibrary);
      std::string counts;
      for (const LayerRange& range :
           split_layers(job.workload.transformer()->layers, 4 * job.parallel.virtual_stages,
                        job.parallel.pipeline_split)) {
        counts += fmt::format("{}{}", counts.empty() ? "" : " ", range.count);
      }
      return counts;
    } catch (const InputError& e) {
      return std::string(e.what());
    }
  };
  const std::string both =
      "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split ";
  CHECK(read("14", both) == "3 4 4 3");
  // (14 + 2) / (4 stages * 2 layers) = 2 chunks of a stage.
  CHECK(read("14", both + "--num-layers-per-virtual-pipeline-stage 2") == "1 2 2 2 2 2 2 1");
  CHECK(read("15", "--account-for-loss-in-pipeline-split") == "4 4 4 3");
  CHECK(read("11", "--decoder-first-pipeline-num-layers 2") == "2 3 3 3");
  CHECK(read("20",
             "--decoder-first-pipeline-num-layers 4 --decoder-last-pipeline-num-layers 4 "
             "--num-virtual-stages-per-pipeline-rank 2") == "2 3 3 2 2 3 3 2");
  CHECK(read("9", "--pipeline-model-parallel-layout \"Et*3|(t,t|)*3L\"") ==
        "args.sh: --pipeline-model-parallel-layout: found 5 chunks, which do not divide over 4 "
        "stages");
  CHECK(read("9", "--pipeline-model-parallel-layout \"Et*3|(t,t|)*2ttL\"") == "3 2 2 2");
  CHECK(read("6", "--pipeline-model-parallel-layout \"E|(t|)*6L\"") == "0 1 1 1 1 1 1 0");
  CHECK_THAT(read("9", "--pipeline-model-parallel-layout \"Et*3|t||tL\""),
             Contains("its numbers make 5 layers"));
  CHECK_THAT(read("4", "--pipeline-model-parallel-layout \"Ettt||t|L\""),
             Contains("leaves chunk 0 of stage 1 without layers"));
  CHECK(read("8", "--pipeline-model-parallel-layout \"Ettt|tt|tt|tmL\" --mtp-num-layers 1") ==
        "3 2 2 1");
  CHECK_THAT(read("8", "--pipeline-model-parallel-layout \"Ettt|tt|ttx|tL\""),
             Contains("'x' has no counterpart here"));
  CHECK_THAT(read("8", "--pipeline-model-parallel-layout \"ttt|tt|tt|tL\""),
             Contains("the embedding comes first and the loss last"));
  CHECK_THAT(read("8", "--pipeline-model-parallel-layout \"E*t|tt|tt|tL\""),
             Contains("no number of repetitions follows '*'"));
  CHECK_THAT(read("12", "--decoder-first-pipeline-num-layers 2"),
             Contains("leaves 10 of 12 layers to the 3 other stages"));
  CHECK_THAT(read("11", "--decoder-first-pipeline-num-layers 2 " + both),
             Contains("expected one way to assign layers"));
}

TEST_CASE("sizes and degrees of Megatron-LM are one or more", "[config][import][malformed]") {
  const std::string text =
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --micro-batch-size "
      "1 "
      "--global-batch-size 8 --vocab-size 128 --num-experts 4 "
      "--moe-shared-expert-intermediate-size 256 --num-layers-per-virtual-pipeline-stage 1\n";
  CHECK_THAT(message(text), Contains("accepted"));
  for (const char* name :
       {"tensor-model-parallel-size", "make-vocab-size-divisible-by", "moe-ffn-hidden-size",
        "pipeline-model-parallel-size", "num-layers-per-virtual-pipeline-stage", "num-layers",
        "hidden-size", "nproc-per-node", "world-size", "ddp-bucket-size"}) {
    for (const char* value : {"0", "-1", "-9223372036854775808", "9223372036854775807", "1x", ""}) {
      CAPTURE(name, value);
      CHECK_THAT(message(text + fmt::format("--{} {}\n", name, value)),
                 Contains(fmt::format("config.json:2: --{}: found '{}', expected a whole number "
                                      "from 1 to 2147483647",
                                      name, value)));
    }
  }
  CHECK_THAT(message(text + "--moe-layer-freq '([0]*2+[1]*2)'\n"),
             Contains("\"first_dense_layers\": 2"));
  CHECK_THAT(message(text + "--moe-layer-freq 2\n"),
             Contains("\"pattern\": \"attention+experts attention+mlp\""));
  CHECK_THAT(message(text + "--moe-layer-freq '([0]*1+[1]*1)*2'\n"),
             Contains("\"pattern\": \"attention+mlp attention+experts\""));
  for (const char* value : {"[0]*99999999999+[1]*2", "[0]*-1+[1]*2", "[0]*", "-2", "[1]*3",
                            "([0]*1+[1]*1)*99999999999"}) {
    CHECK_THAT(message(text + "--moe-layer-freq " + value + "\n"), Contains("--moe-layer-freq"));
  }
}

TEST_CASE("what Megatron-LM's words say of a step's cost is read", "[config][import]") {
  const std::string text =
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --micro-batch-size "
      "1 "
      "--global-batch-size 8 --vocab-size 128 --world-size 8 --num-experts 4\n";
  const auto job = [&](const std::string& more) {
    return load_job(text_source(text + more, "args.sh"), {"system=dgx-a100-80gb"}, kLibrary);
  };
  CHECK(job("").formats.compute == Format::kFp32);  // what Megatron-LM does unless told otherwise
  CHECK(load_job(text_source(text + "--bf16 --fp8-format hybrid --fp8-recipe tensorwise", "a.sh"),
                 {"system=dgx-h100"}, kLibrary)
            .formats.compute == Format::kFp8);
  const Job plain = job("--bf16");
  CHECK(plain.dense_optimizer == OptimizerKind::kAdam);
  CHECK(plain.flash_attention);
  CHECK(plain.formats.gradient == Format::kFp32);
  CHECK(job("--optimizer sgd --sgd-momentum 0.0").dense_optimizer == OptimizerKind::kSgd);
  CHECK(job("--optimizer adam").dense_optimizer == OptimizerKind::kAdam);
  CHECK_FALSE(job("--attention-backend unfused").flash_attention);
  // The default, by either of its names.
  CHECK(job_to_json(job("--bf16 --overlap-p2p-comm")) == job_to_json(plain));
  CHECK(job_to_json(job("--bf16 --overlap-p2p-communication")) == job_to_json(plain));
  CHECK(job("--fp16").formats.gradient == Format::kFp16);
  CHECK(job("--fp16 --accumulate-allreduce-grads-in-fp32").formats.gradient == Format::kFp32);
  CHECK(job("--use-distributed-optimizer --use-megatron-fsdp --data-parallel-sharding-strategy "
            "optim_grads_params")
            .parallel.zero == 3);
  const std::string exchanged = "--expert-model-parallel-size 4 --moe-token-dispatcher-type ";
  CHECK(job(exchanged + "alltoall").parallel.expert == 4);

  CHECK(job(exchanged + "alltoall").parallel.expert_dispatch == ExpertDispatch::kCopies);
  const Job once = job(exchanged +
                       "flex --moe-enable-deepep --moe-router-num-groups 2 "
                       "--moe-router-group-topk 1 --moe-deepep-num-sms 20");
  CHECK(once.parallel.expert_dispatch == ExpertDispatch::kPerMachine);
  CHECK(once.workload.transformer()->moe->groups == 2);
  CHECK(once.workload.transformer()->moe->groups_per_token == 1);
  CHECK_THAT(message(text + "--moe-router-num-groups 2"),
             Contains("--moe-router-group-topk: missing"));
  CHECK_THAT(message(text + exchanged + "alltoall --moe-enable-deepep"),
             Contains("--moe-enable-deepep: found without --moe-token-dispatcher-type flex"));

  CHECK_THAT(message(text + "--optimizer lion"),
             Contains("config.json:2: --optimizer: found 'lion', expected one of adam, sgd"));
  CHECK_THAT(message(text + "--attention-backend local"), Contains("auto, flash, fused, unfused"));
  CHECK_THAT(message(text + "--data-parallel-sharding-strategy optim_grads"),
             Contains("remove it"));
}

TEST_CASE("what Megatron-LM's options cost and a job cannot say is named", "[config][import]") {
  const std::string text =
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --micro-batch-size "
      "1 --global-batch-size 8 --vocab-size 128 --world-size 8 --bf16 --hidden-dropout 0 "
      "--attention-dropout 0.0\n";
  const auto named = [&](const std::string& more) {
    return load_job(text_source(text + more, "args.sh"), {"system=dgx-a100-80gb"}, kLibrary)
        .workload.transformer()
        ->approximated;
  };
  const auto has = [](const char* phrase) {
    return Catch::Matchers::Predicate<std::vector<std::string>>(
        [phrase](const std::vector<std::string>& all) {
          return std::any_of(all.begin(), all.end(), [&](const std::string& one) {
            return one.find(phrase) != std::string::npos;
          });
        },
        phrase);
  };
  CHECK(named("").empty());
  CHECK(named("--seed 3 --log-interval 1 --ckpt-format torch_dist --exp-avg-dtype fp32").empty());
  CHECK_THAT(named("--hidden-dropout 0.1"), has("dropout"));
  CHECK(named("--optimizer muon --muon-tp-mode distributed").empty());
  CHECK_THAT(named("--optimizer sgd"), has("SGD's momentum"));
  CHECK(named("--optimizer sgd --sgd-momentum 0.0").empty());
  CHECK_THAT(named("--deterministic-mode"), has("deterministic kernels"));
  CHECK_THAT(named("--mtp-num-layers 1"), has("multi-token prediction of layers with biases"));
  CHECK(named("--swiglu --mtp-num-layers 1").empty());
  CHECK_THAT(named("--exp-avg-dtype bf16"), has("Adam's moments in bf16 and fp32"));
  CHECK(named("--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16").empty());
  CHECK_THAT(named("--recompute-granularity selective --recompute-modules mlp shared_experts"),
             has("recomputed modules shared_experts"));
  CHECK(named("--recompute-granularity selective --recompute-modules core_attn").empty());
  const std::string latent =
      "--multi-latent-attention --kv-lora-rank 16 --qk-head-dim 16 --qk-pos-emb-head-dim 8 "
      "--v-head-dim 16 --swiglu --recompute-granularity selective --recompute-modules mla_up_proj ";
  CHECK(load_job(text_source(text + latent, "args.sh"), {"system=dgx-a100-80gb"}, kLibrary)
            .parallel.recompute.modules ==
        RecomputeModules{.attention_core = false, .latent_up = true});
  const std::string experts = "--num-experts 4 --expert-model-parallel-size 4 ";
  CHECK_THAT(named(experts), has("allgather as an all-to-all"));
  CHECK_THAT(named(experts), has("one after another"));
  CHECK(named(experts + "--moe-token-dispatcher-type alltoall --moe-grouped-gemm").empty());
  // Options without effect stand in the source of what is converted, once.
  CHECK_THAT(interop::import_to_json(text_source(text + "--seed 3 --lr 1e-4", "args.sh")),
             Contains("without effect on a step: --lr --seed"));
  // Another kind of step is rejected as such.
  CHECK_THAT(message(text + "--hybrid-attention-ratio 0.1"),
             Contains("a hybrid without the order of its layers"));
  CHECK_THAT(message("pretrain_bert.py " + text), Contains("trains a BERT"));
}

TEST_CASE("dropout, loss and states of Megatron-LM's arguments", "[config][import]") {
  const std::string text =
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --micro-batch-size "
      "1 --global-batch-size 8 --vocab-size 128 --world-size 8 --bf16 ";
  const auto read = [&](const std::string& more) {
    return load_job(text_source(text + more, "args.sh"), {"system=dgx-a100-80gb"}, kLibrary);
  };
  CHECK(read("").workload.transformer()->dropout);  // a tenth of each unless it is said
  CHECK_FALSE(read("--hidden-dropout 0 --attention-dropout 0.0").workload.transformer()->dropout);
  CHECK(read("").loss.kind == LossKind::kCopied);
  CHECK(read("--cross-entropy-loss-fusion").loss.kind == LossKind::kCompiled);
  CHECK(read("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te").loss.kind ==
        LossKind::kFused);
  CHECK(read("--main-params-dtype fp16").formats.master == Format::kFp16);
  CHECK(read("--exp-avg-dtype fp8 --exp-avg-sq-dtype fp8").formats.moments == Format::kFp8);
  const std::string deferred = "--pipeline-model-parallel-size 2 --defer-embedding-wgrad-compute ";
  CHECK(read(deferred + "--wgrad-deferral-limit 2").loss.deferred == 2);
  CHECK(read(deferred).loss.deferred > 8);  // all
  CHECK(read("--defer-embedding-wgrad-compute").loss.deferred == 0);
  CHECK_FALSE(read("--transformer-impl local").flash_attention);
  const std::string scaled = "--transformer-impl local --apply-query-key-layer-scaling ";
  CHECK_FALSE(read(scaled).system.framework.wide_scores);
  CHECK(read(scaled + "--no-masked-softmax-fusion").system.framework.wide_scores);
  const Recompute r = read("--recompute-granularity selective --recompute-modules layernorm mlp")
                          .parallel.recompute;
  CHECK(r.kind == RecomputeKind::kSelective);
  CHECK(r.modules ==
        RecomputeModules{.attention_core = false, .norms = true, .feed_forward = true});
}

TEST_CASE("a vocabulary is known by its tokenizer, or set", "[config][import]") {
  const std::string text =
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --micro-batch-size "
      "1 --global-batch-size 8 --world-size 8 --tensor-model-parallel-size 4 --bf16 ";
  const auto entries = [&](const std::string& more, std::vector<std::string> set = {}) {
    set.emplace_back("system=dgx-a100-80gb");
    return load_job(text_source(text + more, "args.sh"), set, kLibrary)
        .workload.transformer()
        ->vocabulary;
  };
  // 50,257 entries up to a multiple of 128 * 4; 128,256 is 250.5 times 512.
  CHECK(entries("--vocab-file a/vocab.json --merge-file a/merges.txt") == 50'688);
  CHECK(entries("--tokenizer-type HuggingFaceTokenizer --tokenizer-model "
                "meta-llama/Meta-Llama-3-8B") == 128'512);
  CHECK(entries("--tokenizer-model own.model", {"workload.vocabulary=1000"}) == 1000);
  CHECK_THAT(message(text + "--tokenizer-model own.model"),
             Contains("--vocab-size: missing") && Contains("--set workload.vocabulary=N"));
}

TEST_CASE("a window and which layers have it are read from Megatron-LM's arguments",
          "[config][import]") {
  const std::string text =
      "--num-layers 6 --hidden-size 64 --num-attention-heads 4 --seq-length 512 "
      "--micro-batch-size 1 --global-batch-size 8 --world-size 8 --vocab-size 128 --bf16 ";
  const auto read = [&](const std::string& more) {
    const Job job = load_job(text_source(text + more, "args.sh"), {"system=dgx-h100"}, kLibrary);
    return std::pair{job.workload.transformer()->window,
                     job.workload.transformer()->full_attention_every};
  };
  using Window = std::pair<std::int64_t, std::int64_t>;
  CHECK(read("--window-size 127,0") == Window{128, 0});  // 127 keys before a query and its own
  CHECK(read("--window-size \"(127, 0)\" --window-attn-skip-freq 3") == Window{128, 3});
  CHECK(read("--window-size (127,0) --window-attn-skip-freq ([1]*2+[0]*1+[1]*2+[0]*1)") ==
        Window{128, 3});
  CHECK_THAT(message(text + "--window-size wide"), Contains("like 4095,0"));
  CHECK_THAT(message(text + "--window-size 127,0 --window-attn-skip-freq [0]*1+[1]*5"),
             Contains("\"pattern\": \"attention+mlp 5 x window+mlp\""));
  CHECK_THAT(message(text + "--window-size 127,0 --window-attn-skip-freq [0]*1"),
             Contains("for each of the 6 layers"));
}

TEST_CASE("a hybrid is read from Megatron-LM's arguments block by block",
          "[config][import][pattern]") {
  const std::string text =
      "pretrain_mamba.py --num-layers 6 --hidden-size 64 --num-attention-heads 4 --seq-length 512 "
      "--micro-batch-size 1 --global-batch-size 8 --world-size 8 --vocab-size 128 --bf16 "
      "--squared-relu --attention-dropout 0 --hidden-dropout 0 ";
  const Job job =
      load_job(text_source(text + "--is-hybrid-model --hybrid-override-pattern 'M-M|-*-' "
                                  "--mamba-state-dim 32 --mamba-head-dim 16 --mamba-num-groups 2",
                           "args.sh"),
               {"system=dgx-h100"}, kLibrary);
  const TransformerWorkload& w = *job.workload.transformer();
  CHECK(w.kind_of(0) == BlockKind{MixerKind::kRecurrent, FeedForwardKind::kNone});
  CHECK(w.kind_of(3) == BlockKind{MixerKind::kNone, FeedForwardKind::kDense});
  CHECK(w.kind_of(4) == BlockKind{MixerKind::kAttention, FeedForwardKind::kNone});
  CHECK(w.recurrent->heads == 8);  // twice the hidden width, in heads of 16
  CHECK(w.recurrent->key_dim == 32);
  CHECK_THAT(message(text + "--hybrid-override-pattern M-M"), Contains("--num-layers is 6"));
  CHECK_THAT(message(text + "--hybrid-override-pattern M-M?M-"),
             Contains("expected M, *, - and E"));
  CHECK_THAT(message(text + "--is-hybrid-model"), Contains("--hybrid-override-pattern"));
}

TEST_CASE("the arguments of a launch script are read as the shell prints them",
          "[config][import]") {
  const std::string script =
      "#!/bin/bash\nexport GPUS=8\nNODES=4   # machines\nTP='2'\nWORLD_SIZE=$(($GPUS*$NODES))\n"
      "HEADS=16\nif [[ $NODES -gt 1 ]]; then SEQ=2048; else SEQ=1024; fi\n"
      "MODEL=(--num-layers 12 --hidden-size $((HEADS * 64)) --num-attention-heads $HEADS)\n"
      "torchrun --nproc_per_node $GPUS --nnodes $NODES pretrain_gpt.py ${MODEL[@]} \\\n"
      "  --seq-length \"$SEQ\" --micro-batch-size 1 --global-batch-size $((WORLD_SIZE / TP * 2)) "
      "\\\n"
      "  --vocab-size ${VOCAB:-32000} --tensor-model-parallel-size=$TP --bf16\n";
  CHECK_THROWS_WITH(interop::import_to_json(text_source(script, "train.sh")),
                    Contains("train.sh:10: --seq-length: found '$SEQ'") ||
                        Contains("have it print the arguments (docs/how-to/import-a-model.md)"));
  const fixtures::Folder folder;
  folder.file("train.sh", script);
  // Runs what docs/how-to/import-a-model.md shows.
  const std::string prints = "cd " + folder.path().string() +
                             R"( && bash -c 'torchrun() { printf "%s\n" "$@"; }; . ./train.sh')"
                             " > arguments.txt";
  REQUIRE(std::system(prints.c_str()) == 0);
  const auto made =
      nlohmann::json::parse(interop::import_to_json(file_source(folder / "arguments.txt")));
  CHECK(made.at("devices") == 32);
  CHECK(made.at("workload").at("layers") == 12);
  CHECK(made.at("workload").at("hidden") == 1024);
  CHECK(made.at("workload").at("vocabulary") == 32000);  // a multiple of 128 * 2
  CHECK(made.at("batch").at("sequence") == 2048);
  CHECK(made.at("batch").at("global") == 32);  // 32 / 2 * 2
  CHECK(made.at("parallel").at("tensor") == 2);
}

TEST_CASE("unknown options of Megatron-LM are all named, with what may be meant",
          "[config][import][malformed]") {
  const std::string good =
      "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 16 --micro-batch-size "
      "1 "
      "--global-batch-size 8 --vocab-size 128\n";
  const auto rejected = [](const std::string& text, const std::string& why) {
    CHECK_THROWS_WITH(interop::import_to_json(text_source(text, "train.sh")),
                      Catch::Matchers::Contains(why));
  };
  rejected(good + "--tensor-parallel-size 4\n",
           "train.sh:2: --tensor-parallel-size: an option that stepcast does not read");
  rejected(good + "--tensor-parallel-size 4\n", "did you mean --tensor-model-parallel-size?");
  const std::string two = good + "--tensor-parallel-size 4\n--quantum-gates 3\n";
  rejected(two, "2 options");
  rejected(two, "line 2: --tensor-parallel-size did you mean --tensor-model-parallel-size?");
  rejected(two, "line 3: --quantum-gates");
  rejected("--num-layers 4 --hidden-sise 64 --num-attention-heads 4",
           "missing; expected the hidden width (found --hidden-sise)");
}
