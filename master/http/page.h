// page: the page that a master shows in a browser, master/http/page.html. The build copies it into
// the program, so that it needs no file and no other host. A constant.
#pragma once

#include <string_view>

namespace pccl::master::http {

// Defined in a source that the build writes (cmake/embed_page.cmake).
std::string_view page();

}  // namespace pccl::master::http
