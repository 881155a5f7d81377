// Cost models: names for headers that only refer to them.
// Not: templates, options and private helpers.
#pragma once

namespace tawpipe::inline v0 {

struct DeviceCurves;
struct FixedCost;
struct HeldSms;
struct HeldSpeed;
struct KernelCost;
struct MeasuredCost;
struct NcclCost;
struct Path;
struct RooflineCost;
struct SpeedTable;

}  // namespace tawpipe
