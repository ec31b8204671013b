// Normal case: the socket is created under a random name, gets its rights, listens, and is renamed
// to its path, where it replaces the socket of a dead master. So no client finds a socket that is
// open to others or not ready. A client sends its line, the handler answers, and the stream closes
// after the answer.
// Failures: if another kind of file is at the path, open() fails. If a client sends no valid
// request, it gets an error answer. If it sends nothing or does not read, its connection is closed.
#include "master/shell/control_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <vector>

#include "csrc/base/log.h"
#include "csrc/net/descriptors.h"
#include "csrc/net/socket.h"
#include "csrc/net/stream.h"
#include "master/shell/files.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

constexpr mode_t kRights = 0600;
constexpr FileKind kSocket = {
    S_IFSOCK, "a socket", "move it away, or name another journal with --journal", kOtherJournal};

// A temporary name of the socket. It is short, because an address has room for 107 bytes only.
std::string passing_name() { return ".pccl-" + std::to_string(std::random_device()()); }

// Binds the socket to `name` in `folder`, whose path may be longer than an address.
bool bind_in(const std::string& path, const File& folder, const std::string& name,
             const net::Socket& socket) {
  const sockaddr_un address = socket_address(path, folder, name);
  return ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// Whether the other end is a process of our user or of root. The rights of the socket file already
// ensure this.
bool is_trusted(const net::Socket& socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

}  // namespace

struct ControlSocket::Impl {
  struct Connection {
    std::unique_ptr<net::Stream> stream;
    std::unique_ptr<net::Timer> timeout;
    std::string request;    // the part received so far
    bool complete = false;  // the request; what comes after it is dropped
  };

  Impl(net::Loop& on, std::string at, Handler to)
      : loop(on), path(std::move(at)), handler(std::move(to)) {}

  Status open();
  Status take_place(net::Socket& socket, const std::string& passing);
  void leave_place() const;
  void accept(net::Socket socket);
  void on_bytes(uint64_t id, std::span<const std::byte> bytes);
  void handle(uint64_t id, std::string_view line);
  void answer(uint64_t id, const nlohmann::json& answer);
  Status refusal(const std::string& what) const {
    return system_error(what + " the control socket " + path +
                        " (--journal names another place, --no-journal does without)");
  }

  net::Loop& loop;
  const std::string path;
  const Handler handler;
  const unsigned fork_count = net::fork_count();
  File folder;
  struct stat ours {};  // the socket's file, once it is at its path
  std::unique_ptr<net::Listener> listener;
  std::map<uint64_t, Connection> connections;
  uint64_t connections_made = 0;
};

Status ControlSocket::Impl::open() {
  const Status status = check_place("the control socket " + path, path, kSocket);
  if (!status.ok()) return status;
  folder = File(::open(folder_of(path).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.open()) return refusal("cannot open the folder of");
  net::Socket socket;
  {
    const net::ForkGuard guard;
    socket = net::Socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  if (!socket) return refusal("cannot make");
  const std::string passing = passing_name();
  if (!bind_in(folder_of(path), folder, passing, socket)) return refusal("cannot make");
  Status placed = take_place(socket, passing);
  if (!placed.ok()) {
    ::unlinkat(folder.get(), passing.c_str(), 0);
    return placed;
  }
  listener = std::make_unique<net::Listener>(
      loop, std::move(socket), [this](net::Socket accepted) { accept(std::move(accepted)); });
  return {};
}

// The umask of the process has limited the rights of the file. The umask belongs to the whole
// process, so the rights are set here instead.
Status ControlSocket::Impl::take_place(net::Socket& socket, const std::string& passing) {
  const std::string name = std::filesystem::path(path).filename();
  struct stat made {};
  if (::fchmodat(folder.get(), passing.c_str(), kRights, AT_SYMLINK_NOFOLLOW) != 0 ||
      ::fstatat(folder.get(), passing.c_str(), &made, AT_SYMLINK_NOFOLLOW) != 0 ||
      ::listen(socket.fd(), kConnectionsMax) != 0)
    return refusal("cannot prepare");
  const Status status = check("the control socket " + path, made, kSocket);
  if (!status.ok()) return status;
  if (::renameat(folder.get(), passing.c_str(), folder.get(), name.c_str()) != 0)
    return refusal("cannot put into its place");
  ours = made;
  return {};
}

void ControlSocket::Impl::leave_place() const {
  if (fork_count != net::fork_count()) return;  // the file is the parent's
  const std::string name = std::filesystem::path(path).filename();
  struct stat found {};
  if (::fstatat(folder.get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (found.st_dev == ours.st_dev && found.st_ino == ours.st_ino)
    ::unlinkat(folder.get(), name.c_str(), 0);
}

void ControlSocket::Impl::accept(net::Socket socket) {
  loop.assert_on_loop();
  if (!is_trusted(socket)) {
    return log(LogLevel::kWarning, "closed a connection of another user to " + path);
  }
  if (connections.size() >= kConnectionsMax) {
    return log(LogLevel::kInfo, "closed a connection to " + path + ": it has " +
                                    count_text(kConnectionsMax, "other") + " already");
  }
  const uint64_t id = ++connections_made;
  Connection& connection = connections[id];
  connection.stream = std::make_unique<net::Stream>(
      loop, std::move(socket),
      net::Stream::Callbacks{[this, id](std::span<const std::byte> bytes) { on_bytes(id, bytes); },
                             [this, id](const Status&) { connections.erase(id); }});
  connection.timeout = std::make_unique<net::Timer>(loop, [this, id] {
    log(LogLevel::kInfo, "closed a connection to " + path + " that did not ask anything");
    connections.erase(id);
  });
  connection.timeout->arm(monotonic_now() + kTimeout);
}

// Never called after the answer, since the stream is closing then.
void ControlSocket::Impl::on_bytes(uint64_t id, std::span<const std::byte> bytes) {
  loop.assert_on_loop();
  Connection& connection = connections.at(id);
  if (connection.complete) return;
  std::string& request = connection.request;
  request.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t end = request.find('\n');
  if (std::min(end, request.size()) > kRequestBytesMax) {
    answer(id, error_answer("the request takes more than " + count_text(kRequestBytesMax, "byte") +
                            " on its line"));
  } else if (end != std::string::npos) {
    connection.complete = true;
    connection.timeout->disarm();  // from now on the client waits for us
    handle(id, std::string_view(request).substr(0, end));
  }
}

void ControlSocket::Impl::handle(uint64_t id, std::string_view line) {
  auto request = parse_request(line);
  if (!request.ok()) return answer(id, error_answer(request.status().message));
  handler(request.value(), [this, id](const nlohmann::json& said) { answer(id, said); });
}

// The client may have gone meanwhile.
void ControlSocket::Impl::answer(uint64_t id, const nlohmann::json& answer) {
  loop.assert_on_loop();
  const auto found = connections.find(id);
  if (found == connections.end()) return;
  Connection& connection = found->second;
  std::string line = answer_line(answer);
  if (line.size() > net::Stream::kQueueBytesMax) {
    line = answer_line(error_answer("the answer takes " + count_text(line.size(), "byte") +
                                    ", more than a connection carries"));
  }
  connection.timeout->disarm();
  connection.stream->send(std::as_bytes(std::span(line)));
  connection.stream->close_after_flush(kTimeout);
}

Result<std::unique_ptr<ControlSocket>> ControlSocket::open(net::Loop& loop, const std::string& path,
                                                           Handler handler) {
  loop.assert_on_loop();
  std::unique_ptr<ControlSocket> control(new ControlSocket());
  control->impl_ = std::make_unique<Impl>(loop, path, std::move(handler));
  const Status status = control->impl_->open();
  if (!status.ok()) return status;
  return control;
}

ControlSocket::ControlSocket() = default;
ControlSocket::~ControlSocket() { impl_->leave_place(); }

}  // namespace pccl::master
