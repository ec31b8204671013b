#include "master/http/response.h"

#include "master/operator/control.h"

#include <nlohmann/json.hpp>

namespace pccl::master::http {
namespace {

const char* reason_of(int status) {
  switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 414: return "URI Too Long";
    case 421: return "Misdirected Request";
    case 431: return "Request Header Fields Too Large";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Error";
  }
}

// The header that a status needs.
const char* header_of(int status) {
  switch (status) {
    case 401: return "WWW-Authenticate: Basic realm=\"pccl\", charset=\"UTF-8\"\r\n";
    case 405: return "Allow: GET\r\n";
    case 503: return "Retry-After: 1\r\n";
    default: return "";
  }
}

std::string head(int status, std::string_view type, std::string_view policy) {
  return "HTTP/1.1 " + std::to_string(status) + " " + reason_of(status) +
         "\r\nContent-Type: " + std::string(type) +
         "\r\nContent-Security-Policy: " + std::string(policy) +
         "\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
         "Cross-Origin-Resource-Policy: same-origin\r\nCache-Control: no-store\r\n"
         "Connection: close\r\n" +
         header_of(status);
}

}  // namespace

std::string response(int status, std::string_view type, std::string_view body,
                     std::string_view policy) {
  return head(status, type, policy) + "Content-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + std::string(body);
}

std::string response(const Refusal& refusal) {
  return response(refusal.status, kJson, answer_line(error_answer(refusal.why)));
}

// X-Accel-Buffering: nginx sends each event at once.
std::string begin_events() {
  return head(200, "text/event-stream", "default-src 'none'; frame-ancestors 'none'") +
         "X-Accel-Buffering: no\r\n\r\nretry: 1000\n\n";
}

std::string begin_event(std::string_view name) {
  return "event: " + std::string(name) + "\ndata: ";
}

}  // namespace pccl::master::http
