#include "studies/traces/open_recording.h"

#include <fmt/format.h>

#include "core/error.h"
#include "traces/open_trace.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

/// Traces recorded before packed ids had a field of their own hold them in the rest of the shape.
bool same_shape(const Op& ran, Op of_job) {
  if (ran.kind == OpKind::kIndexPack && ran.shape[3] == 0) {
    of_job.shape[3] = 0;
  }
  return ran.shape == of_job.shape;
}

void complete(traces::GraphRun& trace, const config::Library& library) {
  if (trace.job.empty()) {
    trace.lacks += ", and it carries no job to build it again from";
    return;
  }
  try {
    const Job job =
        config::load_job(config::text_source(trace.job, "job of the trace"), {}, library);
    ExecutionGraph graph = workloads::build_graph(job);
    require_same_ops(trace.graph, graph);
    trace.graph = std::move(graph);
    trace.lacks.clear();
  } catch (const InputError& e) {
    trace.lacks += fmt::format(", and its job does not build it again: {}", e.what());
  }
}

}  // namespace

void require_same_ops(const ExecutionGraph& ran, const ExecutionGraph& of_job) {
  const auto differ = [](const std::string& what) {
    throw InputError("trace", "was recorded from another job: " + what +
                                  "; compare it with the job it was recorded from");
  };
  if (ran.ranks() != of_job.ranks()) {
    differ(fmt::format("{} ranks ran, the job has {}", ran.ranks(), of_job.ranks()));
  }
  for (std::int32_t r = 0; r < ran.ranks(); ++r) {
    const Program& a = ran.program_of(r);
    const Program& b = of_job.program_of(r);
    if (a.ops.size() != b.ops.size() || a.calls.size() != b.calls.size()) {
      differ(fmt::format("rank {} ran {} ops in {} calls, the job has {} in {}", r, a.ops.size(),
                         a.calls.size(), b.ops.size(), b.calls.size()));
    }
    for (std::size_t o = 0; o < a.ops.size(); ++o) {
      if (a.ops[o].kind != b.ops[o].kind || !same_shape(a.ops[o], b.ops[o])) {
        differ(fmt::format("op {} '{}' of rank {} differs", o, a.name(a.ops[o]), r));
      }
    }
  }
}

traces::Recording open_recording(const std::filesystem::path& path,
                                 const config::Library& library) {
  traces::Recording recording = traces::open_trace(path);
  if (recording.own != nullptr && !recording.own->lacks.empty()) {
    traces::GraphRun trace = *recording.own;
    complete(trace, library);
    recording.own = std::make_shared<const traces::GraphRun>(std::move(trace));
  }
  return recording;
}

}  // namespace stepcast::studies
