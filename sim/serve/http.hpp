// Requests and answers of HTTP/1.1 as text, one on each connection.
// Not: connections (server.hpp), nor what is asked (questions.hpp).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tawpipe::sim {

struct HttpRequest {
  std::string path;                                         ///< "/plan"
  std::vector<std::pair<std::string, std::string>> values;  ///< of the query, decoded, in its order
};

struct HttpAnswer {
  int status = 200;
  std::string text;
  bool is_page = true;  ///< HTML; else one line of text
  int retry_after = 0;  ///< seconds, with 503
};

inline constexpr std::size_t max_http_header = 16U << 10U;

/// A GET or HEAD of this machine, or the answer to what is not one; none: the header is not whole yet.
std::optional<std::variant<HttpRequest, HttpAnswer>> read_request(std::string_view received);

/// As it is sent; the connection ends with it. @param received  what it answers: HEAD gets no text
std::string http_text(const HttpAnswer& answer, std::string_view received);

}  // namespace tawpipe::sim
