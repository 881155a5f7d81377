// The library's values as classes of tawpipe._core.
// Not: what is asked of them (module.cpp).
#pragma once

#include <nanobind/nanobind.h>

namespace tawpipe::python {

/// Cluster, Model and Request.
void bind_problem(nanobind::module_& module);
/// Schedule and Timeline.
void bind_schedule(nanobind::module_& module);

}  // namespace tawpipe::python
