#include "traces/events/operator_traffic.h"

#include <algorithm>

#include "traces/events/recording.h"

namespace stepcast::traces {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kLargestDimension = 1 << 24;

/// In floating point: what a profiler wrote may be any number. 0 where a dimension is none.
double elements_in(const Shape& shape) {
  double n = 1;
  for (const std::int64_t d : shape) {
    n *= static_cast<double>(std::max<std::int64_t>(0, d));
  }
  return n;
}

/// The numbers of "[1, 1]"; one stands for all dimensions.
std::optional<Shape> list_of(const OperatorCall& call, std::size_t input, std::size_t dimensions) {
  if (input >= call.values.size()) {
    return std::nullopt;
  }
  const auto lists = shapes_of("[" + call.values[input] + "]");
  if (lists.size() != 1 || (lists[0].size() != dimensions && lists[0].size() != 1)) {
    return std::nullopt;
  }
  Shape list = lists[0];
  list.resize(dimensions, list[0]);
  return list;
}

/// Output positions of a forward convolution of input[N, C, ..] and weight[K, C, ..].
std::optional<double> positions(const OperatorCall& call) {
  const Shape& input = call.shapes[0];
  const Shape& weight = call.shapes[1];
  const std::size_t n = input.size() - 2;
  // cudnn_convolution(input, weight, padding, stride, dilation, ..), miopen_convolution with a bias
  // before them; convolution and _convolution(input, weight, bias, stride, padding, dilation, ..).
  const bool own = call.name.ends_with("n_convolution");
  const std::size_t first = call.name.ends_with("cudnn_convolution") ? 2 : 3;
  const auto padding = list_of(call, own ? first : first + 1, n);
  const auto stride = list_of(call, own ? first + 1 : first, n);
  const auto dilation = list_of(call, first + 2, n);
  if (!padding || !stride || !dilation) {
    return std::nullopt;
  }
  double p = 1;
  for (std::size_t d = 0; d < n; ++d) {
    const std::int64_t reach = (*dilation)[d] * (weight[d + 2] - 1) + 1;
    const std::int64_t room = input[d + 2] + 2 * (*padding)[d] - reach;
    if ((*stride)[d] <= 0 || room < 0) {
      return std::nullopt;
    }
    p *= static_cast<double>(room / (*stride)[d] + 1);
  }
  return p;
}

/// `size`: bytes of an element.
std::optional<OperatorTraffic> convolution_traffic(const OperatorCall& call, double size,
                                                   OperatorTraffic t) {
  for (const Shape& s : call.shapes) {
    if (std::any_of(s.begin(), s.end(), [](auto d) { return d < 0 || d > kLargestDimension; })) {
      return std::nullopt;
    }
  }
  const bool backward = call.name.find("backward") != std::string_view::npos;
  const std::size_t least = backward ? 3 : 2;
  if (call.shapes.size() < least || call.shapes[0].size() < 3 ||
      call.shapes[1].size() != call.shapes[0].size()) {
    return std::nullopt;
  }
  // Backward: the gradient of the output and the input in either order, then the weight.
  const Shape& weight = call.shapes[backward ? 2 : 1];
  if (weight.size() != call.shapes[0].size() || weight[0] <= 0) {
    return std::nullopt;
  }
  double outputs = 0;  // N K P
  if (backward) {
    const bool second = call.name.ends_with("cudnn_convolution_backward");  // its input comes first
    outputs = elements_in(call.shapes[second ? 1 : 0]);
    t.bytes += elements_in(call.shapes[second ? 0 : 1]) * size + elements_in(weight) * size;
  } else {
    const auto p = positions(call);
    if (!p) {
      return std::nullopt;
    }
    outputs = static_cast<double>(call.shapes[0][0]) * static_cast<double>(weight[0]) * *p;
    t.bytes += outputs * size;
  }
  const double per_output = elements_in(weight) / static_cast<double>(weight[0]);  // C R S
  t.flops = (backward ? 4 : 2) * outputs * per_output;
  return t;
}

}  // namespace

std::optional<OperatorTraffic> traffic_of(const OperatorCall& call, KernelKind kind) {
  OperatorTraffic t;
  double largest = 0;
  double size = 0;  // of an element of the first tensor
  for (std::size_t i = 0; i < call.shapes.size() && i < call.types.size(); ++i) {
    const auto element = element_of(call.types[i]);
    if (!element || call.shapes[i].empty()) {
      continue;
    }
    const double bytes = elements_in(call.shapes[i]) * element->bytes;
    t.format = size > 0 ? t.format : element->format;
    size = size > 0 ? size : element->bytes;
    t.bytes += bytes;
    largest = std::max(largest, bytes);
  }
  if (t.bytes <= 0) {
    return std::nullopt;
  }
  switch (kind) {
    case KernelKind::kConvolution:
      return convolution_traffic(call, size, t);
    case KernelKind::kNorm:
    case KernelKind::kSoftmax:
    case KernelKind::kElementwise:
    case KernelKind::kLayoutChange:
    case KernelKind::kCopy:
    case KernelKind::kOptimizer:
      t.bytes += largest;
      return t;
    case KernelKind::kReduction:
      return t;
    default:
      return std::nullopt;
  }
}

}  // namespace stepcast::traces
