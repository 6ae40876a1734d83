#pragma once
#include "core/config/internal/document.h"

namespace stepcast::config {

/// Is this the root of a Hugging Face config.json?
bool is_hugging_face(const Json& root);
/// The document with the workload its config.json describes as its root.
Document workload_of_hugging_face(Document d);
/// Does this text look like Megatron-LM's arguments?
bool is_megatron(std::string_view text);
/// The job its arguments describe, without a system.
Document job_of_megatron(const Source& source);

}  // namespace stepcast::config
