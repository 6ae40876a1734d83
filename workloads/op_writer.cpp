#include "workloads/op_writer.h"

#include <utility>

#include "core/error.h"

namespace stepcast::workloads {

OpWriter::OpEdit OpWriter::compute(OpKind kind, std::string_view name,
                                   std::initializer_list<std::int64_t> shape) {
  OpEdit edit = builder_.op(kind, name, shape);
  for (const Event e : pending_) {
    edit.waits(e);
  }
  pending_.clear();
  if (host_waits_) {
    edit.flags(op_flags::kHostWaits);
    host_waits_ = false;
  }
  if (blocks_) {
    compute_event_ = compute_event_ < 0 ? builder_.event() : compute_event_;
    edit.flags(op_flags::kHostWaits).waits(compute_event_).records(compute_event_);
  }
  last_.emplace(edit);
  compute_is_last_ = true;
  return edit;
}

/// One event serves all edges from the compute stream: a wait refers to its latest record, which is
/// the compute op written last.
void OpWriter::record_compute() {
  if (compute_event_ < 0) {
    compute_event_ = builder_.event();
  }
  if (compute_is_last_ && !blocks_) {
    last_->records(compute_event_);
  }
}

OpWriter::Event OpWriter::transfer(std::string_view stream, bool own_stream, const Transfer& t) {
  if (own_stream) {
    record_compute();
  }
  OpEdit edit = own_stream ? builder_.op(t.kind, t.name, {t.elements, t.tag})
                           : compute(t.kind, t.name, {t.elements, t.tag});
  edit.in(t.in).out(t.out).format(t.format);
  if (t.attributes != CollectiveAttributes{}) {
    edit.attributes(t.attributes);
  }
  edit.communicator(t.communicator, t.peer).routing(t.routing);
  if (t.after >= 0) {
    edit.waits(t.after);
  }
  if (!own_stream) {
    return -1;
  }
  edit.on(stream);
  if (t.after_compute) {
    edit.waits(compute_event_);
    for (const Event e : pending_) {
      edit.waits(e);
    }
  }
  const Event done = t.event >= 0 ? t.event : builder_.event();
  edit.records(done);
  compute_is_last_ = false;
  return done;
}

void OpWriter::synchronise_host() {
  record_compute();
  pending_.push_back(compute_event_);
  host_waits_ = true;
}

void OpWriter::await(Event event) {
  if (event >= 0) {
    pending_.push_back(event);
  }
}

TensorId OpWriter::workspace(const std::string& name, std::int64_t rows, std::int64_t columns,
                             Format format) {
  const auto found = workspaces_.find(name);
  if (found != workspaces_.end()) {
    const Tensor& t = builder_.tensor_at(found->second);
    STEPCAST_CHECK(t.rows == rows && t.columns == columns, "workspace '{}' is {} x {}, not {} x {}",
                   name, t.rows, t.columns, rows, columns);
    return found->second;
  }
  Tensor t;
  t.name = name;
  t.role = TensorRole::kActivation;
  t.format = format;
  t.rows = rows;
  t.columns = columns;
  const TensorId id = builder_.tensor(std::move(t));
  workspaces_.emplace(name, id);
  return id;
}

void OpWriter::end_segment() {
  STEPCAST_CHECK(pending_.empty(), "a segment ends before its last transfer was used");
  if (overlapping_ && compute_is_last_) {
    record_compute();
  }
  builder_.end_segment();
}

}  // namespace stepcast::workloads
