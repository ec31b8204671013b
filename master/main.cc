// pccl-master: runs a master until a signal ends it. It listens, prints its address in one line on
// stdout, then the runs that it remembers, and waits for SIGINT or SIGTERM. It ignores SIGHUP, so
// that it outlives its terminal. Exit codes: 0 ended by a signal, 1 the system refused, the journal
// failed or there was no memory left, 2 wrong usage.

#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/log.h"
#include "csrc/base/text.h"
#include "csrc/net/descriptors.h"
#include "csrc/net/library_check.h"
#include "csrc/protocol/shares.h"
#include "csrc/protocol/version.h"
#include "master/http/place.h"
#include "master/shell/http_server.h"
#include "master/shell/loopback.h"
#include "master/shell/shell.h"
#include "master/shell/user_folders.h"

namespace {

constexpr const char* kUsage =
    "usage: pccl master [--host HOST] [--port PORT] [--journal PATH | --no-journal] [--new]\n"
    "                   [--keep-days DAYS] [--resume-from REVISION:HASH [--run NAME] [--group "
    "NUMBER]]\n"
    "                   [--keyring PATH | --insecure] [--log-format FORMAT]\n"
    "                   [--http PLACE [--http-behind-proxy HOST]]\n"
    "                   [--notify COMMAND [--notify-after SECONDS]]\n"
    "\n"
    "Runs a master: peers find each other through it and agree by way of it. It carries no tensor, "
    "and\n"
    "one master serves many runs by name. It ends at SIGINT (Ctrl-C) or SIGTERM, and ignores "
    "SIGHUP.\n"
    "\n"
    "  --host HOST     address or name to listen on (default 127.0.0.1: this machine only);\n"
    "                  0.0.0.0 and :: are every address of this machine\n"
    "  --port PORT     port to listen on (default 48148); 0 is any free one\n"
    "  --journal PATH  where it remembers its runs: started again with the same journal and "
    "address,\n"
    "                  it goes on with them (default ~/.local/state/pccl/master-PORT.journal; "
    "none\n"
    "                  with --port 0); `pccl runs`, `forget` and `token revoke` reach it by "
    "the\n"
    "                  socket beside it, PATH.sock, which is for this user only\n"
    "  --no-journal    remember nothing: when this master ends, its runs do\n"
    "  --new           begin afresh; what the journal held stays beside it as PATH.old\n"
    "  --keep-days DAYS\n"
    "                  a run that has ended is forgotten after so long (default 30), with the\n"
    "                  revision of its shared state; at most 1,024 runs of one network are "
    "remembered\n"
    "  --resume-from REVISION:HASH\n"
    "                  let a run go on from an older shared state (a checkpoint) than the one it\n"
    "                  agreed on last; both are in the error that refused it\n"
    "  --run NAME      the run that --resume-from is for, if the journal knows more than one\n"
    "  --group NUMBER  its peer group (default 0)\n"
    "  --keyring PATH  admit only peers with a token of this file, and encrypt all traffic. `pccl "
    "token`\n"
    "                  makes tokens (default with a --host beyond this machine:\n"
    "                  ~/.local/state/pccl/keyring)\n"
    "  --insecure      admit everybody who can reach --host, in plain text: only for networks "
    "that\n"
    "                  you trust. Peers on other machines need PCCL_INSECURE=1\n"
    "  --log-format FORMAT\n"
    "                  how the lines on stderr look: text (default), or json, one object a line\n"
    "  --notify COMMAND\n"
    "                  run this line of the shell when something stands still, and when that is "
    "over;\n"
    "                  it gets the finding as JSON on its standard input\n"
    "  --notify-after SECONDS\n"
    "                  for so long it must have stood still (default 60)\n"
    "  --http PLACE    show the runs in a browser, and serve /metrics: PORT (of 127.0.0.1), "
    "ADDRESS:PORT,\n"
    "                  or unix:PATH; off by default. From another machine: `ssh -L "
    "PORT:localhost:PORT`.\n"
    "                  With a keyring it asks for a user and a password, which `pccl token\n"
    "                  http-password` prints; not at unix:PATH, which is for this user only\n"
    "  --http-behind-proxy HOST\n"
    "                  a proxy with TLS serves these pages as HOST: only then may the ADDRESS of "
    "--http\n"
    "                  be one that other machines reach\n"
    "  --version       show the version and exit\n"
    "  --help          show this and exit\n"
    "\n"
    "Environment: PCCL_LOG is error, warning, info (default) or debug.\n";

constexpr int kNotifyAfterMax = 86400;

enum class Mode { kServe, kHelp, kVersion, kWrong };

struct Arguments {
  Mode mode = Mode::kServe;
  pccl::net::Endpoint at{"127.0.0.1", pccl::master::kPortDefault};
  std::optional<std::string> journal;  // none: the default path
  bool forgets = false;
  bool fresh = false;
  std::string keyring;  // empty: none
  bool insecure = false;
  int keep_days = pccl::master::kKeepDaysDefault;
  std::optional<pccl::master::Resumption> resume_from;
  std::vector<uint16_t> shares;
  pccl::LogFormat log_format = pccl::LogFormat::kText;
  pccl::master::Notifier::Options notify;
  std::optional<pccl::master::http::Place> http;
  std::string proxy;  // empty: none
  std::string wrong;
};

Arguments wrong(std::string text) {
  Arguments arguments;
  arguments.mode = Mode::kWrong;
  arguments.wrong = std::move(text);
  return arguments;
}

template <typename Number>
bool parse_number(const std::string& text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && at == end;
}

// Parses the shares of the direct pattern: "86,85,0,85". Empty if they make no sense.
std::vector<uint16_t> parse_shares(const std::string& text) {
  std::vector<uint16_t> shares;
  std::istringstream list(text);
  for (std::string share; std::getline(list, share, ',');) {
    if (!parse_number(share, shares.emplace_back())) return {};
  }
  if (text.ends_with(',') || shares.size() > pccl::protocol::kMembersMax) return {};
  return pccl::protocol::are_shares(shares, shares.size()) ? shares : std::vector<uint16_t>();
}

// Parses one `--name value` about reports to the operator. Returns an error text, empty if there is
// none; nothing if there is no such option.
std::optional<std::string> take_report(Arguments& arguments, const std::string& name,
                                       const std::string& value) {
  if (name == "--log-format") {
    if (value == "json") arguments.log_format = pccl::LogFormat::kJson;
    const bool fine = value == "text" || value == "json";
    return fine ? "" : "--log-format is \"" + value + "\", text or json is needed";
  }
  if (name == "--notify") {
    arguments.notify.command = value;
    return value.empty() ? "--notify is empty: give a command" : "";
  }
  if (name != "--notify-after") return std::nullopt;
  int seconds = 0;
  const bool fine = parse_number(value, seconds) && seconds >= 0 && seconds <= kNotifyAfterMax;
  arguments.notify.after = std::chrono::seconds(seconds);
  return fine ? ""
              : "--notify-after is \"" + value + "\", a whole number of seconds from 0 to " +
                    std::to_string(kNotifyAfterMax) + " is needed";
}

// Parses one `--name value`. Returns an error text; empty if there is none.
std::string take(Arguments& arguments, const std::string& name, const std::string& value) {
  if (auto error = take_report(arguments, name, value)) return *error;
  if (name == "--host") {
    const bool bracketed = value.size() > 2 && value.front() == '[' && value.back() == ']';
    arguments.at.host = bracketed ? value.substr(1, value.size() - 2) : value;  // as in a URL
    return value.empty() ? "--host is empty: give an address or a name, 0.0.0.0 for all" : "";
  }
  if (name == "--port") {
    return parse_number(value, arguments.at.port)
               ? ""
               : "--port is \"" + value + "\", a number from 0 to 65535 is needed";
  }
  if (name == "--journal") {
    arguments.journal = value;
    return value.empty() ? "--journal is empty: give a path, or --no-journal" : "";
  }
  if (name == "--keyring") {
    arguments.keyring = value;
    return value.empty() ? "--keyring is empty: give the path of a keyring" : "";
  }
  if (name == "--keep-days") {
    const bool fine = parse_number(value, arguments.keep_days) && arguments.keep_days >= 1 &&
                      arguments.keep_days <= pccl::master::kKeepDaysMax;
    return fine ? ""
                : "--keep-days is \"" + value + "\", a whole number of days from 1 to " +
                      std::to_string(pccl::master::kKeepDaysMax) + " is needed";
  }
  if (name == "--http") {
    auto place = pccl::master::http::parse_place(value);
    if (!place.ok()) return place.status().message;
    arguments.http = std::move(place.value());
    return "";
  }
  if (name == "--http-behind-proxy") {
    auto host = pccl::master::http::parse_proxy(value);
    if (!host.ok()) return host.status().message;
    arguments.proxy = std::move(host.value());
    return "";
  }
  if (name == "--shares") {  // for experiments, so the usage does not name it
    arguments.shares = parse_shares(value);
    return arguments.shares.empty()
               ? "--shares is \"" + value +
                     "\", one number per rank with commas between them is "
                     "needed: the parts of an all-reduce that the ranks own, in 256ths, so that "
                     "their sum is 256. For example 86,85,0,85"
               : "";
  }
  if (name == "--resume-from") {
    arguments.resume_from = pccl::master::parse_resumption(value);
    return arguments.resume_from ? ""
                                 : "--resume-from is \"" + value +
                                       "\", REVISION:HASH is needed, for example "
                                       "120:00c0ffee00c0ffee";
  }
  return "unknown argument \"" + name + "\"";
}

// Returns the flag that the option `name` sets; null if there is no such option without a value.
bool* flag_of(Arguments& arguments, const std::string& name) {
  if (name == "--no-journal") return &arguments.forgets;
  if (name == "--new") return &arguments.fresh;
  return name == "--insecure" ? &arguments.insecure : nullptr;
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  std::string run, group;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i], value;
    if (name == "--help" || name == "-h" || name == "--version") {
      arguments.mode = name == "--version" ? Mode::kVersion : Mode::kHelp;
      return arguments;
    }
    if (bool* const flag = flag_of(arguments, name)) {
      *flag = true;
      continue;
    }
    const size_t equals = name.find('=');
    const bool joined = equals != std::string::npos;
    if (joined) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    if (!name.starts_with("--")) return wrong("unknown argument \"" + name + "\"");
    if (!joined && i + 1 == argc) return wrong(name + " needs a value, or is unknown");
    if (!joined) value = argv[++i];
    if (name == "--run" || name == "--group") {
      (name == "--run" ? run : group) = value;
      continue;
    }
    const std::string why = take(arguments, name, value);
    if (!why.empty()) return wrong(why);
  }
  if (arguments.forgets && (arguments.journal || arguments.fresh || arguments.resume_from)) {
    return wrong("--no-journal goes with none of --journal, --new and --resume-from");
  }
  if (arguments.insecure && !arguments.keyring.empty()) {
    return wrong("--keyring and --insecure exclude each other: a master asks for tokens or not");
  }
  if (!arguments.http && !arguments.proxy.empty()) {
    return wrong(
        "--http-behind-proxy names the host of a proxy for the pages of --http: give that "
        "too");
  }
  if (!arguments.resume_from) {
    const bool lonely = !run.empty() || !group.empty();
    return lonely ? wrong("--run and --group say what --resume-from is for: give it too")
                  : arguments;
  }
  arguments.resume_from->run = run;
  if (group.empty() || parse_number(group, arguments.resume_from->group.value)) return arguments;
  return wrong("--group is \"" + group + "\", the number of a peer group is needed");
}

// Decides on admission: sets the path of the keyring, unless all peers are admitted. Returns an
// error text; empty if there is none.
std::string choose_keyring(const Arguments& arguments, std::string& keyring) {
  keyring = arguments.keyring;
  if (!keyring.empty() || arguments.insecure || pccl::master::is_loopback(arguments.at)) return "";
  const auto folder = pccl::master::state_folder();
  if (!folder) return "HOME is not set: give --keyring PATH, or --insecure";
  keyring = *folder + "keyring";
  if (access(keyring.c_str(), F_OK) == 0) return "";
  return "listening on " + arguments.at.host + " needs a keyring, and there is none at " + keyring +
         ": make a token for each who may join with `pccl token new NAME`, or give --insecure to "
         "admit everybody, in plain text";
}

// Returns an error text if the pages may not be served where --http wants them; else an empty text.
std::string refuse_http(const Arguments& arguments, const std::string& keyring) {
  if (!arguments.http) return "";
  const pccl::master::http::Place& place = *arguments.http;
  const pccl::Status status = pccl::master::HttpServer::refuse(place, arguments.proxy);
  if (!status.ok()) return status.message;
  const bool local = !place.socket.empty() || pccl::master::is_loopback(place.at);
  if (local || arguments.insecure || !keyring.empty()) return "";
  return "--http is " + text(place.at) +
         ", which other machines may reach, and this master has no keyring: make a token with "
         "`pccl token new NAME --role observer` and give --keyring PATH, or give --insecure to "
         "show the runs to everybody";
}

// Prints the lines about admission, and warns of a keyring without tokens.
void print_admission(const Arguments& arguments, const std::string& keyring, size_t token_count) {
  if (keyring.empty()) {
    const bool local = pccl::master::is_loopback(arguments.at);
    std::printf("admits everybody%s, in plain text\n", local ? " on this machine" : "");
    return;
  }
  if (token_count == 0) {
    pccl::log(pccl::LogLevel::kWarning, pccl::LogEvent::kKeyringRead,
              "the keyring " + keyring +
                  " has no token, so nobody can join. Make one with `pccl token new NAME "
                  "--keyring " +
                  keyring + "`: this master notices it within a second");
  }
  const std::string tokens = pccl::count_text(token_count, "token");
  std::printf("admits only peers with a token (%s in %s)\n", tokens.c_str(), keyring.c_str());
}

// Whether the journal could not be written. end_for() then ends the process as a signal would, but
// serve() returns 1.
std::atomic<bool> journal_failed{false};

void end_for(const pccl::Status& why) {
  pccl::log(pccl::LogLevel::kError, pccl::LogEvent::kJournalFailed,
            why.message +
                ": this master ends, since what it decides would not be durable. Peers wait "
                "PCCL_MASTER_TIMEOUT for the next");
  journal_failed = true;
  kill(getpid(), SIGTERM);
}

// Ends the process when operator new finds no memory. Any thread may call it, and the others go on
// meanwhile: it allocates nothing, takes no lock and runs no destructor. For the peers and for the
// journal it is the same as a kill.
[[noreturn]] void end_without_memory() {
  constexpr std::string_view kText =
      "pccl master: there is no memory left, so this master ends. Start it again with a higher "
      "limit (ulimit -v), or let it serve fewer runs and peers: it goes on from its journal\n";
  static constinit std::atomic_flag reported;
  while (reported.test_and_set()) pause();  // another thread ends the process
  pollfd output{STDERR_FILENO, POLLOUT, 0};
  // The text is lost if nothing reads stderr, because a write to a full pipe would never return.
  if (poll(&output, 1, 0) > 0) static_cast<void>(!write(STDERR_FILENO, kText.data(), kText.size()));
  _exit(1);
}

// The memory of this process has the secrets of all tokens. Now no core dump is made of it, and
// only root can read it or attach a debugger. The leak detection of the address sanitizer still
// works, because it lifts this for its own duration.
void keep_memory_private() {
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0) return;
  pccl::log(pccl::LogLevel::kWarning, pccl::LogEvent::kInsecure,
            std::string("cannot turn off core dumps (") + std::strerror(errno) +
                "), and one would have the secrets of all tokens. Start this master with ulimit -c "
                "0");
}

// Programs that read the log as JSON get the findings there, too. People have `pccl status`.
void report_to_operator(const Arguments& arguments, pccl::master::Shell& shell,
                        const std::string& where) {
  const bool json = arguments.log_format == pccl::LogFormat::kJson;
  if (json) pccl::log(pccl::LogLevel::kInfo, pccl::LogEvent::kMasterStarted, "listens on " + where);
  if (json || !arguments.notify.command.empty()) shell.notify(arguments.notify);
}

int serve(const Arguments& arguments, const sigset_t& ending) {
  const pccl::net::Endpoint& at = arguments.at;
  pccl::master::Remembering remembering{
      {}, arguments.fresh, arguments.resume_from, arguments.keep_days, end_for};
  const bool by_default = !arguments.journal && !arguments.forgets;
  if (arguments.journal) remembering.path = *arguments.journal;
  if (by_default && at.port != 0) {
    const auto folder = pccl::master::state_folder();
    if (!folder) {
      std::fprintf(stderr, "pccl master: HOME is not set: give --journal PATH, or --no-journal\n");
      return 2;
    }
    remembering.path = *folder + "master-" + std::to_string(at.port) + ".journal";
  }
  if (remembering.path.empty() && (arguments.fresh || arguments.resume_from)) {
    std::fprintf(stderr,
                 "pccl master: with --port 0, --new and --resume-from need --journal PATH\n");
    return 2;
  }
  std::string keyring;
  std::string why = choose_keyring(arguments, keyring);
  if (why.empty()) why = refuse_http(arguments, keyring);
  if (!why.empty()) {
    std::fprintf(stderr, "pccl master: %s\n", why.c_str());
    return 2;
  }
  auto shell = pccl::master::Shell::open(at, remembering, {}, pccl::protocol::kSpoken, {keyring},
                                         arguments.shares);
  if (!shell.ok()) {
    std::fprintf(stderr, "pccl master: %s\n", shell.status().message.c_str());
    return shell.status().code == pccl::Code::kInvalidArgument ? 2 : 1;
  }
  pccl::Result<std::string> url = std::string();
  if (arguments.http) url = shell.value()->open_http(*arguments.http, arguments.proxy);
  if (!url.ok()) {
    std::fprintf(stderr, "pccl master: %s\n", url.status().message.c_str());
    return 1;
  }
  if (arguments.insecure) {
    pccl::log(pccl::LogLevel::kWarning, pccl::LogEvent::kInsecure,
              "started with --insecure: everybody who can reach " + at.host +
                  " may join, read tensors and change them. Use it only in a network that you "
                  "trust");
  }
  const std::string where = text(pccl::net::Endpoint{at.host, shell.value()->port()});
  report_to_operator(arguments, *shell.value(), where);
  std::printf("pccl master listening on %s\n", where.c_str());
  print_admission(arguments, keyring, shell.value()->token_count());
  if (arguments.http) std::printf("shows its runs at %s\n", url.value().c_str());
  if (!remembering.path.empty()) {
    std::printf("remembers its runs in %s\n", remembering.path.c_str());
    for (const std::string& line : shell.value()->remembered()) std::printf("%s\n", line.c_str());
  }
  std::fflush(stdout);
  int signal = 0;
  sigwait(&ending, &signal);
  if (journal_failed) return 1;
  pccl::log(pccl::LogLevel::kInfo, pccl::LogEvent::kMasterEnded,
            std::string("ended by ") + strsignal(signal));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  pccl::net::open_standard_descriptors();  // before the journal is opened
  std::set_new_handler(end_without_memory);
  const Arguments arguments = parse(argc, argv);
  const char* level = std::getenv("PCCL_LOG");
  switch (arguments.mode) {
    case Mode::kHelp: std::fputs(kUsage, stdout); return 0;
    case Mode::kVersion: std::printf("pccl-master %s\n", pccl::protocol::kRelease); return 0;
    case Mode::kWrong:
      std::fprintf(stderr, "pccl master: %s; see pccl master --help\n", arguments.wrong.c_str());
      return 2;
    case Mode::kServe: break;
  }
  // The default level is "info", because the log of a master is the history of its runs. It stays
  // short: members seldom come and go.
  if (level == nullptr || *level == '\0') level = "info";
  if (!pccl::set_log_level(level)) {
    std::fprintf(stderr,
                 "pccl master: PCCL_LOG is \"%s\", allowed are error, warning, info, debug\n",
                 level);
    return 2;
  }
  pccl::set_log_format(arguments.log_format);
  if (const pccl::Status status = pccl::net::check_libraries(nullptr); !status.ok()) {
    std::fprintf(stderr, "pccl master: %s\n", status.message.c_str());
    return 1;
  }
  keep_memory_private();  // before the keyring is read
  // These calls precede the start of any thread, so that all threads leave these signals to
  // sigwait().
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // makes the limit on a file's size an error, like a full disk
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGINT);
  sigaddset(&ending, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  return serve(arguments, ending);
}
