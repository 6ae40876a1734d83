#pragma once
#include <cstdint>
#include <vector>

#include "core/job/schedule.h"
#include "workloads/schedule/schedule.h"

namespace stepcast::workloads {

/// The passes of every stage of a V of two chunks, whatever its hops: a building block of six
/// passes, forward, backward and weight gradients of either chunk, starts every six units, one per
/// micro-batch. Where a micro-batch turns from chunk to chunk and from forward to backward it waits
/// as long as no two passes of any stage meet and, of such waits, as keeps least in flight: the
/// shortest or, where hops take a period per stage anyway, the longest, which messages hide in.
///
/// Blocks are then moved together: a stage that would wait runs the next forward of chunk 0 if it
/// never keeps more than the blocks do, and after its last forward weight gradients run only where
/// it would wait. Both take passes of equal time; the order is kept whatever they take. After the
/// first 3 p micro-batches each further one repeats six passes.
///
/// In flight at most, in chunks, of p stages: 2 p for hops of {4, 2, 4, 2}, 2 floor((p + 2) / 2)
/// for {2, 1, 2, 1}, 2 floor((p + 4) / 3) for {1, 1, 1, 1}, 2 p + 1 for pairs of {3, 3, 3, 3}.
/// O(p^2) for m of 3 p and more. Source: Qi et al., arXiv 2405.15362, sections 3 and 4.
std::vector<std::vector<ScheduleStep>> v_schedules(const VHops& hops, const PipelineShape& shape);

}  // namespace stepcast::workloads
