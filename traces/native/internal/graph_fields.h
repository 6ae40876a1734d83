#pragma once
#include <array>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "core/graph/embedding_placement.h"
#include "core/graph/epilogue.h"
#include "core/graph/kernel_kind.h"
#include "core/graph/program.h"
#include "core/graph/step_traffic.h"
#include "core/stored_access.h"

namespace stepcast::traces::internal {

// Parts of a graph that a file holds: the fields of every record by name, and the names of every
// enumerator, each told once for writing and reading. A field that is added to a record does not
// compile here until it has a name.

template <typename T, typename Record>
concept Is = std::same_as<std::remove_const_t<T>, Record>;

template <typename F>
void fields(Is<Mesh> auto& r, F&& f) {
  auto& [tensor, context, pipeline, data, order] = r;
  f("tensor", tensor), f("context", context), f("pipeline", pipeline), f("data", data);
  f("order", order);
}
template <typename F>
void fields(Is<Communicator> auto& r, F&& f) {
  auto& [name, axes, groups, role] = r;
  f("name", name), f("axes", axes), f("groups", groups), f("role", role);
}
template <typename F>
void fields(Is<RankClass> auto& r, F&& f) {
  auto& [program, ranks] = r;
  f("program", program), f("ranks", ranks);
}

template <typename F>
void fields(Is<Op> auto& r, F&& f) {
  auto& [kind, phase, format, flags, stream, traffic, inputs, outputs, layer, communicator, peer,
         routing, record, name, first_operand, first_wait, waits, attributes, shape, flops,
         bytes_read, bytes_written] = r;
  f("name", name), f("kind", kind), f("phase", phase), f("format", format), f("flags", flags);
  f("attributes", attributes), f("routing", routing), f("shape", shape);
  f("stream", stream), f("traffic", traffic), f("communicator", communicator), f("peer", peer);
  f("record", record), f("first_wait", first_wait), f("waits", waits);
  f("first_operand", first_operand), f("inputs", inputs), f("outputs", outputs), f("layer", layer);
  f("flops", flops), f("bytes_read", bytes_read), f("bytes_written", bytes_written);
}
/// Attributes of ops say their own names (core/graph/op_attributes.h).
template <typename F, typename R>
requires requires { R::kFields; }
void fields(R& r, F&& f) {
  constexpr auto& names = R::kFields;
  if constexpr (names.size() == 1) {
    auto& [a] = r;
    f(names[0], a);
  } else if constexpr (names.size() == 2) {
    auto& [a, b] = r;
    f(names[0], a), f(names[1], b);
  } else if constexpr (names.size() == 3) {
    auto& [a, b, c] = r;
    f(names[0], a), f(names[1], b), f(names[2], c);
  } else {
    auto& [a, b, c, d] = r;
    f(names[0], a), f(names[1], b), f(names[2], c), f(names[3], d);
  }
}
/// Names of the alternatives of OpAttributes; the first is none.
inline constexpr auto kAttributes = []<std::size_t... i>(std::index_sequence<i...>) {
  return std::array<std::string_view, sizeof...(i) + 1>{
      "none", std::variant_alternative_t<i + 1, OpAttributes>::kName...};
}
(std::make_index_sequence<std::variant_size_v<OpAttributes> - 1>());

template <typename F>
void fields(Is<Segment> auto& r, F&& f) {
  auto& [name, first_op, op_count, kind, microbatches] = r;
  f("name", name), f("first_op", first_op), f("op_count", op_count), f("kind", kind);
  f("microbatches", microbatches);
}
template <typename F>
void fields(Is<Call> auto& r, F&& f) {
  auto& [segment, microbatch] = r;
  f("segment", segment), f("microbatch", microbatch);
}

template <typename F>
void fields(Is<ParameterPiece> auto& r, F&& f) {
  auto& [key, row, row_stride, column, local_column, columns, scale, constant, row_per_rank,
         row_ranks, order, row_order, tensor_row_step, tensor_column_step, tensor_column_ranks,
         expert_row_step, row_group, row_group_step] = r;
  f("key", key), f("row", row), f("row_stride", row_stride), f("column", column);
  f("local_column", local_column), f("columns", columns), f("scale", scale);
  f("constant", constant), f("row_per_rank", row_per_rank), f("row_ranks", row_ranks);
  f("order", order), f("row_order", row_order), f("tensor_row_step", tensor_row_step);
  f("tensor_column_step", tensor_column_step), f("tensor_column_ranks", tensor_column_ranks);
  f("expert_row_step", expert_row_step), f("row_group", row_group);
  f("row_group_step", row_group_step);
}
template <typename F>
void fields(Is<Tensor::Source> auto& r, F&& f) {
  auto& [tensor, offset] = r;
  f("tensor", tensor), f("offset", offset);
}
template <typename F>
void fields(Is<Tensor> auto& r, F&& f) {
  auto& [name, role, purpose, format, rows, columns, per_microbatch, pieces, view_of, view_offset,
         view_data_step, data_parts, data_ranks, sources, next_of, master, tier] = r;
  f("name", name), f("role", role), f("purpose", purpose), f("format", format), f("rows", rows);
  f("columns", columns), f("per_microbatch", per_microbatch), f("view_of", view_of);
  f("view_offset", view_offset), f("view_data_step", view_data_step), f("data_parts", data_parts);
  f("data_ranks", data_ranks), f("next_of", next_of), f("master", master), f("tier", tier);
  f("sources", sources), f("pieces", pieces);
}

template <typename F>
void fields(Is<RowTraffic> auto& r, F&& f) {
  auto& [lookups, touched, fetched, written, fetched_bytes, written_bytes] = r;
  f("lookups", lookups), f("touched", touched), f("fetched", fetched), f("written", written);
  f("fetched_bytes", fetched_bytes), f("written_bytes", written_bytes);
}
template <typename F>
void fields(Is<EmbeddingShard::Cache> auto& r, F&& f) {
  auto& [rows, state, slots, capacity, policy, expected] = r;
  f("rows", rows), f("state", state), f("slots", slots), f("capacity", capacity);
  f("policy", policy), f("expected", expected);
}
template <typename F>
void fields(Is<EmbeddingShard> auto& r, F&& f) {
  auto& [table, first_row, rows, row_stride, first_column, dim, table_rows, lookups, drawn, bags,
         mean, sequence, format, weights, state, has_state, access, cache] = r;
  f("table", table), f("first_row", first_row), f("rows", rows), f("row_stride", row_stride);
  f("first_column", first_column), f("dim", dim), f("table_rows", table_rows);
  f("lookups", lookups), f("drawn", drawn), f("bags", bags), f("mean", mean);
  f("sequence", sequence), f("format", format), f("weights", weights), f("state", state);
  f("has_state", has_state), f("access", access), f("cache", cache);
}
template <typename F>
void fields(Is<EmbeddingGroup> auto& r, F&& f) {
  auto& [shards, format, optimizer] = r;
  f("format", format), f("optimizer", optimizer), f("shards", shards);
}
template <typename F>
void fields(Is<Exchange::Forwarded> auto& r, F&& f) {
  auto& [units, across, inside, kept] = r;
  f("units", units), f("across", across), f("inside", inside), f("kept", kept);
}
template <typename F>
void fields(Is<Exchange> auto& r, F&& f) {
  auto& [send_elements, unit_elements, forwarded] = r;
  f("send_elements", send_elements), f("unit_elements", unit_elements);
  f("forwarded", forwarded);
}
template <typename F>
void fields(Is<ExpertSplit> auto& r, F&& f) {
  auto& [ranks, tensor] = r;
  f("ranks", ranks), f("tensor", tensor);
}
template <typename F>
void fields(Is<ExpertRouting> auto& r, F&& f) {
  auto& [layer, part, parts, rows, capacity, split, gathers, draw] = r;
  f("layer", layer), f("part", part), f("parts", parts), f("rows", rows);
  f("capacity", capacity), f("split", split), f("gathers", gathers), f("draw", draw);
}
template <typename F>
void fields(Is<ColumnBlock> auto& r, F&& f) {
  auto& [input, output, from_offset, from_pitch, to_offset, to_pitch, columns] = r;
  f("input", input), f("output", output), f("from_offset", from_offset);
  f("from_pitch", from_pitch), f("to_offset", to_offset), f("to_pitch", to_pitch);
  f("columns", columns);
}
template <typename F>
void fields(Is<Program> auto& r, F&& f) {
  auto& [streams, names, tiers, ops, operands, waits, events, tensors, embeddings, exchanges,
         routings, column_copies, segments, calls, microbatches, interval] = r;
  f("streams", streams), f("names", names), f("tiers", tiers), f("ops", ops);
  f("operands", operands), f("waits", waits), f("events", events), f("tensors", tensors);
  f("embeddings", embeddings), f("exchanges", exchanges), f("routings", routings);
  f("column_copies", column_copies), f("segments", segments), f("calls", calls);
  f("microbatches", microbatches), f("interval", interval);
}

template <typename F>
void fields(Is<Batch> auto& r, F&& f) {
  auto& [global, micro, sequence] = r;
  f("global", global), f("micro", micro), f("sequence", sequence);
}
template <typename F>
void fields(Is<TableFeature> auto& r, F&& f) {
  auto& [name, pooling] = r;
  f("name", name), f("pooling", pooling);
}
template <typename F>
void fields(Is<Session> auto& r, F&& f) {
  auto& [samples, keep] = r;
  f("samples", samples), f("keep", keep);
}
template <typename F>
void fields(Is<Remapping> auto& r, F&& f) {
  auto& [rows, access, kind, evicts, admitted] = r;
  f("rows", rows), f("access", access), f("kind", kind), f("evicts", evicts);
  f("admitted", admitted);
}
template <typename F>
void fields(Is<EmbeddingTable> auto& r, F&& f) {
  auto& [name, rows, dim, pooling, mode, features, format, weighted, access, session, access_file,
         remapped] = r;
  f("name", name), f("rows", rows), f("dim", dim), f("pooling", pooling), f("mode", mode);
  f("features", features), f("format", format), f("weighted", weighted), f("access", access);
  f("session", session), f("access_file", access_file), f("remapped", remapped);
}
template <typename F>
void fields(Is<StepInputs> auto& r, F&& f) {
  auto& [batch, vocabulary, dense_features, tables, distinct_ids] = r;
  f("batch", batch), f("vocabulary", vocabulary), f("dense_features", dense_features);
  f("tables", tables), f("distinct_ids", distinct_ids);
}

template <typename F>
void fields(Is<EmbeddingSlice> auto& r, F&& f) {
  auto& [table, first_column, dim, features, feature_column, feature_pitch, route, split,
         frequency_order, order, hot_rows, ranks, copies, first_row, rows, table_rows, tier,
         cache_bytes, cache_policy, list_share, id_share] = r;
  f("table", table), f("first_column", first_column), f("dim", dim), f("features", features);
  f("feature_column", feature_column), f("feature_pitch", feature_pitch), f("route", route);
  f("split", split), f("frequency_order", frequency_order), f("order", order);
  f("hot_rows", hot_rows), f("ranks", ranks), f("copies", copies), f("first_row", first_row);
  f("rows", rows), f("table_rows", table_rows), f("tier", tier), f("cache_bytes", cache_bytes);
  f("cache_policy", cache_policy), f("list_share", list_share), f("id_share", id_share);
}
template <typename F>
void fields(Is<EmbeddingPlacement> auto& r, F&& f) {
  auto& [devices, node, group_sizes, columns, slices, held, used] = r;
  f("devices", devices), f("node", node), f("group_sizes", group_sizes), f("columns", columns);
  f("slices", slices), f("held", held), f("used", used);
}
template <typename F>
void fields(Is<ExecutionGraph> auto& r, F&& f) {
  auto& [mesh, communicators, programs, classes, inputs, placement] = r;
  f("mesh", mesh), f("communicators", communicators), f("programs", programs);
  f("classes", classes), f("inputs", inputs), f("placement", placement);
}

template <typename F>
void fields(Is<StoredAccess> auto& r, F&& f) {
  auto& [kind, rows, exponent, seed, sample_lookups, offset, recorded, atoms, share, subset_of] = r;
  f("kind", kind), f("rows", rows), f("exponent", exponent), f("seed", seed);
  f("sample_lookups", sample_lookups), f("offset", offset), f("recorded", recorded);
  f("atoms", atoms), f("share", share), f("subset_of", subset_of);
}

template <typename T>
concept Record = requires(T& r) {
  fields(r, [](std::string_view, auto&) {});
};

/// The enumerators of a type by name, in order.
template <typename E>
struct Named;

/// Names of the core's enumerators, where it has one for each up to `last`.
template <typename E, E last>
struct CoreNamed {
  static std::vector<std::string> all() {
    std::vector<std::string> names;
    for (std::size_t i = 0; i <= static_cast<std::size_t>(last); ++i) {
      names.emplace_back(name_of(static_cast<E>(i)));
    }
    return names;
  }
};
template <typename E>
requires requires { name_of(E::kCount); }
struct Named<E> : CoreNamed<E, static_cast<E>(static_cast<int>(E::kCount) - 1)> {};
template <>
struct Named<Format> : CoreNamed<Format, Format::kNf4> {};
template <>
struct Named<OptimizerKind> : CoreNamed<OptimizerKind, OptimizerKind::kMuon> {};
template <>
struct Named<EmbeddingRoute> : CoreNamed<EmbeddingRoute, static_cast<EmbeddingRoute>(kRoutes - 1)> {
};

template <>
struct Named<Epilogue> : CoreNamed<Epilogue, Epilogue::kGeluBackwardSums> {};
template <>
struct Named<Activation> : CoreNamed<Activation, Activation::kSigmoid> {};
template <>
struct Named<Norm> : CoreNamed<Norm, Norm::kRmsNorm> {};
template <>
struct Named<ScanRule> : CoreNamed<ScanRule, ScanRule::kDeltaByColumn> {};

using NameList = std::vector<std::string>;
template <>
struct Named<Repeated> {
  static NameList all() { return {"nothing", "keys_and_values", "all"}; }
};
template <>
struct Named<CopyWay> {
  static NameList all() { return {"there", "back"}; }
};
template <>
struct Named<Reduction> {
  static NameList all() { return {"sum", "max"}; }
};
template <>
struct Named<TensorPurpose> {
  static NameList all() {
    return {"other", "dense", "labels", "logits", "gathered", "key_value_cache", "carried"};
  }
};
template <>
struct Named<SegmentKind> {
  static NameList all() { return {"other", "begin", "forward", "backward", "weights", "finish"}; }
};
template <>
struct Named<MicrobatchRole> {
  static NameList all() { return {"any", "first", "last"}; }
};
template <>
struct Named<CommunicatorRole> {
  static NameList all() { return {"other", "replicas", "pipeline_ends"}; }
};
template <>
struct Named<Axis> {
  static NameList all() { return {"tensor", "context", "pipeline", "data"}; }
};
template <>
struct Named<RowCachePolicy> {
  static NameList all() { return {"lru", "lfu"}; }
};
template <>
struct Named<Split> {
  static NameList all() { return {"replicate", "block", "stripe"}; }
};
template <>
struct Named<PoolingMode> {
  static NameList all() { return {"sum", "mean", "sequence"}; }
};
template <>
struct Named<AccessKind> {
  static NameList all() { return {"uniform", "zipf", "histogram", "indices"}; }
};
template <>
struct Named<Access::Remap> {
  static NameList all() { return {"mod", "frequency"}; }
};

/// Name of each value, kept.
template <typename E>
const NameList& names_of() {
  static const NameList names = Named<E>::all();
  return names;
}

}  // namespace stepcast::traces::internal
