// `tawpipe validate` of an order of calls. Not: reading the file (exchange.cpp).
#include "validate_order.hpp"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "../output_file.hpp"
#include "tawpipe/report/comm_program_json.hpp"
#include "tawpipe/report/formatters.hpp"
#include "tawpipe/report/pytorch_calls.hpp"
#include "tawpipe/verify/mend.hpp"

namespace tawpipe::sim {

namespace {

template <class Enum>
Enum named(const std::string& flag, const std::string& text, int count) {
  std::vector<std::string> known;
  for (int i = 0; i < count; ++i) {
    known.emplace_back(name(static_cast<Enum>(i)));
    if (known.back() == text) return static_cast<Enum>(i);
  }
  throw InputError(concat(flag, ": ", unknown_name("value", one_line(text), known)));
}

/// Where a call stands, as its text counts: the cell of a row, or only the rank.
std::string place_of(const CommProgram& program, CallRef call) {
  const std::int32_t item = call_at(program, call).item;
  return item < 0 ? fmt::format("rank {}", call.rank) : fmt::format("rank {}, cell {}", call.rank, item + 1);
}

std::vector<std::string> texts(const CommProgram& program, const std::vector<CallRef>& calls) {
  std::vector<std::string> all;
  for (const CallRef& call : calls) all.push_back(call_text(program, call));
  return all;
}

OrderReport report(const CommProgram& program, const HangVerdict& verdict, const std::optional<std::string>& mended) {
  OrderReport report;
  report.right = verdict.is_right();
  nlohmann::ordered_json& json = report.json;
  json["ranks"] = program.ranks.size();
  json["calls"] = program.calls();
  json["verdict"] = verdict.ends ? "ends" : "deadlock";
  json["cycle"] = nlohmann::ordered_json::array();
  json["missing"] = texts(program, verdict.missing);
  json["differing"] = nlohmann::ordered_json::array();
  json["crossed_data"] = nlohmann::ordered_json::array();
  json["mend"] = mended ? nlohmann::ordered_json(*mended) : nlohmann::ordered_json{};

  std::string& text = report.text;
  text = fmt::format("{} calls on {} ranks\n", format_count(static_cast<std::int64_t>(program.calls())), program.ranks.size());
  text += verdict.ends ? "ends in every timing\n" : "hangs\n";
  if (!verdict.circle.empty()) text += "each waits for the next, the last for the first:\n";
  for (const auto& calls : verdict.circle) {
    json["cycle"].push_back(unit_text(program, calls));
    text += fmt::format("  {:<18} {}\n", place_of(program, calls[0]), one_line(unit_text(program, calls)));
  }
  for (const CallRef& call : verdict.missing) {
    text += fmt::format("no rank answers {} ({})\n", one_line(call_text(program, call)), place_of(program, call));
  }
  for (const auto& calls : verdict.differing) {
    json["differing"].push_back(texts(program, calls));
    text += "these calls meet and differ in kind or size:\n";
    for (const CallRef& call : calls) {
      const CommCall& one = call_at(program, call);
      text += fmt::format("  {:<18} {} {}, {} bytes\n", place_of(program, call), one_line(one.id), name(one.op), one.bytes);
    }
  }
  constexpr std::size_t most_crossed = 8;
  for (std::size_t i = 0; i < verdict.crossed.size(); ++i) {
    const auto& [send, receive] = verdict.crossed[i];
    json["crossed_data"].push_back({{"send", call_text(program, send)}, {"receive", call_text(program, receive)}});
    if (i == most_crossed) text += fmt::format("and {} more\n", verdict.crossed.size() - i);
    if (i >= most_crossed) continue;
    text += fmt::format("{} is received by {}, which expects other data\n", one_line(call_text(program, send)),
                        one_line(call_text(program, receive)));
  }
  if (!report.right) text += mended ? fmt::format("mend: {}\n", one_line(*mended)) : "no mend was found\n";
  return report;
}

template <class Order, class Write>
OrderReport prove_and_mend(const Order& order, const OrderRequest& request, const Write& write) {
  const HangVerdict verdict = prove(order.program());
  const std::optional<Mend<Order>> found = mend(order, verdict);
  if (!request.mend.empty()) {
    OutputFile file{request.mend};
    file(write(found ? found->order : order));
    file.finish();
  }
  return report(order.program(), verdict, found ? std::optional{found->text} : std::nullopt);
}

}  // namespace

bool has_order(const ScheduleFile& file) { return file.calls || file.rows; }

OrderReport prove_order(const ScheduleFile& file, const OrderRequest& request) {
  const PytorchCallOptions options{named<CallSemantics>("--semantics", request.semantics, call_semantics),
                                   named<CallCommunicators>("--communicators", request.communicators, call_communicators)};
  if (file.calls) {
    return prove_and_mend(ProgramOrder{*file.calls}, request,
                          [](const ProgramOrder& order) { return write_comm_program(order.program()); });
  }
  const std::string source = one_line(file.path);
  // Where a file holds computations only, PyTorch adds sends and receives when it loads it.
  PytorchSchedule rows = has_transfers(*file.rows) ? *file.rows : add_communication(*file.rows, source);
  return prove_and_mend(PytorchOrder{std::move(rows), options, source}, request,
                        [](const PytorchOrder& order) { return write_pytorch_csv(order.schedule()); });
}

}  // namespace tawpipe::sim
