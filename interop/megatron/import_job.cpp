#include <fmt/format.h>

#include <algorithm>

#include "interop/megatron/arguments.h"
#include "interop/megatron/import_parts.h"

// Arguments of Megatron-LM (a launch script's, or one per line) -> job, with a system only where a
// script says which it was planned for.
namespace stepcast::interop {
namespace {

/// True if this text looks like Megatron-LM's arguments.
bool is_megatron(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] != '{' &&
         (text.find("--num-layers") != std::string_view::npos ||
          text.find("--num_layers") != std::string_view::npos ||
          text.find("--num-attention-heads") != std::string_view::npos);  // of T5, say
}

/// CUDA graphs of layers, or of the whole iteration; null: none.
Json megatron_graphs(Arguments& a) {
  const std::string made_by = a.text("cuda-graph-impl");
  const bool whole = a.text("cuda-graph-scope").find("full_iteration") != std::string::npos;
  const bool some = a.has("enable-cuda-graph") || a.has("external-cuda-graph") ||
                    (!made_by.empty() && made_by != "none");
  return !some ? Json() : Json(whole ? "full" : "layer");
}

}  // namespace

Document job_of_megatron(Document d, const std::vector<std::string>& overrides) {
  const Source source{d.label, d.root.get<std::string>(), d.folder};
  const bool needs_vocabulary =
      std::none_of(overrides.begin(), overrides.end(), [](const std::string& o) {
        return o.starts_with("workload=") || o.starts_with("workload.vocabulary=");
      });
  Arguments a(source);
  for (const auto& [script, model] : {std::pair{"pretrain_bert.py", "a BERT"},
                                      {"pretrain_t5.py", "an encoder and a decoder (T5)"},
                                      {"pretrain_vlm.py", "an encoder of pictures"}}) {
    if (source.text.find(script) != std::string::npos) {
      throw InputError(source.label,
                       fmt::format("{} trains {}, which stepcast does not model", script, model));
    }
  }
  a.reject_other_step();
  if (a.has("vocab-file") && !a.has("merge-file") && !a.has("tokenizer-type") &&
      !a.has("vocab-size")) {
    a.reject(
        "vocab-file",
        "found without --merge-file: words in pieces, as a BERT reads them, which stepcast does "
        "not model; of a GPT name --vocab-size or the tokenizer");
  }
  Json job = Json::object();
  job["stepcast"] = 1;
  job["framework"] =
      "megatron-core";  // whose efficiency the step has; what it overlaps the arguments say
  if (const std::size_t at = source.text.find(kSystemComment); at != std::string::npos) {
    const std::size_t from = at + kSystemComment.size();
    job["system"] = source.text.substr(from, source.text.find_first_of("\r\n", from) - from);
  }
  Json workload = megatron_workload(a);
  const auto processes = a.size("nproc-per-node");
  const auto nodes = a.size("nnodes");
  if (const auto world = a.size("world-size")) {
    job["devices"] = *world;
  } else if (processes) {
    job["devices"] = *processes * nodes.value_or(1);
  }
  if (needs_vocabulary && !workload.contains("vocabulary")) {
    a.reject("vocab-size",
             "missing, and the tokenizer is not one whose size is known; expected the entries of "
             "its vocabulary, or --set workload.vocabulary=N");
  }
  job["batch"] = megatron_batch(a);
  job["parallel"] = megatron_parallel(a, workload["layers"].get<std::int64_t>());
  read_megatron_step(a, job, workload);
  if (Json graphs = megatron_graphs(a); !graphs.is_null()) {
    job["graphs"] = std::move(graphs);
  }
  a.reject_unread();
  if (const auto phrases = a.left_out(); !phrases.empty()) {
    workload["approximated"] = phrases;
  }
  const auto unused = a.without_effect();
  workload["source"] =
      fmt::format("arguments of Megatron-LM{}{}",
                  unused.empty() ? "" : "; without effect on a step: --", fmt::join(unused, " --"));
  job["workload"] = std::move(workload);
  d.root = std::move(job);
  return d;
}

ForeignFormat megatron_launch_script() {
  return {.what = "arguments of Megatron-LM",
          .inferred_by_text = is_megatron,
          .job_of = job_of_megatron};
}

}  // namespace stepcast::interop
