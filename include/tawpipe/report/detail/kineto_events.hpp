// The events of a PyTorch profiler trace from its JSON: operators, annotations, kernels, and the
// calls that launched them.
// Not: what they mean (report/kineto_trace.hpp, report/kineto_run.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/ids.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/core/units.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/schedule/op_traits.hpp"

namespace tawpipe::inline v0::detail {

/// What PyTorch records about a collective: on its kernel, or in older versions only on the
/// operator record_param_comms.
struct KinetoCollective {
  std::string name{};         ///< allreduce, _allgather_base, reduce_scatter, ...
  std::string dtype{};        ///< BFloat16, Half, Float, ...
  std::int64_t elements = 0;  ///< of the larger of input and output
  std::int64_t group_size = 0;
  std::string ranks{};         ///< "[0, 1, 2, 3]"; long ones end with "..."
  std::string group{};         ///< the process group's name
  std::int64_t sequence = -1;  ///< "Seq" in the group, recorded by newer versions; -1: not recorded
  std::int64_t source = -1;    ///< of a message between two ranks, if recorded
  std::int64_t destination = -1;
};

/// An operator, annotation or module on a thread of the host. Times are microseconds.
struct KinetoHostEvent {
  std::string name;
  double start = 0;
  double end = 0;
  int thread = 0;
  int parent = -1;  ///< index of the enclosing event on its thread
  /// of the autograd node that it creates (forward) or runs (backward)
  std::int64_t sequence = -1;
  bool forward = false;     ///< may have created that node
  bool annotation = false;  ///< of the program or the profiler, not an operator
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
  std::int64_t stream = 0;
  /// of the call that launched it; ascending in the order of the calls
  std::int64_t correlation = -1;
  std::optional<KinetoCollective> collective{};
};

/// A call of CUDA's runtime or driver on a thread of the host.
struct KinetoCall {
  double start = 0;
  double end = 0;
  std::int64_t correlation = -1;
  int thread = 0;
  bool synchronizes = false;  ///< waits for the device
  bool waits = false;         ///< makes a stream wait for an unnamed event
};

/// A stream that waits for an event of another, as recorded with enable_cuda_sync_events.
struct KinetoWait {
  std::int64_t stream = 0;  ///< the stream that waits, for work launched on it after `correlation`
  std::int64_t correlation = -1;
  std::int64_t earlier_stream = 0;
  std::int64_t recorded = -1;  ///< correlation of the event's record
};

/// What kept a thread of the host busy, by a name that says what to do about it.
struct KinetoCause {
  std::string name;
  double start = 0;
  double end = 0;
  int thread = 0;
};

struct KinetoEvents {
  std::string device{};     ///< that ran the kernels, as its driver calls it; "": not recorded
  std::int64_t memory = 0;  ///< bytes of it; 0: not recorded
  std::string software{};   ///< what recorded and ran
  std::int64_t rank = 0;
  std::int64_t world_size = 0;                              ///< 0: not distributed
  std::map<std::string, std::vector<std::int64_t>> groups;  ///< [process group's name] ranks
  std::vector<KinetoHostEvent> host;
  std::map<std::int64_t, int> by_external;  ///< index into host
  std::vector<KinetoKernel> kernels;
  /// those that launch or synchronize; only on request, like `waits`
  std::vector<KinetoCall> calls;
  std::vector<KinetoWait> waits;
  std::vector<KinetoCause> causes;  ///< only on request; some enclose others
  std::int64_t base = 0;            ///< in nanoseconds: the origin of all times
};

/// Reads the events while the JSON is parsed, so that a trace takes little more memory than the
/// part that is kept.
class KinetoReader {
 public:
  static constexpr std::string_view loader_cause = "data loader";
  static constexpr std::string_view collector_cause = "garbage collector";
  static constexpr int max_ranks = 1 << 20;

  /// @param source  the file's name, for messages
  /// @param order  whether to read launches and waits, too
  static KinetoEvents read(std::string_view text, std::string_view source, bool order = false) {
    if (text.starts_with("\x1f\x8b")) throw InputError(one_line(concat(source, ": compressed; unpack it first, as with gunzip")));
    KinetoReader reader;
    reader.order_ = order;
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
    if (reader.found_.kernels.empty() && (!order || reader.found_.host.empty())) {
      root.fail(order ? "without operators; profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
                      : "without GPU kernels; profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]");
    }
    if (root.is_object()) {
      reader.take_distributed(root);
      reader.take_device(root);
      if (const auto base = root.find("baseTimeNanoseconds")) reader.found_.base = base->whole(std::int64_t{0}, max_base);
    }
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
    if (category == "cuda_runtime" || category == "cuda_driver" || category == "cuda_sync") {
      if (order_) take_call(event, name, category == "cuda_sync");
      return;
    }
    if (order_) take_cause(event, category, name);
    if (category == "python_function") {
      constexpr std::string_view module = "nn.Module: ";
      if (!name.starts_with(module)) return;
      name.erase(0, module.size());
    } else if (!device && category != "cpu_op" && category != "user_annotation") {
      return;
    }
    const auto [start, end] = times_of(event, name);
    const Json& args = args_of(event);
    if (device) {
      found_.kernels.push_back({std::move(name), start, end, whole_of(args, "device", 0), whole_of(args, "External id", -1),
                                whole_of(args, "stream", 0), whole_of(args, "correlation", -1), collective_of(args)});
      return;
    }
    KinetoHostEvent host{.name = std::move(name), .start = start, .end = end, .thread = thread_of(event)};
    host.annotation = category != "cpu_op";
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

  /// The loader, the collector, and functions of Python that took long. Most of a stack is not kept.
  /// Source: PyTorch, torch/utils/data/dataloader.py (_profile_name), torch/csrc/profiler (Python GC).
  void take_cause(const Json& event, const std::string& category, const std::string& name) {
    constexpr double long_enough = 1000;  // microseconds
    const bool python = category == "python_function";
    if (!python && category != "user_annotation" && category != "cpu_op") return;
    std::string cause;
    if (name.starts_with("enumerate(DataLoader)")) {
      cause = loader_cause;
    } else if (name.starts_with("Python GC") || name == "gc.collect" || name == "<built-in function collect>") {
      cause = collector_cause;
    } else if (python && !name.starts_with("nn.Module: ")) {
      cause = concat("Python: ", name);
    } else {
      return;
    }
    const auto [start, end] = times_of(event, name);
    if (python && cause.starts_with("Python: ") && end - start < long_enough) return;
    found_.causes.push_back({one_line(std::move(cause)), start, end, thread_of(event)});
  }

  static std::pair<double, double> times_of(const Json& event, const std::string& name) {
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
    return {start, end};
  }
  static const Json& args_of(const Json& event) {
    static const Json none = Json::object();
    const auto found = event.find("args");
    return found != event.end() && found->is_object() ? *found : none;
  }

  void take_call(const Json& event, const std::string& name, bool sync) {
    const Json& args = args_of(event);
    const std::int64_t correlation = whole_of(args, "correlation", -1);
    if (!sync) {
      const bool synchronizes = name.find("Synchronize") != std::string::npos;
      if (correlation < 0 && !synchronizes) return;
      const auto [start, end] = times_of(event, name);
      found_.calls.push_back(
          {start, end, correlation, thread_of(event), synchronizes, name.find("StreamWaitEvent") != std::string::npos});
    } else if (text_of(args, "cuda_sync_kind") == "Stream Wait Event" || name == "Stream Wait Event") {
      const std::int64_t recorded = whole_of(args, "wait_on_cuda_event_record_corr_id", -1);
      if (recorded < 0) return;
      found_.waits.push_back({whole_of(args, "stream", -1), correlation, whole_of(args, "wait_on_stream", -1), recorded});
    }
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
    one.sequence = whole_of(args, "Seq", -1);
    one.source = whole_of(args, "Src Rank", -1);
    one.destination = whole_of(args, "Dst Rank", -1);
    return one;
  }

  /// Source: pytorch/kineto, libkineto/src/output_json.cpp (deviceProperties, cuda_..._version).
  void take_device(JsonValue root) {
    found_.software = "PyTorch's profiler";
    const auto version = [&](std::string_view key, std::string_view what) {
      const auto number = root.find(key);
      if (!number || !number->is_whole()) return;
      const auto whole = number->whole<std::int64_t>(0, 1'000'000);
      found_.software += concat(", ", what, " ", whole / 1000, ".", whole % 1000 / 10);
    };
    version("cuda_runtime_version", "CUDA");
    version("cuda_driver_version", "driver for CUDA");
    if (const auto info = root.find("distributedInfo"); info && info->is_object()) {
      if (const auto nccl = info->find("nccl_version"); nccl && nccl->is_text())
        found_.software += concat(", NCCL ", one_line(nccl->text()));
    }
    const auto devices = root.find("deviceProperties");
    if (!devices || !devices->is_list()) return;
    const std::int64_t used = found_.kernels.empty() ? 0 : found_.kernels.front().device;
    for (const JsonValue device : *devices) {
      const auto id = device.find("id");
      const auto name = device.find("name");
      const auto memory = device.find("totalGlobalMem");
      if (!name || !name->is_text() || (id && id->is_whole() && id->whole<std::int64_t>(0) != used)) continue;
      found_.device = name->text();
      if (memory && memory->is_whole()) found_.memory = memory->whole<std::int64_t>(0);
    }
  }

  void take_distributed(JsonValue root) {
    const auto info = root.find("distributedInfo");
    if (!info || !info->is_object()) return;
    if (const auto rank = info->find("rank")) found_.rank = rank->whole(0, max_ranks);
    if (const auto size = info->find("world_size")) found_.world_size = size->whole(0, max_ranks);
    const auto groups = info->find("pg_config");
    if (!groups || !groups->is_list()) return;
    for (const JsonValue group : *groups) {
      const auto members = group.find("ranks");
      if (!members || !members->is_list()) continue;
      const auto name = group.find("pg_name");
      auto& ranks = found_.groups[name && name->is_text() ? name->text() : ""];
      for (const JsonValue rank : *members) ranks.push_back(rank.whole(0, max_ranks));
    }
  }

  static constexpr std::int64_t max_base = std::numeric_limits<std::int64_t>::max();

  KinetoEvents found_;
  bool order_ = false;
  std::map<std::string, int> threads_;
};

/// Finds each host event's parent: the enclosing one on its thread.
inline void nest(KinetoEvents& events) {
  const auto host = [&](int event) -> KinetoHostEvent& { return events.host[static_cast<std::size_t>(event)]; };
  std::vector<int> order(events.host.size());
  for (std::size_t e = 0; e < order.size(); ++e) order[e] = static_cast<int>(e);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    const KinetoHostEvent& x = host(a);
    const KinetoHostEvent& y = host(b);
    if (x.thread != y.thread) return x.thread < y.thread;
    if (x.start != y.start) return x.start < y.start;
    return x.end != y.end ? x.end > y.end : a < b;
  });
  std::vector<int> open;
  for (const int e : order) {
    while (!open.empty() && (host(open.back()).thread != host(e).thread || host(open.back()).end <= host(e).start)) {
      open.pop_back();
    }
    if (!open.empty()) host(e).parent = open.back();
    open.push_back(e);
  }
}

}  // namespace tawpipe::detail
