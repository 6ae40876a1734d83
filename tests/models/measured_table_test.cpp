// Readers of measured tables: units, names, refusals.
#include "models/measured/measured_table.h"

#include <unistd.h>
#include <zlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "models/kernels/kernel_form.h"
#include "models/measured/op_text.h"
#include "models/measured/sha256.h"

using namespace stepcast;
using namespace stepcast::models;
using Catch::Matchers::Contains;

namespace {

namespace fs = std::filesystem;

/// A folder of its own, removed with everything in it.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("stepcast-measured-" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] fs::path file(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return path_ / name;
  }
  [[nodiscard]] fs::path gzip(const std::string& name, const std::string& text) const {
    gzFile out = gzopen((path_ / name).c_str(), "wb");
    gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
    gzclose(out);
    return path_ / name;
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

const std::string kGemm =
    "gemm_dtype,m,n,k,latency_ms\n"
    "bfloat16,16,512,1024,0.005\n"
    "bfloat16,32,512,1024,0.006\n"
    "fp8,16,1024,1024,0.004\n";

std::string refusal(const fs::path& file) {
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

// Vectors of FIPS 180-2, appendix B: the last needs a second block for the length.
TEST_CASE("SHA-256 of known messages", "[models][measured]") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST_CASE("rows of matrix products, plain and gzip", "[models][measured]") {
  const Folder folder;
  const bool packed = GENERATE(false, true);
  const fs::path path = packed ? folder.gzip("gemm__h100_sxm__stack_1.0.csv.gz", kGemm)
                               : folder.file("gemm__h100_sxm__stack_1.0.csv", kGemm);
  const MeasuredTable table = read_measured(path);
  REQUIRE(table.ops.size() == 3);
  CHECK(table.skipped.empty());
  CHECK(table.files[0].schema == "gemm");
  CHECK(table.files[0].rows == 3);
  const Op& op = table.op(table.ops[0]);
  CHECK(op.kind == OpKind::kGemm);
  CHECK(op.format == Format::kBf16);
  CHECK(op.shape[0] == 16);
  CHECK(op.flops.base() == 2.0 * 16 * 512 * 1024);
  CHECK(table.ops[0].time.base() == Approx(5e-6));  // 0.005 ms
  CHECK(table.ops[0].origin.line == 2);
  CHECK_THAT(table.place(table.ops[2].origin),
             Contains("gemm__h100_sxm__stack_1.0.csv") && Contains(":4"));
  const Testbed& where = table.testbed(table.ops[0].origin);
  CHECK(where.device == "h100-sxm-80gb");
  CHECK(where.system == "dgx-h100");
  CHECK(where.stack == "stack 1.0");
  // Rows of one (n, k) are one configuration.
  CHECK(table.ops[0].configuration == table.ops[1].configuration);
  CHECK(table.ops[0].configuration != table.ops[2].configuration);
  CHECK(find_ops(table, {.variant = "*", .format = Format::kFp8}).size() == 1);
  CHECK(find_ops(table, {.device = "a100-sxm-80gb"}).empty());
}

TEST_CASE("narrow products are told without their quantisation", "[models][measured]") {
  const Folder folder;
  const std::vector<fs::path> files{
      folder.file("gemm__b200_sxm__s_1.csv",
                  "gemm_dtype,m,n,k,latency_ms\n"
                  "fp8,64,512,1024,0.020\n"
                  "nvfp4,64,512,1024,0.010\n"
                  "fp8_block,64,512,1024,0.012\n"
                  "fp8,64,512,2048,0.020\n"
                  "fp8,32,512,1024,0.007\n"),
      folder.file("scale_matrix__b200_sxm__s_1.csv",
                  "quant_dtype,m,k,latency_ms\nfp8,64,1024,0.003\nfp8,32,1024,0.003\n"),
      folder.file("computescale__b200_sxm__s_1.csv",
                  "quant_dtype,m,k,latency_ms\nfp8,64,1024,0.005\nfp8,32,1024,0.005\n")};
  const MeasuredTable table = read_measured(files);
  REQUIRE(table.ops.size() == 9);
  const auto variant = [&](std::size_t i) { return table.testbed(table.ops[i].origin).variant; };
  // One scale a tensor: cast and search; scales of blocks: the cast alone, of 4.5 bits a little
  // less (2 + 0.5625 bytes an element of the 3 that fp8 moves).
  CHECK(table.ops[0].time.base() == Approx(20e-6 - 3e-6 - 5e-6));
  CHECK(table.ops[0].apart.base() == Approx(8e-6));
  CHECK(variant(0).empty());
  CHECK(table.ops[1].time.base() == Approx(10e-6 - 3e-6 * 2.5625 / 3));
  CHECK(variant(1).empty());
  CHECK(table.ops[2].time.base() == Approx(12e-6 - 3e-6));
  CHECK(variant(2) == "fp8_block");
  // No quantisation of this (m, k), or more than the whole time: a product with it.
  CHECK(table.ops[3].time.base() == Approx(20e-6));
  CHECK(variant(3) == "with quantisation");
  CHECK(table.ops[4].time.base() == Approx(7e-6));
  CHECK(variant(4) == "with quantisation");
  // Results are written in bf16, whatever the product is done in: 64 * 512 * 2 bytes.
  CHECK(table.op(table.ops[0]).bytes_written.base() == 64 * 512 * 2);
  CHECK(table.op(table.ops[0]).bytes_read.base() == 64 * 1024 + 512 * 1024);
  const Op& cast = table.op(table.ops[5]);
  CHECK(cast.kind == OpKind::kCast);
  CHECK(cast.bytes_read.base() == 2 * 64 * 1024);
  CHECK(cast.bytes_written.base() == 64 * 1024);
  CHECK(variant(7) == "search of the maximum");
}

TEST_CASE("a layer of experts is one time of several ops", "[models][measured]") {
  const Folder folder;
  const MeasuredTable table = read_measured(folder.file(
      "moe__b200_sxm__s_1.csv",
      "moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,"
      "distribution,kernel_source,latency_ms\n"
      "bfloat16,1024,4096,1536,8,128,2,4,balanced,moe_torch_flow_cutlass,0.5\n"
      "bfloat16,2,4096,1536,8,128,1,1,balanced,moe_torch_flow_cutlass,0.5\n"
      "bfloat16,1024,4096,1536,8,128,1,1,power_law_1.2,moe_torch_flow_cutlass,0.5\n"
      "bfloat16,1024,4096,2688,8,128,1,1,balanced,moe_torch_flow_nongated,0.5\n"
      "bfloat16,1024,4096,1536,8,128,1,2,balanced,sglang_fused_moe_triton,0.5\n"));
  REQUIRE(table.ops.size() == 4);
  REQUIRE(table.skipped.size() == 1);
  CHECK_THAT(table.skipped[0].reason, Contains("tokens of other ranks"));
  // 1,024 tokens, 8 copies each, on 4 ranks: 2,048 copies for 32 experts, 64 each; half of 1,536
  // columns, two matrices of them in the first product.
  const auto layer = table.ops_of(table.ops[0]);
  REQUIRE(layer.size() == 6);
  using Shape = std::array<std::int64_t, 6>;
  CHECK(layer[0].shape == Shape{64, 2 * 768, 4096, 32});
  CHECK(layer[1].shape == Shape{64, 4096, 768, 32});
  CHECK(layer[0].routing >= 0);
  CHECK(layer[0].flops.base() == 2.0 * 2048 * 1536 * 4096);
  CHECK(fitted_keys(layer[0]).front() == "grouped_gemm.bf16");
  // 2 tokens reach 16 experts: no other weights are read.
  CHECK(table.ops_of(table.ops[1])[0].shape == Shape{1, 2 * 1536, 4096, 16});
  CHECK(table.testbed(table.ops[2].origin).variant == "power_law_1.2");
  CHECK(table.testbed(table.ops[3].origin).variant == "moe_torch_flow_nongated");
  CHECK(table.ops_of(table.ops[3])[0].shape[1] == 2688);
  CHECK(table.ops[0].configuration == table.ops[1].configuration);
}

TEST_CASE("prefill of latent attention, and kernels timed without rotation", "[models][measured]") {
  const Folder folder;
  const std::vector<fs::path> files{
      folder.file("context_mla__b200_sxm__s_1.csv",
                  "mla_dtype,kv_cache_dtype,num_heads,batch_size,isl,step,latency_ms\n"
                  "bfloat16,bfloat16,16,2,4096,0,0.5\nbfloat16,fp8,16,2,4096,0,0.5\n"
                  "bfloat16,bfloat16,16,2,4096,128,0.5\n"),
      folder.file("mla_context_module__b200_sxm__s_1.csv",
                  "mla_dtype,kv_cache_dtype,gemm_type,num_heads,batch_size,isl,step,latency_ms\n"
                  "bfloat16,bfloat16,bfloat16,16,2,4096,0,0.9\n"),
      folder.file("context_attention__b200_sxm__s_1.csv",
                  "batch_size,isl,num_heads,num_key_value_heads,head_dim,window_size,attn_dtype,"
                  "kv_cache_dtype,step,kernel_source,latency_ms\n"
                  "4,16384,96,96,512,0,bfloat16,bfloat16,0,torch_flow_flashinfer,18\n"
                  "4,16384,96,96,64,0,fp8,fp8,0,torch_flow,18\n")};
  const MeasuredTable table = read_measured(files);
  REQUIRE(table.ops.size() == 4);
  REQUIRE(table.skipped.size() == 2);
  CHECK_THAT(table.skipped[1].reason, Contains("a layer with its projections"));
  const Op& latent = table.op(table.ops[0]);
  CHECK(latent.kind == OpKind::kAttentionForward);
  CHECK(latent.shape[5] == 160);  // (192 + 128) / 2
  CHECK(table.testbed(table.ops[1].origin).variant == "narrow cache");
  CHECK(table.testbed(table.ops[2].origin).variant == "without rotation and cache");
  CHECK(table.testbed(table.ops[3].origin).variant.empty());
  CHECK(table.op(table.ops[3]).format == Format::kFp8);
}

TEST_CASE("bad rows are skipped, each with its line and why", "[models][measured]") {
  const Folder folder;
  const MeasuredTable table = read_measured(folder.file("gemm__h100_sxm__s.csv",
                                                        "gemm_dtype,m,n,k,latency_ms\n"
                                                        "bfloat16,16,512,1024,-0.005\n"
                                                        "bfloat17,16,512,1024,0.005\n"
                                                        "bfloat16,16,x,1024,0.005\n"
                                                        "bfloat16,16,512,1024\n"
                                                        "bfloat16,0,512,1024,0.005\n"
                                                        "bfloat16,16.5,512,1024,0.005\n"
                                                        "bfloat16,16,512,1024,nan\n"
                                                        "bfloat16,16,512,1024,0.005\n"));
  CHECK(table.ops.size() == 1);
  REQUIRE(table.skipped.size() == 7);
  const char* reasons[] = {
      "-0.005, expected above 0",    "bfloat17",  "n is \"x\"",           "4 fields, expected 5",
      "m is 0, expected an integer", "m is 16.5", "latency_ms is \"nan\""};
  for (std::size_t i = 0; i < 7; ++i) {
    CHECK(table.skipped[i].origin.line == i + 2);
    CHECK_THAT(table.skipped[i].reason, Contains(reasons[i]));
  }
}

TEST_CASE("files that are no table are refused by name", "[models][measured][malformed]") {
  const Folder folder;
  CHECK_THAT(refusal(folder.path() / "none.csv"), Contains("none.csv") && Contains("no such file"));
  CHECK_THAT(refusal(folder.file("a.csv", "")), Contains("a.csv") && Contains("empty"));
  CHECK_THAT(refusal(folder.file("b.csv", "gemm_dtype,m,n,k,latency_ms\n")), Contains("no rows"));
  CHECK_THAT(refusal(folder.file("c.csv", "gemm_dtype,m,n,latency_ms\nbf16,1,2,3\n")),
             Contains("c.csv:1") && Contains("missing column \"k\" of a gemm table"));
  CHECK_THAT(refusal(folder.file("d.csv", "apples,pears\n1,2\n")),
             Contains("apples,pears") && Contains("gemm, attention"));
  CHECK_THAT(refusal(folder.file("e.csv.gz", std::string("\x1f\x8b\x08\x00garbage", 11))),
             Contains("e.csv.gz") && Contains("the file was cut"));
  const Folder empty;
  fs::create_directories(folder.path() / "none");
  CHECK_THAT(refusal(folder.path() / "none"), Contains("holds no .csv"));
}

TEST_CASE("rows name their device; stand-ins are found only when asked for", "[models][measured]") {
  const Folder folder;
  const MeasuredTable table = read_measured(
      folder.file("elementwise.csv",
                  "op,device,B,H,latency_ms\nadd,Tesla T4,8,16,0.1\nmul,Tesla T4,8,16,0.1\n"
                  "gelu,NVIDIA A100-PCIE-40GB,8,16,0.1\nln,My GPU,8,16,0.1\n"));
  REQUIRE(table.ops.size() == 4);
  CHECK(find_ops(table, {.device = "t4"}).size() == 1);
  CHECK(find_ops(table, {.device = "t4", .variant = "*"}).size() == 2);
  CHECK(find_ops(table, {.device = "t4", .variant = "mul"}).size() == 1);
  CHECK(table.testbed(table.ops[2].origin).device == "a100-pcie-40gb");
  CHECK(table.testbed(table.ops[3].origin).device == "My GPU");
  // add: two operands read, one written, 8 x 16 fp32.
  CHECK((table.op(table.ops[0]).bytes_read + table.op(table.ops[0]).bytes_written).base() ==
        3 * 8 * 16 * 4);
}

TEST_CASE("sizes of collectives follow each table's units", "[models][measured]") {
  const Folder folder;
  const fs::path nccl = folder.file("nccl__a100_sxm__2.27.csv",
                                    "op_name,nccl_dtype,num_gpus,message_size,latency_ms\n"
                                    "all_gather,half,4,256,0.009\nalltoall,int8,8,256,0.009\n");
  const fs::path efa =
      folder.file("aws_p5_efa__nccl_all_reduce.csv",
                  "Nodes,GPUs,size(MB),iterations,out algbw(GB/s)\n2,16,64,10,2\n");
  const fs::path pairs = folder.file(
      "x__h100_dgx__send_recv.csv",
      "collective,num_workers,devices_per_node,rank,size_bytes,median_ms\n"
      "send_recv,2,1,0,2048,0.02\nsend_recv,2,1,1,2048,0.01\nsend_recv,2,1,0,4096,0.03\n");
  const std::vector<fs::path> all{nccl, efa, pairs};
  const MeasuredTable table = read_measured(all);
  REQUIRE(table.collectives.size() == 5);
  CHECK(table.collectives[0].bytes == 512);  // 256 elements of 2 bytes
  CHECK(table.collectives[1].bytes == 256);
  CHECK(table.collectives[1].kind == OpKind::kAllToAll);
  CHECK(table.collectives[2].time.base() == Approx(64 * 1048576.0 / 2e9));  // MiB over GB/s
  CHECK(table.collectives[2].ranks_per_machine == 8);
  CHECK(table.collectives[3].time.base() ==
        Approx(1e-5));  // of two ranks, the one that waited less
  CHECK(table.collectives[4].bytes == 4096);

  System p5;
  p5.name = "p5-h100";
  p5.device.name = "h100-sxm-80gb";
  p5.fabric = {{"nvlink", 8, GBps(450), microseconds(2), 1, true},
               {"efa", 64, GBps(50), microseconds(15), 1, false}};
  const auto found = find_collectives(table, p5);
  REQUIRE(found.size() == 1);
  const auto rows = measured_collectives(table, p5, found);
  CHECK(rows[0].group.members == std::vector<std::int64_t>{8, 16});
  CHECK(rows[0].group.siblings == std::vector<std::int64_t>{1, 1});
}

TEST_CASE("embedding rows carry their tables and law", "[models][measured]") {
  const Folder folder;
  const MeasuredTable table = read_measured(folder.file(
      "elf_noshmem_V100.csv",
      "kernel_name,batch_size,num_embeddings,num_tables,bag_size,embedding_dim,kernel_runtime\n"
      "batched_embedding_forward_kernel_1,128,1000,32,8,64,7.5\n"));
  REQUIRE(table.ops.size() == 1);
  CHECK(table.ops[0].time.base() == Approx(7.5e-6));  // microseconds
  const OpFacts facts(*table.program, table.op(table.ops[0]));
  REQUIRE(facts.shards.size() == 32);
  CHECK(facts.shards[0].lookups == 128 * 8);
  // Distinct rows of 1024 uniform lookups in 1000: 1000 (1 - (1 - 1/1000)^1024) = 641.0.
  CHECK(facts.shards[0].unique_rows() == Approx(641.0).epsilon(1e-3));
}

TEST_CASE("an issue sample is the gap between ops plus the time before their launch",
          "[models][measured]") {
  const Folder folder;
  const fs::path between =
      folder.file("t1.csv", "model,batch_size,mean_us,std_us,count\nm,8,10,1,100\nn,8,7,1,100\n");
  const fs::path before = folder.file("t2.csv",
                                      "op,model,batch_size,mean_us,std_us,count\n"
                                      "a,m,8,20,1,30\nb,m,8,40,1,10\n");
  const std::vector<fs::path> both{between, before};
  const MeasuredTable table = read_measured(both, {.device = "v100-sxm2-32gb", .system = ""});
  const MeasuredHost host = measured_host(table, "v100-sxm2-32gb");
  REQUIRE(host.issue.size() == 1);        // n has no time before launch
  CHECK(host.issue[0] == Approx(35e-6));  // 10 + (20 * 30 + 40 * 10) / 40
  CHECK(measured_host(table, "t4").issue.empty());
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
  MeasuredCollective row{OpKind::kAllGather, 1e9, {4, {4}, {1}}, seconds(0.0751), Format::kFp32};
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

TEST_CASE("every row of the published tables is used or skipped", "[models][measured][accuracy]") {
  const fs::path data(STEPCAST_SHARED_DATA);
  if (!fs::exists(data / "kernels") || !fs::exists(data / "collectives")) {
    WARN("skipped: no measurements in " << data);
    return;
  }
  const std::vector<fs::path> folders{data / "kernels", data / "collectives"};
  const MeasuredTable table = read_measured(folders);
  std::int64_t rows = 0;
  for (const MeasuredTable::File& file : table.files) {
    rows += file.rows;
  }
  CHECK(table.files.size() == 20);
  const std::size_t merged = 2;  // sizes that were sent and received twice
  CHECK(static_cast<std::size_t>(rows) == table.ops.size() + table.collectives.size() +
                                              table.host.size() + table.skipped.size() + merged);
  CHECK(table.skipped.size() == 30);  // "reduce" has no op kind
}
