// `tawpipe bound`.
#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "../output_file.hpp"
#include "../request.hpp"
#include "../terminal_text.hpp"
#include "output.hpp"
#include "plan.hpp"
#include "tawpipe/answers/bound_answer.hpp"

namespace tawpipe::sim {

int run_bound(const PlanFlags& flags) {
  std::optional<OutputFile> file;
  if (!flags.json.empty()) file.emplace(flags.json);
  const BoundAnswer answer = answer_bound(flags, terminal_style());
  if (file) {
    (*file)(answer.json.dump(2) + "\n");
    file->finish();
  }
  if (flags.json != "-") print(answer.text);
  if (answer.complaint.empty()) return ok;
  std::fputs(fmt::format("tawpipe: {}\n", answer.complaint).c_str(), stderr);
  return findings;
}

}  // namespace tawpipe::sim
