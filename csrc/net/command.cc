// Normal case: a memory file has the input, and uv_spawn() starts the shell in a process group of
// its own. libuv reports its end.
// Failure: after `limit`, the whole group is killed, and libuv then reports the end of the shell.

#include "csrc/net/command.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "csrc/base/assert.h"
#include "csrc/net/handle.h"

namespace pccl::net {
namespace {

Status failed(std::string text) { return {Code::kSystem, std::move(text), {}}; }

// A file without a name that has `text`, and is read from its beginning. -1: see errno.
int memory_file(const std::string& text) {
  const int fd = memfd_create("pccl-input", MFD_CLOEXEC);
  if (fd < 0) return fd;
  if (::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::lseek(fd, 0, SEEK_SET) == 0)
    return fd;
  ::close(fd);
  return -1;
}

}  // namespace

class Command::Child : public Handle {
 public:
  using OnExit = std::function<void(int64_t code, int signal)>;

  // Null, with the reason in `why`, if it cannot be started.
  static std::shared_ptr<Child> start(const std::shared_ptr<Loop::Impl>& loop,
                                      const std::string& line, int input, OnExit on_exit,
                                      std::string& why) {
    loop->assert_on_loop();
    std::shared_ptr<Child> child(new Child(loop));
    child->on_exit_ = std::move(on_exit);
    std::string shell = "/bin/sh", flag = "-c", text = line;
    char* arguments[] = {shell.data(), flag.data(), text.data(), nullptr};
    uv_stdio_container_t io[3];
    io[0].flags = io[2].flags = UV_INHERIT_FD;
    io[0].data.fd = input;
    io[1].flags = UV_IGNORE;
    io[2].data.fd = STDERR_FILENO;
    uv_process_options_t options{};
    options.exit_cb = &Child::on_exit;
    options.file = shell.c_str();
    options.args = arguments;
    options.flags = UV_PROCESS_DETACHED;  // a session, and so a process group, of its own
    options.stdio_count = 3;
    options.stdio = io;
    const int error = uv_spawn(&loop->uv, &child->process_, &options);
    child->opened(reinterpret_cast<uv_handle_t*>(&child->process_));
    if (error == 0) return child;
    child->ended_ = true;
    child->close();
    why = uv_strerror(error);
    return nullptr;
  }

  void kill_group() {
    if (!ended_) ::kill(-process_.pid, SIGKILL);
  }

 private:
  using Handle::Handle;
  static void on_exit(uv_process_t* raw, int64_t code, int signal) {
    auto* child = static_cast<Child*>(static_cast<Handle*>(raw->data));
    Loop::Impl& loop = *child->loop_;
    // The children of the shell that still run.
    ::kill(-raw->pid, SIGKILL);
    child->ended_ = true;
    const OnExit then = child->on_exit_;  // it may close this handle
    then(code, signal);
    loop.after_callback();
  }
  void release() override { on_exit_ = nullptr; }

  uv_process_t process_;
  OnExit on_exit_;
  bool ended_ = false;
};

Command::Command(Loop& loop, const std::string& line, const std::string& input, Duration limit,
                 OnEnd on_end)
    : on_end_(std::move(on_end)), limit_(limit) {
  loop.assert_on_loop();
  const int fd = memory_file(input);
  std::string why = fd < 0 ? std::strerror(errno) : "";
  const auto killed = std::make_shared<bool>(false);
  if (fd >= 0) {
    const auto on_exit = [this, killed](int64_t code, int signal) {
      if (*killed) return end(failed("took longer than " + text(limit_) + ", and was killed"));
      if (signal != 0) return end(failed(std::string("was ended by ") + strsignal(signal)));
      end(code == 0 ? Status() : failed("has ended with status " + std::to_string(code)));
    };
    child_ = Child::start(loop.impl(), line, fd, on_exit, why);
    ::close(fd);
  }
  if (child_ != nullptr) {
    timer_ = std::make_unique<Timer>(loop, [this, killed] {
      *killed = true;
      child_->kill_group();
    });
    timer_->arm(monotonic_now() + limit);
  } else {
    timer_ = std::make_unique<Timer>(loop, [this, why] { end(failed("cannot start: " + why)); });
    timer_->arm(monotonic_now());
  }
}

Command::~Command() {
  if (child_ == nullptr) return;
  child_->kill_group();
  child_->close();
}

void Command::end(const Status& status) {
  if (child_ != nullptr) std::exchange(child_, nullptr)->close();
  timer_->disarm();
  const OnEnd then = on_end_;  // it may destroy this object
  then(status);
}

}  // namespace pccl::net
