// A layout in the field's words: "TP4 CP2 PP4 DP4 VPP5", "TP2 FSDP8", "HSDP 8x4".
// Not: the axes' order on the devices, which is an option of its own (mesh_order_text()).
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "tawpipe/core/text.hpp"
#include "tawpipe/schedule/mesh.hpp"
#include "tawpipe/search/problem.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// What the field calls a schedule whose own ranks each have a part of the batch; "" for a pipeline.
constexpr std::string_view replica_words(std::string_view schedule) {
  struct Words {
    std::string_view schedule;
    std::string_view words;
  };
  for (const Words known : {Words{"ddp", "DP"}, Words{"zero1", "ZeRO-1 DP"}, Words{"zero2", "ZeRO-2 DP"}, Words{"fsdp", "FSDP"},
                            Words{"hsdp", "HSDP"}, Words{"hfsdp", "HFSDP"}, Words{"hpz", "HPZ"}, Words{"tawpipe", "TawPipe"},
                            Words{"weipipe", "WeiPipe"}, Words{"weipipe-naive", "WeiPipe"}, Words{"weipipe-zb1", "WeiPipe"},
                            Words{"weipipe-zb2", "WeiPipe"}}) {
    if (known.schedule == schedule) return known.words;
  }
  return {};
}

}  // namespace detail

/// The sizes of a mesh in the order TP, CP, EP, then what the schedule does with its own ranks, then
/// DP and VPP; ones are left out. FSDP of 8 with 4 replicas is "HSDP 8x4". One device alone is "1 device".
/// @pre mesh.pipeline > 0
inline std::string layout_words(const Mesh& mesh, const ScheduleChoice& choice) {
  std::string text;
  const auto add = [&](std::string_view word, int size) {
    if (size > 1) text += concat(text.empty() ? "" : " ", word, size);
  };
  add("TP", mesh.tensor);
  add("CP", mesh.context);
  if (mesh.whole_experts) add("EP", mesh.expert_parts());
  const std::string_view own = detail::replica_words(choice.schedule);
  const int replicas = mesh.batch_parts();
  if (choice.schedule == "ddp") {
    add("DP", mesh.pipeline * replicas);
  } else if (choice.schedule == "fsdp" && mesh.pipeline > 1 && replicas > 1) {
    text += concat(text.empty() ? "" : " ", "HSDP ", mesh.pipeline, "x", replicas);
  } else {
    add(own.empty() ? "PP" : own, mesh.pipeline);
    add("DP", replicas);
    const auto chunks = choice.options.find("chunks");
    if (own.empty() && mesh.pipeline > 1 && chunks != choice.options.end()) text += concat(" VPP", chunks->second);
  }
  return text.empty() ? "1 device" : text;
}

}  // namespace tawpipe
