#include "runtime/calibration/cuda/case_body.h"

#include <vector>

#include "core/graph/expert_draw.h"
#include "core/graph/expert_points.h"
#include "runtime/cuda/kernels/experts.h"

namespace stepcast::runtime::calibration {
namespace {

namespace kernels = cuda::kernels;
using kernels::MatrixView;

constexpr std::int64_t kSweptExperts = 8;  // each with the same share of the tokens

/// The draw of `rows` tokens from the first on, `per_token` choices each, in device memory. Experts
/// are a power of two.
struct Drawn {
  Drawn(std::int64_t rows, std::int64_t experts, std::int64_t per_token, Arena& arena) {
    const ExpertDraw draw(
        std::vector<double>(static_cast<std::size_t>(experts),
                            static_cast<double>(per_token) / static_cast<double>(experts)),
        per_token);
    std::vector<std::int64_t> sent{0};
    std::vector<std::uint64_t> bounds{0};
    for (std::int64_t e = 0; e < experts; ++e) {
      sent.push_back(sent.back() + draw.count(0, rows, 0, e));
      bounds.push_back(static_cast<std::uint64_t>((e + 1) * per_token) * expert_points::kUnit /
                       static_cast<std::uint64_t>(experts));
    }
    const auto choices = static_cast<std::size_t>(rows * per_token);
    places = {.rows = rows,
              .per_token = per_token,
              .experts = experts,
              .bounds = arena.upload(bounds),
              .sent = arena.upload(sent)};
    copies = {per_token, static_cast<std::int32_t*>(arena.take(choices * sizeof(std::int32_t))),
              static_cast<std::int32_t*>(arena.take(choices * sizeof(std::int32_t)))};
    kernels::place_copies(places, copies, nullptr);
  }
  kernels::ExpertPlaces places;
  kernels::PlacedCopies copies;
};

CaseBody router_body(const DeviceCase& c, const Bench& b) {
  Arena& arena = b.arena;
  const auto [rows, experts, per_token, unused3, unused4, unused5] = c.op.shape;
  const MatrixView logits = arena.matrix(Format::kFp32, rows, experts);
  const MatrixView out = arena.matrix(Format::kFp32, rows, experts);
  if (c.op.kind == OpKind::kRouteBackward) {
    return [=](std::int64_t, cudaStream_t s) { kernels::route_backward(logits, out, s); };
  }
  const Drawn drawn(rows, experts, per_token, arena);
  return [=](std::int64_t, cudaStream_t s) {
    kernels::place_copies(drawn.places, drawn.copies, s);
    kernels::route_forward(logits, out, s);
  };
}

CaseBody copies_body(const DeviceCase& c, const Bench& b) {
  Arena& arena = b.arena;
  constexpr std::int64_t kPerToken = 2;
  const bool of_copies =
      c.op.kind == OpKind::kDispatchForward || c.op.kind == OpKind::kCombineBackward;
  const std::int64_t rows = of_copies ? c.op.shape[0] / kPerToken : c.op.shape[0];
  const std::int64_t width = c.op.shape[1];
  const Drawn drawn(rows, kSweptExperts, kPerToken, arena);
  const MatrixView tokens = arena.matrix(c.op.format, rows, width);
  const MatrixView copies = arena.matrix(c.op.format, rows * kPerToken, width);
  if (c.op.kind == OpKind::kDispatchForward) {
    return [=](std::int64_t, cudaStream_t s) {
      kernels::dispatch_copies(tokens, drawn.copies, copies, s);
    };
  }
  if (c.op.kind == OpKind::kDispatchBackward) {
    return [=](std::int64_t, cudaStream_t s) {
      kernels::combine_copies(copies, drawn.copies, {}, tokens, s);
    };
  }
  const MatrixView weights = arena.matrix(Format::kFp32, rows, kSweptExperts);
  if (c.op.kind == OpKind::kCombineForward) {
    return [=](std::int64_t, cudaStream_t s) {
      kernels::combine_copies(copies, drawn.copies, weights, tokens, s);
    };
  }
  const MatrixView d_copies = arena.matrix(c.op.format, rows * kPerToken, width);
  const MatrixView d_weights = arena.matrix(Format::kFp32, rows, kSweptExperts);
  return [=](std::int64_t, cudaStream_t s) {
    kernels::combine_copies_backward(tokens, copies, weights, drawn.copies, d_copies, d_weights, s);
  };
}

constexpr std::pair<OpKind, MakeBody> kExpertBodies[]{
    {OpKind::kRouteForward, router_body},    {OpKind::kRouteBackward, router_body},
    {OpKind::kDispatchForward, copies_body}, {OpKind::kDispatchBackward, copies_body},
    {OpKind::kCombineForward, copies_body},  {OpKind::kCombineBackward, copies_body}};

}  // namespace

CaseBodies expert_bodies() { return kExpertBodies; }

}  // namespace stepcast::runtime::calibration
