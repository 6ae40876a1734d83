#pragma once
#include "core/config/internal/document.h"

namespace stepcast::config {

/// Of layers that each see all keys or a window: n where every n-th, counted from 1, sees all, 0
/// where none does; nullopt where they take turns in another way.
std::optional<std::int64_t> full_attention_every(const std::vector<bool>& sees_all);

/// Is this the root of a Hugging Face config.json?
bool is_hugging_face(const Json& root);
/// The document with the workload its config.json describes as its root.
Document workload_of_hugging_face(Document d);
/// Does this text look like Megatron-LM's arguments?
bool is_megatron(std::string_view text);
/// The job its arguments describe, without a system. `needs_vocabulary`: nothing else says how many
/// entries the vocabulary has.
Document job_of_megatron(const Source& source, bool needs_vocabulary);

/// Does this root describe the tables of a TorchRec collection or of HugeCTR?
bool is_embedding_tables(const Json& root);
/// The document with the workload, or with the job without a system, as its root.
Document workload_of_embedding_tables(Document d);
Document job_of_embedding_tables(Document d);

/// A plan that TorchRec or HugeCTR uses (core/config/foreign_plans.h), told by its keys.
bool is_torchrec_plan(const Json& root);
bool is_hugectr_plan(const Json& root);
/// The plan of ours; check_plan still has to hold. Both need the tables, which these files leave
/// out.
EmbeddingPlan plan_of_torchrec(const Value& v, const Job& job);
EmbeddingPlan plan_of_hugectr(const Value& v, const DlrmWorkload& w, std::int64_t devices);

}  // namespace stepcast::config
