// What schedules.cpp compiles, and the other parts only see declared.
// Not: a header for users.
#pragma once

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/describe.hpp"
#include "tawpipe/schedule/fold.hpp"
#include "tawpipe/schedule/interpret.hpp"
#include "tawpipe/schedule/offload.hpp"
#include "tawpipe/schedules/shipped.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
#include "tawpipe/verify/validate.hpp"
