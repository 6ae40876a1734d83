#include "runtime/data/batch_source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "core/error.h"
#include "core/layers.h"
#include "runtime/data/criteo_source.h"
#include "runtime/data/dlrm_source.h"
#include "runtime/data/mapped_file.h"
#include "runtime/data/token_source.h"

namespace stepcast::runtime {

SampleRange samples_of(const Job& job, const Mesh& mesh, std::int32_t rank) {
  const std::int64_t replicas = mesh.data;
  if (job.batch.global % replicas != 0) {
    throw InputError("job: batch.global",
                     fmt::format("{} samples do not divide over {} data-parallel ranks",
                                 job.batch.global, replicas));
  }
  const std::int64_t count = job.batch.global / replicas;
  return {count * mesh.coordinate(rank, Axis::kData), count, job.batch.global};
}

namespace {

/// Data of recommendation models is one row of dense features, bags of ids and a click a sample.
void require_clicks(const Job& job, const DlrmWorkload& w) {
  if (job.sptt) {
    throw InputError("job: embedding.transform",
                     "cannot run: towers are predicted, not executed, in this version; use none");
  }
  if (w.layers == nullptr) {
    return;
  }
  const LayerList list = layers_of(w, job.parallel.tensor);
  const auto losses = std::count_if(list.layers.begin(), list.layers.end(),
                                    [](const Layer& l) { return is_loss(l.kind); });
  const bool clicks = losses == 1 && list.layers.back().kind == LayerKind::kBinaryCrossEntropy &&
                      list.inputs.size() == 1 && list.input_width() == w.dense_features;
  const std::string place = fmt::format("workload '{}'", job.workload.name);
  if (!clicks || w.tables.empty() || !list.groups.empty()) {
    throw InputError(
        place,
        "cannot run: data is made for models with embedding tables, one input of dense "
        "features and one binary_cross_entropy, on data-parallel ranks; predict and "
        "show take every model");
  }
  for (const Layer& l : list.layers) {
    if (l.kind == LayerKind::kRope || l.kind == LayerKind::kConvolution ||
        (l.kind == LayerKind::kNorm && !l.affine) ||
        (l.kind == LayerKind::kAttention && !job.flash_attention)) {
      throw InputError(place, fmt::format("cannot run: layer '{}' (rope, convolution, norm without "
                                          "scale or unfused attention) has no kernel for such "
                                          "models; predict and show take it",
                                          l.name));
    }
  }
}

}  // namespace

std::unique_ptr<BatchSource> make_batch_source(const Job& job, const Mesh& mesh, std::int32_t rank,
                                               std::uint64_t seed, const std::string& file) {
  const SampleRange range = samples_of(job, mesh, rank);
  if (const DlrmWorkload* dlrm = job.workload.dlrm()) {
    require_clicks(job, *dlrm);
    if (file.empty()) {
      return std::make_unique<DlrmSource>(*dlrm, range, seed);
    }
    return std::make_unique<CriteoSource>(*dlrm, range, file);
  }
  const TransformerWorkload* transformer = job.workload.transformer();
  STEPCAST_CHECK(transformer != nullptr, "workload '{}' has no data", job.workload.name);
  return std::make_unique<TokenSource>(transformer->vocabulary, job.batch.sequence, range, seed,
                                       file);
}

MappedFile::MappedFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file >= 0 && fstat(file, &status) == 0 && status.st_size > 0) {
    void* address =
        mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    if (address != MAP_FAILED) {
      data_ = static_cast<const char*>(address);
      size_ = static_cast<std::size_t>(status.st_size);
    }
  }
  if (file >= 0) {
    close(file);
  }
  if (data_ == nullptr) {
    throw InputError(path, "cannot be read, or is empty; expected a data file");
  }
}

MappedFile::~MappedFile() { munmap(const_cast<char*>(data_), size_); }

}  // namespace stepcast::runtime
