#pragma once
#include <cupti.h>

/// The record structs of this CUPTI, under names of our own: the one place that knows which version
/// of each is current. CUPTI appends fields and renames the struct, so a struct read here is the
/// head of what a newer library writes.
namespace stepcast::profiler::cupti {

static_assert(CUPTI_API_VERSION >= 130000, "CUPTI of CUDA Toolkit 13.0 or newer is needed");

using Record = CUpti_Activity;
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
using PeerCopyRecord = CUpti_ActivityMemcpyPtoP4;
using FillRecord = CUpti_ActivityMemset4;
using ApiRecord = CUpti_ActivityAPI;
using SyncRecord = CUpti_ActivitySynchronization2;
using EventRecord = CUpti_ActivityCudaEvent2;
using ExternalRecord = CUpti_ActivityExternalCorrelation;
using OverheadRecord = CUpti_ActivityOverhead3;
using MarkerRecord = CUpti_ActivityMarker2;
using GraphRecord = CUpti_ActivityGraphTrace2;
using DeviceRecord = CUpti_ActivityDevice5;
using ContextRecord = CUpti_ActivityContext3;
using StreamRecord = CUpti_ActivityStream;

/// Meanings of external correlation ids of each kind here. Kineto's are CUSTOM0 and CUSTOM1.
constexpr CUpti_ExternalCorrelationKind kOpIds = CUPTI_EXTERNAL_CORRELATION_KIND_UNKNOWN;
constexpr CUpti_ExternalCorrelationKind kNcclIds = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2;

}  // namespace stepcast::profiler::cupti
