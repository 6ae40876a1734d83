// The reader of measured tables: ops, work, testbeds, rejection.
#include "models/measured/measured_table.h"
#include "core/access/access.h"

#include <zlib.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "core/error.h"
#include "models/kernels/kernel_form.h"
#include "models/measured/op_text.h"
#include "tests/folder.h"
#include "tests/measured_tables.h"
#include "tests/models/measured.h"

using namespace stepcast;
using namespace stepcast::models;
using Catch::Matchers::Contains;

namespace {

namespace fs = std::filesystem;

struct Folder : fixtures::Folder {
  [[nodiscard]] std::string gzip(const std::string& name, const std::string& text) const {
    gzFile out = gzopen((path() / name).c_str(), "wb");
    gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
    gzclose(out);
    return path() / name;
  }
};

const std::string kGemm =
    "kind,format,s0,s1,s2,seconds,configuration,device,system,stack\n"
    "gemm,bf16,16,512,1024,5e-6,512x1024,h100-sxm-80gb,dgx-h100,stack 1.0\n"
    "gemm,bf16,32,512,1024,6e-6,512x1024,h100-sxm-80gb,dgx-h100,stack 1.0\n"
    "gemm,fp8,16,1024,1024,4e-6,1024x1024,h100-sxm-80gb,dgx-h100,stack 1.0\n";

std::string rejection(const fs::path& file) {
  try {
    (void)read_measured(file);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

Device toy() {
  Device d;
  d.name = "toy";
  d.bandwidth = GBps(100);
  d.l2 = MB(1);
  d.multiprocessors = 10;
  d.peak = {{Format::kFp32, teraflops(1)}};
  return d;
}

}  // namespace

TEST_CASE("rows of matrix products, plain and gzip", "[models][measured]") {
  const Folder folder;
  const bool packed = GENERATE(false, true);
  const fs::path path = packed ? folder.gzip("h100.csv.gz", kGemm) : folder.file("h100.csv", kGemm);
  const MeasuredTable table = read_measured(path);
  REQUIRE(table.ops.size() == 3);
  CHECK(table.skipped.empty());
  CHECK(table.files[0].rows == 3);
  const Op& op = table.op(table.ops[0]);
  CHECK(op.kind == OpKind::kGemm);
  CHECK(op.format == Format::kBf16);
  CHECK(op.shape[0] == 16);
  CHECK(op.flops.base() == 2.0 * 16 * 512 * 1024);
  CHECK(table.ops[0].time.base() == 5e-6);
  CHECK(table.ops[0].origin.line == 2);
  CHECK_THAT(table.place(table.ops[2].origin), Contains(path.filename().string() + ":4"));
  CHECK(table.testbed(table.ops[0].origin) ==
        Testbed{"h100-sxm-80gb", "dgx-h100", "stack 1.0", ""});
  CHECK(table.sources == std::vector<std::string>{path.filename().string()});
  CHECK(table.ops[0].configuration == table.ops[1].configuration);
  CHECK(table.ops[0].configuration != table.ops[2].configuration);
  CHECK(models::test::find_ops(table, {.variant = "*", .format = Format::kFp8}).size() == 1);
  CHECK(models::test::find_ops(table, {.device = "a100-sxm-80gb"}).empty());
  // Results are written in bf16, whatever the product is done in.
  const Op& narrow = table.op(table.ops[2]);
  CHECK(narrow.bytes_written.base() == 16 * 1024 * 2);
  CHECK(narrow.bytes_read.base() == 16 * 1024 + 1024 * 1024);
}

TEST_CASE("columns say what kind and sizes do not", "[models][measured]") {
  const Folder folder;
  const MeasuredTable table = read_measured(
      folder.file("any.csv",
                  "kind,s0,s1,s2,s3,s4,s5,seconds,flags,variant,window,flops,bytes,apart,samples,"
                  "device,kernel,source,remark\n"
                  "activation_forward,8,16,,,,,1e-5,,gelu,,,,,,t4,,one,seen\n"
                  "activation_forward,8,16,,,,,1e-5,,2,,,,,,t4,mul,one,\n"
                  "optimizer,1000,,,,,,1e-5,,rowwise_adagrad,,,,,,t4,,two,\n"
                  "attention_forward,1,8,8,64,64,32,1e-5,8,,16,,,,,t4,,two,\n"
                  "cast,4096,,,,,,1e-5,,,,77,88,3e-6,9,,,,\n"),
      {.device = "p4", .system = "none"});
  REQUIRE(table.skipped.empty());
  REQUIRE(table.ops.size() == 5);
  const auto op = [&](std::size_t i) { return table.op(table.ops[i]); };
  CHECK(op(0).as<ActivationAttributes>().activation == Activation::kGelu);
  CHECK(op(1).as<ActivationAttributes>().activation == Activation::kGelu);
  CHECK(op(2).as<OptimizerAttributes>().kind == OptimizerKind::kRowwiseAdagrad);
  CHECK(op(3).as<AttentionAttributes>().window == 16);
  CHECK(op(3).flags == op_flags::kCausal);
  CHECK(op(4).flops.base() == 77);
  CHECK((op(4).bytes_read + op(4).bytes_written).base() == 88);
  CHECK(table.ops[4].apart.base() == 3e-6);
  CHECK(table.ops[4].samples == 9);
  // add, relu, gelu ... in their own right; stand-ins are found only when asked for.
  CHECK(
      models::test::find_ops(table, {.device = "t4", .kind = OpKind::kActivationForward}).size() ==
      1);
  CHECK(models::test::find_ops(table, {.device = "t4", .variant = "mul"}).size() == 1);
  // A row that names no device is of the one that was given.
  CHECK(table.testbed(table.ops[4].origin) == Testbed{"p4", "none", "", ""});
  CHECK(table.testbed(table.ops[3].origin).system.empty());
  CHECK(table.sources == std::vector<std::string>{"one", "two", "any.csv"});
}

TEST_CASE("ops without a time belong to the row above", "[models][measured]") {
  const Folder folder;
  const MeasuredTable table =
      read_measured(folder.file("layer.csv",
                                "kind,format,s0,s1,s2,s3,flops,seconds,variant,device\n"
                                "grouped_gemm,bf16,64,1536,4096,32,5e9,5e-4,,b200-sxm\n"
                                "grouped_gemm,bf16,64,4096,768,32,,,,\n"
                                "activation_forward,bf16,2048,768,,,,,swiglu,\n"
                                "add,bf16,0,768,,,,-1,,b200-sxm\n"
                                "add,bf16,8,768,,,,,,\n"));
  REQUIRE(table.ops.size() == 1);
  CHECK(table.files[0].rows == 3);
  const auto layer = table.ops_of(table.ops[0]);
  REQUIRE(layer.size() == 3);
  CHECK(layer[0].kind == OpKind::kGemm);
  CHECK(layer[0].routing >= 0);
  CHECK(fitted_keys(layer[1]).front() == "grouped_gemm.bf16");
  CHECK(layer[0].flops.base() == 5e9);
  CHECK(layer[2].as<ActivationAttributes>().activation == Activation::kSwiGlu);
  // Lines that belong to a row that is not used are not added to the one before.
  REQUIRE(table.skipped.size() == 2);
  CHECK_THAT(table.skipped[1].reason, Contains("a row of one op above"));
}

TEST_CASE("bad rows are skipped, each with its line, column and why", "[models][measured]") {
  const Folder folder;
  const MeasuredTable table = read_measured(folder.file("bad.csv",
                                                        "kind,format,s0,s1,s2,seconds,window\n"
                                                        "gemm,bf16,16,512,1024,-5e-6,\n"
                                                        "gemm,bf17,16,512,1024,5e-6,\n"
                                                        "gemm,bf16,16,x,1024,5e-6,\n"
                                                        "gemm,bf16,16,512,1024,5e-6\n"
                                                        "gemm,bf16,-1,512,1024,5e-6,\n"
                                                        "gemm,bf16,16.5,512,1024,5e-6,\n"
                                                        "gemm,bf16,16,512,1024,nan,\n"
                                                        "gemm,bf16,16,512,1024,5e-6,7\n"
                                                        "juggle,bf16,16,512,1024,5e-6,\n"
                                                        "embedding_forward,fp32,16,2,4,5e-6,\n"
                                                        "all_reduce,fp32,,,,5e-6,\n"
                                                        "gemm,bf16,16,512,1024,5e-6,\n"));
  CHECK(table.ops.size() == 1);
  const char* reasons[] = {"seconds holds \"-5e-6\", expected 0 or more",
                           "format holds \"bf17\"",
                           "s1 holds \"x\"",
                           "6 fields, expected 7",
                           "s0 holds \"-1\", expected 0 or more",
                           "s0 holds \"16.5\"",
                           "seconds holds \"nan\"",
                           "window holds \"7\"",
                           "kind holds \"juggle\"",
                           "no embedding tables",
                           "ranks holds \"\""};
  REQUIRE(table.skipped.size() == std::size(reasons));
  for (std::size_t i = 0; i < std::size(reasons); ++i) {
    CHECK(table.skipped[i].origin.line == i + 2);
    CHECK_THAT(table.skipped[i].reason, Contains(reasons[i]));
  }
}

TEST_CASE("files that are no table are refused by name", "[models][measured][malformed]") {
  const Folder folder;
  CHECK_THAT(rejection(folder.path() / "none.csv"),
             Contains("none.csv") && Contains("no such file"));
  CHECK_THAT(rejection(folder.file("a.csv", "")), Contains("a.csv") && Contains("empty"));
  CHECK_THAT(rejection(folder.file("b.csv", "kind,seconds\n")), Contains("no rows"));
  CHECK_THAT(rejection(folder.file("c.csv", "gemm_dtype,m,n,k,latency_ms\nbf16,1,2,3,4\n")),
             Contains("c.csv:1") && Contains("gemm_dtype,m") && Contains("scripts/data/convert"));
  CHECK_THAT(rejection(folder.file("e.csv.gz", std::string("\x1f\x8b\x08\x00garbage", 11))),
             Contains("e.csv.gz") && Contains("the file was cut"));
  fs::create_directories(folder.path() / "none");
  CHECK_THAT(rejection(folder.path() / "none"), Contains("holds no .csv"));
}

TEST_CASE("collectives are told by machine and system", "[models][measured]") {
  const Folder folder;
  const MeasuredTable table = read_measured(
      folder.file("ranks.csv",
                  "kind,format,bytes,seconds,ranks,ranks_per_machine,device,system,kernel\n"
                  "all_gather,fp16,512,9e-6,4,,a100-sxm-80gb,dgx-a100-80gb,\n"
                  "all_reduce,fp16,67108864,0.0335,16,8,h100-sxm-80gb,p5-h100,\n"
                  "all_to_all,fp16,512,9e-6,8,8,h100-sxm-80gb,dgx-h100,\n"
                  "all_to_all,fp8,512,9e-6,8,8,h100-sxm-80gb,dgx-h100,by hand\n"));
  REQUIRE(table.collectives.size() == 4);
  CHECK(table.collectives[0].ranks_per_machine == 4);
  CHECK(table.collectives[1].bytes == 64 * 1048576);
  CHECK(table.collectives[2].kind == OpKind::kAllToAll);
  System p5;
  p5.name = "p5-h100";
  p5.device.name = "h100-sxm-80gb";
  p5.fabric = {{"nvlink", 8, GBps(450), microseconds(2), 1, true},
               {"efa", 64, GBps(50), microseconds(15), 1, false}};
  const auto found = find_collectives(table, p5);
  CHECK(found == std::vector<std::uint32_t>{1, 2});  // its own, and inside one machine of its GPU
  const auto rows = measured_collectives(table, p5, found);
  CHECK(rows[0].format == Format::kFp32);
  CHECK(rows[0].group.members == std::vector<std::int64_t>{8, 16});
  CHECK(rows[0].group.siblings == std::vector<std::int64_t>{1, 1});
}

TEST_CASE("embedding rows carry their tables and law", "[models][measured]") {
  const Folder folder;
  const MeasuredTable table = read_measured(
      folder.file("bags.csv",
                  "kind,s0,s1,s2,s3,seconds,embedding\n"
                  "embedding_forward,2048,256,128,1,7.5e-6,sgd; 1000 1000 64 1024 128 uniform; "
                  "1000 1000 64 1024 128 uniform\n"));
  REQUIRE(table.ops.size() == 1);
  CHECK(table.op(table.ops[0]).as<EmbeddingAttributes>().order == 1);
  const OpFacts facts(*table.program, table.op(table.ops[0]));
  REQUIRE(facts.shards.size() == 2);
  CHECK(facts.shards[0].lookups == 128 * 8);
  // Distinct rows of 1024 uniform lookups in 1000: 1000 (1 - (1 - 1/1000)^1024) = 641.0.
  CHECK(facts.shards[0].unique_rows() == Approx(641.0).epsilon(1e-3));
}

TEST_CASE("rates above the device's are impossible", "[models][measured]") {
  Op op;
  op.kind = OpKind::kGemm;
  op.shape = {1000, 1000, 1000, 1};
  fill_work(op);
  // 2e9 FLOP: 2 ms at 1 TFLOP/s. 12 MB, 11 beyond the cache: 0.11 ms at 100 GB/s.
  CHECK(impossible_on(toy(), op, milliseconds(2.01)).empty());
  CHECK_THAT(impossible_on(toy(), op, milliseconds(1.99)), Contains("above the fp32 peak"));
  op.flops = Flops{};
  CHECK(impossible_on(toy(), op, milliseconds(0.111)).empty());
  CHECK_THAT(impossible_on(toy(), op, milliseconds(0.109)), Contains("memory bandwidth"));
  System system;
  system.fabric = {{"link", 8, GBps(10), microseconds(1), 1, false}};
  MeasuredCollective row{
      OpKind::kAllGather, 1e9, {4, {4}, {4}, {1}}, seconds(0.0751), Format::kFp32};
  CHECK(impossible_on(system, row).empty());  // 0.75 GB through a 10 GB/s port: 75 ms
  row.time = seconds(0.0749);
  CHECK_THAT(impossible_on(system, row), Contains("above the link port"));
}

TEST_CASE("an op read back meets its operands at the distances recorded", "[models][measured]") {
  Program program;
  Op op;
  op.kind = OpKind::kAdd;
  op.shape = {10, 100};
  fill_work(op);  // 12,000 bytes of its own
  const std::string text = "4000@12000 4000@1000000s 4000@50000";
  (void)add_with_reuse(program, op, "4000@12000");
  const std::uint32_t index = add_with_reuse(program, op, text);
  const OpFacts facts(program, program.ops[index]);
  REQUIRE(facts.operands.size() == 3);
  CHECK(facts.operands[0].distance == Approx(12000));
  CHECK(facts.operands[1].distance == Approx(1000000));
  CHECK(facts.operands[2].distance == Approx(50000));
  CHECK((facts.operands[1].sent && !facts.operands[0].sent && !facts.operands[2].sent));
  CHECK(operands_text(program, program.ops[index]) == text);
  CHECK_THROWS_AS(add_with_reuse(program, op, "4000"), InputError);
  CHECK_THROWS_AS(add_with_reuse(program, op, "4000@s"), InputError);
}

TEST_CASE("an embedding group survives its text", "[models][measured]") {
  Program program;
  const std::string text =
      "rowwise_adagrad; 500 1000 16 64 32 zipf 1.05 state; 8 8 4 10 5 uniform mean";
  program.embeddings.push_back(embedding_from(text, Format::kFp32));
  Op op;
  op.kind = OpKind::kEmbeddingBackward;
  op.attributes = EmbeddingAttributes{.group = 0};
  CHECK(embedding_text(program, op) == text);
  CHECK(program.embeddings[0].shards[0].access->rows() == 500);
  for (const char* bad : {"", "adamw; 1 1 1 1 1 uniform", "sgd; 2 1 1 1 1 uniform",
                          "sgd; 1 1 1 1 1 normal", "sgd; a 1 1 1 1 uniform"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(embedding_from(bad, Format::kFp32), InputError);
  }
}

TEST_CASE("calibration rows: ops, collectives, host, steps", "[models][measured]") {
  const Folder folder;
  const MeasuredTable table = read_measured(
      folder.file("ops.csv",
                  "configuration,kind,name,s0,s1,s2,s3,s4,s5,flops,bytes,seconds,samples,format,"
                  "flags,variant,ranks,ranks_per_machine,operands,embedding\n"
                  "a,gemm,g,8,8,8,1,0,0,1024,768,1e-6,5,fp32,1,0,0,0,256@768 512@9000,\n"
                  "a,all_reduce,,0,0,0,0,0,0,0,4096,1e-5,1,fp32,0,0,2,2,,\n"
                  "a,host_issue,,0,0,0,0,0,0,0,0,1e-6,1,,0,0,0,0,,\n"
                  "a,step,,0,0,0,0,0,0,1024,768,1e-4,9,,0,0,0,0,,\n"
                  "a,juggle,,0,0,0,0,0,0,0,0,1e-6,1,fp32,0,0,0,0,,\n"),
      {.device = "local-cpu-core", .system = "local-cpu"});
  REQUIRE(table.ops.size() == 1);
  CHECK(table.op(table.ops[0]).flags == op_flags::kTransposeA);
  CHECK(table.ops[0].samples == 5);
  CHECK(table.collectives.size() == 1);
  CHECK(table.steps.size() == 1);
  CHECK(measured_host(table, "local-cpu-core").issue == std::vector<double>{1e-6});
  REQUIRE(table.skipped.size() == 1);
  CHECK_THAT(table.skipped[0].reason, Contains("juggle"));
}

TEST_CASE("every row of the converted tables is read", "[models][measured][accuracy]") {
  const fs::path data = stepcast::measurements::measured_tables("");
  if (!fs::exists(data / "kernels")) {
    WARN(stepcast::measurements::kNoTables);
    return;
  }
  const MeasuredTable table = read_measured(data);
  std::int64_t rows = 0;
  for (const MeasuredTable::File& file : table.files) {
    rows += file.rows;
  }
  CHECK(table.skipped.empty());
  CHECK(static_cast<std::size_t>(rows) ==
        table.ops.size() + table.collectives.size() + table.host.size());
}
