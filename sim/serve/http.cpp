// Reads requests by Boost.Beast's parser, and writes answers.
#include "http.hpp"

#include <array>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstdint>
#include <ctime>
#include <limits>

#include "tawpipe/core/text.hpp"

namespace tawpipe::sim {

namespace {

namespace http = boost::beast::http;

HttpAnswer refusal(int status, std::string why) { return {.status = status, .text = std::move(why) + "\n", .is_page = false}; }

/// The text with '+' and %XX as they are meant; none: it is not encoded so, or has control characters.
std::optional<std::string> decoded(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    constexpr std::string_view digits = "0123456789abcdef";
    const std::string code = lower_case(text.substr(i + 1, 2));
    const std::size_t high = code.size() == 2 ? digits.find(code[0]) : std::string_view::npos;
    const std::size_t low = code.size() == 2 ? digits.find(code[1]) : std::string_view::npos;
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    plain += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return one_line(plain) == plain ? std::optional{plain} : std::nullopt;
}

/// The path and values of "/plan?cluster=dgx-h100".
std::optional<HttpRequest> request_of(std::string_view target) {
  const std::size_t mark = std::min(target.find('?'), target.size());
  const auto path = decoded(target.substr(0, mark));
  if (!path || !path->starts_with("/")) return std::nullopt;
  HttpRequest request{*path, {}};
  if (mark == target.size()) return request;
  for (const std::string_view part : split(target.substr(mark + 1), '&')) {
    if (part.empty()) continue;
    const std::size_t equals = std::min(part.find('='), part.size());
    const auto name = decoded(part.substr(0, equals));
    const auto value = decoded(part.substr(std::min(equals + 1, part.size())));
    if (!name || !value) return std::nullopt;
    request.values.emplace_back(*name, *value);
  }
  return request;
}

/// Whether a page asks that this server gave, or a person: sites that give their own name to this address (DNS rebinding) and
/// pages that embed ours get nothing. A tunnel may have another port.
bool is_from_here(const http::fields& fields) {
  const std::string host = lower_case({fields[http::field::host].data(), fields[http::field::host].size()});
  const std::string_view name = std::string_view{host}.substr(0, host.rfind(':'));
  if (name != "127.0.0.1" && name != "localhost") return false;
  const auto site = fields["Sec-Fetch-Site"];
  const bool follows_link = fields["Sec-Fetch-Mode"] == "navigate" && fields["Sec-Fetch-Dest"] == "document";
  return site.empty() || site == "same-origin" || site == "none" || follows_link;
}

std::string_view reason(int status) {
  const auto text = http::obsolete_reason(static_cast<http::status>(status));
  return {text.data(), text.size()};
}

std::string date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 40> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

}  // namespace

std::optional<std::variant<HttpRequest, HttpAnswer>> read_request(std::string_view received) {
  if (received.empty()) return std::nullopt;
  if (received[0] < 'A' || received[0] > 'Z') return refusal(400, "This is not HTTP; the address begins with http://.");
  const std::size_t end = received.find("\r\n\r\n");
  if (std::min(end, received.size()) > max_http_header) return refusal(431, "The header is longer than 16 KiB.");
  if (end == std::string_view::npos) return std::nullopt;
  http::request_parser<http::empty_body> parser;
  parser.header_limit(max_http_header + 4);
  parser.body_limit(std::numeric_limits<std::uint64_t>::max());  // nothing of a body is read
  boost::beast::error_code error;
  parser.put(boost::asio::const_buffer{received.data(), end + 4}, error);
  if (!parser.is_header_done()) return refusal(400, "The header is not that of an HTTP request.");
  const auto& header = parser.get();
  if (header.count(http::field::host) != 1) return refusal(400, "The header names no host.");
  if (!is_from_here(header)) return refusal(403, "Only http://127.0.0.1 and http://localhost are answered, not other sites.");
  if (header.method() != http::verb::get && header.method() != http::verb::head)
    return refusal(405, "Only GET and HEAD are answered.");
  if (parser.chunked() || parser.content_length().value_or(0) > 0) return refusal(413, "A request has no body.");
  auto request = request_of({header.target().data(), header.target().size()});
  if (!request) return refusal(400, "The address is not a path with values, such as /plan?cluster=dgx-h100.");
  return *std::move(request);
}

std::string http_text(const HttpAnswer& answer, std::string_view received) {
  std::string text = concat("HTTP/1.1 ", answer.status, " ", reason(answer.status), "\r\nDate: ", date(),
                            "\r\nContent-Type: text/", answer.is_page ? "html" : "plain",
                            "; charset=utf-8\r\nContent-Length: ", answer.text.size(), "\r\nConnection: close\r\n");
  if (answer.status == 405) text += "Allow: GET, HEAD\r\n";
  if (answer.retry_after > 0) text += concat("Retry-After: ", answer.retry_after, "\r\n");
  text +=
      "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src 'self' data: "
      "blob:; "
      "form-action 'self'; base-uri 'none'; frame-ancestors 'none'\r\n"
      "Cross-Origin-Resource-Policy: same-origin\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
      "Cache-Control: no-store\r\n\r\n";
  if (!received.starts_with("HEAD ")) text += answer.text;
  return text;
}

}  // namespace tawpipe::sim
