// A plan as a framework's job that is to be written, with the layers of its stages.
// Not: whether the framework runs it (frameworks.hpp).
#pragma once

#include "tawpipe/frameworks/framework_job.hpp"
#include "tawpipe/search/balanced_cut.hpp"
#include "tawpipe/search/plan_result.hpp"

namespace tawpipe::inline v0 {

/// The same as job_of() of a request's layout; where stages are balanced by costs, with the weights that
/// these give.
/// @pre the request's problem has a model
inline FrameworkJob written_job(const PlanRequest& request, const PlanLayout& layout, const ScheduleChoice& choice) {
  const Problem problem = problem_of(request, layout, choice);
  FrameworkJob job = job_of(problem, layout, choice);
  const Mesh mesh = layout.mesh.over(problem.cluster.ranks());
  if (job.stage_cut.balanced && mesh.pipeline > 1)
    job.stage_cut = balanced_cut(problem, mesh, problem.workload(layout.microbatch_size, mesh.data));
  return job;
}

}  // namespace tawpipe
