#pragma once
#include <string>
#include <vector>

#include "core/job/layers.h"

namespace stepcast {

/// Writes a LayerList layer by layer and checks every shape. Tensors are named by indices.
///
///   LayerBuilder b("workload 'tiny'");
///   int x = b.input("dense", 1, 13);
///   x = b.linear("top.0", x, {.width = 1});
///   b.loss(LayerKind::kBinaryCrossEntropy, "loss", x);
///   LayerList list = std::move(b).finish();
///
/// Errors: InputError at `place`, which may be moved on from layer to layer.
class LayerBuilder {
 public:
  explicit LayerBuilder(std::string place) : place_(std::move(place)) {}
  void at(std::string place) { place_ = std::move(place); }

  int group(std::string name, std::int64_t size);
  int input(std::string name, std::int64_t rows, std::int64_t columns);

  struct Linear {
    std::int64_t width = 0;
    bool bias = true;
    Activation activation = Activation::kNone;
  };
  int linear(const std::string& name, int x, const Linear& l);
  int activation(const std::string& name, int x, Activation a);
  int norm(const std::string& name, int x, Norm kind = Norm::kLayerNorm, bool affine = true);
  int add(const std::string& name, int a, int b);
  int multiply(const std::string& name, int a, int b);
  int concatenate(const std::string& name, const std::vector<int>& parts);
  int columns(const std::string& name, int x, std::int64_t first, std::int64_t count);
  int reshape(const std::string& name, int x, std::int64_t rows, std::int64_t columns);
  int transpose(const std::string& name, int x);
  int matmul(const std::string& name, int a, int b, bool transpose_a = false,
             bool transpose_b = false);
  /// `before`: a tensor [1, n] put before the columns of the tables, or -1.
  int tables(const std::string& name, int before, std::int64_t columns);
  /// `dim` > 0: the one row of x holds vectors of that width side by side.
  int dot(const std::string& name, int x, std::int64_t dim = 0);
  int cross(const std::string& name, int first, int x, std::int64_t rank);
  int attention(const std::string& name, int qkv, const LayerHeads& heads);
  int gated_attention(const std::string& name, int gqkv, const LayerHeads& heads, Norm norm);
  int softmax(const std::string& name, int x);
  int mean_rows(const std::string& name, int x, std::int64_t rows);
  /// shift and scale: columns [first, first + width) and the next as many of `c`, [1, ...].
  int modulate(const std::string& name, int x, int c, std::int64_t first);
  int gate(const std::string& name, int x, int branch, int c, std::int64_t first);
  int rope(const std::string& name, int qkv, const LayerHeads& heads);
  int embedding(const std::string& name, int ids, std::int64_t vocabulary, std::int64_t width);
  int positions(const std::string& name, int x);
  struct Convolution {
    std::array<std::int64_t, 2> grid{}, kernel{}, stride{1, 1};
    std::int64_t channels = 0;
    bool bias = true;
  };
  /// Padded so that ceil(grid / stride) positions come out.
  int convolution(const std::string& name, int x, const Convolution& c);
  int time_major(const std::string& name, int x);
  int sample_major(const std::string& name, int x);
  int recurrent(const std::string& name, int x, Activation a, bool reverse);
  /// Any of the collective kinds.
  int collective(LayerKind kind, const std::string& name, int x, int group);
  void loss(LayerKind kind, const std::string& name, int x, std::int64_t labels = 0);
  /// Row i of `in[0]` against row i of `in[1]`, among these of all samples and those of `in[2]`.
  void in_batch_softmax(const std::string& name, const std::vector<int>& in, bool corrected);

  [[nodiscard]] const LayerTensor& shape(int tensor) const {
    return list_.tensors[static_cast<std::size_t>(tensor)];
  }
  [[nodiscard]] const LayerList& list() const { return list_; }
  [[noreturn]] void reject(const std::string& message) const;

  /// Checks that everything computed is used and that there is a loss.
  LayerList finish() &&;

 private:
  Layer& add_layer(LayerKind kind, const std::string& name, const std::vector<int>& in);
  Layer& add_heads(LayerKind kind, const std::string& name, int qkv, const LayerHeads& heads);
  void count_pairs(Layer& layer);
  int out(Layer& layer, std::int64_t rows, std::int64_t columns);
  void same_shape(const std::string& name, int a, int b) const;
  void one_row(const std::string& name, int x) const;

  std::string place_;
  LayerList list_;
  std::vector<std::string> places_;  ///< of layers
};

}  // namespace stepcast
