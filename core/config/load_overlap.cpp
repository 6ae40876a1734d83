// Which exchanges of a job overlap with compute: its `parallel.overlap`.
#include "core/config/internal/job_tables.h"

namespace stepcast::config {
namespace {

const Scope kTables{"dlrm", [](const Job& job) { return !is_transformer(job); }};

Key<Overlap> overlap_key(std::string_view name, bool Overlap::*member, const Scope& scope,
                         std::string_view help) {
  const bool for_dlrm = &scope == &kTables;
  Key<Overlap> key = boolean_key(name, member, help).usual(false).of(scope).in_scope();
  key.read = [=](const Value& v, Overlap& into, const Reading& reading) {
    into.*member = v.boolean();
    const bool dlrm = !is_transformer(*reading.job);
    if (into.*member && for_dlrm != dlrm) {
      v.reject(fmt::format("found true: {} belongs to {} jobs; use {}", name,
                           for_dlrm ? "dlrm" : "transformer",
                           dlrm ? "input_all_to_all, output_all_to_all or dense_all_reduce"
                                : "data, tensor, tensor_products, pipeline, parameters or expert"));
    }
  };
  return key;
}

/// A flag, or "batch": also with the compute of another micro-batch.
Key<Overlap> expert_overlap_key() {
  Key<Overlap> key =
      overlap_key("expert", &Overlap::expert, kTransformers,
                  "exchanges of experts' tokens overlap with shared experts and, in parts, with "
                  "the routed ones; batch: with another micro-batch")
          .terse_usual(false)
          .written_after("tensor_products");
  key.facts.form = any_form({choice_form({"batch"}), boolean_form()});
  key.read = [flag = key.read](const Value& v, Overlap& into, const Reading& reading) {
    into.expert_batch = v.is("batch");
    if (into.expert_batch && is_transformer(*reading.job)) {
      into.expert = true;
    } else if (!into.expert_batch && !v.json().is_boolean()) {
      v.fail("true, false or \"batch\"");
    } else {
      flag(v, into, reading);
    }
  };
  key.write = [](const Overlap& o, const Writing&) {
    return o.expert_batch ? OrderedJson("batch") : OrderedJson(o.expert);
  };
  return key;
}

}  // namespace

const Keys<Overlap>& overlap_keys() {
  static const Keys<Overlap> keys = [] {
    using O = Overlap;
    const Scope& t = kTransformers;
    Keys<Overlap> all{
        overlap_key("data", &O::data, t, "gradient reduction overlaps with the backward pass"),
        overlap_key("tensor", &O::tensor, t,
                    "exchanges of tensor ranks run on a stream of their own"),
        overlap_key(
            "tensor_products", &O::tensor_products, t,
            "with tensor: gathers and reductions are split and overlap with matrix products")
            .terse_usual(false)
            .written_after("parameters"),
        overlap_key("pipeline", &O::pipeline, t,
                    "sends and receives between stages overlap with compute"),
        overlap_key("parameters", &O::parameters, t,
                    "with data: the gather of updated weights overlaps with the next forward pass")
            .terse_usual(false)
            .written_after("pipeline"),
        expert_overlap_key(),
        overlap_key("input_all_to_all", &O::input_all_to_all, kTables,
                    "the exchange of ids overlaps with compute"),
        overlap_key("output_all_to_all", &O::output_all_to_all, kTables,
                    "the exchange of looked-up rows overlaps with compute"),
        overlap_key("dense_all_reduce", &O::dense_all_reduce, kTables,
                    "dense gradient reduction overlaps with the backward pass")};
    return all;
  }();
  return keys;
}

Overlap overlap_from(const Value& v, const Reading& reading) {
  Overlap overlap;
  read_keys(v, overlap_keys(), overlap, reading);
  if (overlap.parameters && !overlap.data) {
    v.at("parameters", "")
        .reject(
            "found true without data: both are gathers and sums over replicas; use data true too");
  }
  if (overlap.tensor_products && !overlap.tensor) {
    v.at("tensor_products", "")
        .reject(
            "found true without tensor, which gives these transfers a stream; use tensor true "
            "too");
  }
  return overlap;
}

}  // namespace stepcast::config
