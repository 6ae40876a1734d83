#pragma once
#include <optional>
#include <span>
#include <string>

#include "core/system.h"
#include "runtime/mpi/session.h"

namespace stepcast::studies {

/// The probe (runtime/calibration/core_probe.h) of the slowest rank's core, where all ranks probe
/// together as they compute together; the same on every rank. All ranks call it.
Seconds probe_cores(runtime::MpiSession& session);

/// The median probe of a calibration's jobs, under its key among the models of the device.
inline constexpr const char* kCoreProbeModel = "core_probe";
FittedModel core_probe_model(std::span<const double> probes, const std::string& source);

/// Warns of cores whose speed over that of the system's calibration lies outside this band: a step
/// predicted for the system is then off by about as much. Inside it cores of shared machines move
/// from one minute to the next. nullopt where either was not probed.
inline constexpr double kSlowCores = 0.85, kFastCores = 1.15;
std::optional<std::string> core_speed_warning(Seconds probe, const System& system);

}  // namespace stepcast::studies
