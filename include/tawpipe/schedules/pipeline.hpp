// Activation pipelines from programs: the rank of each stage and each rank's order of computations.
// Not: any one pipeline's program (gpipe.hpp, one_f_one_b.hpp).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tawpipe/core/compiled.hpp"
#include "tawpipe/schedule/schedule.hpp"
#include "tawpipe/schedules/pipeline_options.hpp"
#include "tawpipe/schedules/pipeline_program.hpp"

namespace tawpipe::inline v0::schedules {

/// The schedule of an activation pipeline: `program` with transfers, optimizer steps and, for a
/// model with tied parameters, their all-reduce between the first and last stage.
///
/// @throws ScheduleError  if the program is not complete (each microbatch once forward and once
/// backward through each stage), or its order cannot be run: a computation whose input is never
/// produced before it.
TAWPIPE_INLINE Schedule pipeline(std::string name, const Workload& workload, PipelineProgram program,
                                 const PipelineOptions& options,
                                 const std::vector<std::pair<std::string, std::string>>& named_options = {});

}  // namespace tawpipe::schedules

#if TAWPIPE_BODIES
#include "tawpipe/schedules/detail/pipeline_builder.hpp"

namespace tawpipe::inline v0::schedules {

TAWPIPE_INLINE Schedule pipeline(std::string name, const Workload& workload, PipelineProgram program,
                                 const PipelineOptions& options,
                                 const std::vector<std::pair<std::string, std::string>>& named_options) {
  return detail::PipelineBuilder{std::move(name), workload, std::move(program), options, named_options}.build();
}

}  // namespace tawpipe::schedules
#endif
