// The catalogue's activation pipelines: their options as text, and their entries.
// Not: the other schedules (schedule/shipped.hpp).
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/schedule/catalogue_options.hpp"
#include "tawpipe/schedule/schedules/chimera.hpp"
#include "tawpipe/schedule/schedules/dualpipe.hpp"
#include "tawpipe/schedule/schedules/gpipe.hpp"
#include "tawpipe/schedule/schedules/looped_bfs.hpp"
#include "tawpipe/schedule/schedules/one_f_one_b.hpp"
#include "tawpipe/schedule/schedules/v_schedules.hpp"
#include "tawpipe/schedule/schedules/zero_bubble.hpp"
#include "tawpipe/schedule/schedules/zero_bubble_auto.hpp"
#include "tawpipe/schedule/schedules/zero_bubble_v.hpp"

namespace tawpipe::inline v0::detail {

/// Megatron-LM's sends and receives hold the compute stream unless asked otherwise; closed forms let them overlap.
inline bool pipeline_overlap(const ScheduleRequest& request, OptionReader& options) {
  return options.on("overlap", request.workload.is_abstract());
}

inline Schedule build_gpipe(const ScheduleRequest& request, OptionReader& options) {
  const schedules::PipelineOptions chosen{.overlap = pipeline_overlap(request, options)};
  options.finish();
  return schedules::gpipe(request.workload, request.nodes.ranks(), chosen);
}

inline Schedule build_one_f_one_b(const ScheduleRequest& request, OptionReader& options) {
  const schedules::PipelineOptions chosen{.overlap = pipeline_overlap(request, options)};
  options.finish();
  return schedules::one_f_one_b(request.workload, request.nodes.ranks(), chosen);
}

/// A schedule without options.
template <Schedule (*Make)(const Workload&, int)>
Schedule build_plain(const ScheduleRequest& request, OptionReader& options) {
  options.finish();
  return Make(request.workload, request.nodes.ranks());
}

/// A schedule with several chunks of the model on a rank.
template <Schedule (*Make)(const Workload&, int, int)>
Schedule build_chunked(const ScheduleRequest& request, OptionReader& options) {
  const int chunks = options.count("chunks", 1, 2);
  options.finish();
  constexpr double most = 67108864;  // 2^26 computations
  if (3.0 * chunks * request.nodes.ranks() * static_cast<double>(request.workload.microbatches()) > most) {
    throw InputError(concat("chunks=", chunks, " on ", request.nodes.ranks(), " ranks with ", request.workload.microbatches(),
                            " microbatches are more than 2^26 computations; choose fewer chunks or a larger microbatch"));
  }
  return Make(request.workload, request.nodes.ranks(), chunks);
}

/// "18522:18086:9337:601": forward, backward_input, backward_weight, transfer, in one unit of any size.
inline schedules::ZeroBubbleTimes parse_times(const std::string& text) {
  std::int64_t values[4] = {0, 0, 0, 0};
  const char* at = text.data();
  const char* const end = at + text.size();
  bool fits = true;
  for (int i = 0; i < 4 && fits; ++i) {
    const auto [rest, status] = std::from_chars(at, end, values[i]);
    constexpr std::int64_t most = 1'000'000'000'000;  // with 2^26 computations the sum still fits
    fits = status == std::errc{} && values[i] >= (i < 3 ? 1 : 0) && values[i] <= most &&
           (i == 3 ? rest == end : rest != end && *rest == ':');
    at = rest + 1;
  }
  if (!fits) {
    throw InputError(concat("option times=", text,
                            " of zb-auto: the value must be the times of forward, backward_input, backward_weight and transfer "
                            "as whole numbers in one unit, such as 18522:18086:9337:601"));
  }
  return {values[0], values[1], values[2], values[3]};
}

/// "0.4" as a fraction above 0 and at most 1.
inline Share parse_kept(const std::string& text) {
  constexpr std::int32_t parts = 10000;
  double value = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || rest != text.data() + text.size() || !(value >= 0 && value <= 1)) {
    throw InputError(concat("option kept=", text, " of zb-auto: the value must be a fraction from 0 to 1, such as 0.4"));
  }
  return {static_cast<std::int32_t>(value * parts + 0.5), parts};
}

/// "2p", "12" (activations) or "40GiB".
inline void parse_limit(const std::string& text, int ranks, schedules::ZeroBubbleOptions& options) {
  const auto fail = [&]() -> InputError {
    return InputError(concat("option memory-limit=", text,
                             " of zb-auto: the value must be a number of activations such as 12 or 2p (p ranks), 1 or more, or a "
                             "size such as 40GiB"));
  };
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, number);
  const std::string_view unit = status == std::errc{} ? std::string_view{rest, static_cast<std::size_t>(end - rest)} : "";
  if (status == std::errc{} && (unit.empty() || unit == "p")) {
    if (number < 1 || number > 1'000'000) throw fail();
    options.limit = std::int64_t{number} * (unit.empty() ? 1 : ranks);
    return;
  }
  try {
    options.limit_bytes = parse_bytes(text);
  } catch (const InputError&) {
    throw fail();
  }
}

inline Schedule build_zb_auto(const ScheduleRequest& request, OptionReader& options) {
  schedules::ZeroBubbleOptions chosen;
  const std::string limit = options.text("memory-limit", "2p");
  const std::string kept = options.text("kept", "1");
  const std::string times = options.text("times", "");
  chosen.tries = options.count("tries", 0, 256);
  options.finish();
  parse_limit(limit, request.nodes.ranks(), chosen);
  chosen.kept = parse_kept(kept);
  if (!times.empty()) chosen.times = parse_times(times);
  return schedules::zb_auto(request.workload, request.nodes.ranks(), chosen,
                            {{"memory-limit", limit},
                             {"kept", kept},
                             {"times", times.empty() ? "operations" : times},
                             {"tries", std::to_string(chosen.tries)}});
}

/// `all` with the pipelines behind.
inline std::vector<ScheduleInfo> with_pipelines(std::vector<ScheduleInfo> all) {
  const OptionInfo blocking{"overlap", "on|off", "off (on with fixed times)",
                            "off: sends and receives hold the compute lane, as in Megatron-LM by default"};
  const OptionInfo chunks{"chunks", "N", "2", "pieces of the model on each device, looped over the devices"};
  const auto add = [&](ScheduleInfo info) { all.push_back(std::move(info)); };
  add({"1f1b",
       "activations move: a pipeline that alternates one forward and one backward",
       "arXiv:2104.04473",
       {blocking},
       {{"overlap", "on"}},
       build_one_f_one_b});
  add({"gpipe",
       "activations move: all forwards, then all backwards",
       "arXiv:1811.06965",
       {blocking},
       {{"overlap", "on"}},
       build_gpipe});
  add({"interleaved-1f1b",
       "activations move: 1F1B with several chunks of the model a device, for smaller bubbles and more messages",
       "arXiv:2104.04473",
       {chunks},
       {},
       build_chunked<schedules::interleaved_one_f_one_b>});
  add({"looped-bfs",
       "activations move: several chunks a device, each chunk meets all microbatches before the next",
       "arXiv:2211.05953",
       {chunks},
       {},
       build_chunked<schedules::looped_bfs>});
  add({"zb-h1",
       "activations move: 1F1B with split backwards, in 1F1B's memory",
       "arXiv:2401.10241",
       {},
       {},
       build_plain<schedules::zb_h1>});
  add({"zb-h2",
       "activations move: split backwards without bubbles, in twice 1F1B's memory",
       "arXiv:2401.10241",
       {},
       {},
       build_plain<schedules::zb_h2>});
  add({"zb-auto",
       "activations move: split backwards in the best order found under a memory limit (ZB-1p, ZB-2p)",
       "arXiv:2401.10241",
       {{"memory-limit", "Np|N|SIZE", "2p", "saved activations a device: of N microbatches, or a size"},
        {"kept", "0..1", "1", "of a saved activation, what backward_weight still needs after backward_input"},
        {"times", "F:B:W:C", "by operations", "times to plan with: forward, backward_input, backward_weight, transfer"},
        {"tries", "N", "256", "changes tried to make the paper's order better; 0 gives the paper's"}},
       {},
       build_zb_auto});
  add({"interleaved-zb",
       "activations move: interleaved 1F1B with split backwards",
       "arXiv:2401.10241, torch.distributed.pipelining",
       {chunks},
       {},
       build_chunked<schedules::interleaved_zero_bubble>});
  add({"zb-v",
       "activations move: two chunks a device in a V, without bubbles, in 1F1B's memory",
       "arXiv:2405.15362",
       {},
       {},
       build_plain<schedules::zb_v>});
  add({"v-half",
       "activations move: two chunks a device in a V, in half of 1F1B's memory",
       "arXiv:2405.15362",
       {},
       {},
       build_plain<schedules::v_half>});
  add({"v-min",
       "activations move: two chunks a device in a V, in a third of 1F1B's memory",
       "arXiv:2405.15362",
       {},
       {},
       build_plain<schedules::v_min>});
  add({"dualpipe",
       "activations move: from both ends, forwards beside backwards; each stage on two devices",
       "arXiv:2412.19437",
       {},
       {},
       build_plain<schedules::dualpipe>});
  add({"dualpipe-v",
       "activations move: DualPipe cut in half, two chunks a device in a V",
       "deepseek-ai/DualPipe",
       {},
       {},
       build_plain<schedules::dualpipe_v>});
  add({"chimera",
       "activations move: two 1F1B pipelines in opposite directions; each stage on two devices",
       "arXiv:2107.06925",
       {},
       {},
       build_plain<schedules::chimera>});
  return all;
}

}  // namespace tawpipe::detail
