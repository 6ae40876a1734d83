#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "runtime/cuda/cudnn_descriptor.h"
#include "tests/runtime/cuda/standin/device.h"
#include "tests/runtime/cuda/standin/device_memory.h"
#include "tests/runtime/cuda/standin/numbers.h"

// The backend API of cuDNN on the host: descriptors keep their attributes, and a plan computes the
// operations of its graph one after the other, from the dimensions, strides and addresses they were
// given. It knows nothing of attention, but for the one operation that is all of it. As the real
// library (9.19) it rejects products of two formats and the one operation of the backward.

using stepcast::Format;

namespace stepcast::standin {
std::atomic<int> cudnn_handles{0};
}

namespace {

struct Attribute {
  std::int64_t count = 0;
  std::vector<char> bytes;
};
struct Descriptor {
  cudnnBackendDescriptorType_t type{};
  std::map<int, Attribute> attributes;
  bool finalized = false;

  [[nodiscard]] bool has(int name) const { return attributes.contains(name); }
  template <class T>
  [[nodiscard]] std::vector<T> list(int name) const {
    const Attribute& a = attributes.at(name);
    std::vector<T> values(static_cast<std::size_t>(a.count));
    std::memcpy(values.data(), a.bytes.data(), values.size() * sizeof(T));
    return values;
  }
  template <class T>
  [[nodiscard]] T one(int name) const {
    return list<T>(name).at(0);
  }
  [[nodiscard]] const Descriptor& part(int name) const {
    return *static_cast<const Descriptor*>(one<cudnnBackendDescriptor_t>(name));
  }
};
Descriptor& of(cudnnBackendDescriptor_t d) { return *static_cast<Descriptor*>(d); }

constexpr std::int64_t kWorkspace = 1000;

std::size_t bytes_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_HANDLE:
      return 8;
    default:
      return 4;  // enumerations
  }
}

/// A tensor of a graph, stored or kept in `memory` while the graph runs.
struct Tensor {
  std::vector<std::int64_t> dims, strides;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  void* stored = nullptr;
  std::vector<float> memory;

  [[nodiscard]] Format format() const {
    return type == CUDNN_DATA_BFLOAT16 ? Format::kBf16
           : type == CUDNN_DATA_HALF   ? Format::kFp16
                                       : Format::kFp32;
  }
  /// Index of the element that goes with `at` of a tensor of `wide` dimensions: a dimension that
  /// is shorter here serves several there.
  [[nodiscard]] std::int64_t index(const std::int64_t* at, const std::int64_t* wide) const {
    std::int64_t i = 0;
    for (std::size_t d = 0; d < 4; ++d) {
      i += at[d] * dims[d] / wide[d] * strides[d];
    }
    return i;
  }
  [[nodiscard]] float load(std::int64_t i) const {
    return stored != nullptr ? stepcast::standin::load(stored, format(), i)
                             : memory[static_cast<std::size_t>(i)];
  }
  void store(std::int64_t i, float value) {
    if (stored != nullptr) {
      stepcast::standin::store(stored, format(), i, value);
      return;
    }
    alignas(4) char rounded[4];
    stepcast::standin::store(rounded, format(), 0, value);
    memory[static_cast<std::size_t>(i)] = stepcast::standin::load(rounded, format(), 0);
  }
};

template <class Body>
void for_each(const std::vector<std::int64_t>& n, const Body& body) {
  std::int64_t at[4];
  for (at[0] = 0; at[0] < n[0]; ++at[0]) {
    for (at[1] = 0; at[1] < n[1]; ++at[1]) {
      for (at[2] = 0; at[2] < n[2]; ++at[2]) {
        for (at[3] = 0; at[3] < n[3]; ++at[3]) {
          body(at);
        }
      }
    }
  }
}

/// One run of a graph.
class Run {
 public:
  using Addresses = std::map<std::int64_t, void*>;
  Run(Addresses addresses, std::map<std::int64_t, float> numbers)
      : addresses_(std::move(addresses)), numbers_(std::move(numbers)) {}

  void operator()(const Descriptor& graph) {
    for (auto* op : graph.list<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
      execute(of(op));
    }
  }

 private:
  Tensor& tensor(const Descriptor& op, int name) {
    const Descriptor& d = op.part(name);
    const auto id = d.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    const auto [place, fresh] = tensors_.try_emplace(id);
    Tensor& t = place->second;
    if (fresh) {
      t.dims = d.list<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
      t.strides = d.list<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
      t.type = d.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
      std::int64_t last = 0;
      for (std::size_t i = 0; i < 4; ++i) {
        last += (t.dims[i] - 1) * t.strides[i];
      }
      if (const auto number = numbers_.find(id); number != numbers_.end()) {
        t.memory.assign(1, number->second);
      } else if (const auto address = addresses_.find(id); address != addresses_.end()) {
        t.stored = address->second;
      } else {
        t.memory.assign(static_cast<std::size_t>(last + 1), std::nanf(""));
      }
    }
    return t;
  }

  void execute(const Descriptor& op) {
    switch (op.type) {
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return multiply(tensor(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC),
                        tensor(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC),
                        tensor(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return reduce(op);
      case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        tensor(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC).memory =
            tensor(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC).memory;
        return;
      case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return pointwise(op);
      default:
        return attend(op);
    }
  }

  static void multiply(const Tensor& a, const Tensor& b, Tensor& out) {
    for_each(out.dims, [&](const std::int64_t* at) {
      double sum = 0;
      for (std::int64_t k = 0; k < a.dims[3]; ++k) {
        const std::int64_t left[4] = {at[0], at[1], at[2], k};
        const std::int64_t right[4] = {at[0], at[1], k, at[3]};
        const std::int64_t of_left[4] = {out.dims[0], out.dims[1], out.dims[2], a.dims[3]};
        const std::int64_t of_right[4] = {out.dims[0], out.dims[1], a.dims[3], out.dims[3]};
        sum += double{a.load(a.index(left, of_left))} * b.load(b.index(right, of_right));
      }
      out.store(out.index(at, out.dims.data()), static_cast<float>(sum));
    });
  }

  void reduce(const Descriptor& op) {
    const Tensor& x = tensor(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
    Tensor& y = tensor(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    const bool adds =
        op.part(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
            .one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_ADD;
    std::map<std::int64_t, double> results;
    for_each(x.dims, [&](const std::int64_t* at) {
      const double value = x.load(x.index(at, x.dims.data()));
      const auto [place, fresh] = results.try_emplace(y.index(at, x.dims.data()), value);
      if (!fresh) {
        place->second = adds ? place->second + value : std::max(place->second, value);
      }
    });
    for (const auto& [i, value] : results) {
      y.store(i, static_cast<float>(value));
    }
  }

  void pointwise(const Descriptor& op) {
    const Descriptor& how = op.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const auto mode = how.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    const Tensor& x = tensor(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    Tensor& y = tensor(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    const auto optional = [&](int name) { return op.has(name) ? &tensor(op, name) : nullptr; };
    const Tensor* b = optional(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const Tensor* choice = optional(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    const auto value = [&](const Tensor* t, const std::int64_t* at) {
      return t->load(t->index(at, y.dims.data()));
    };
    for_each(y.dims, [&](const std::int64_t* at) {
      const auto left = [&] { return value(&x, at); };
      const auto right = [&] { return value(b, at); };
      float result = std::nanf("");
      switch (mode) {
        case CUDNN_POINTWISE_ADD:
          result = left() + right();
          break;
        case CUDNN_POINTWISE_SUB:
          result = left() - right();
          break;
        case CUDNN_POINTWISE_MUL:
          result = left() * right();
          break;
        case CUDNN_POINTWISE_DIV:
          result = left() / right();
          break;
        case CUDNN_POINTWISE_IDENTITY:
          result = left();
          break;
        case CUDNN_POINTWISE_EXP:
          result = std::exp(left());
          break;
        case CUDNN_POINTWISE_LOG:
          result = std::log(left());
          break;
        case CUDNN_POINTWISE_GEN_INDEX:
          result = static_cast<float>(at[how.one<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS)]);
          break;
        case CUDNN_POINTWISE_CMP_GE:
          result = left() >= right() ? 1.0F : 0.0F;
          break;
        case CUDNN_POINTWISE_BINARY_SELECT:
          result = value(choice, at) != 0 ? left() : right();
          break;
        default:
          break;
      }
      y.store(y.index(at, y.dims.data()), result);
    });
  }

  void attend(const Descriptor& op) {
    const Tensor& q = tensor(op, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC);
    const Tensor& k = tensor(op, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC);
    const Tensor& v = tensor(op, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC);
    Tensor& out = tensor(op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC);
    Tensor& statistics = tensor(op, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC);
    const float scale = tensor(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC).load(0);
    const auto keys = static_cast<std::size_t>(k.dims[2]);
    for_each(statistics.dims, [&](const std::int64_t* at) {
      std::vector<double> powers(keys);
      double sum = 0;
      for (std::size_t j = 0; j < keys; ++j) {
        double score = 0;
        for (std::int64_t d = 0; d < q.dims[3]; ++d) {
          const std::int64_t of_q[4] = {at[0], at[1], at[2], d};
          score += double{q.load(q.index(of_q, q.dims.data()))} * of_key(k, q, at, j, d);
        }
        sum += powers[j] = std::exp(scale * score);
      }
      statistics.store(statistics.index(at, statistics.dims.data()),
                       static_cast<float>(std::log(sum)));
      for (std::int64_t d = 0; d < q.dims[3]; ++d) {
        double value = 0;
        for (std::size_t j = 0; j < keys; ++j) {
          value += powers[j] / sum * of_key(v, q, at, j, d);
        }
        const std::int64_t of_out[4] = {at[0], at[1], at[2], d};
        out.store(out.index(of_out, out.dims.data()), static_cast<float>(value));
      }
    });
  }
  static double of_key(const Tensor& t, const Tensor& q, const std::int64_t* at, std::size_t j,
                       std::int64_t d) {
    const std::int64_t place[4] = {at[0], at[1], static_cast<std::int64_t>(j), d};
    const std::int64_t wide[4] = {q.dims[0], q.dims[1], t.dims[2], t.dims[3]};
    return t.load(t.index(place, wide));
  }

  Addresses addresses_;
  std::map<std::int64_t, float> numbers_;
  std::map<std::int64_t, Tensor> tensors_;
};

std::size_t version() { return 91900; }
const char* error_string(cudnnStatus_t) { return "standin"; }
void last_error(char* text, std::size_t) { *text = '\0'; }
/// A handle takes device memory: all that is left, where STANDIN_CUDNN_TAKES_ALL is set.
cudnnStatus_t create(cudnnHandle_t* handle) {
  std::size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  stepcast::standin::take_device_memory(
      stepcast::standin::setting("STANDIN_CUDNN_TAKES_ALL", 0) != 0 ? free : 1);
  ++stepcast::standin::cudnn_handles;
  *handle = reinterpret_cast<cudnnHandle_t>(new int);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t destroy(cudnnHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set_stream(cudnnHandle_t, cudaStream_t stream) {
  stepcast::standin::arrive(stream);  // what comes next is enqueued on it
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* d) {
  *d = new Descriptor{type, {}, false};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t d) {
  delete &of(d);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set_attribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, std::int64_t count,
                            const void* values) {
  if (of(d).finalized || count < 1 || values == nullptr) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  const auto* first = static_cast<const char*>(values);
  of(d).attributes[name] = {count,
                            {first, first + static_cast<std::size_t>(count) * bytes_of(type)}};
  return CUDNN_STATUS_SUCCESS;
}

bool fits(const Descriptor& op) {
  if (op.type != CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
    return true;
  }
  const auto dims = [&](int name) {
    return op.part(name).list<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  };
  const auto a = dims(CUDNN_ATTR_OPERATION_MATMUL_ADESC);
  const auto b = dims(CUDNN_ATTR_OPERATION_MATMUL_BDESC);
  const auto c = dims(CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  const auto type = [&](int name) {
    return op.part(name).one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  };
  return a[3] == b[2] && a[2] == c[2] && b[3] == c[3] && a[1] % b[1] == 0 &&
         type(CUDNN_ATTR_OPERATION_MATMUL_ADESC) == type(CUDNN_ATTR_OPERATION_MATMUL_BDESC);
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor) {
  Descriptor& d = of(descriptor);
  const bool one_op_backward =
      d.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR &&
      of(d.one<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS)).type ==
          CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR;
  if (d.finalized || one_op_backward || !fits(d)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  d.finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t, std::int64_t, std::int64_t* count,
                            void* values) {
  const Descriptor& d = of(descriptor);
  *count = 1;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    Descriptor& configuration = of(*static_cast<cudnnBackendDescriptor_t*>(values));
    configuration.attributes = d.attributes;
    configuration.finalized = true;
    return CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    std::memcpy(values, &kWorkspace, sizeof(kWorkspace));
    return CUDNN_STATUS_SUCCESS;
  }
  return CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t execute(cudnnHandle_t, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  if (stepcast::standin::setting("STANDIN_CUDNN_FAILS", 0) != 0) {
    return CUDNN_STATUS_EXECUTION_FAILED;
  }
  const Descriptor& graph = of(plan)
                                .part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
                                .part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  const auto ids = of(pack).list<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto addresses = of(pack).list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  auto* workspace = of(pack).one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  Run::Addresses bound;
  std::map<std::int64_t, float> numbers;  // read now, as the library does
  std::map<std::int64_t, bool> used;      // id, by value
  for (auto* op : graph.list<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    for (const auto& [name, attribute] : of(op).attributes) {
      const Descriptor& t = of(op).part(name);
      if (t.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR && !t.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL)) {
        used[t.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)] =
            t.has(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
      }
    }
  }
  for (const auto& [id, by_value] : used) {
    const auto found = std::find(ids.begin(), ids.end(), id);
    if (found == ids.end()) {
      return CUDNN_STATUS_BAD_PARAM;
    }
    void* address = addresses.at(static_cast<std::size_t>(found - ids.begin()));
    if (by_value) {
      numbers[id] = *static_cast<const float*>(address);
    } else {
      bound[id] = address;
    }
  }
  stepcast::standin::enqueue([&graph, bound, numbers, workspace] {
    std::memset(workspace, 0xff, kWorkspace);  // anything may stand there
    Run{bound, numbers}(graph);
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

namespace stepcast::runtime::cuda {

std::optional<CudnnFunctions> cudnn_functions(std::string& missing) {
  if (standin::setting("STANDIN_CUDNN", 0) == 0) {
    missing = "the stand-in has no cuDNN unless STANDIN_CUDNN=1";
    return std::nullopt;
  }
  return CudnnFunctions{version,  error_string,  last_error,        create,
                        destroy,  set_stream,    create_descriptor, destroy_descriptor,
                        finalize, set_attribute, get_attribute,     execute};
}

}  // namespace stepcast::runtime::cuda
