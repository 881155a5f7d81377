// Findings about a message that does not fit what its buffers hold.
// Not: which messages those are (message_walk.hpp, copy_walk.hpp).
#pragma once

#include <string>
#include <string_view>

#include "tawpipe/verify/detail/contents_walk.hpp"

namespace tawpipe::inline v0::detail {

/// What walks over messages and copies say of them.
class MessageFindings {
 protected:
  MessageFindings(const Schedule& schedule, ContentsWalk& walk) : schedule_{schedule}, walk_{walk} {}

  void holds_other(TaskId t, const Use& use) {
    unfit(t, schedule_.buffer(use.buffer).rank,
          concat(use.access == Access::accumulate ? " adds to " : " finds ", words(use.buffer), " in ",
                 describe(schedule_, use.buffer)),
          "name buffers of what the task's payload says; only gradients are added, and only to gradients");
  }
  std::string words(BufferId buffer) {
    if (walk_.is_activation(buffer)) return walk_.activation(buffer).words();
    return std::string{name(walk_.kind(buffer))};
  }
  void unfit(TaskId t, Rank rank, const std::string& what, std::string_view help) {
    walk_.error(
        "V507", t, rank, [&] { return concat(describe(schedule_, t), what); }, help);
  }

  const Schedule& schedule_;
  ContentsWalk& walk_;
};

}  // namespace tawpipe::detail
