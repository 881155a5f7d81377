// `tawpipe validate` of an order of calls. Not: reading the file (exchange.cpp).
#include "validate_order.hpp"

#include <string>
#include <vector>

#include "../output_file.hpp"
#include "tawpipe/report/chakra_import.hpp"

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

}  // namespace

bool has_order(const ScheduleFile& file) { return file.calls || file.rows || file.trace; }

OrderReport prove_order(const ScheduleFile& file, const OrderRequest& request, bool with_mended) {
  const PytorchCallOptions options{named<CallSemantics>("--semantics", request.semantics, call_semantics),
                                   named<CallCommunicators>("--communicators", request.communicators, call_communicators)};
  if (file.trace) return report_order(chakra_calls(*file.trace), with_mended);
  return file.calls ? report_order(*file.calls, with_mended)
                    : report_order(*file.rows, options, one_line(file.path), with_mended);
}

OrderReport prove_order(const ScheduleFile& file, const OrderRequest& request) {
  OrderReport report = prove_order(file, request, !request.mend.empty());
  if (!request.mend.empty()) write_output(request.mend, report.mended);
  return report;
}

}  // namespace tawpipe::sim
