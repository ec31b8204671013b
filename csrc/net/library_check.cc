#include "csrc/net/library_check.h"

#include <dlfcn.h>
#include <openssl/crypto.h>
#include <openssl/opensslv.h>
#include <uv.h>

#include <vector>

#include "csrc/net/openssl.h"

namespace pccl::net {
namespace {

std::string library_of(const void* address) {
  if (address == nullptr) return "";
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "an unknown library";
  return info.dli_fname;
}

// Returns a handle of the library that contains this code. With it, dlsym() finds the functions
// that this library is linked with, and not the replacements of other libraries.
void* handle_of(const std::string& self) {
  void* const library = dlopen(self.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  return library != nullptr ? library : dlopen(nullptr, RTLD_LAZY);  // null: the main program
}

// UV_VERSION_HEX has one byte each for major, minor and patch.
LibraryVersion libuv_version(unsigned version) {
  return {version >> 16, version >> 8 & 0xff, version & 0xff};
}

// OPENSSL_VERSION_NUMBER has 4 bits for the major version, 8 for the minor version, 8 that are not
// used, 8 for the patch, and 4 that do not matter.
LibraryVersion openssl_version(unsigned long version) {
  const auto bits = static_cast<unsigned>(version);
  return {bits >> 28, bits >> 20 & 0xff, bits >> 4 & 0xff};
}

std::string text(const LibraryVersion& version) {
  return std::to_string(version[0]) + "." + std::to_string(version[1]) + "." +
         std::to_string(version[2]);
}

Status refuse_mixture(const std::string& why) {
  return {Code::kInvalidState, why + ". Unset TORCH_USE_RTLD_GLOBAL and start again", {}};
}

}  // namespace

Status judge_libuv(std::span<const LibuvSymbol> symbols, const std::string& self,
                   const std::string& torch) {
  const LibuvSymbol& first = symbols.front();
  for (const LibuvSymbol& symbol : symbols) {
    const std::string found = "libuv's " + symbol.name + " comes from " + symbol.library;
    const bool replaced = symbol.library != self && symbol.library != symbol.linked;
    if (replaced || symbol.library == torch) {
      return refuse_mixture(found + ", which has put its own copy in the place of libuv");
    }
    if (symbol.library != first.library) {
      return refuse_mixture(found + ", " + first.name + " from " + first.library +
                            ": two copies are mixed");
    }
  }
  return {};
}

// Within a major version, a newer library is compatible with an older one.
Status judge_version(const std::string& library, const LibraryVersion& built_with,
                     const LibraryVersion& running) {
  if (running[0] == built_with[0] && running[1] >= built_with[1]) return {};
  return {Code::kInvalidState,
          "pccl was built with " + library + " " + text(built_with) + " and runs with " +
              text(running) + ". Install the " + library + " it was built with, or build it again",
          {}};
}

Status check_libraries(const void* torch_code) {
  const std::string self = library_of(reinterpret_cast<const void*>(&check_libraries));
  const std::string torch = library_of(torch_code);
  void* const linked = handle_of(self);
  const auto symbol = [linked](const char* name, auto* function) {
    return LibuvSymbol{name, library_of(reinterpret_cast<const void*>(function)),
                       library_of(dlsym(linked, name))};
  };
  const std::vector<LibuvSymbol> symbols{
      symbol("uv_run", &uv_run),
      symbol("uv_version", &uv_version),
      symbol("uv_loop_init", &uv_loop_init),
      symbol("uv_loop_close", &uv_loop_close),
      symbol("uv_close", &uv_close),
      symbol("uv_poll_init", &uv_poll_init),
      symbol("uv_poll_start", &uv_poll_start),
      symbol("uv_prepare_init", &uv_prepare_init),
      symbol("uv_prepare_start", &uv_prepare_start),
      symbol("uv_timer_init", &uv_timer_init),
      symbol("uv_timer_start", &uv_timer_start),
      symbol("uv_getaddrinfo", &uv_getaddrinfo),
  };
  dlclose(linked);  // the library stays: it contains this code
  Status status = judge_libuv(symbols, self, torch);
  if (status.ok()) {
    status = judge_version("libuv", libuv_version(UV_VERSION_HEX), libuv_version(uv_version()));
  }
  if (status.ok()) {
    status = judge_version("OpenSSL", openssl_version(OPENSSL_VERSION_NUMBER),
                           openssl_version(OpenSSL_version_num()));
  }
  if (!status.ok() || openssl_context() != nullptr) return status;
  return {Code::kInvalidState,
          "OpenSSL does not load its algorithms (" + take_openssl_error() +
              "). Repair its installation",
          {}};
}

}  // namespace pccl::net
