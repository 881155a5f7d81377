// Names of the room answers/.
// Not: their definitions.
#pragma once

namespace tawpipe::inline v0::answers {

struct BoundAnswer;
struct Emitted;
struct JobQuestion;
struct MeasuredStep;
struct PlanAnswer;
struct Planned;
struct PlanQuestion;
struct RunAnswer;
struct RunGiven;
struct Shares;
struct Today;
struct TodayFile;
struct WhatIf;

}  // namespace tawpipe::answers
