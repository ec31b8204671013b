// Normal case: the socket is opened (socket_file.h). A client sends its line,
// the handler answers, and the stream closes after the answer.
// Failures: if another kind of file is at the path, open() fails. If a client sends no valid
// request, it gets an error answer. If it sends nothing or does not read, its connection is closed.
#include "master/shell/control_socket.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "csrc/base/log.h"
#include "csrc/net/socket.h"
#include "csrc/net/stream.h"
#include "master/shell/socket_file.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

constexpr SocketFile::Use kControlSocket = {
    .name = "the control socket",
    .move_advice = "move it away, or name another journal with --journal",
    .other_advice = "--journal names another place, --no-journal does without",
    .queue = ControlSocket::kConnectionsMax,
};

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
  void accept(net::Socket socket);
  void on_bytes(uint64_t id, std::span<const std::byte> bytes);
  void handle(uint64_t id, std::string_view line);
  void answer(uint64_t id, const nlohmann::json& answer);

  net::Loop& loop;
  const std::string path;
  const Handler handler;
  std::optional<SocketFile> file;
  std::unique_ptr<net::Listener> listener;
  std::map<uint64_t, Connection> connections;
  uint64_t connections_made = 0;
};

Status ControlSocket::Impl::open() {
  auto made = SocketFile::open(path, kControlSocket);
  if (!made.ok()) return made.status();
  file.emplace(std::move(made.value()));
  listener = std::make_unique<net::Listener>(
      loop, file->take_socket(), [this](net::Socket accepted) { accept(std::move(accepted)); });
  return {};
}

void ControlSocket::Impl::accept(net::Socket socket) {
  loop.assert_on_loop();
  if (!SocketFile::is_trusted(socket)) {
    return log(LogLevel::kWarning, LogEvent::kConnectionClosed,
               "closed a connection of another user to " + path);
  }
  if (connections.size() >= kConnectionsMax) {
    return log(LogLevel::kInfo, LogEvent::kConnectionClosed,
               "closed a connection to " + path + ": it has " +
                   count_text(kConnectionsMax, "other") + " already");
  }
  const uint64_t id = ++connections_made;
  Connection& connection = connections[id];
  connection.stream = std::make_unique<net::Stream>(
      loop, std::move(socket),
      net::Stream::Callbacks{[this, id](std::span<const std::byte> bytes) { on_bytes(id, bytes); },
                             [this, id](const Status&) { connections.erase(id); }});
  connection.timeout = std::make_unique<net::Timer>(loop, [this, id] {
    log(LogLevel::kInfo, LogEvent::kConnectionClosed,
        "closed a connection to " + path + " that did not ask anything");
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
ControlSocket::~ControlSocket() = default;

}  // namespace pccl::master
