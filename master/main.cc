// pccl-master: runs a master until it is told to end. Listens, says so in one line on stdout, waits
// for SIGINT or SIGTERM. Exit codes: 0 ended by a signal, 1 the system refused, 2 wrong usage.

#include <pthread.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "csrc/base/log.h"
#include "master/shell.h"

#ifndef PCCL_VERSION
#define PCCL_VERSION "(unknown version)"
#endif

namespace {

constexpr const char* kUsage =
    "usage: pccl master [--host HOST] [--port PORT]\n"
    "\n"
    "Runs a master: peers find each other through it and agree by way of it. It carries no tensor, "
    "and\n"
    "one master serves many runs by name. It ends at SIGINT (Ctrl-C) or SIGTERM.\n"
    "\n"
    "  --host HOST  address or name to listen on (default 127.0.0.1: this machine only);\n"
    "               0.0.0.0 and :: are every address of this machine\n"
    "  --port PORT  port to listen on (default 48148); 0 is any free one\n"
    "  --version    show the version and exit\n"
    "  --help       show this and exit\n"
    "\n"
    "Environment: PCCL_LOG is error, warning (default), info or debug.\n"
    "Traffic is plain text and nobody proves who they are: use it in networks that you trust.\n";

enum class Mode { kServe, kHelp, kVersion, kWrong };

struct Arguments {
  Mode mode = Mode::kServe;
  pccl::net::Endpoint at{"127.0.0.1", 48148};
  std::string wrong;
};

Arguments wrong(std::string text) { return {Mode::kWrong, {}, std::move(text)}; }

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i], value;
    if (name == "--help" || name == "-h") return {Mode::kHelp, {}, {}};
    if (name == "--version") return {Mode::kVersion, {}, {}};
    const size_t equals = name.find('=');
    const bool joined = equals != std::string::npos;
    if (joined) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    if (name != "--host" && name != "--port") return wrong("unknown argument \"" + name + "\"");
    if (!joined && i + 1 == argc) return wrong(name + " needs a value");
    if (!joined) value = argv[++i];
    if (name == "--host") {
      if (value.empty())
        return wrong("--host is empty: give an address or a name, 0.0.0.0 for all");
      arguments.at.host = value;
      continue;
    }
    const char* const end = value.data() + value.size();
    const auto [at, error] = std::from_chars(value.data(), end, arguments.at.port);
    if (error != std::errc() || at != end) {
      return wrong("--port is \"" + value + "\", a number from 0 to 65535 is needed");
    }
  }
  return arguments;
}

int serve(const pccl::net::Endpoint& at, const sigset_t& ending) {
  auto shell = pccl::master::Shell::open(at);
  if (!shell.ok()) {
    std::fprintf(stderr, "pccl master: %s\n", shell.status().message.c_str());
    return 1;
  }
  if (!pccl::master::is_loopback(at)) {
    pccl::log(
        pccl::LogLevel::kWarning,
        "listening on " + at.host +
            ": traffic is plain text and nobody proves who they are in this version; use it in "
            "networks that you trust");
  }
  const std::string where = text(pccl::net::Endpoint{at.host, shell.value()->port()});
  std::printf("pccl master listening on %s\n", where.c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&ending, &signal);
  pccl::log(pccl::LogLevel::kInfo, std::string("ended by ") + strsignal(signal));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  const char* level = std::getenv("PCCL_LOG");
  switch (arguments.mode) {
    case Mode::kHelp: std::fputs(kUsage, stdout); return 0;
    case Mode::kVersion: std::puts("pccl-master " PCCL_VERSION); return 0;
    case Mode::kWrong:
      std::fprintf(stderr, "pccl master: %s; see pccl master --help\n", arguments.wrong.c_str());
      return 2;
    case Mode::kServe: break;
  }
  if (level != nullptr && *level != '\0' && !pccl::set_log_level(level)) {
    std::fprintf(stderr,
                 "pccl master: PCCL_LOG is \"%s\", allowed are error, warning, info, debug\n",
                 level);
    return 2;
  }
  // Before any thread is made, so that all of them leave these signals to sigwait().
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGINT);
  sigaddset(&ending, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  return serve(arguments.at, ending);
}
