#pragma once
#include "workloads/passes/graph_pass.h"

namespace stepcast::workloads {

/// Gives each transfer its stream and orders streams by events.
///
/// A transfer that the job lets overlap (parallel.overlap) has the stream of its lane. It starts
/// once all compute ops before it are done, and the next compute op waits for it where the order
/// says so. All other transfers stay on the compute stream, in order. Parts of a transfer that was
/// cut up and blocks of a context ring always have a stream: they were cut up to overlap.
///
/// Ops of a recommender's step follow others by name (DependencyInfo::by_name): one waits for
/// another where the two have different streams.
///
/// Where the stack launches blockingly (FrameworkTraits::blocking_launches) each compute op of a
/// transformer also waits for the one before it. Not run, a graph is sequential: one stream, no
/// events.
GraphPass streams_pass();

/// Whether ops of a lane have a stream of their own, so that others may overlap with them.
bool overlaps(const Job& job, Channel channel);

}  // namespace stepcast::workloads
