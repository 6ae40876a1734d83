#pragma once
#include <vector>

#include "core/config/internal/key_forms.h"
#include "core/job/layers.h"

namespace stepcast::config {

constexpr std::int64_t kMostLayers = 10'000;  ///< far beyond anything built

/// Embedding tables of a workload: a list of at least `least`, with names that differ.
std::vector<EmbeddingTable> tables_from(const Value& v, std::size_t least);
/// Parts that all recommendation models share: dense features, both MLPs and tables.
LayeredWorkload recommendation_from(const Value& v);
/// A list of at least one output width.
std::vector<std::int64_t> widths_from(const Value& v);

// Parts of tables of keys.
/// Keys of every workload.
KeyTable kind_table(std::string_view kind);
/// Keys of recommendation models: dense_features, bottom_mlp, top_mlp, tables.
KeyTable recommendation_table();
OrderedJson tables_form(std::size_t least);
OrderedJson widths_form();
KeyTable transformer_table();
KeyTable dlrm_table();
KeyTable wukong_table();
KeyTable dhen_table();
KeyTable dit_table();
KeyTable rnn_ctc_table();
KeyTable graph_table();
KeyTable repeat_table();

/// Workloads by kind; those whose dense half is a list of layers are checked shape by shape.
TransformerWorkload transformer_from(const Value& v);
LayeredWorkload dlrm_from(const Value& v);
LayeredWorkload wukong_from(const Value& v);
LayeredWorkload dhen_from(const Value& v);
LayeredWorkload dit_from(const Value& v);
LayeredWorkload rnn_ctc_from(const Value& v);
LayeredWorkload graph_from(const Value& v);

// Keys of a workload, in order.
void add_transformer(OrderedJson& j, const TransformerWorkload& w);
void add_dlrm(OrderedJson& j, const LayeredWorkload& w);
void add_tables(OrderedJson& j, const LayeredWorkload& w);
void add_layer_model(OrderedJson& j, const LayerModel& model);

const std::vector<std::pair<std::string, DhenModel::Module>>& dhen_module_names();
/// All activations; those of transformers are fewer.
const std::vector<std::pair<std::string, Activation>>& layer_activation_names();

}  // namespace stepcast::config
