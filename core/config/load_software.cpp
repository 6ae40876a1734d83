// Keys for the software of a job: kernel of attention, CUDA graphs, the library that exchanges
// tokens of experts, size of gradient buckets.
#include "core/config/internal/job_tables.h"
#include "core/config/published_names.h"

namespace stepcast::config {
namespace {

/// "flash", "unfused", or {"kernel": "flash2"}: fused, by a kernel whose time over that of the
/// measured ones models/stacks/stacks.json has.
void read_attention(const Value& v, Job& j, const Reading& reading) {
  if (!v.is_object()) {
    j.flash_attention = v.choice<bool>({{"flash", true}, {"unfused", false}});
    if (!j.flash_attention && !is_transformer(j) && layers_in(j) == nullptr) {
      v.reject("found \"unfused\": a dlrm has no attention; remove it");
    }
    return;
  }
  v.keys({"kernel"});
  const Value named = v.at("kernel", "a kernel such as \"cudnn\"");
  if (!is_transformer(j)) {
    named.reject(
        "found a kernel of fused attention, but the workload is no transformer; remove it");
  }
  const PublishedNames names = load_published_names(*reading.library);
  const AttentionKernel& kernel = names.attention_kernel(named.name(), named.where());
  j.flash_attention = true;
  j.system.framework.attention = kernel.ratio;
  j.system.framework.attention_fp8_devices =
      j.system.device.peak.contains(Format::kNvfp4) ? kernel.nvfp4_devices : kernel.fp8_devices;
}

}  // namespace

Key<Job> fused_attention_key() {
  return custom_key<Job>("attention",
                         any_form({choice_form({"flash", "unfused"}),
                                   object_form({needed_fact(
                                       "kernel", text_form("a kernel of models/stacks/stacks.json"),
                                       "flash2, flash3, cudnn, ...")})}),
                         "how attention is computed, and by which fused kernel", read_attention,
                         [](const Job& job, const Writing&) {
                           return OrderedJson(job.flash_attention ? "flash" : "unfused");
                         })
      .usual("flash");
}

Key<Job> graphs_key() {
  return choice_key(
             "graphs", &Job::graphs, graphs_names(),
             "CUDA graphs that the host issues in place of ops: layer, one for each layer and "
             "pass, without experts; full, one for each step")
      .terse_usual("none");
}

/// The host's model says what it issues. Routing on the device costs the host nothing.
void take_graphs(Job& j) {
  const bool full = j.graphs == Graphs::kFull;
  FittedModels& fitted = j.system.fitted;
  if (j.graphs != Graphs::kNone ||
      (fitted.contains("host") && fitted.at("host").constants.contains("graphs"))) {
    const FittedModels& of_device = j.system.device.fitted;
    if (!fitted.contains("host") && of_device.contains("host")) {
      fitted["host"] = of_device.at("host");
    }
    fitted["host"].form = "host.constant";
    fitted["host"].constants["graphs"] = static_cast<double>(j.graphs);
  }
  if (full || j.parallel.dispatcher == ExpertDispatcher::kHybridEp) {
    j.system.framework.expert_layer_host = 0;
    j.system.framework.synchronous_routing = false;
  }
}

/// DeepEP and HybridEP send a token to each machine once.
Key<Parallel> dispatcher_key() {
  Key<Parallel> key =
      choice_key("dispatcher", &Parallel::dispatcher, expert_dispatcher_names(),
                 "library that exchanges tokens of experts; deepep and hybridep "
                 "dispatch per_machine")
          .terse_usual("plain")
          .changed_only(kTransformers, "found {}, but a dlrm has no experts; use plain");
  key.read = [read = key.read](const Value& v, Parallel& p, const Reading& reading) {
    read(v, p, reading);
    const TransformerWorkload* w = reading.job->workload.transformer();
    if (p.dispatcher != ExpertDispatcher::kPlain && w != nullptr && w->moe) {
      p.expert_dispatch = ExpertDispatch::kPerMachine;
    }
  };
  return key;
}

Key<Parallel> fused_permutation_key() {
  return boolean_key("fused_permutation", &Parallel::fused_permutation,
                     "per_machine: the kernel that exchanges tokens also puts them in the order of "
                     "their experts")
      .terse_usual(false)
      .changed_only(kTransformers, "found true: a dlrm has no experts; use false");
}

Key<Parallel> fused_experts_key() {
  return boolean_key("fused_experts", &Parallel::fused_experts,
                     "casts and activations of experts lie inside their products")
      .terse_usual(false)
      .changed_only(kTransformers, "found true: a dlrm has no experts; use false");
}

/// Number of elements, or Megatron-LM's rule, held as -1.
Key<Parallel> bucket_elements_key() {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  Key<Parallel> key = integer_key("bucket_elements", &Parallel::bucket_elements, 1, kMost,
                                  "gradients exchanged together, in place of bucket; megatron: "
                                  "40 million, or a million for each data rank where that is more");
  key.facts.form = any_form({choice_form({"megatron"}), key.facts.form});
  key.read = [number = key.read](const Value& v, Parallel& p, const Reading& reading) {
    if (v.is("megatron")) {
      p.bucket_elements = -1;
    } else {
      number(v, p, reading);
    }
  };
  key.write = [](const Parallel& p, const Writing&) {
    return p.bucket_elements == 0  ? OrderedJson()
           : p.bucket_elements < 0 ? OrderedJson("megatron")
                                   : OrderedJson(p.bucket_elements);
  };
  return std::move(key).otherwise("bucket says it").of(kTransformers);
}

}  // namespace stepcast::config
