#pragma once
#include <vector>

#include "core/config/document.h"
#include "core/job/layers.h"

namespace stepcast::config {

/// Embedding tables of a workload: a list of at least `least`, with names that differ.
std::vector<EmbeddingTable> tables_from(const Value& v, std::size_t least);
/// A list of at least one output width.
std::vector<std::int64_t> widths_from(const Value& v);

/// Workloads whose dense half is a list of layers, checked shape by shape.
DlrmWorkload wukong_from(const Value& v);
DlrmWorkload dhen_from(const Value& v);
DlrmWorkload dit_from(const Value& v);
DlrmWorkload rnn_ctc_from(const Value& v);
DlrmWorkload graph_from(const Value& v);

const std::vector<std::pair<std::string, DhenModel::Module>>& dhen_module_names();
/// All activations; those of transformers are fewer.
const std::vector<std::pair<std::string, Activation>>& layer_activation_names();

}  // namespace stepcast::config
