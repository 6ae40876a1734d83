#pragma once
#include <filesystem>

#include "core/config/config.h"
#include "validation/suite.h"

namespace stepcast::validation {

/// Replays all runs below a folder. A folder is one run when its files are named alike but for
/// digits, are of different ranks, and lie over each other in time; else every file is a run of its
/// own. A file that does not open is listed with the reason.
///
/// Not replayed: execution graphs, which have no times, and single steps of a single rank, which
/// predict nothing. Not scored: runs that are host-bound (rule R1). Passes where every file opens
/// and each that is scored replays within 5 %.
///
/// Files named DEVICE_PROGRAM, where several have the same PROGRAM and DEVICE begins the name of
/// the device they were recorded on ("h100_vit.json.gz", "mi300_vit.json.gz"), are moved to each
/// other one's device: device time of a step, without communication (table "moved").
/// Errors: InputError when the folder holds no trace.
Suite validate_traces(const std::filesystem::path& data, const config::Library& library);

}  // namespace stepcast::validation
