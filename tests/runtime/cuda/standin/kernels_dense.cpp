#include <cmath>

#include "runtime/cpu/kernels/activation.h"
#include "runtime/cpu/kernels/attention.h"
#include "runtime/cpu/kernels/interaction.h"
#include "runtime/cpu/kernels/loss.h"
#include "runtime/cpu/kernels/norm.h"
#include "runtime/cpu/kernels/optimizer.h"
#include "runtime/cpu/kernels/position.h"
#include "runtime/cpu/kernels/token.h"
#include "runtime/cuda/kernels/activation.h"
#include "runtime/cuda/kernels/attention.h"
#include "runtime/cuda/kernels/elementwise.h"
#include "runtime/cuda/kernels/interaction.h"
#include "runtime/cuda/kernels/loss.h"
#include "runtime/cuda/kernels/norm.h"
#include "runtime/cuda/kernels/optimizer.h"
#include "runtime/cuda/kernels/position.h"
#include "runtime/cuda/kernels/token.h"
#include "tests/runtime/cuda/standin/device.h"
#include "tests/runtime/cuda/standin/matrix.h"

// The device kernels of the dense ops, by the CPU backend's or by plain loops.
namespace stepcast::runtime::cuda::kernels {

namespace host = runtime::kernels;
using standin::enqueue;
using standin::load;
using standin::store;
using standin::Widened;
using standin::Written;

namespace {

/// out[i, j] = f(i, j), each element on its own.
template <class Value>
void each(MatrixView out, Value value) {
  enqueue([=] {
    for (Index i = 0; i < out.rows; ++i) {
      for (Index j = 0; j < out.columns; ++j) {
        store(out.data, out.format, i * out.stride + j, value(i, j));
      }
    }
  });
}

float at(const ConstMatrixView& m, Index i, Index j) {
  return load(m.data, m.format, i * m.stride + j);
}

/// x + bias, without gaps.
void add_bias(Widened& x, Widened& bias) {
  if (bias.data() != nullptr) {
    host::bias_activation_forward(x.view(), bias.data(), Activation::kNone, x.view());
  }
}

}  // namespace

void fill(MatrixView x, float value, cudaStream_t) {
  each(x, [=](Index, Index) { return value; });
}
void scale_rows(MatrixView x, const float* factors, cudaStream_t) {
  each(x, [=](Index i, Index j) { return at(x, i, j) * factors[i]; });
}
std::size_t column_sums_workspace(Index, Index) { return 0; }
void add_column_sums(ConstMatrixView x, Vector sums, Workspace, cudaStream_t) {
  enqueue([=] {
    for (Index j = 0; j < x.columns; ++j) {
      float sum = load(sums.data, sums.format, j);
      for (Index i = 0; i < x.rows; ++i) {
        sum += at(x, i, j);
      }
      store(sums.data, sums.format, j, sum);
    }
  });
}
void copy_block(ConstMatrixView x, MatrixView out, cudaStream_t) {
  each(out, [=](Index i, Index j) { return at(x, i, j); });
}
void copy_rounded(ConstMatrixView x, Format round_to, MatrixView out, cudaStream_t) {
  each(out, [=](Index i, Index j) {
    float narrow = 0;
    store(&narrow, round_to, 0, at(x, i, j));
    return load(&narrow, round_to, 0);
  });
}
void copy_blocks(const BlockCopy* blocks, Index count, cudaStream_t stream) {
  for (Index b = 0; b < count; ++b) {
    const BlockCopy copy = blocks[b];
    if (copy.from.format != copy.to.format) {
      copy_block(copy.from, copy.to, stream);
      continue;
    }
    enqueue([copy] {
      for (Index i = 0; i < copy.to.rows; ++i) {
        std::memcpy(copy.to.at(i, 0), copy.from.at(i, 0),
                    static_cast<std::size_t>(copy.to.columns) * element_bytes(copy.to.format));
      }
    });
  }
}
void scale(ConstMatrixView x, float factor, MatrixView out, cudaStream_t) {
  each(out, [=](Index i, Index j) { return factor * at(x, i, j); });
}
void add(ConstMatrixView a, ConstMatrixView b, MatrixView out, cudaStream_t) {
  each(out, [=](Index i, Index j) { return at(a, i, j) + at(b, i, j); });
}
void add_with_row(ConstMatrixView a, ConstMatrixView b, ConstVector row, MatrixView out,
                  cudaStream_t) {
  each(out,
       [=](Index i, Index j) { return at(a, i, j) + at(b, i, j) + load(row.data, row.format, j); });
}
void axpy(float alpha, ConstMatrixView x, MatrixView y, cudaStream_t) {
  each(y, [=](Index i, Index j) { return at(y, i, j) + alpha * at(x, i, j); });
}

std::size_t activation_backward_workspace(Index, Index) { return 0; }
void activation_forward(Activation activation, ConstMatrixView x, ConstVector bias, MatrixView y,
                        cudaStream_t) {
  enqueue([=] {
    Widened in(x);
    Widened b(bias, x.columns);
    add_bias(in, b);
    Written out(y);
    if (activation == Activation::kNone || activation == Activation::kRelu) {
      host::bias_activation_forward(in.view(), nullptr, activation, out.view());
    } else {
      host::activation_forward(activation, in.view(), out.view());
    }
  });
}
void activation_backward(Activation activation, ConstMatrixView x, ConstVector bias,
                         ConstMatrixView dy, MatrixView dx, Vector d_bias, Workspace,
                         cudaStream_t) {
  enqueue([=] {
    Widened in(x);
    Widened b(bias, x.columns);
    add_bias(in, b);
    Widened d(dy);
    Written out(dx);
    host::activation_backward(activation, in.view(), d.view(), out.view());
    Written sums(d_bias, dx.columns);
    for (Index i = 0; sums.data() != nullptr && i < dx.rows; ++i) {
      for (Index j = 0; j < dx.columns; ++j) {
        sums.data()[j] += out.view().row(i)[j];
      }
    }
  });
}
void bias_activation_backward(Activation activation, ConstMatrixView dy, ConstMatrixView y,
                              MatrixView dx, Vector d_bias, Workspace, cudaStream_t) {
  enqueue([=] {
    Widened d(dy);
    Widened forward(y);
    Written out(dx);
    Written sums(d_bias, dx.columns);
    host::bias_activation_backward(d.view(), forward.view(), activation, out.view(), sums.data());
  });
}

namespace {

host::AttentionShape on_host(const AttentionShape& s) {
  host::AttentionShape h;
  h.batch = s.batch;
  h.heads = s.heads;
  h.kv_heads = s.kv_heads;
  h.query_length = s.query_length;
  h.kv_length = s.kv_length;
  h.head_dim = s.head_dim;
  h.causal = s.causal;
  h.scale = s.scale;
  return h;
}

}  // namespace

const char* attention_kernel(const AttentionShape&, Format) { return "standin"; }
void attention_forward(const AttentionShape& shape, ConstMatrixView q, ConstMatrixView k,
                       ConstMatrixView v, MatrixView out, float* log_sum_exp, cudaStream_t) {
  enqueue([=] {
    const auto s = on_host(shape);
    std::vector<float> scratch(static_cast<std::size_t>(s.scratch_floats()));
    Widened wq(q), wk(k), wv(v);
    Written o(out);
    host::attention_forward(s, wq.view(), wk.view(), wv.view(), o.view(), log_sum_exp,
                            scratch.data());
  });
}
std::size_t attention_backward_workspace(const AttentionShape&) { return 0; }
void attention_backward(const AttentionShape& shape, const AttentionBackward& t, Workspace,
                        cudaStream_t) {
  enqueue([=] {
    const auto s = on_host(shape);
    std::vector<float> scratch(2 * static_cast<std::size_t>(s.scratch_floats()));
    Widened q(t.q), k(t.k), v(t.v), out(t.out), d_out(t.d_out);
    Written d_q(t.d_q), d_k(t.d_k), d_v(t.d_v);
    host::attention_backward(s,
                             {q.view(), k.view(), v.view(), out.view(), d_out.view(), t.log_sum_exp,
                              d_q.view(), d_k.view(), d_v.view()},
                             scratch.data());
  });
}
void softmax_rows(ConstMatrixView x, float factor, Index query_length, Index diagonal,
                  MatrixView out, cudaStream_t) {
  enqueue([=] {
    Widened in(x);
    for (Index i = 0; i < x.elements(); ++i) {
      in.data()[i] *= factor;
    }
    for (Index first = 0; first < x.rows; first += query_length) {
      host::softmax_rows(in.view().slice(first, query_length), diagonal, nullptr);
    }
    Written result(out);
    std::copy_n(in.data(), x.elements(), result.data());
  });
}
void softmax_rows_backward(ConstMatrixView p, ConstMatrixView dp, float factor, MatrixView dx,
                           cudaStream_t) {
  enqueue([=] {
    Widened wp(p), wd(dp);
    Written out(dx);
    for (Index i = 0; i < p.rows; ++i) {
      float sum = 0;
      for (Index j = 0; j < p.columns; ++j) {
        sum += wp.view().row(i)[j] * wd.view().row(i)[j];
      }
      for (Index j = 0; j < p.columns; ++j) {
        out.view().row(i)[j] = factor * wp.view().row(i)[j] * (wd.view().row(i)[j] - sum);
      }
    }
  });
}

void dot_interaction_forward(const DotInteraction& shape, ConstMatrixView x, MatrixView out,
                             cudaStream_t) {
  enqueue([=] {
    std::vector<float> scratch(static_cast<std::size_t>(shape.features * shape.features));
    Widened in(x);
    Written result(out);
    host::dot_interaction_forward({shape.features, shape.dim}, in.view(), result.view(),
                                  scratch.data());
  });
}
void dot_interaction_backward(const DotInteraction& shape, ConstMatrixView d_out, ConstMatrixView x,
                              MatrixView dx, cudaStream_t) {
  enqueue([=] {
    std::vector<float> scratch(static_cast<std::size_t>(shape.features * shape.features));
    Widened d(d_out), in(x);
    Written result(dx);
    host::dot_interaction_backward({shape.features, shape.dim}, d.view(), in.view(), result.view(),
                                   scratch.data());
  });
}
void cross_forward(ConstMatrixView x0, ConstMatrixView u, ConstVector bias, ConstMatrixView x,
                   MatrixView out, cudaStream_t) {
  enqueue([=] {
    Widened w0(x0), wu(u), b(bias, u.columns), wx(x);
    Written result(out);
    host::cross_forward(w0.view(), wu.view(), b.data(), wx.view(), result.view());
  });
}
std::size_t cross_backward_workspace(Index, Index) { return 0; }
void cross_backward(ConstMatrixView d_out, ConstMatrixView x0, ConstMatrixView u, ConstVector bias,
                    MatrixView du, Vector d_bias, MatrixView d_x0, bool accumulate, Workspace,
                    cudaStream_t) {
  enqueue([=] {
    Widened d(d_out), w0(x0), wu(u), b(bias, u.columns);
    Written result(du), sums(d_bias, u.columns), first(d_x0);
    if (!accumulate) {
      std::fill_n(first.data(), d_x0.elements(), 0.0F);
    }
    host::cross_backward(d.view(), w0.view(), wu.view(), b.data(), result.view(), sums.data(),
                         first.view(), {});
  });
}

namespace {

std::vector<std::int32_t> listed(const TokenRows& t, Index rows) {
  std::vector<std::int32_t> tokens;
  for (Index i = 0; i < rows; ++i) {
    tokens.push_back(t.data[i / t.sequence * t.pitch + i % t.sequence]);
  }
  return tokens;
}

}  // namespace

void cross_entropy_maximum(ConstMatrixView logits, float* maximum, cudaStream_t) {
  enqueue([=] { host::cross_entropy_maximum(Widened(logits).view(), maximum); });
}
void cross_entropy_sum(ConstMatrixView logits, std::int64_t first, TokenRows targets,
                       const float* maximum, float* sum, float* target_logit, cudaStream_t) {
  enqueue([=] {
    host::cross_entropy_sum(Widened(logits).view(), first, listed(targets, logits.rows).data(),
                            maximum, sum, target_logit);
  });
}
std::size_t loss_workspace(Index) { return 0; }
void cross_entropy_loss(ConstMatrixView logits, std::int64_t first, TokenRows targets,
                        const float* maximum, const float* sum, const float* target_logit,
                        float factor, MatrixView d_logits, double* loss, Workspace, cudaStream_t) {
  enqueue([=] {
    Widened in(logits);
    Written out(d_logits);
    *loss += host::cross_entropy_loss(in.view(), first, listed(targets, logits.rows).data(),
                                      maximum, sum, target_logit, factor, out.view());
  });
}
void binary_cross_entropy(ConstMatrixView logits, ConstMatrixView labels, float factor,
                          MatrixView d_logits, double* loss, Workspace, cudaStream_t) {
  enqueue([=] {
    Widened z(logits), y(labels);
    Written out(d_logits);
    *loss += host::binary_cross_entropy(z.data(), y.data(), logits.rows, factor, out.data());
  });
}

void norm_forward(Norm norm, ConstMatrixView x, ConstVector weight, ConstVector bias, float epsilon,
                  MatrixView y, float* statistics, cudaStream_t) {
  enqueue([=] {
    Widened in(x), w(weight, x.columns), b(bias, x.columns);
    Written out(y);
    host::norm_forward(norm, in.view(), w.data(), b.data(), epsilon, out.view(), statistics);
  });
}
std::size_t norm_backward_workspace(Index, Index) { return 0; }
void norm_backward(Norm norm, ConstMatrixView dy, ConstMatrixView x, ConstVector weight,
                   const float* statistics, ConstMatrixView residual, MatrixView dx,
                   Vector d_weight, Vector d_bias, Workspace, cudaStream_t) {
  enqueue([=] {
    Widened d(dy), in(x), w(weight, x.columns), more(residual);
    Written out(dx), dw(d_weight, x.columns), db(d_bias, x.columns);
    host::norm_backward(norm, d.view(), in.view(), w.data(), statistics, out.view(), dw.data(),
                        db.data());
    for (Index i = 0; residual.data != nullptr && i < dx.elements(); ++i) {
      out.data()[i] += more.data()[i];
    }
  });
}

void optimizer_update(const OptimizerSettings& settings, const Parameter* parameters, Index count,
                      bool lazy, const AdamFactors* factors, cudaStream_t) {
  for (Index p = 0; p < count; ++p) {
    enqueue([=, parameter = parameters[p]] {
      // A replayed step has the factors of its own step, not of the one that was captured.
      OptimizerSettings now = settings;
      while (factors != nullptr && settings.kind == OptimizerKind::kAdam &&
             adam_factors(now).rate != factors->rate) {
        ++now.step;
      }
      Widened gradient(parameter.gradient);
      Written weights(parameter.weights);
      const MatrixView& w = parameter.weights;
      float* original = parameter.master != nullptr ? parameter.master : weights.data();
      const bool by_row = lazy || settings.kind == OptimizerKind::kRowwiseAdagrad;
      const Index width = by_row ? w.columns : w.elements();
      for (Index i = 0; i < w.elements(); i += width) {
        const float* g = gradient.data() + i;
        if (lazy && std::all_of(g, g + width, [](float v) { return v == 0; })) {
          continue;
        }
        float* first = parameter.first == nullptr ? nullptr
                       : settings.kind == OptimizerKind::kRowwiseAdagrad
                           ? parameter.first + i / width
                           : parameter.first + i;
        host::optimizer_update(now, g, original + i, first,
                               parameter.second == nullptr ? nullptr : parameter.second + i, width);
      }
      if (parameter.master != nullptr) {
        std::copy_n(parameter.master, w.elements(), weights.data());
      }
    });
  }
}

void rotate(const float* table, Index length, Index head_dim, int direction, MatrixView x,
            cudaStream_t) {
  enqueue([=] {
    Written out(x);
    const Index half = head_dim / 2;
    for (Index t = 0; t < x.rows; ++t) {
      const float* angles = table + t % length * head_dim;
      for (Index j = 0; j < x.columns; ++j) {
        const Index i = j % head_dim;
        if (i < half) {
          float& left = out.view().row(t)[j];
          float& right = out.view().row(t)[j + half];
          const float a = left;
          const float s = static_cast<float>(direction) * angles[half + i];
          left = a * angles[i] - right * s;
          right = right * angles[i] + a * s;
        }
      }
    }
  });
}
void add_positions(ConstMatrixView positions, MatrixView x, cudaStream_t) {
  enqueue([=] { host::add_positions(Widened(positions).view(), Written(x).view()); });
}
void add_positions_backward(ConstMatrixView dx, MatrixView d_positions, cudaStream_t) {
  enqueue([=] { host::add_positions_backward(Widened(dx).view(), Written(d_positions).view()); });
}

void token_embedding_forward(ConstMatrixView weights, std::int64_t first, TokenRows tokens,
                             MatrixView out, cudaStream_t) {
  enqueue([=] {
    Widened w(weights);
    host::token_embedding_forward(w.view(), first, listed(tokens, out.rows).data(),
                                  Written(out).view());
  });
}
std::size_t token_embedding_backward_workspace(Index, Index, Index) { return 0; }
void token_embedding_backward(ConstMatrixView d_out, std::int64_t first, TokenRows tokens,
                              MatrixView d_weights, Workspace, cudaStream_t) {
  enqueue([=] {
    host::token_embedding_backward(Widened(d_out).view(), first, listed(tokens, d_out.rows).data(),
                                   Written(d_weights).view());
  });
}

}  // namespace stepcast::runtime::cuda::kernels
