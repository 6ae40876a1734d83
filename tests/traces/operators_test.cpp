// Operators of PyTorch in our terms, and which device work is theirs.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/folder.h"
#include "traces/events/operator_traffic.h"
#include "traces/events/operators.h"
#include "traces/measured_step.h"
#include "traces/open_trace.h"

using namespace stepcast;
using traces::items_of;
using traces::OperatorCall;
using traces::work_of;
namespace fs = std::filesystem;

namespace {

using Shape = std::array<std::int64_t, 6>;

}  // namespace

TEST_CASE("matrix products take their shape from their inputs", "[traces][operators]") {
  const auto mm = work_of({"aten::mm", {{16, 13}, {13, 256}}, {"float", "float"}, {}});
  REQUIRE(mm);
  CHECK(mm->op.kind == OpKind::kGemm);
  CHECK(mm->op.shape == Shape{16, 256, 13, 1});
  CHECK(mm->op.flops.base() == 2.0 * 16 * 256 * 13);
  const auto addmm = work_of(
      {"aten::addmm", {{256}, {16, 13}, {13, 256}, {}, {}}, {"float", "float", "float"}, {}});
  REQUIRE(addmm);
  CHECK(addmm->op.shape == mm->op.shape);
  const auto bmm =
      work_of({"aten::bmm", {{16, 27, 64}, {16, 64, 27}}, {"c10::BFloat16", "c10::BFloat16"}, {}});
  REQUIRE(bmm);
  CHECK(bmm->op.shape == Shape{27, 27, 64, 16});
  CHECK(bmm->op.format == Format::kBf16);
  const auto linear =
      work_of({"aten::linear", {{4, 8, 32}, {64, 32}, {64}}, {"c10::Half", "c10::Half"}, {}});
  REQUIRE(linear);
  CHECK(linear->op.shape == Shape{32, 64, 32, 1});
  CHECK(linear->op.flags == op_flags::kTransposeB);
}

TEST_CASE("elementwise kernels move the bytes of their operands", "[traces][operators]") {
  // [32, 64, 7] + [7], in place: 14336 + 7 elements read, 14336 written.
  const auto add = work_of({"aten::add_", {{32, 64, 7}, {7}, {}}, {"float", "float", "Int"}, {}});
  REQUIRE(add);
  CHECK(add->op.kind == OpKind::kAdd);
  CHECK(add->op.bytes_read.base() == 4.0 * (14336 + 7));
  CHECK(add->op.bytes_written.base() == 4.0 * 14336);
  // With a number one tensor is read; where the result goes is not read.
  const auto relu =
      work_of({"aten::clamp_min", {{64, 8}, {}, {64, 8}}, {"float", "Int", "float"}, {}});
  REQUIRE(relu);
  CHECK(relu->op.kind == OpKind::kActivationForward);
  CHECK(relu->op.bytes_read.base() == 4.0 * 512);
  const auto number = work_of({"aten::mul", {{64, 8}, {}}, {"float", "Double"}, {}});
  REQUIRE(number);
  CHECK(number->op.kind == OpKind::kActivationForward);
  // A change of format: 8 bytes read, 4 written.
  const auto cast = work_of({"aten::copy_", {{351}, {351}, {}}, {"float", "long int"}, {}});
  REQUIRE(cast);
  CHECK(cast->op.kind == OpKind::kCast);
  CHECK(cast->op.bytes_read.base() == 8.0 * 351);
  CHECK(cast->op.bytes_written.base() == 4.0 * 351);
}

TEST_CASE("attention, norms, embeddings and bags are told by their inputs", "[traces][operators]") {
  const auto flash =
      work_of({"aten::_scaled_dot_product_flash_attention",
               {{2, 16, 512, 64}, {2, 4, 512, 64}, {2, 4, 512, 64}, {}, {}, {}, {}},
               {"c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar"},
               {"", "", "", "0.", "True"}});
  REQUIRE(flash);
  CHECK(flash->op.kind == OpKind::kAttentionForward);
  CHECK(flash->op.shape == Shape{2, 16, 4, 512, 512, 64});
  CHECK(flash->op.flags == op_flags::kCausal);
  CHECK(flash->composite);
  const auto norm =
      work_of({"aten::native_layer_norm", {{8, 128, 768}, {}, {768}, {768}}, {"float", ""}, {}});
  REQUIRE(norm);
  CHECK(norm->op.shape == Shape{1024, 768});
  // Three tables of dim 16, 112 / (3 * 16) rows each: 2; 16 bags a table, 32 ids in all.
  const auto bags = work_of({"fbgemm::dense_embedding_codegen_lookup_function",
                             {{112}, {3}, {4}, {}, {}, {4}, {}, {32}, {49}},
                             {"float", "long int", "int", "Scalar", "Scalar", "long int", "Scalar",
                              "long int", "long int"},
                             {"", "", "", "48", "16", "", "7", "", ""}});
  REQUIRE(bags);
  CHECK(bags->op.kind == OpKind::kEmbeddingForward);
  CHECK(bags->op.shape == Shape{32, 48, 48});
  REQUIRE(bags->tables);
  CHECK(bags->tables->shards.size() == 3);
  CHECK(bags->tables->shards[0].rows == 2);
  CHECK(bags->tables->shards[0].bags == 16);
}

TEST_CASE("operators without a shape, or of no kind, are none of ours", "[traces][operators]") {
  CHECK_FALSE(work_of({"aten::mm", {}, {}, {}}));
  CHECK_FALSE(work_of({"aten::mm", {{16, 13}, {12, 256}}, {"float", "float"}, {}}));  // 13 != 12
  CHECK_FALSE(work_of({"aten::cudnn_convolution", {{32, 3, 8, 8}, {4, 3, 3, 3}}, {}, {}}));
  CHECK_FALSE(work_of({"aten::add_", {{0}, {0}}, {"float", "float"}, {}}));
  CHECK_FALSE(work_of({"aten::add_", {{INT64_MAX, 8}, {8}}, {"float", "float"}, {}})->op.shape[0] ==
              INT64_MAX);  // what cannot be is no operand
  CHECK_FALSE(work_of({"fbgemm::dense_embedding_codegen_lookup_function",
                       {{112}, {2}, {3}, {}, {}, {3}, {}, {32}, {33}},
                       {"float"},
                       {}}));  // no total dimension recorded
}

TEST_CASE("operators that are none of ours tell what they move and multiply",
          "[traces][operators]") {
  using traces::traffic_of;
  // Patches of 16 x 16 of an image of 224: 14 x 14 positions, bf16.
  const OperatorCall patches{
      "aten::cudnn_convolution",
      {{8, 3, 224, 224}, {768, 3, 16, 16}, {}, {}, {}, {}},
      {"c10::BFloat16", "c10::BFloat16", "ScalarList", "ScalarList", "ScalarList", "Scalar"},
      {"", "", "[0, 0]", "[16, 16]", "[1, 1]", "1"}};
  const auto t = traffic_of(patches, KernelKind::kConvolution);
  REQUIRE(t);
  CHECK(t->flops == Approx(2.0 * 8 * 14 * 14 * 768 * 3 * 16 * 16));
  CHECK(t->bytes == Approx(2.0 * (8 * 3 * 224 * 224 + 768 * 3 * 16 * 16 + 8 * 14 * 14 * 768)));
  CHECK(t->format == Format::kBf16);
  OperatorCall older = patches;  // without concrete values the output is not told
  older.values.clear();
  CHECK_FALSE(traffic_of(older, KernelKind::kConvolution));
  const OperatorCall general{"aten::convolution",
                             {{2, 4, 9, 9}, {6, 4, 3, 3}, {}, {}, {}, {}},
                             {"float", "float", "", "ScalarList", "ScalarList", "ScalarList"},
                             {"", "", "", "[2]", "[1]", "[1]"}};
  CHECK(traffic_of(general, KernelKind::kConvolution)->flops ==
        Approx(2.0 * 2 * 6 * 5 * 5 * 4 * 9));  // (9 + 2 - 3) / 2 + 1 = 5 each way
  const OperatorCall backward{"aten::convolution_backward",
                              {{2, 6, 5, 5}, {2, 4, 9, 9}, {6, 4, 3, 3}},
                              {"float", "float", "float"},
                              {}};
  const auto b = traffic_of(backward, KernelKind::kConvolution);
  CHECK(b->flops == Approx(4.0 * 2 * 6 * 5 * 5 * 4 * 9));  // gradients of input and weight
  CHECK(b->bytes == Approx(4.0 * (2 * 6 * 25 + 2 * (2 * 4 * 81 + 6 * 4 * 9))));
  const OperatorCall norm{"aten::cudnn_batch_norm", {{2, 4, 9, 9}, {4}}, {"float", "float"}, {}};
  CHECK(traffic_of(norm, KernelKind::kNorm)->bytes == Approx(4.0 * (2 * 2 * 4 * 81 + 4)));
  CHECK(traffic_of(norm, KernelKind::kReduction)->bytes == Approx(4.0 * (2 * 4 * 81 + 4)));
  CHECK_FALSE(traffic_of(norm, KernelKind::kGemm));
  CHECK_FALSE(traffic_of({"aten::sum", {{}, {}}, {"", ""}, {}}, KernelKind::kReduction));
  CHECK_FALSE(
      traffic_of({"aten::cudnn_convolution", {{1, 2}, {INT64_MAX, -1}}, {"float", "float"}, {}},
                 KernelKind::kConvolution));
}

TEST_CASE("lists of texts are read item by item", "[traces][operators]") {
  using Texts = std::vector<std::string>;
  CHECK(items_of(R"(["float","","[1, 2]"])") == Texts{"float", "", "[1, 2]"});
  CHECK(items_of("[1, True]") == Texts{"1", "True"});
  CHECK(items_of("[\n  \"float\",\n  \"Scalar\"\n]") == Texts{"float", "Scalar"});
  CHECK(items_of("[]").empty());
  CHECK(items_of("").empty());
  CHECK(items_of(R"(["a")").size() <= 1);  // cut short
}

TEST_CASE("kernels take the shape of the operator that launched them", "[traces][operators]") {
  // addmm inside linear launches two kernels; a convolution one; an orphan has no launch.
  const fixtures::Folder folder;
  const std::string file = folder.file("operators.json", R"({"schemaVersion":1,"traceEvents":[
{"ph":"X","cat":"cpu_op","name":"aten::linear","pid":1,"tid":1,"ts":10,"dur":60,"args":{"Input Dims":[[16,13],[256,13]],"Input type":["float","float"]}},
{"ph":"X","cat":"cpu_op","name":"aten::addmm","pid":1,"tid":1,"ts":12,"dur":50,"args":{"Input Dims":[[256],[16,13],[13,256],[],[]],"Input type":["float","float","float","Scalar","Scalar"]}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":20,"dur":5,"args":{"correlation":1}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":30,"dur":5,"args":{"correlation":2}},
{"ph":"X","cat":"cpu_op","name":"aten::cudnn_convolution","pid":1,"tid":1,"ts":80,"dur":20,"args":{"Input Dims":[[1,2,3,4]],"Input type":["float"]}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":85,"dur":5,"args":{"correlation":3}},
{"ph":"X","cat":"kernel","name":"sgemm","pid":0,"tid":7,"ts":40,"dur":10,"args":{"stream":7,"device":0,"correlation":1}},
{"ph":"X","cat":"kernel","name":"reduce","pid":0,"tid":7,"ts":51,"dur":4,"args":{"stream":7,"device":0,"correlation":2}},
{"ph":"X","cat":"kernel","name":"cudnn_conv","pid":0,"tid":7,"ts":95,"dur":20,"args":{"stream":7,"device":0,"correlation":3}}]})");
  const traces::MeasuredRun run = traces::measured_run(traces::open_trace(file));
  REQUIRE(run.steps.size() == 1);
  const Program& program = run.steps[0].graph->programs.front();
  const traces::MeasuredRank& rank = run.steps[0].ranks.front();
  std::vector<std::int32_t> gemms;
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    if (rank.part_of[o] >= 0) {
      CHECK(program.ops[o].kind == OpKind::kGemm);
      CHECK(program.ops[o].shape == Shape{16, 256, 13, 1});
      gemms.push_back(rank.part_of[o]);
    }
  }
  REQUIRE(gemms.size() == 2);
  CHECK(gemms[0] == gemms[1]);  // two kernels of one call
  REQUIRE(rank.unshaped.size() == 1);
  CHECK(rank.unshaped.front().name == "aten::cudnn_convolution");
}
