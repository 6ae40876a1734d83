#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/job.h"
#include "workloads/op_writer.h"
#include "workloads/transformer_shape.h"

namespace stepcast::workloads {

/// How the gradient of a parameter becomes that of the whole model, besides the sum over data
/// replicas.
enum class GradientSum : std::uint8_t {
  kNone,        ///< every tensor rank already has all of its part
  kOverTensor,  ///< tensor ranks hold partial sums (sequence parallelism: each saw its own rows)
  kOverEnds,    ///< first and last stage each hold a copy of the tied embedding
};

/// Ranks that hold the same part of a parameter and sum its gradient.
enum class Replicas : std::uint8_t { kData, kExperts };

struct ParameterSpec {
  std::string name;  ///< global: the same whatever the split
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<ParameterPiece> pieces;
  GradientSum sum = GradientSum::kNone;
  Replicas replicas = Replicas::kData;
};

/// Parameters whose gradients are complete at about the same time, one buffer for weights and one
/// for gradients: the unit of gradient exchange and of the optimizer.
struct Bucket {
  GradientSum sum = GradientSum::kNone;
  Replicas replicas = Replicas::kData;
  std::int64_t elements = 0;  ///< with ZeRO padded to a multiple of the replicas
  std::int64_t shard = 0;     ///< elements this rank's optimizer works on
  TensorId weights = 0, gradients = 0;
  TensorId weight_shard = 0, gradient_shard = 0;  ///< the whole without ZeRO
  std::vector<TensorId> states;
  std::int32_t open = 0;  ///< parameters whose gradient the backward pass has not finished yet
  std::int32_t parameters = 0;
  OpWriter::Event synchronised = -1;
};

/// The parameters of one pipeline stage of one rank: storage in buckets, gradient exchange,
/// optimizer.
class StageParameters {
 public:
  StageParameters(OpWriter& writer, const Job& job, const TransformerShape& shape,
                  std::int32_t data_communicator, std::int32_t expert_communicator)
      : writer_(writer),
        job_(job),
        shape_(shape),
        data_communicator_(data_communicator),
        expert_communicator_(expert_communicator) {}

  /// Declares the parameters of a chunk, in the order in which its backward pass finishes their
  /// gradients. Buckets close at parallel.bucket bytes of gradients when there are replicas to
  /// exchange them with; a larger parameter has its own.
  void declare(const std::vector<ParameterSpec>& specs);
  [[nodiscard]] const ProgramBuilder::Parameter& at(const std::string& name) const {
    return parameters_.at(name);
  }

  /// From here on `finished` exchanges each bucket over the data replicas as soon as it is
  /// complete, beside the backward pass.
  void begin_overlapped_exchange();
  void finished(const std::string& name);
  void end_overlapped_exchange() { overlapping_ = false; }

  void zero_gradients();
  /// Exchanges a bucket now; transfers of other sums are the caller's, before.
  void exchange(Bucket& bucket);
  /// Updates the weights of all buckets; with ZeRO gathers them.
  void optimize();
  std::vector<Bucket>& buckets() { return buckets_; }

 private:
  void open_bucket(const std::vector<const ParameterSpec*>& specs);
  void add_states(Bucket& bucket, std::size_t number);
  [[nodiscard]] std::int64_t replicas_of(Replicas replicas) const {
    return replicas == Replicas::kExperts ? shape_.experts->replicas : shape_.data;
  }
  [[nodiscard]] std::int32_t communicator_of(Replicas replicas) const {
    return replicas == Replicas::kExperts ? expert_communicator_ : data_communicator_;
  }

  OpWriter& writer_;
  const Job& job_;
  const TransformerShape& shape_;
  std::int32_t data_communicator_;
  std::int32_t expert_communicator_;
  std::unordered_map<std::string, ProgramBuilder::Parameter> parameters_;
  std::unordered_map<std::string, std::size_t> bucket_of_;
  std::vector<Bucket> buckets_;
  bool overlapping_ = false;
};

}  // namespace stepcast::workloads
