// `tawpipe validate` of an order of calls: does it end in every timing, and what would mend it?
// Not: the checks of a whole schedule (validate.cpp).
#pragma once

#include <string>

#include "exchange.hpp"
#include "tawpipe/report/order_report.hpp"

namespace tawpipe::sim {

/// The flags of `validate` that say how an order is read.
struct OrderRequest {
  std::string semantics = "nccl";     ///< --semantics nccl|gloo|mpi
  std::string communicators = "one";  ///< --communicators one|direction|pair
  std::string mend;                   ///< --mend FILE|-: where the mended order goes
};

/// Whether the file holds an order to be proven: calls, or PyTorch's rows.
bool has_order(const ScheduleFile& file);
/// Proves it, looks for a mend, and writes the mended order where it is wanted. @pre has_order(file)
/// @throws InputError  for unknown names of flags, and for rows that PyTorch would refuse.
OrderReport prove_order(const ScheduleFile& file, const OrderRequest& request);
/// The same, writing nothing: with the mended order in the report where it is asked for.
OrderReport prove_order(const ScheduleFile& file, const OrderRequest& request, bool with_mended);

/// `tawpipe validate`.
int run_validate(const Request& request, const OrderRequest& order);

}  // namespace tawpipe::sim
