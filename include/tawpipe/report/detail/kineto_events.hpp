// The events of a PyTorch profiler trace that calibration needs, out of its JSON: operators, annotations and kernels.
// Not: what they mean (report/kineto_trace.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"

namespace tawpipe::inline v0::detail {

/// What PyTorch notes of a collective: on its kernel, or in older versions on the operator record_param_comms only.
struct KinetoCollective {
  std::string name;           ///< allreduce, _allgather_base, reduce_scatter, ...
  std::string dtype;          ///< BFloat16, Half, Float, ...
  std::int64_t elements = 0;  ///< of the larger of input and output
  std::int64_t group_size = 0;
  std::string ranks;  ///< "[0, 1, 2, 3]"; long ones end with "..."
  std::string group;  ///< the process group's name
};

/// An operator, annotation or module on a thread of the host. Times are microseconds.
struct KinetoHostEvent {
  std::string name;
  double start = 0;
  double end = 0;
  int thread = 0;
  int parent = -1;             ///< index of the event around it on its thread
  std::int64_t sequence = -1;  ///< of the autograd node that it makes (forward) or runs (backward)
  bool forward = false;        ///< may have made that node
  std::vector<std::vector<std::int64_t>> dims{};
  std::optional<KinetoCollective> collective{};
};

/// A kernel, copy or set on a device.
struct KinetoKernel {
  std::string name;
  double start = 0;
  double end = 0;
  std::int64_t device = 0;
  std::int64_t external = -1;  ///< "External id" of the operator that launched it
  std::optional<KinetoCollective> collective{};
};

struct KinetoEvents {
  std::int64_t rank = 0;
  std::int64_t world_size = 0;                              ///< 0: not distributed
  std::map<std::string, std::vector<std::int64_t>> groups;  ///< [process group's name] ranks
  std::vector<KinetoHostEvent> host;
  std::map<std::int64_t, int> by_external;  ///< index into host
  std::vector<KinetoKernel> kernels;
};

/// Reads the events while the JSON is parsed, so that a trace takes little more memory than what is kept of it.
class KinetoReader {
 public:
  static constexpr int most_ranks = 1 << 20;

  /// @param source  the file's name, for messages
  static KinetoEvents read(std::string_view text, std::string_view source) {
    if (text.starts_with("\x1f\x8b")) throw InputError(one_line(concat(source, ": compressed; unpack it first, as with gunzip")));
    KinetoReader reader;
    const auto keep = [&](const Json& object) {
      if (!object.contains("ph")) return true;
      reader.take(object);
      return false;
    };
    const JsonDocument document{text, source, {.depth = 32, .repeated_keys = true}, keep};
    const JsonValue root = document.root();
    if (!root.is_list() && !(root.is_object() && root.has("traceEvents"))) {
      root.fail("no trace: it has no \"traceEvents\"; give what torch.profiler's export_chrome_trace wrote");
    }
    if (reader.found_.kernels.empty()) {
      root.fail("without GPU kernels; profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]");
    }
    if (root.is_object()) reader.take_distributed(root);
    return std::move(reader.found_);
  }

 private:
  using Json = nlohmann::json;

  static std::string text_of(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string{};
  }
  static std::int64_t whole_of(const Json& object, const char* key, std::int64_t otherwise) {
    const auto found = object.find(key);
    return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : otherwise;
  }

  void take(const Json& event) {
    if (text_of(event, "ph") != "X") return;
    const std::string category = text_of(event, "cat");
    const bool device = category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset";
    std::string name = text_of(event, "name");
    if (category == "python_function") {
      constexpr std::string_view module = "nn.Module: ";
      if (!name.starts_with(module)) return;
      name.erase(0, module.size());
    } else if (!device && category != "cpu_op" && category != "user_annotation") {
      return;
    }
    const auto number = [&](const char* key) {
      const auto found = event.find(key);
      if (found == event.end() || !found->is_number()) {
        throw InputError(concat("broken: its event ", quote(name), " has no number ", quote(key)));
      }
      return found->get<double>();
    };
    const double start = number("ts");
    const double end = start + number("dur");
    if (!std::isfinite(end)) throw InputError(concat("broken: its event ", quote(name), " has no end in time"));
    static const Json none = Json::object();
    const auto found = event.find("args");
    const Json& args = found != event.end() && found->is_object() ? *found : none;
    if (device) {
      found_.kernels.push_back(
          {std::move(name), start, end, whole_of(args, "device", 0), whole_of(args, "External id", -1), collective_of(args)});
      return;
    }
    KinetoHostEvent host{.name = std::move(name), .start = start, .end = end, .thread = thread_of(event)};
    if (category == "cpu_op") {
      host.sequence = whole_of(args, "Sequence number", -1);
      host.forward = host.sequence >= 0 && whole_of(args, "Fwd thread id", 0) == 0;
      host.dims = dims_of(args);
      host.collective = collective_of(args);
    }
    const std::int64_t external = whole_of(args, "External id", -1);
    if (external >= 0) found_.by_external[external] = static_cast<int>(found_.host.size());
    found_.host.push_back(std::move(host));
  }

  int thread_of(const Json& event) {
    std::string key;
    for (const char* part : {"pid", "tid"}) key += (event.contains(part) ? event.at(part).dump() : "") + "/";
    return threads_.try_emplace(key, static_cast<int>(threads_.size())).first->second;
  }

  static std::vector<std::vector<std::int64_t>> dims_of(const Json& args) {
    std::vector<std::vector<std::int64_t>> dims;
    const auto found = args.find("Input Dims");
    if (found == args.end() || !found->is_array()) return dims;
    for (const Json& one : *found) {
      dims.emplace_back();
      if (!one.is_array()) continue;
      for (const Json& size : one) {
        if (size.is_number_integer()) dims.back().push_back(size.get<std::int64_t>());  // lists of tensors hold arrays
      }
    }
    return dims;
  }

  static std::optional<KinetoCollective> collective_of(const Json& args) {
    KinetoCollective one;
    one.name = text_of(args, "Collective name");
    one.elements = std::max(whole_of(args, "In msg nelems", 0), whole_of(args, "Out msg nelems", 0));
    if (one.name.empty() || one.elements <= 0) return std::nullopt;
    one.dtype = text_of(args, "dtype");
    one.group_size = whole_of(args, "Group size", 0);
    one.ranks = text_of(args, "Process Group Ranks");
    one.group = text_of(args, "Process Group Name");
    return one;
  }

  void take_distributed(JsonValue root) {
    const auto info = root.find("distributedInfo");
    if (!info || !info->is_object()) return;
    if (const auto rank = info->find("rank")) found_.rank = rank->whole(0, most_ranks);
    if (const auto size = info->find("world_size")) found_.world_size = size->whole(0, most_ranks);
    const auto groups = info->find("pg_config");
    if (!groups || !groups->is_list()) return;
    for (const JsonValue group : *groups) {
      const auto members = group.find("ranks");
      if (!members || !members->is_list()) continue;
      const auto name = group.find("pg_name");
      auto& ranks = found_.groups[name && name->is_text() ? name->text() : ""];
      for (const JsonValue rank : *members) ranks.push_back(rank.whole(0, most_ranks));
    }
  }

  KinetoEvents found_;
  std::map<std::string, int> threads_;
};

}  // namespace tawpipe::detail
