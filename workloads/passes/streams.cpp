#include "workloads/passes/streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"

namespace stepcast::workloads {
namespace {

struct ChannelStream {
  const char* stream;
  bool overlaps;
};
std::array<ChannelStream, kLanes> channel_streams(const Job& job) {
  const Overlap& o = job.parallel.overlap;
  const bool several = job.devices > 1;
  const auto ahead = [&](DlrmPipeline stage) { return job.parallel.dlrm_pipeline >= stage; };
  return {{{"compute", false},
           {"tensor", o.tensor},
           {"tensor", true},
           {"data", o.data},
           {"forward", o.pipeline},
           {"backward", o.pipeline},
           {"context", true},
           {"expert", o.expert},
           {"input", (several && o.input_all_to_all) || ahead(DlrmPipeline::kSparseDist)},
           {"exchange", several && o.output_all_to_all},
           {"all_reduce", several && o.dense_all_reduce},
           {"tier", ahead(DlrmPipeline::kPrefetch) || job.offload != Offload{}},
           {"across", o.data}}};
}

/// Writes the streams, events and waits of one program.
class StreamWriter {
 public:
  StreamWriter(Program& program, const DependencyInfo& order, const Job& job)
      : p_(program),
        order_(order),
        lanes_(channel_streams(job)),
        events_(order.transfers.size(), -1),
        blocks_(job.system.framework.blocking_launches) {
    const Overlap& o = job.parallel.overlap;
    overlapping_ = o.data || o.tensor || o.pipeline || o.expert || job.offload != Offload{};
  }

  void run() {
    STEPCAST_CHECK(p_.waits.empty() && p_.events == 0, "the program has streams already");
    for (const Segment& s : p_.segments) {
      for (std::size_t i = s.first_op; i < std::size_t{s.first_op} + s.op_count; ++i) {
        order_.by_name ? write_named(i) : write(i);
      }
      STEPCAST_CHECK(pending_.empty() || transfer_waited_,
                     "segment '{}' ends before its last transfer was used", s.name);
      if (!order_.by_name && overlapping_ && compute_is_last_) {
        record_compute();
      }
    }
    const bool used = std::all_of(order_.unused.begin(), order_.unused.end(),
                                  [this](AsyncHandle t) { return event_of(t) < 0; });
    STEPCAST_CHECK(used, "a segment ends before its last transfer was used");
  }

 private:
  [[nodiscard]] const ChannelStream& stream_of(Channel channel) const {
    return lanes_.at(static_cast<std::size_t>(channel));
  }
  [[nodiscard]] std::int32_t event_of(AsyncHandle t) const {
    return t < 0 ? -1 : events_[static_cast<std::size_t>(t)];
  }
  void wait(Op& op, std::int32_t event) {
    p_.waits.push_back(event);
    ++op.waits;
  }

  /// Ops of one stream are in order without events.
  void write_named(std::size_t i) {
    Op& op = p_.ops[i];
    const ChannelStream& own = stream_of(order_.ops[i].channel);
    op.stream = own.overlaps ? stream(own.stream) : std::uint8_t{0};
    op.first_wait = static_cast<std::uint32_t>(p_.waits.size());
    for (; depended_ < order_.dependencies.size() && order_.dependencies[depended_].op == i;
         ++depended_) {
      Op& on = p_.ops[order_.dependencies[depended_].on];
      if (on.stream != op.stream) {
        on.record = on.record < 0 ? p_.events++ : on.record;
        wait(op, on.record);
      }
    }
  }

  void write(std::size_t i) {
    for (; named_ < order_.transfers.size() && order_.transfers[named_].named_at <= i; ++named_) {
      name(named_);
    }
    const DependencyInfo::OfOp& of = order_.ops[i];
    for (const AsyncHandle t : order_.awaits_of(of)) {
      if (t == kHostSynchronises) {
        record_compute();
        pending_.push_back(compute_event_);
        transfer_waited_ = false;
        host_waits_ = true;
      } else if (event_of(t) >= 0) {
        pending_.push_back(event_of(t));
        transfer_waited_ = false;
      }
    }
    p_.ops[i].first_wait = static_cast<std::uint32_t>(p_.waits.size());
    if (of.transfers && stream_of(of.channel).overlaps) {
      write_transfer(i, of);
    } else {
      write_compute(i, of);
    }
  }

  void write_compute(std::size_t i, const DependencyInfo::OfOp& of) {
    Op& op = p_.ops[i];
    for (const std::int32_t e : pending_) {
      wait(op, e);
    }
    pending_.clear();
    take_host_wait(op);
    if (blocks_) {
      compute_event_ = compute_event_ < 0 ? p_.events++ : compute_event_;
      op.flags |= op_flags::kHostWaits;
      wait(op, compute_event_);
      op.record = compute_event_;
    }
    if (event_of(of.after) >= 0) {
      wait(op, event_of(of.after));
    }
    last_compute_ = i;
    compute_is_last_ = true;
  }

  /// The host waits before the next op that needs what is computed.
  void take_host_wait(Op& op) {
    op.flags |= host_waits_ ? op_flags::kHostWaits : 0;
    host_waits_ = false;
  }

  void write_transfer(std::size_t i, const DependencyInfo::OfOp& of) {
    record_compute();
    Op& op = p_.ops[i];
    if (event_of(of.after) >= 0) {
      wait(op, event_of(of.after));
    }
    op.stream = stream(stream_of(of.channel).stream);
    if (of.after_compute) {
      wait(op, compute_event_);
      for (const std::int32_t e : pending_) {
        wait(op, e);
      }
      transfer_waited_ = true;
      take_host_wait(op);
    }
    std::int32_t& done = events_[static_cast<std::size_t>(of.transfer)];
    done = done < 0 ? p_.events++ : done;
    op.record = done;
    compute_is_last_ = false;
  }

  /// For a transfer that is waited for before it is issued, the first time.
  void name(std::size_t transfer) {
    if (order_.transfers[transfer].early &&
        stream_of(order_.transfers[transfer].channel).overlaps) {
      events_[transfer] = p_.events++;
    }
  }

  /// One event serves all edges from the compute stream: a wait refers to its latest record, which
  /// is the compute op written last.
  void record_compute() {
    if (compute_event_ < 0) {
      compute_event_ = p_.events++;
    }
    if (compute_is_last_ && !blocks_) {
      p_.ops[last_compute_].record = compute_event_;
    }
  }

  std::uint8_t stream(const char* name) {
    auto at = std::find(p_.streams.begin(), p_.streams.end(), name);
    if (at == p_.streams.end()) {
      at = p_.streams.insert(at, name);
    }
    return static_cast<std::uint8_t>(at - p_.streams.begin());
  }

  Program& p_;
  const DependencyInfo& order_;
  std::array<ChannelStream, kLanes> lanes_;
  std::vector<std::int32_t> events_;  ///< by transfer; -1: in order on the compute stream
  std::vector<std::int32_t> pending_;
  std::size_t named_ = 0;
  std::size_t depended_ = 0;
  std::size_t last_compute_ = 0;
  std::int32_t compute_event_ = -1;
  bool compute_is_last_ = false;  ///< the latest op is on the compute stream
  bool transfer_waited_ = false;  ///< for all that is pending; the next compute op does too
  bool host_waits_ = false;       ///< for the next op that needs compute
  bool blocks_ = false;           ///< for every op
  bool overlapping_ = false;
};

void run_streams(GraphUnderConstruction& draft, const Job& job) {
  for (std::size_t i = 0; i < draft.orders.size(); ++i) {
    StreamWriter(draft.graph.programs[i], draft.orders[i], job).run();
  }
  draft.orders.clear();
}

/// Each wait is for an event that some op records.
std::optional<std::string> verify_streams(const GraphUnderConstruction& draft) {
  for (const Program& p : draft.graph.programs) {
    std::vector<bool> recorded(static_cast<std::size_t>(p.events), false);
    for (const Op& op : p.ops) {
      if (op.record >= 0) {
        recorded.at(static_cast<std::size_t>(op.record)) = true;
      }
    }
    for (const Op& op : p.ops) {
      for (const std::int32_t e : p.waits_of(op)) {
        if (e < 0 || e >= p.events || !recorded[static_cast<std::size_t>(e)]) {
          return fmt::format("'{}' waits for event {}, which is never recorded", p.name(op), e);
        }
      }
    }
  }
  return std::nullopt;
}

}  // namespace

GraphPass streams_pass() {
  return {"streams", "a stream for each transfer that overlaps, ordered by events",
          [](const Job&) { return true; }, run_streams, verify_streams};
}

bool overlaps(const Job& job, Channel channel) {
  return channel_streams(job).at(static_cast<std::size_t>(channel)).overlaps;
}

}  // namespace stepcast::workloads
