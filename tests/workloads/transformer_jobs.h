#pragma once
#include <cstdint>

#include "core/job/job.h"

namespace stepcast::test {

/// A GPT-style model with four-fold feed-forward width and tied embeddings, as in arXiv 2104.04473.
inline Job gpt_job(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                   std::int64_t sequence = 2048, std::int64_t vocabulary = 51200) {
  TransformerWorkload m;
  m.layers = layers;
  m.hidden = hidden;
  m.heads = m.kv_heads = heads;
  m.head_dim = hidden / heads;
  m.ffn_hidden = 4 * hidden;
  m.vocabulary = vocabulary;
  m.tied_embeddings = true;
  Job job;
  job.workload.name = "gpt";
  job.workload.model = m;
  job.batch = {1, 1, sequence};
  return job;
}

inline Job llama_job(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                     std::int64_t kv_heads, std::int64_t ffn, std::int64_t sequence,
                     std::int64_t vocabulary) {
  Job job = gpt_job(layers, hidden, heads, sequence, vocabulary);
  TransformerWorkload m = *job.workload.transformer();
  m.kv_heads = kv_heads;
  m.ffn_hidden = ffn;
  m.activation = Activation::kSwiGlu;
  m.tied_embeddings = false;
  job.workload.name = "llama";
  job.workload.model = m;
  return job;
}

inline TransformerWorkload& transformer_of(Job& job) {
  return std::get<TransformerWorkload>(job.workload.model);
}

inline void split(Job& job, std::int64_t tensor, std::int64_t pipeline, std::int64_t data,
                  std::int64_t microbatches) {
  job.parallel.tensor = tensor;
  job.parallel.pipeline = pipeline;
  job.parallel.data = data;
  job.devices = tensor * pipeline * data;
  job.batch.global = data * job.batch.micro * microbatches;
}

}  // namespace stepcast::test
