// response: the bytes of the answers of HTTP. Every answer ends its connection, may not be stored,
// and may not be read or framed by another origin. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "master/http/request.h"

namespace pccl::master::http {

inline constexpr std::string_view kHtml = "text/html; charset=utf-8";
inline constexpr std::string_view kJson = "application/json";
inline constexpr std::string_view kMetricsText = "text/plain; version=0.0.4; charset=utf-8";

// `policy`: the Content-Security-Policy; by default nothing may run.
std::string response(int status, std::string_view type, std::string_view body,
                     std::string_view policy = "default-src 'none'; frame-ancestors 'none'");
// The body is {"error":"..."}, as the answer of a control socket.
std::string response(const Refusal& refusal);

// The head of a stream of server-sent events. A browser that loses it connects again after a
// second.
std::string begin_events();
// The beginning of an event. Its data follows, which is one line, and then an empty line.
std::string begin_event(std::string_view name);

}  // namespace pccl::master::http
