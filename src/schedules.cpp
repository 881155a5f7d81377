#include "schedules.hpp"

#include "tawpipe/schedules/shipped.hpp"

namespace tawpipe {

const Registry& shipped() {
  static const Registry all = shipped_schedules();
  return all;
}

}  // namespace tawpipe
