// `tawpipe validate` of an order of calls. Not: reading the file (exchange.cpp).
#include "validate_order.hpp"

#include "../output_file.hpp"
#include "tawpipe/report/chakra_import.hpp"

namespace tawpipe::sim {

bool has_order(const ScheduleFile& file) { return file.calls || file.rows || file.trace; }

OrderReport prove_order(const ScheduleFile& file, const OrderRequest& request, bool with_mended) {
  const PytorchCallOptions options{
      tawpipe::detail::parse_name<CallSemantics, call_semantics>("--semantics", request.semantics),
      tawpipe::detail::parse_name<CallCommunicators, call_communicators>("--communicators", request.communicators)};
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
