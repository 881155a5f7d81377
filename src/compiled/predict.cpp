// The part of tawpipe::compiled that predicts and plans: the simulator with each cost model.
// Not: in a program that only links tawpipe::tawpipe.
#include "compiled/schedules_part.hpp"
#undef TAWPIPE_BODIES
#define TAWPIPE_BODIES 1
#include "tawpipe/search/choose.hpp"
#include "tawpipe/search/job_fields.hpp"
#include "tawpipe/search/known_times.hpp"
#include "tawpipe/search/remedies.hpp"
#include "tawpipe/search/what_fits.hpp"
