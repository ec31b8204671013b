// pccl-master: the master as a process of its own; `pccl master` runs it. Prints one line when it is ready.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "csrc/base/log.h"
#include "master/shell.h"

namespace {

constexpr const char* kUsage =
    "usage: pccl master [--host HOST] [--port PORT]\n"
    "\n"
    "Keeps the membership of training runs and settles their steps. Serves any number of runs, by name.\n"
    "\n"
    "  --host HOST   address to listen on (default 127.0.0.1: this machine only; 0.0.0.0 or :: for all)\n"
    "  --port PORT   port to listen on (default 48148; 0: any free one)\n"
    "\n"
    "Prints \"pccl master listening on HOST:PORT\" when it is ready. PCCL_LOG=info tells more.\n"
    "Traffic is plain text and unauthenticated in this version.\n";

constexpr uint16_t kPortDefault = 48148;

int usage_error(const std::string& what) {
  std::fprintf(stderr, "pccl master: %s\n\n%s", what.c_str(), kUsage);
  return 2;
}

bool parse_port(const char* text, uint16_t& port) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || value < 0 || value > 65535) return false;
  port = static_cast<uint16_t>(value);
  return true;
}

int serve(const pccl::net::Endpoint& at) {
  // Before any thread starts, so that all inherit it and the signals come here.
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGINT);
  sigaddset(&ending, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  auto shell = pccl::master::Shell::open(at);
  if (!shell.ok()) {
    std::fprintf(stderr, "pccl master: %s\n", shell.status().message.c_str());
    return 1;
  }
  if (!at.host.starts_with("127.") && at.host != "::1" && at.host != "localhost") {
    pccl::log(pccl::LogLevel::kWarning, "listening beyond this machine: traffic is plain text and unauthenticated");
  }
  const pccl::net::Endpoint ready{at.host, shell.value()->port()};
  std::printf("pccl master listening on %s\n", pccl::net::text(ready).c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&ending, &signal);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  pccl::net::Endpoint at{"127.0.0.1", kPortDefault};
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--help" || option == "-h") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (option != "--host" && option != "--port") return usage_error("unknown argument \"" + option + "\"");
    if (++i == argc) return usage_error(option + " needs a value");
    if (option == "--host") at.host = argv[i];
    else if (!parse_port(argv[i], at.port)) return usage_error(std::string("--port is \"") + argv[i] + "\", not a number from 0 to 65535");
  }
  const char* const level = std::getenv("PCCL_LOG");
  if (level != nullptr && !pccl::set_log_level(level)) {
    return usage_error(std::string("PCCL_LOG is \"") + level + "\"; it must be error, warning, info or debug");
  }
  return serve(at);
}
