// Kinds of kernels, told by their names and operators, against a list made by reading the names.
#include "traces/events/kernel_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <iostream>
#include <map>

#include "core/error.h"
#include "shared_traces.h"
#include "traces/graph/operator_join.h"
#include "traces/measured_step.h"
#include "traces/open_trace.h"

using namespace stepcast;
using namespace stepcast::traces;
using Catch::Matchers::Contains;

TEST_CASE("words of a name tell the kind, parts of words do not", "[traces][kinds]") {
  const KernelKinds& kinds = KernelKinds::built_in();
  const auto kind = [&kinds](std::string_view kernel, std::string_view op = {}) {
    return std::string(name_of(kinds.of(kernel, op).kind));
  };
  CHECK(kind("void fbgemm_gpu::permute_2D_data_kernel<false>(int)") == "layout_change");
  CHECK(kind("void fbgemm_gpu::_block_bucketize_sparse_features_cuda_kernel1<int>(int)") != "gemm");
  CHECK(kind("void cudnn::bn_bw_1C11_singleread<float, 512>(float)") == "norm");
  CHECK(kind("void cudnn::ops::nchwToNhwcKernel<float>(float*)") == "layout_change");
  CHECK(kind("std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, "
             "void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10*)") == "norm");
  CHECK(kind("volta_sgemm_64x64_nt") == "gemm");
  CHECK(kind("volta_sgemm_64x64_nt", "aten::cudnn_convolution") == "convolution");
  CHECK(kind("void cudnn::ops::nchwToNhwcKernel<float>(float*)", "aten::cudnn_convolution") ==
        "layout_change");
  CHECK(kind("void transformer_engine::normalization::ln_fwd_tuned_kernel<A>(B)") == "norm");
  CHECK(kind("void layer_norm::ln_fwd_kernel<A>(B)") == "norm");
  CHECK(kind("void cuApplyLayerNorm<float>(float*)") == "norm");
  CHECK(kind("void (anonymous namespace)::softmax_warp_forward<float>(float*)") == "softmax");
  CHECK(kind("void scaled_upper_triang_masked_softmax_warp_forward<half>(half*)") == "softmax");
  CHECK(kind("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float> >(int)") ==
        "optimizer");
  CHECK(kind("void flash_fwd_kernel<Flash_fwd_kernel_traits<128> >(Flash_fwd_params)") ==
        "attention");
  CHECK(kind("void cutlass::device_kernel<flash::FlashAttnFwdSm90<A> >(A)") == "attention");
  CHECK(kind("triton_poi_fused_add_gelu_0") == "elementwise");
  CHECK(kind("triton_red_fused_native_layer_norm_3") == "norm");
  CHECK(kind("triton_per_fused_sum_1") == "reduction");
  CHECK(kind("__amd_rocclr_copyBuffer") == "copy");
  CHECK(kind("MIOpenBatchNormFwdTrainSpatial") == "norm");
  CHECK(kind("kernel_of_nobody") == "other");
  CHECK(kind("") == "other");
}

TEST_CASE("names of serving engines and compilers of 2026 tell their kinds", "[traces][kinds]") {
  const struct {
    const char *kernel, *kind;
  } all[] = {
      // Read by hand: what the sources of each project say that the kernel does.
      {"sage_fwd", "attention"},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda("
       "at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >(int)",
       "copy"},
      {"void sageattn::qk_int_sv_f16_attn_kernel<128u, 64u>(signed char*)", "attention"},
      {"sage_quant_per_block_int8_kernel", "elementwise"},
      {"_ZN5aiter32fmha_fwd_hd192_hd128_bf16_causalE", "attention"},
      {"_ZN5aiter42pa_bf16_pertokenFp8_gqa10_1tg_4w_mtp3_msk1E", "attention"},
      {"_ZN5aiter59fmoe_stage1_bf16_pertokenFp8_blockscale_g1u1_32x128_3tg_pf3E", "gemm"},
      {"_ZN5aiter33f4gemm_bf16_per1x32Fp4_tn_256x256E.kd", "gemm"},
      {"_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1ELb0ELb1ELi1EEEvPT0_", "norm"},
      {"void aiter::kn_entry_2c_sbhd_cached_indirect_inplace<aiter::OpCachedFwd>(void*)",
       "elementwise"},
      {"mla_dec_stage1_bf16_a16w16_subQ16_mqa16", "attention"},
      {"void kn_get_mla_metadata_v1_2<Traits>(Params)", "reduction"},
      {"void ck_tile::kentry<1, ck_tile::Rmsnorm2dFwd<A> >(B)", "norm"},
      {"void ck_tile::kentry<2, ck_tile::FmhaFwdKernel<A> >(B)", "attention"},
      {"_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16XadL_Z4siluIS2_EEEEvPT_PKS4_i",
       "elementwise"},
      {"_ZN4vllm18act_and_mul_kernelIN3c108BFloat16EEEvPT_PKS3_i", "elementwise"},
      {"_fwd_grouped_kernel_stage1", "attention"},
      {"void silu_mul_fp8_quant_deep_gemm_kernel<A>(B)", "elementwise"},
      {"void concat_and_cache_mla_kernel<A>(B)", "copy"},
      {"create_flashinfer_kv_indices_triton", "copy"},
      {"void vllm::moe::topkGatingSoftmax<8, 128>(float const*)", "reduction"},
      {"fused_recurrent_gated_delta_rule_fwd_kernel", "attention"},
      {"tinygemm_kernel", "gemm"},
      {"triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", "norm"},
      {"triton_red_fused_add_clone_fmha_v3_fwd_mean_mul_rsqrt_2", "norm"},
      {"triton_red_fused_fmha_v3_fwd_sum_2", "reduction"},
      {"triton_per_fused__log_softmax_nll_loss_forward_1", "softmax"},
      {"triton_poi_fused_mul_rocm_unquantized_gemm_silu_slice_0", "elementwise"},
      {"fused_rmsnorm_after_allreduce_elementwise", "norm"},
  };
  for (const auto& x : all) {
    CAPTURE(x.kernel);
    CHECK(name_of(KernelKinds::built_in().of(x.kernel).kind) == x.kind);
  }
}

TEST_CASE("communication is communication, whoever's kernel it is", "[traces][kinds]") {
  const struct {
    const char* kernel;
    OpKind collective;
  } all[] = {
      {"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
       OpKind::kReduceScatter},
      {"ncclDevKernel_Generic(ncclDevComm*)", OpKind::kCount},
      {"rcclKernel_AllGather", OpKind::kAllGather},
      {"void dpsk::ep::internode::combine<A>(int)", OpKind::kAllToAllV},
      {"void deep_ep::intranode::dispatch<8, 768>(int4*)", OpKind::kAllToAllV},
      {"void deep_ep::internode_ll::dispatch<true>(void*)", OpKind::kAllToAllV},
      {"void deep_ep::intranode::notify_dispatch<8>(int const*)", OpKind::kBarrier},
      {"nvshmemi_put_threadgroup_kernel", OpKind::kAllToAllV},
      {"barrier_on_stream_kernel_nvshmemi", OpKind::kBarrier},
      {"void vllm::cross_device_reduce_1stage<half, 8>(vllm::RankData*)", OpKind::kAllReduce},
      {"void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8>(AllReduceParams)",
       OpKind::kAllReduce},
      {"void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<A>(B)",
       OpKind::kAllReduce},
      {"void mscclpp::collective::allgatherKernel<A>(B)", OpKind::kAllGather},
      {"void executionKernel<mscclpp::LLPacket>(int)", OpKind::kAllToAllV},
      {"void at::native::(anonymous namespace)::two_shot_all_reduce_kernel<A>(B)",
       OpKind::kAllReduce},
  };
  for (const auto& x : all) {
    CAPTURE(x.kernel);
    const KernelKinds::Kind told = KernelKinds::built_in().of(x.kernel);
    CHECK(told.kind == KernelKind::kCommunication);
    CHECK(name_of(told.collective == OpKind::kCount ? OpKind::kRecorded : told.collective) ==
          name_of(x.collective == OpKind::kCount ? OpKind::kRecorded : x.collective));
  }
  CHECK(KernelKinds::built_in().of("void deep_ep::layout::get_dispatch_layout<A>(B)").kind !=
        KernelKind::kCommunication);
  CHECK(KernelKinds::built_in().of("triton_poi_fused_all_reduce_wait_tensor_0").kind ==
        KernelKind::kElementwise);
}

TEST_CASE("a table of kinds says what is wrong with it", "[traces][kinds]") {
  const auto read = [](const char* text) { return KernelKinds(text, "k.json"); };
  CHECK_THROWS_WITH(read("[]"), Contains("k.json: is no table of kernel kinds"));
  CHECK_THROWS_WITH(read(R"({"kind": "kernel_kinds", "rules": [{"kind": "gem", "words": ["x"]}]})"),
                    Contains("k.json: rules[0].kind: found \"gem\""));
  CHECK_THROWS_WITH(read(R"({"kind": "kernel_kinds", "rules": [{"kind": "gemm", "word": ["x"]}]})"),
                    Contains("unknown key 'word'"));
  CHECK_THROWS_WITH(read(R"({"kind": "kernel_kinds", "rules": [{"kind": "gemm"}]})"),
                    Contains("expected operators, words or inside"));
  const KernelKinds own =
      read(R"({"kind": "kernel_kinds", "rules": [{"kind": "norm", "words": ["my n?rm#"]}]})");
  CHECK(own.of("my_norm2").kind == KernelKind::kNorm);
  CHECK(own.of("my_norm").kind == KernelKind::kOther);
}

namespace {

struct ByHand {
  std::string kind, begins, holds, operation;
};

std::vector<ByHand> by_hand() {
  std::vector<ByHand> all;
  std::ifstream in(std::string(STEPCAST_SOURCE_DIR) + "/tests/traces/kernel_kinds_by_hand.txt");
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') {
      continue;
    }
    std::vector<std::string> cells;
    std::size_t at = 0;
    for (std::size_t bar = 0; bar != std::string::npos; at = bar + 3) {
      bar = line.find(" | ", at);
      cells.push_back(line.substr(at, bar == std::string::npos ? bar : bar - at));
      if (cells.back() == "-") {
        cells.back().clear();
      }
    }
    REQUIRE(cells.size() == 4);
    all.push_back({cells[0], cells[1], cells[2], cells[3]});
  }
  return all;
}

}  // namespace

TEST_CASE("kinds are right for 98 % of the device time of every shared trace", "[traces][kinds]") {
  const auto folder = test::shared_traces();
  if (folder.empty()) {
    return;
  }
  const std::vector<ByHand> list = by_hand();
  std::vector<std::filesystem::path> files;
  for (const auto& root : {folder, folder.parent_path() / "two_vendors"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(".json.gz") && name.find("_et.") == std::string::npos &&
          !name.starts_with("dlrm_eg")) {
        files.push_back(entry.path());
      }
    }
  }
  std::sort(files.begin(), files.end());
  CHECK(files.size() >= 20);
  for (const auto& file : files) {
    const Recording recording = open_trace(file);
    const RankRecording& rank = recording.ranks.front();
    const OperatorJoin join(recording, rank);
    double all = 0, right = 0;
    std::map<std::string, double> wrong;
    for (EventId i = 0; i < rank.events.size(); ++i) {
      if (!is_device_work(rank.events.category[i])) {
        continue;
      }
      std::string_view name = recording.names.view(rank.events.name[i]);
      const std::string_view whole = name;
      if (name.starts_with("void ")) {
        name.remove_prefix(5);
      }
      const EventId around = join.innermost(i);
      const std::string_view operation =
          around == kNoEvent ? "" : recording.names.view(rank.events.name[around]);
      const auto line = std::find_if(list.begin(), list.end(), [&](const ByHand& h) {
        return name.starts_with(h.begins) && name.find(h.holds) != std::string_view::npos &&
               operation.starts_with(h.operation);
      });
      const std::string kind = line == list.end() ? "not in the list" : line->kind;
      const auto time = static_cast<double>(rank.events.duration[i].count());
      all += time;
      if (kind == name_of(join.kind_of(i).kind)) {
        right += time;
      } else {
        wrong[fmt::format("{} told as {}: {} in {}", kind, name_of(join.kind_of(i).kind),
                          whole.substr(0, 150), operation)] += time;
      }
    }
    if (all == 0) {
      continue;  // counters, or hosts only
    }
    std::cout << fmt::format("kinds: {}: {:.2f} % of the device time right\n",
                             file.filename().string(), 100 * right / all);
    for (const auto& [what, time] : wrong) {
      if (time > 0.001 * all) {
        std::cout << fmt::format("kinds:   {:.2f} % {}\n", 100 * time / all, what);
      }
    }
    CAPTURE(file.filename().string());
    CHECK(right >= 0.98 * all);
  }
}

TEST_CASE("what launched work tells its phase; communication that is not NCCL's is a collective",
          "[traces][kinds]") {
  // One host thread, and autograd's. Kernels by correlation: 1 forward, 2 backward (autograd node),
  // 3 an annotation that says backward, 4 Optimizer.step, 5 on autograd's thread where no range
  // says anything, 6 recomputed inside a checkpoint, 7 DeepEP's combine.
  std::string events;
  const auto event = [&events](const char* cat, const std::string& name, int tid, int begin,
                               int dur, const std::string& args) {
    events += fmt::format(
        R"({}{{"ph":"X","cat":"{}","name":"{}","pid":1,"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
        events.empty() ? "" : ",\n", cat, name, tid, begin, dur, args);
  };
  const auto launch = [&](int id, int tid, int at, const std::string& kernel) {
    event("cuda_runtime", "cudaLaunchKernel", tid, at, 2, fmt::format(R"("correlation":{})", id));
    event("kernel", kernel, 7, 1000 + 10 * id, 5,
          fmt::format(R"("correlation":{},"device":0,"stream":7)", id));
  };
  event("user_annotation", "ProfilerStep#1", 1, 0, 900, "");
  event("cpu_op", "aten::mm", 1, 10, 10, R"("Sequence number":5,"Fwd thread id":0)");
  launch(1, 1, 12, "volta_sgemm_64x64_nt");
  event("user_annotation", "## backward ##", 1, 100, 50, "");
  launch(3, 1, 110, "loss_kernel");
  event("user_annotation", "Optimizer.step#Adam.step", 1, 200, 50, "");
  event("cpu_op", "aten::add_", 1, 210, 10, "");
  launch(4, 1, 212, "void at::native::vectorized_elementwise_kernel<4, A>(int)");
  launch(7, 1, 300, "void dpsk::ep::internode::combine<A>(int)");
  event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 2, 120, 10,
        R"("Sequence number":5,"Fwd thread id":1)");
  launch(2, 2, 122, "volta_sgemm_64x64_tn");
  launch(5, 2, 132, "volta_sgemm_64x64_nn");
  event("cpu_op", "autograd::engine::evaluate_function: CheckpointFunctionBackward", 2, 140, 30,
        R"("Fwd thread id":1)");
  event("cpu_op", "aten::mm", 2, 145, 10, "");
  launch(6, 2, 147, "volta_sgemm_64x64_nt");
  const test::Folder t;
  const MeasuredRun run = measured_run(
      open_trace(t.file("phases.json", R"({"schemaVersion":1,"traceEvents":[)" + events + "]}")));
  std::map<std::string, const Op*> ops;  // by begin of the kernel
  const Program& program = run.steps.at(0).graph->programs.at(0);
  for (const OpSpan& span : run.steps[0].ranks[0].spans) {
    ops[fmt::format("{}", (ticks(span.begin) / 1000000 - 1000) / 10)] = &program.ops[span.ref.op];
  }
  REQUIRE(ops.size() == 7);
  const auto phase = [&ops](const char* id) { return name_of(ops.at(id)->phase); };
  CHECK(phase("1") == "forward");
  CHECK(phase("2") == "backward");
  CHECK(phase("3") == "backward");
  CHECK(phase("4") == "optimizer");
  CHECK(phase("5") == "backward");
  CHECK(phase("6") == "recompute");
  CHECK(phase("7") == "forward");
  CHECK(ops.at("7")->kind == OpKind::kAllToAllV);
  CHECK(kernel_kind_of(*ops.at("4")) == KernelKind::kElementwise);
  CHECK(kernel_kind_of(*ops.at("1")) == KernelKind::kGemm);
  CHECK(kernel_kind_of(*ops.at("3")) == KernelKind::kOther);
}
