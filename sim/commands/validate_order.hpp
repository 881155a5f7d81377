// `tawpipe validate` of an order of calls: whether it ends under every timing, and a fix if not.
// Not: the checks of a whole schedule (validate.cpp).
#pragma once

#include <string>

#include "exchange.hpp"
#include "tawpipe/report/order_report.hpp"

namespace tawpipe::sim {

/// The flags of `validate` for reading an order.
struct OrderRequest {
  std::string semantics = "nccl";     ///< --semantics nccl|gloo|mpi
  std::string communicators = "one";  ///< --communicators one|direction|pair
  std::string mend;                   ///< --mend FILE|-: destination of the fixed order
};

/// Whether the file has an order to check: calls, PyTorch's rows, or a Chakra trace.
bool has_order(const ScheduleFile& file);
/// Checks it, searches for a fix, and writes the fixed order if requested. @pre has_order(file)
/// @throws InputError  for unknown names of flags, and for rows that PyTorch would refuse.
OrderReport prove_order(const ScheduleFile& file, const OrderRequest& request);
/// The same without writing: the report has the fixed order if requested.
OrderReport prove_order(const ScheduleFile& file, const OrderRequest& request, bool with_mended);

/// `tawpipe validate`.
int run_validate(const Request& request, const OrderRequest& order);

}  // namespace tawpipe::sim
