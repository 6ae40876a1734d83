#pragma once
#include "core/config/internal/keys.h"

namespace stepcast::config {

// The tables of keys, as far as messages, the schema and the reference need them: one for each
// object of a job.

const KeyTable& job_table();
const KeyTable& batch_table();
const KeyTable& parallel_table();
const KeyTable& formats_table();
const KeyTable& embedding_table();
const KeyTable& flow_table();
const KeyTable& device_table();
const KeyTable& system_table();
/// Kinds of workload with their keys; `access` is of a table's rows, and of experts.
std::vector<std::pair<std::string, KeyTable>> workload_tables();
const KeyTable& access_table();

const Keys<Overlap>& overlap_keys();
Overlap overlap_from(const Value& v, const Reading& reading);
// Keys for the software of a job (load_software.cpp).
Key<Job> fused_attention_key();
Key<Job> graphs_key();
void take_graphs(Job& job);
Key<Parallel> dispatcher_key();
Key<Parallel> fused_permutation_key();
Key<Parallel> fused_experts_key();
Key<Parallel> bucket_elements_key();
Key<Job> loss_key();
Key<Job> lora_key();
Key<Job> sequence_lengths_key();
Key<Job> offload_key();

}  // namespace stepcast::config
