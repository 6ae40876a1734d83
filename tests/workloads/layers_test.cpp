// Models given as lists of layers: shapes, counts and the steps made of them.
#include <algorithm>
#include <catch2/catch.hpp>

#include "core/config/config.h"
#include "core/error.h"
#include "core/graph/op.h"
#include "core/graph/program.h"
#include "core/job/layers.h"
#include "workloads/build_graph.h"

using namespace stepcast;

namespace {

const config::Library kLibrary{STEPCAST_SOURCE_DIR};

Job job_of(const std::string& workload, const std::string& rest = R"("devices": 4)") {
  return config::load_job(
      config::text_source(
          R"({"system": "dgx-h100", )" + rest + R"(, "workload": )" + workload + "}", "test"),
      {}, kLibrary);
}

LayerList list_of(const std::string& workload) {
  return layers_of(*job_of(workload).workload.layered());
}

/// Same ops on the same shapes in the same order; names may differ.
void check_same_ops(const Program& a, const Program& b) {
  REQUIRE(a.ops.size() == b.ops.size());
  for (std::size_t i = 0; i < a.ops.size(); ++i) {
    const Op& x = a.ops[i];
    const Op& y = b.ops[i];
    CAPTURE(i, a.name(x), b.name(y));
    CHECK(x.kind == y.kind);
    CHECK(x.shape == y.shape);
    CHECK(x.phase == y.phase);
    CHECK(x.flags == y.flags);
    CHECK(x.attributes == y.attributes);
    CHECK(x.format == y.format);
    CHECK(x.stream == y.stream);
    CHECK(x.flops.base() == y.flops.base());
    CHECK(x.bytes_read.base() == y.bytes_read.base());
    CHECK(x.bytes_written.base() == y.bytes_written.base());
    const auto operands = [](const Program& p, const Op& o) {
      return std::vector<TensorId>(p.operands.begin() + o.first_operand,
                                   p.operands.begin() + o.first_operand + o.inputs + o.outputs);
    };
    CHECK(operands(a, x) == operands(b, y));
  }
}

std::size_t count(const Program& p, OpKind kind) {
  return static_cast<std::size_t>(
      std::count_if(p.ops.begin(), p.ops.end(), [&](const Op& o) { return o.kind == kind; }));
}

const std::string kTables =
    R"("tables": [{"name": "a", "rows": 1000, "dim": 16}, {"name": "b", "rows": 9000, "dim": 16, "pooling": 5}],
       "default_batch": {"global": 512})";

}  // namespace

TEST_CASE("a DLRM listed by hand is the built-in DLRM, op by op", "[workloads][layers]") {
  const std::string optimizer =
      R"("devices": 4, "optimizer": {"dense": "sgd", "embedding": "rowwise_adagrad"})";
  const Job built_in = job_of(
      R"({"kind": "dlrm", "name": "w", "dense_features": 13, "bottom_mlp": [64, 16],
          "interaction": {"kind": "dot"}, "top_mlp": [32, 1], )" +
          kTables + "}",
      optimizer);
  const Job listed = job_of(
      R"({"kind": "graph", "name": "w", "inputs": {"dense": [13]}, "ops": [
          {"op": "linear", "width": 64, "activation": "relu"},
          {"op": "linear", "width": 16, "activation": "relu"},
          {"op": "tables"}, {"op": "dot", "dim": 16},
          {"op": "linear", "width": 32, "activation": "relu"}, {"op": "linear", "width": 1},
          {"op": "binary_cross_entropy"}], )" +
          kTables + "}",
      optimizer);
  const ExecutionGraph a = workloads::build_graph(built_in);
  const ExecutionGraph b = workloads::build_graph(listed);
  REQUIRE(a.programs.size() == b.programs.size());
  for (std::size_t i = 0; i < a.programs.size(); ++i) {
    check_same_ops(a.programs[i], b.programs[i]);
  }
  CHECK(workloads::step_flops(built_in).model.base() == workloads::step_flops(listed).model.base());
}

TEST_CASE("a cross network listed by hand is the built-in one", "[workloads][layers]") {
  const Job built_in = job_of(
      R"({"kind": "dlrm", "name": "w", "dense_features": 4, "bottom_mlp": [8],
          "interaction": {"kind": "dcnv2", "layers": 2, "rank": 6}, "top_mlp": [1], )" +
      kTables + "}");
  const Job listed = job_of(
      R"({"kind": "graph", "name": "w", "inputs": {"dense": [4]}, "ops": [
          {"op": "linear", "width": 8, "activation": "relu"}, {"op": "tables", "name": "x0"},
          {"repeat": 2, "ops": [{"op": "cross", "in": ["x0", "repeat_input"], "rank": 6}]},
          {"op": "linear", "width": 1}, {"op": "binary_cross_entropy"}], )" +
      kTables + "}");
  check_same_ops(workloads::build_graph(built_in).programs.front(),
                 workloads::build_graph(listed).programs.front());
}

TEST_CASE("queries are scored against the items of all ranks", "[workloads][layers]") {
  const auto job = [](const std::string& loss) {
    return job_of(
        R"({"kind": "graph", "name": "w", "inputs": {"dense": [4]}, "ops": [
            {"op": "linear", "name": "seen", "width": 8}, {"op": "tables", "name": "all"},
            {"op": "linear", "name": "query", "width": 16},
            {"op": "columns", "name": "thing", "in": "all", "count": 8},
            {"op": "linear", "name": "item", "width": 16}, )" +
        loss + "], " + kTables + "}");
  };
  // 4 ranks of 128 samples, items of 16 bf16 columns.
  const Job plain = job(R"({"op": "in_batch_softmax", "in": ["query", "item"]})");
  const ExecutionGraph graph = workloads::build_graph(plain);
  const Program& p = graph.programs.front();
  const auto named = [](const Program& of, const std::string& name) {
    const auto it =
        std::find_if(of.ops.begin(), of.ops.end(), [&](const Op& o) { return of.name(o) == name; });
    REQUIRE(it != of.ops.end());
    return *it;
  };
  const std::string loss = "in_batch_softmax5";
  const Op gather = named(p, loss + ".all_gather");
  CHECK(gather.kind == OpKind::kAllGather);
  CHECK(gather.shape[0] == 512 * 16);
  CHECK(graph.communicators[static_cast<std::size_t>(gather.communicator)].name == "items");
  CHECK(named(p, loss + ".log_q.all_gather").shape[0] == 512);
  CHECK(named(p, loss + ".scores").flops.base() == 2.0 * 128 * 512 * 16);
  CHECK(named(p, loss + ".query_gradient").flops.base() == 2.0 * 128 * 512 * 16);
  CHECK(named(p, loss + ".item_gradient").flops.base() == 2.0 * 128 * 512 * 16);
  CHECK(named(p, loss + ".reduce_scatter").shape[0] == 512 * 16);
  CHECK(named(p, loss + ".correct").bytes_written.base() == 2.0 * 128 * 512);
  double logits = 0;
  for (const Tensor& t : p.tensors) {
    logits = t.name == loss + ".logits" ? t.bytes().base() : logits;
  }
  CHECK(logits == 2.0 * 128 * 512);

  // A model of fewer scores: each of three products is 2 x 512 x 512 x 16 over all ranks.
  const Job pairs =
      job(R"({"op": "multiply", "in": ["query", "item"]}, {"op": "mean_squared_error"})");
  CHECK(workloads::step_flops(plain).model.base() - workloads::step_flops(pairs).model.base() ==
        3 * 2.0 * 512 * 512 * 16);

  // Three sampled items a sample beside its own: 4 x 512 columns, each kind gathered for itself.
  const Job sampled =
      job(R"({"op": "linear", "width": 48}, {"op": "reshape", "name": "more", "shape": [3, 16]},
      {"op": "in_batch_softmax", "in": ["query", "item", "more"], "log_q": false})");
  const ExecutionGraph more = workloads::build_graph(sampled);
  const Program& s = more.programs.front();
  CHECK(named(s, "in_batch_softmax7.scores").shape[1] == 4 * 512);
  CHECK(count(s, OpKind::kAllGather) == count(p, OpKind::kAllGather));
  CHECK(count(s, OpKind::kReduceScatter) == count(p, OpKind::kReduceScatter) + 1);
  CHECK_THROWS_WITH(job(R"({"op": "in_batch_softmax", "in": ["query", "thing"]})"),
                    Catch::Contains("takes two tensors of one shape"));
}

TEST_CASE("gradients of a residual block are summed where branches meet", "[workloads][layers]") {
  const Job job = job_of(R"({"kind": "graph", "name": "w", "inputs": {"x": [8, 16]}, "ops": [
      {"op": "linear", "name": "in", "width": 16, "bias": false},
      {"op": "norm", "norm": "rms_norm"},
      {"op": "linear", "width": 32, "bias": false, "activation": "swiglu"},
      {"op": "linear", "name": "out", "width": 16, "bias": false},
      {"op": "add", "in": ["out", "in"]}, {"op": "mean_squared_error"}],
      "default_batch": {"global": 8}})");
  const ExecutionGraph graph = workloads::build_graph(job);
  const Program& p = graph.programs.front();
  // Forward 3 products; backward 3 weight gradients and 2 input gradients (the first reads data).
  CHECK(count(p, OpKind::kGemm) == 8);
  // The branch's gradient joins the shortcut's inside the norm's backward pass.
  CHECK(count(p, OpKind::kAdd) == 1);
  const auto norm = std::find_if(p.ops.begin(), p.ops.end(),
                                 [](const Op& o) { return o.kind == OpKind::kNormBackward; });
  REQUIRE(norm != p.ops.end());
  CHECK(norm->inputs == 5);  // dy, x, scale, statistics, the shortcut's gradient
  // 3 * 2 FLOPs per weight and row, without the first layer's input gradient; 2 samples a rank.
  CHECK(workloads::step_flops(job).model.base() ==
        8 * 8 * (6.0 * (16 * 32 + 16 * 16) + 4.0 * 16 * 16));
}

TEST_CASE("groups share samples", "[workloads][layers]") {
  // Megatron's pair: columns, then rows and a sum; the copy's gradient is summed.
  const Job job = job_of(R"({"kind": "graph", "name": "w", "inputs": {"x": [32]},
      "groups": [{"name": "model", "size": 4}], "ops": [
      {"op": "linear", "name": "in", "width": 32},
      {"op": "copy_to_group", "group": "model"},
      {"op": "linear", "width": 16, "activation": "relu"}, {"op": "linear", "width": 32, "bias": false},
      {"op": "all_reduce", "group": "model"}, {"op": "mean_squared_error"}],
      "default_batch": {"global": 64}})",
                         R"("devices": 8)");
  CHECK(job.parallel.tensor == 4);
  CHECK(job.parallel.data == 2);
  const ExecutionGraph g = workloads::build_graph(job);
  CHECK(g.mesh.tensor == 4);
  CHECK(g.mesh.data == 2);
  REQUIRE(g.programs.size() == 1);
  double model = 0, data = 0;
  for (const Op& op : g.programs[0].ops) {
    if (op.kind == OpKind::kAllReduce) {
      const Communicator& c = g.communicators[static_cast<std::size_t>(op.communicator)];
      (c.name == "model" ? model : data) += static_cast<double>(op.shape[0]);
      CHECK(g.members(op.communicator, 5) == (c.name == "model"
                                                  ? std::vector<std::int32_t>{4, 5, 6, 7}
                                                  : std::vector<std::int32_t>{1, 5}));
    }
  }
  CHECK(model == 2 * 32 * 32);                           // 32 samples, forward and backward
  CHECK(data == 32 * 32 + 32 + 32 * 16 + 16 + 16 * 32);  // this rank's parameters
}

TEST_CASE("a Wukong layer has the FLOPs of its equations", "[workloads][layers]") {
  const auto model = [](int layers) {
    std::string tables;
    for (int i = 0; i < 26; ++i) {
      tables +=
          (i > 0 ? ", " : "") + fmt::format(R"({{"name": "t{}", "rows": 100, "dim": 128}})", i);
    }
    return fmt::format(
        R"({{"kind": "wukong", "name": "w", "dense_features": 13, "bottom_mlp": [128], "layers": {},
            "fmb": 16, "lcb": 16, "rank": 24, "mlp": [512, 512], "top_mlp": [1],
            "default_batch": {{"global": 64}}, "tables": [{}]}})",
        layers, tables);
  };
  // n embeddings of width d = 128: FMB 4 n d k + 2 (n k h + h h + h nF d), LCB 2 n nL d, shortcut
  // 2 n (nL + nF) d where n changes (arXiv 2403.02545, section 3.4).
  const auto layer = [](double n) {
    return 4 * n * 128 * 24 + 2 * (n * 24 * 512 + 512.0 * 512 + 512.0 * 16 * 128) +
           2 * n * 16 * 128 + (n == 32 ? 0 : 2 * n * 32 * 128);
  };
  const double ends = 2.0 * 13 * 128 + 2.0 * 32 * 128;
  CHECK(forward_flops(list_of(model(2))) == layer(27) + layer(32) + ends);
  CHECK(layer(27) + layer(32) == Approx(7.88e6).epsilon(0.01));
  CHECK(forward_flops(list_of(model(4))) == layer(27) + 3 * layer(32) + ends);
}

TEST_CASE("diffusion transformers have the published sizes", "[workloads][layers]") {
  // arXiv 2212.09748, table 4, patches of 2 of a 32 x 32 x 4 latent. "Gflops" there count a
  // multiply-add once.
  struct Row {
    int layers, hidden, heads;
    double parameters, multiply_adds;
  };
  for (const Row& r : {Row{12, 384, 6, 33e6, 6.06e9}, Row{12, 768, 12, 130e6, 23.01e9},
                       Row{24, 1024, 16, 458e6, 80.71e9}, Row{28, 1152, 16, 675e6, 118.64e9}}) {
    const LayerList list = list_of(fmt::format(
        R"({{"kind": "dit", "name": "w", "layers": {}, "hidden": {}, "heads": {}, "latent": [1, 32, 32],
            "channels": 4, "classes": 1000, "default_batch": {{"global": 64}}}})",
        r.layers, r.hidden, r.heads));
    CAPTURE(r.layers, r.hidden);
    CHECK(static_cast<double>(parameter_count(list)) == Approx(r.parameters).epsilon(0.02));
    CHECK(forward_flops(list) / 2 == Approx(r.multiply_adds).epsilon(0.01));
  }
}

TEST_CASE("tensor ranks of a diffusion transformer share its products", "[workloads][layers]") {
  const std::string dit =
      R"({"kind": "dit", "name": "w", "layers": 3, "hidden": 64, "heads": 4, "latent": [1, 16, 16],
          "channels": 4, "default_batch": {"global": 64}})";
  const auto per_rank = [&](int tensor) {
    const Job job =
        job_of(dit, fmt::format(R"("devices": 8, "parallel": {{"tensor": {}}})", tensor));
    return std::pair(workloads::build_graph(job), job);
  };
  const auto [one, job1] = per_rank(1);
  const auto [two, job2] = per_rank(2);
  CHECK(two.mesh.tensor == 2);
  // Two sums forward and two backward a block.
  std::size_t sums = 0;
  for (const Op& op : two.programs[0].ops) {
    sums += op.communicator >= 3 ? 1 : 0;
  }
  CHECK(sums == 4 * 3);
  CHECK_THROWS_WITH(workloads::build_graph(per_rank(8).second),
                    Catch::Contains("parallel.tensor = 8 does not divide 4 heads"));
}

TEST_CASE("Deep Speech 2 has the published size, and a recurrence takes one product a frame",
          "[workloads][layers]") {
  const Workload w = config::load_workload("deepspeech2", kLibrary);
  const LayerList list = layers_of(*w.layered());
  // Frequencies 161 -> 81 -> 41 -> 21, so 21 * 96 columns enter the first of 7 recurrent layers;
  // each has an input product, two recurrences and a norm. 70 M in table 11 of arXiv 1512.02595.
  const double h = 1760;
  const double convolutions =
      11 * 41 * 32 + 11 * 21 * 32 * 32 + 11 * 21 * 32 * 96 + 2 * (32 + 32 + 96);
  const double recurrent = 21 * 96 * h + 6 * h * h + 7 * (2 * (h * h + h) + 2 * h);
  CHECK(static_cast<double>(parameter_count(list)) ==
        convolutions + recurrent + h * h + 2 * h + h * 29 + 29);
  CHECK(static_cast<double>(parameter_count(list)) == Approx(70e6).epsilon(0.02));

  const auto steps = [](int frames) {
    const Job job = job_of(fmt::format(
        R"({{"kind": "rnn_ctc", "name": "w", "frames": {}, "frequencies": 8, "convolutions": [],
            "layers": 1, "hidden": 16, "symbols": 5, "labels": 3, "default_batch": {{"global": 8}}}})",
        frames));
    const ExecutionGraph graph = workloads::build_graph(job);
    const Program& p = graph.programs.front();
    return std::count_if(p.ops.begin(), p.ops.end(),
                         [&](const Op& o) { return p.name(o).find(".step") != std::string::npos; });
  };
  // Both directions, forward and backward: T - 1 each.
  CHECK(steps(10) == 4 * 9);
  CHECK(steps(20) == 4 * 19);
}

TEST_CASE("modules of DHEN are summed at one width", "[workloads][layers]") {
  const LayerList list = list_of(
      R"({"kind": "dhen", "name": "w", "dense_features": 4, "bottom_mlp": [16], "layers": 2, "features": 5,
          "modules": ["dot", "attention", "linear", "cross"], "heads": 2, "rank": 6, "top_mlp": [1], )" +
      kTables + "}");
  // n x 16 -> 5 x 16 = 80: dot to 16 + n (n - 1) / 2, attention of n rows, linear, cross of n 16.
  const auto layer = [](double n) {
    const double flat = 16 * n;
    const double dot = 16 + n * (n - 1) / 2;
    return n * (n - 1) * 16 + 2 * dot * 80 + 2 * n * 16 * 48 + 4 * n * n * 16 + 2 * n * 16 * 16 +
           3 * 2 * flat * 80 + 4 * flat * 6 + (n == 5 ? 0 : 2 * flat * 80);
  };
  CHECK(forward_flops(list) == 2.0 * 4 * 16 + layer(3) + layer(5) + 2.0 * 80);
}

TEST_CASE("every layered workload survives being written and read", "[workloads][layers]") {
  for (const char* name :
       {"wukong-s", "wukong-m", "wukong-l", "dhen-8", "dit-7b", "dit-28b", "deepspeech2"}) {
    CAPTURE(name);
    const Workload w = config::load_workload(name, kLibrary);
    const std::string text = config::workload_to_json(w);
    const Workload again = config::read_workload(config::text_source(text, name));
    CHECK(config::workload_to_json(again) == text);
    CHECK(config::parameter_count(again) == config::parameter_count(w));
  }
  CHECK(config::parameter_count(config::load_workload("dit-7b", kLibrary)) ==
        Approx(7e9).epsilon(0.06));
  CHECK(config::parameter_count(config::load_workload("dit-28b", kLibrary)) ==
        Approx(28e9).epsilon(0.02));
  const Workload l = config::load_workload("wukong-l", kLibrary);
  CHECK(training_flops(layers_of(*l.layered())) > 100e9);  // the paper's largest
}

TEST_CASE("the example of a listed model loads and survives", "[workloads][layers][docs]") {
  const Job job = config::load_job(
      config::file_source(std::string(STEPCAST_SOURCE_DIR) + "/docs/examples/graph.json"), {},
      kLibrary);
  const ExecutionGraph g = workloads::build_graph(job);
  const Job again =
      config::load_job(config::text_source(config::job_to_json(job), "again"), {}, kLibrary);
  check_same_ops(g.programs.front(), workloads::build_graph(again).programs.front());
}

TEST_CASE("a wrong list names the place and the remedy", "[workloads][layers][malformed]") {
  const auto error = [](const std::string& ops, const std::string& more = "") {
    try {
      (void)job_of(R"({"kind": "graph", "name": "w", "inputs": {"x": [4, 8]}, )" + more +
                   R"("default_batch": {"global": 8}, "ops": )" + ops + "}");
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  using Catch::Contains;
  CHECK_THAT(error(R"([{"op": "lineer", "width": 3}])"),
             Contains("workload.ops[0].op") && Contains("linear"));
  CHECK_THAT(error(R"([{"op": "linear", "widht": 3}])"),
             Contains("workload.ops[0].widht") && Contains("width"));
  CHECK_THAT(error(R"([{"op": "linear"}])"), Contains("workload.ops[0].width"));
  CHECK_THAT(error(R"([{"op": "linear", "width": 3, "in": "y"}])"),
             Contains("workload.ops[0].in") && Contains("\"y\""));
  CHECK_THAT(
      error(
          R"([{"op": "add", "name": "a", "in": ["x", "b"]}, {"op": "linear", "name": "b", "width": 8}])"),
      Contains("workload.ops[0].in[1]") && Contains("no cycles"));
  CHECK_THAT(
      error(R"([{"op": "linear", "name": "a", "width": 3}, {"op": "add", "in": ["a", "x"]}])"),
      Contains("workload.ops[1]") && Contains("[4, 3]") && Contains("[4, 8]"));
  CHECK_THAT(
      error(R"([{"op": "linear", "name": "a", "width": 3}, {"op": "matmul", "in": ["a", "x"]}])"),
      Contains("workload.ops[1]") && Contains("inner sizes 3 and 4"));
  CHECK_THAT(error(R"([{"op": "linear", "width": 10}, {"op": "attention", "heads": 4}])"),
             Contains("workload.ops[1]") && Contains("multiple of 12"));
  CHECK_THAT(error(R"([{"op": "linear", "width": 3}])"), Contains("no loss"));
  CHECK_THAT(
      error(
          R"([{"op": "linear", "name": "a", "width": 3}, {"op": "linear", "in": "x", "width": 3}, {"op": "mean_squared_error"}])"),
      Contains("workload.ops[0]") && Contains("nothing reads 'a'"));
  CHECK_THAT(
      error(
          R"([{"op": "linear", "width": 3}, {"op": "all_reduce", "group": "model"}, {"op": "mean_squared_error"}])"),
      Contains("workload.ops[1].group") && Contains("declare"));
  CHECK_THAT(error(R"([{"op": "tables"}])"), Contains("workload.ops[0]") && Contains("none"));
  CHECK_THAT(error(R"([{"op": "mean_squared_error"}])"), Contains("no parameter"));
  CHECK_THAT(error(R"([{"op": "recurrent"}])"), Contains("time_major"));
  CHECK_THAT(error(R"([{"repeat": 0, "ops": []}])"), Contains("workload.ops[0].repeat"));
}

TEST_CASE(
    "towers exchange inside nodes first, and send no fewer bytes between them unless compressed",
    "[workloads][towers]") {
  // Two nodes of two ranks, a table of 16 columns on each rank, 32 samples, 8 of them local. Flat,
  // a rank sends 32 x 16 elements, half of them to the other node. In towers it sends the node's 32
  // columns for 8 samples to its peer there: 256 elements again (arXiv 2403.00877, section 3).
  const auto job = [](const std::string& embedding) {
    return config::load_job(
        config::text_source(R"({"devices": 4, "batch": {"global": 32}, "system": {"name": "s",
          "device": "h100-sxm-80gb", "host": {"devices": 2, "cores": 8},
          "fabric": [{"name": "in", "size": 2, "bandwidth": "400 GB/s", "latency": "2 us"},
                     {"name": "out", "size": 64, "bandwidth": "50 GB/s", "latency": "5 us"}]},
          "embedding": {"plan": "table_wise", )" +
                                embedding + R"(}, "workload": {"kind": "dlrm", "name": "w",
          "dense_features": 4, "bottom_mlp": [16], "interaction": {"kind": "dot"}, "top_mlp": [1],
          "tables": [{"name": "a", "rows": 100, "dim": 16}, {"name": "b", "rows": 100, "dim": 16},
                     {"name": "c", "rows": 100, "dim": 16}, {"name": "d", "rows": 100, "dim": 16}]}})",
                            "test"),
        {}, kLibrary);
  };
  struct Sent {
    double inside = 0, between = 0, flat = 0;
  };
  const auto sent = [](const Job& j) {
    const ExecutionGraph g = workloads::build_graph(j);
    Sent s;
    const Program& p = g.program_of(0);
    for (const Op& op : p.ops) {
      if (op.kind != OpKind::kAllToAllV || p.name(op).find("embedding") == std::string::npos) {
        continue;
      }
      const auto& parts = p.exchange_of(op)->send_elements;
      const auto ranks = g.members(op.communicator, 0);
      const std::string& name = g.communicators[static_cast<std::size_t>(op.communicator)].name;
      REQUIRE(parts.size() == ranks.size());
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (ranks[i] == 0) {
          continue;
        }
        (name == "exchange" && ranks[i] < 2 ? s.flat
         : ranks[i] < 2                     ? s.inside
                                            : s.between) += parts[i];
      }
    }
    return s;
  };
  const Sent flat = sent(job(R"("transform": "none")"));
  const Sent towers = sent(job(R"("transform": "sptt")"));
  const Sent compressed = sent(job(R"("transform": "sptt", "tower_compression": 2)"));
  CHECK(flat.between == 2 * 256);  // forward and backward
  CHECK(towers.between == flat.between);
  CHECK(towers.inside == 2 * 256);  // 16 samples' rows of 16 columns to the neighbour
  CHECK(compressed.between == towers.between / 2);
  CHECK(compressed.inside == towers.inside);
  // The interaction sees two vectors of the towers and the dense one.
  const ExecutionGraph g =
      workloads::build_graph(job(R"("transform": "sptt", "tower_compression": 2)"));
  for (const Op& op : g.programs.front().ops) {
    if (op.kind == OpKind::kDotInteractionForward) {
      CHECK(op.shape[1] == 3);
    }
  }
  CHECK_THROWS_WITH(job(R"("tower_compression": 2)"), Catch::Contains("only towers compress"));
}
