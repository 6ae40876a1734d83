#pragma once
#include "core/graph/op_traits.h"
#include "models/kernels/kernel_form.h"

namespace stepcast::models {

using FormMaker = std::unique_ptr<KernelForm>();
FormMaker gemm_tile_wave, attention_tiles, scan_roofline, embedding_shared_cache, memory_rowwise,
    memory_roofline, routing_draw, gemm_shape_rate, dot_interaction_parts, attention_parts,
    embedding_forward_levels, embedding_backward_levels, memory_levels;

/// Coordinates of matrix products: ln m, ln n, ln k, ln batch, and a step per layout that keeps
/// residuals of one layout out of the others.
std::vector<double> gemm_coordinates(const Op& op);
std::vector<std::string_view> gemm_coordinate_names();

}  // namespace stepcast::models
