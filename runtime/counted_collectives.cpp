#include "runtime/counted_collectives.h"

namespace stepcast::runtime {
namespace {

double bytes_of(std::size_t elements) {
  return static_cast<double>(elements) * static_cast<double>(sizeof(float));
}

}  // namespace

CountedCollectives::CountedCollectives(std::unique_ptr<Collectives> inside,
                                       const LinkLevels& levels, std::vector<std::int32_t> members)
    : inside_(std::move(inside)),
      levels_(levels),
      members_(std::move(members)),
      sent_(levels.count(), 0.0) {}

void CountedCollectives::add_rounds(RingUse use, double elements) {
  std::vector<double>& shares = shares_[static_cast<std::size_t>(use)];
  if (shares.empty()) {
    shares = sent_shares(use, levels_, members_, rank());
  }
  for (std::size_t level = 0; level < sent_.size(); ++level) {
    sent_[level] += elements * sizeof(float) * shares[level];
  }
}

void CountedCollectives::add_message(int to, std::size_t elements) {
  sent_[levels_.between(members_[static_cast<std::size_t>(rank())],
                        members_[static_cast<std::size_t>(to)])] += bytes_of(elements);
}

void CountedCollectives::all_reduce(float* data, std::size_t count, Reduction reduction) {
  inside_->all_reduce(data, count, reduction);
  add_rounds(RingUse::kAllReduce, static_cast<double>(count));
}

void CountedCollectives::all_gather(const float* send, float* receive, std::size_t count_per_rank) {
  inside_->all_gather(send, receive, count_per_rank);
  add_rounds(RingUse::kAllGather, static_cast<double>(count_per_rank) * size());
}

void CountedCollectives::reduce_scatter(const float* send, float* receive,
                                        std::size_t count_per_rank) {
  inside_->reduce_scatter(send, receive, count_per_rank);
  add_rounds(RingUse::kReduceScatter, static_cast<double>(count_per_rank) * size());
}

void CountedCollectives::broadcast(float* data, std::size_t count, int root) {
  inside_->broadcast(data, count, root);
  const int next = (rank() + 1) % size();
  if (next != root) {  // a chain from the root
    add_message(next, count);
  }
}

void CountedCollectives::all_to_all_v(const void* send, std::span<const std::int64_t> send_counts,
                                      std::span<const std::int64_t> send_offsets, void* receive,
                                      std::span<const std::int64_t> receive_counts,
                                      std::span<const std::int64_t> receive_offsets,
                                      std::size_t element_bytes) {
  inside_->all_to_all_v(send, send_counts, send_offsets, receive, receive_counts, receive_offsets,
                        element_bytes);
  bytes_to_.clear();
  for (const std::int64_t count : send_counts) {
    bytes_to_.push_back(static_cast<double>(count) * static_cast<double>(element_bytes));
  }
  add_pair_bytes(levels_, members_, rank(), bytes_to_, sent_);
}

void CountedCollectives::post_send(const float* data, std::size_t count, int peer, int tag) {
  inside_->post_send(data, count, peer, tag);
  add_message(peer, count);
}

}  // namespace stepcast::runtime
