// Reads what nccl-tests prints, under any launcher, and its JSON (-J).
// Not: what follows from the times (report/nccl_tests.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tawpipe/core/error.hpp"
#include "tawpipe/core/log_line.hpp"
#include "tawpipe/core/parse_number.hpp"
#include "tawpipe/core/text.hpp"
#include "tawpipe/json/json_reader.hpp"
#include "tawpipe/report/nccl_tests.hpp"

namespace tawpipe::inline v0 {

namespace detail {

/// The programs whose times say what a link does.
inline const std::vector<std::string>& nccl_tests_programs() {
  static const std::vector<std::string> programs{"all_reduce", "reduce_scatter", "all_gather", "alltoall",
                                                 "broadcast",  "reduce",         "sendrecv"};
  return programs;
}

/// The program that a text names, as "all_reduce_perf", whichever it is; "" if none.
inline std::string named_program(std::string_view text) {
  constexpr std::string_view end = "_perf";
  for (std::size_t at = text.find(end); at != std::string_view::npos; at = text.find(end, at + 1)) {
    std::size_t begin = at;
    while (begin > 0 && (text[begin - 1] == '_' || (text[begin - 1] >= 'a' && text[begin - 1] <= 'z'))) --begin;
    if (begin < at) return std::string{text.substr(begin, at - begin)};
  }
  return "";
}

/// The program in a file's name, such as "all_reduce_node.txt"; "" if none.
inline std::string program_of_file(const std::string& file) {
  if (std::string program = named_program(file); !program.empty()) return program;
  for (const auto& program : nccl_tests_programs()) {
    if (file.find(program) != std::string::npos) return program;
  }
  return "";
}

/// Whether NCCL_ALGO leaves only rings: "Ring", "allreduce:ring".
inline bool only_rings(std::string_view algorithms) {
  const std::string text = lower_case(trimmed(algorithms));
  return text == "ring" || text.ends_with(":ring");
}

class NcclTestsReader {
 public:
  NcclTestsReader(std::string_view text, const std::string& file) : text_{text}, file_{file} {}

  NcclTestsRun read() {
    const std::size_t first = text_.find_first_not_of(" \t\r\n");
    first != std::string_view::npos&& text_[first] == '{' ? read_json() : read_lines();
    if (run_.program.empty()) run_.program = program_of_file(file_);
    run_.hosts = static_cast<int>(hosts_.size());
    check();
    return std::move(run_);
  }

 private:
  template <class... Parts>
  InputError fail(const Parts&... parts) const {
    return InputError(one_line(concat(quote(file_), parts...)));
  }

  static std::vector<std::string_view> words(std::string_view line) {
    std::vector<std::string_view> all;
    for (std::size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != std::string_view::npos;) {
      const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
      all.push_back(line.substr(at, end - at));
      at = end;
    }
    return all;
  }

  // ---- the text ----

  void read_lines() {
    for (const std::string_view whole : split(text_, '\n')) {
      const std::string_view line = without_label(whole);
      if (line.find(" NCCL INFO ") != std::string_view::npos) {
        read_log(line);
      } else if (const auto cells = words(line); !cells.empty() && cells.front().starts_with('#')) {
        read_comment(line, cells);
      } else {
        read_row(cells);
      }
    }
  }

  void read_comment(std::string_view line, const std::vector<std::string_view>& cells) {
    if (std::string program = named_program(line); !program.empty()) {
      if (run_.program.empty()) run_.program = program;
      if (run_.program != program) throw several();
    }
    if (line.find("Out of bounds values") != std::string_view::npos && line.find("FAILED") != std::string_view::npos)
      throw fail(" says FAILED: its results were wrong, so its times are of no use");
    if (cells.size() < 2) return;
    if (cells[1] == "Rank") read_rank(cells);
    if (cells[1] == "size" && columns_.empty()) columns_.assign(cells.begin() + 1, cells.end());
  }

  /// "#  Rank  0 Group  0 Pid 900 on h1 device  0 [0000:00:00] NVIDIA H100 80GB HBM3"
  void read_rank(const std::vector<std::string_view>& cells) {
    const auto after = [&](std::string_view word) {
      const auto found = std::find(cells.begin(), cells.end(), word);
      return found == cells.end() || found + 1 == cells.end() ? cells.end() : found + 1;
    };
    const auto rank = after("Rank");
    const auto host = after("on");
    if (rank == cells.end() || host == cells.end()) return;
    const auto number = to_number<int>(*rank);
    if (!number || !ranks_.insert(*number).second) throw several();
    if (const auto group = after("Group"); group != cells.end()) groups_.emplace(*group);
    hosts_.emplace(*host);
    const auto bracket = std::find_if(host, cells.end(), [](std::string_view cell) { return cell.ends_with(']'); });
    if (bracket == cells.end() || !run_.gpu.empty()) return;
    for (auto word = bracket + 1; word != cells.end(); ++word) run_.gpu += concat(run_.gpu.empty() ? "" : " ", *word);
  }

  /// size, count, type, redop, root, time (us), ... Older versions leave redop or root out, which the
  /// header tells; a long time runs together with the root before it.
  void read_row(const std::vector<std::string_view>& cells) {
    const auto is_word = [&](std::size_t at) { return at < cells.size() && cells[at][0] >= 'a' && cells[at][0] <= 'z'; };
    if (cells.size() < 7 || !to_number<double>(cells[0]) || !to_number<double>(cells[1]) || !is_word(2)) return;
    std::size_t at = is_word(3) ? 4 : 3;
    std::string_view time = cells[at];
    if (columns_.empty() || std::find(columns_.begin(), columns_.end(), "root") != columns_.end()) {
      const bool together = time.starts_with("-1") ? time.size() > 2 : time.find('.') != std::string_view::npos;
      if (!together) {
        if (++at == cells.size()) return;
        time = cells[at];
      } else {
        time.remove_prefix(time.starts_with("-1") ? 2 : 1);
      }
    }
    add(to_number<double>(cells[0]).value_or(0), to_number<double>(time).value_or(0));
  }

  /// Of NCCL_DEBUG=INFO: "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE ...", "NCCL_ALGO set by
  /// environment to Ring".
  void read_log(std::string_view line) {
    constexpr std::string_view algorithm = "NCCL_ALGO set by environment to ";
    if (const auto at = line.find(algorithm); at != std::string_view::npos) {
      run_.ring = only_rings(line.substr(at + algorithm.size()));
    }
    const auto at = line.find("NET/IB : Using ");
    if (at == std::string_view::npos) return;
    int adapters = 0;
    for (const std::string_view word : words(line.substr(at))) {
      if (word.starts_with('[') &&
          (word.ends_with("/IB") || word.ends_with("/RoCE") || word.find("/IB/") != std::string_view::npos))
        ++adapters;
    }
    run_.adapters = std::max(run_.adapters, adapters);
  }

  // ---- the JSON ----

  /// A process lists its first GPU only.
  /// Source: nccl-tests 2.19.6, src/util.cu, writeDeviceReport and writeBenchmarkLineBody.
  void read_json() {
    const JsonDocument document{text_, quote(file_)};
    const JsonValue root = document.root();
    if (const auto version = root.find("version")) version->whole(1, 1);
    const JsonValue config = root.at("config");
    const auto many = [&](std::string_view key) { return config.at(key).whole<int>(1, 1 << 16); };
    const int each = many("nthreads") * many("ngpus");
    for (const JsonValue argument : root.at("args")) {
      if (run_.program.empty()) run_.program = named_program(argument.text());
    }
    if (const auto environment = root.find("env")) {
      for (const JsonValue variable : *environment) {
        if (std::string_view text = variable.text(); text.starts_with("NCCL_ALGO=")) run_.ring = only_rings(text.substr(10));
      }
    }
    for (const JsonValue device : config.at("devices")) {
      const int first = device.at("rank").whole<int>(0, 1 << 20);
      for (int i = 0; i < each; ++i) {
        if (!ranks_.insert(first + i).second) throw several();
      }
      if (const auto group = device.find("group")) groups_.insert(group->shown());
      hosts_.insert(device.at("hostname").text());
      if (run_.gpu.empty()) run_.gpu = device.at("device_info").text();
    }
    for (const JsonValue result : root.at("results")) {
      const JsonValue figures = result.at(result.at("out_of_place").is_null() ? "in_place" : "out_of_place");
      add(static_cast<double>(result.at("size").whole<std::int64_t>(0)),
          figures.at(figures.has("time") ? "time" : "cpu_time").positive_or_zero());
    }
    const auto wrong = root.find("out_of_bounds");
    if (wrong && wrong->at("count").whole<std::int64_t>(0) > 0)
      throw fail(" counts wrong results (out_of_bounds), so its times are of no use");
  }

  void add(double bytes, double microseconds) {
    if (bytes > 0 && microseconds > 0) run_.points.push_back({bytes, microseconds});
  }

  InputError several() const {
    return fail(" holds more than one run: a rank or a program occurs twice; give each run a file of its own",
                " (and build nccl-tests with MPI=1, or each process runs by itself)");
  }

  void check() {
    run_.ranks = static_cast<int>(ranks_.size());
    if (run_.points.size() < 2 || run_.ranks < 2) {
      throw fail(" is not an output of nccl-tests on 2 ranks or more: it has ", run_.ranks, " lines '#  Rank' and ",
                 run_.points.size(), " rows of results");
    }
    if (*ranks_.rbegin() + 1 != run_.ranks) {
      throw fail(" names ", run_.ranks, " of ", *ranks_.rbegin() + 1, " ranks in its lines '#  Rank'; give the whole output");
    }
    if (groups_.size() > 1) {
      throw fail(" ran in ", groups_.size(),
                 " groups at once (NCCL_TESTS_SPLIT), which share links in ways it does not tell; run it without");
    }
    const auto& known = nccl_tests_programs();
    if (run_.program.empty()) {
      throw fail(" does not say which program wrote it; put its name into the file's, such as all_reduce_node.txt (one of ",
                 join(known, ", "), ")");
    }
    if (std::find(known.begin(), known.end(), run_.program) == known.end()) {
      throw fail(" is of ", run_.program, "_perf, whose times are of no single link; give one of ", join(known, ", "));
    }
  }

  std::string_view text_;
  const std::string& file_;
  NcclTestsRun run_;
  std::set<int> ranks_;
  std::set<std::string> hosts_;
  std::set<std::string> groups_;
  std::vector<std::string> columns_;
};

}  // namespace detail

/// Reads the standard output of one program of nccl-tests, or the file that its -J writes: ranks,
/// hosts and GPU, and the out-of-place time of each size. Labels of `srun -l` and `mpirun
/// --tag-output` are cut off, lines of NCCL's own log tell adapters and NCCL_ALGO. The program is
/// named by the output ("# Collective test starting: all_reduce_perf", since 2.17) or by `file`.
/// @throws InputError  naming `file` if it is not such an output, holds several runs, or the program
/// is unknown.
/// Source: NVIDIA nccl-tests 2.19.6, src/util.cu (headers, rows and JSON), doc/PERFORMANCE.md.
inline NcclTestsRun read_nccl_tests(std::string_view text, const std::string& file) {
  return detail::NcclTestsReader{without_byte_order_mark(text), file}.read();
}

}  // namespace tawpipe
