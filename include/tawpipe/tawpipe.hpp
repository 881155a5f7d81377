// Everything that needs the standard library alone: clusters, models, schedules, costs, the simulator, what it tells.
// Not: named clusters and importers (Boost.Graph, JSON), text reports (fmt), the command line.
#pragma once

// IWYU pragma: begin_exports
#include "tawpipe/analysis/bubble.hpp"
#include "tawpipe/analysis/communication.hpp"
#include "tawpipe/analysis/critical_path.hpp"
#include "tawpipe/analysis/memory.hpp"
#include "tawpipe/analysis/summary.hpp"
#include "tawpipe/analysis/traffic.hpp"
#include "tawpipe/core/error.hpp"
#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/parse_units.hpp"
#include "tawpipe/core/splitmix64.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/core/version.hpp"
#include "tawpipe/cost/fixed.hpp"
#include "tawpipe/cost/kernel_cost.hpp"
#include "tawpipe/cost/roofline.hpp"
#include "tawpipe/model/models.hpp"
#include "tawpipe/model/workload.hpp"
#include "tawpipe/schedule/compose.hpp"
#include "tawpipe/schedule/fold.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedule/schedule_builder.hpp"
#include "tawpipe/schedules/shipped.hpp"
#include "tawpipe/search/predict.hpp"
#include "tawpipe/search/what_fits.hpp"
#include "tawpipe/simulate/folding.hpp"
#include "tawpipe/simulate/simulate.hpp"
#include "tawpipe/timeline/timeline.hpp"
#include "tawpipe/topology/cluster_builder.hpp"
// IWYU pragma: end_exports
