// Cost models: names for headers that only refer to them.
// Not: templates, options and private helpers.
#pragma once

namespace tawpipe::inline v0 {

struct FixedCost;
struct HeldSms;
struct HeldSpeed;
struct MeasuredCost;
struct NcclCost;
struct Path;
struct RooflineCost;
struct SpeedTable;

}  // namespace tawpipe
