// Normal case: the reader thread reads the whole file and posts the new keyring to the loop, which
// compares it with the old one. It also looks at the file's times again and again, and reads it
// after a change.
// Failures: a fault of the file is returned or logged, and the old keyring stays.
#include "master/shell/keyring_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "csrc/base/file_stamp.h"
#include "csrc/base/log.h"
#include "csrc/base/text.h"
#include "master/shell/files.h"

namespace pccl::master {
namespace {

constexpr Duration kReported = std::chrono::seconds(10);
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
constexpr FileKind kKeyringFile = {S_IFREG, "a file", "name the file itself with --keyring",
                                   "a master reads a keyring of its own user, or of root"};

std::string mode_text(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", mode & 07777u);
  return text;
}

Status check_file(const std::string& what, const std::string& path, const struct stat& found) {
  Status status = check(what, found, kKeyringFile);
  if (!status.ok()) return status;
  if ((found.st_mode & kOthers) != 0) {
    return {Code::kSystem,
            what + " is open to others (mode " + mode_text(found.st_mode) + "): run `chmod 600 " +
                path + "`, and make new tokens if somebody may have read it",
            {}};
  }
  if (static_cast<uint64_t>(found.st_size) <= kKeyringBytesMax) return {};
  return {Code::kSystem,
          what + " takes " + count_text(static_cast<uint64_t>(found.st_size), "byte") +
              ", and at most " + std::to_string(kKeyringBytesMax) +
              " are read: is it a keyring? If so, revoke tokens that nobody uses",
          {}};
}

// The reason for errno, which open_file() has set.
Status refusal_to_open(const std::string& what, const std::string& path) {
  if (errno == ENOENT) {
    return {Code::kSystem,
            "there is no keyring " + path + ": `pccl token new` makes one with its first token",
            {}};
  }
  const Status system = system_error("cannot open " + what);
  const Status place =
      check_place(what, path, kKeyringFile);  // a link, or the file of another user
  return place.ok() ? system : place;
}

// Reads up to `text.size()` bytes. Returns false if the system refuses.
bool read_into(const File& file, std::string& text) {
  size_t at = 0;
  while (at < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + at, text.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) break;
    at += static_cast<size_t>(got);
  }
  text.resize(at);
  return true;
}

}  // namespace

// A keyring is replaced as a whole, never changed, so its size does not change after fstat().
Result<Keyring> read_keyring(const std::string& path) {
  const std::string what = "the keyring " + path;
  const File file = open_file(path, O_RDONLY);
  if (!file.open()) return refusal_to_open(what, path);
  struct stat found {};
  if (::fstat(file.get(), &found) != 0) return system_error("cannot look at " + what);
  const Status status = check_file(what, path, found);
  if (!status.ok()) return status;
  std::string text(static_cast<size_t>(found.st_size), '\0');
  if (!read_into(file, text)) return system_error("cannot read " + what);
  Result<Keyring> keyring = parse_keyring(text);
  wipe(text);
  if (!keyring.ok()) return Status{Code::kSystem, what + " " + keyring.status().message, {}};
  return keyring;
}

struct KeyringFile::Impl {
  Impl(net::Loop& on, std::string at, Keyring read, OnRevoked to)
      : loop(on),
        path(std::move(at)),
        count_at_opening(read.size()),
        keyring(std::move(read)),
        on_revoked(std::move(to)) {}

  Revoked replace(Keyring next);
  void read(std::function<void(Result<Revoked>)> then);
  void look();

  net::Loop& loop;
  const std::string path;
  const size_t count_at_opening;
  Keyring keyring;
  const OnRevoked on_revoked;
  const std::shared_ptr<int> here = std::make_shared<int>();  // expires with this object
  std::unique_ptr<net::Timer> looks;
  // The numbers of tokens and peers that a look has revoked lately. `pccl token revoke` changes the
  // file first, and asks the master then. A look in between finds the change first, so the answer
  // to the request adds these numbers.
  Revoked unreported;
  Instant unreported_until;
  FileStamp stamp;  // of the last read; for the reader thread only, once it runs
  net::Loop reader{"pccl-keyring"};
};

KeyringFile::Revoked KeyringFile::Impl::replace(Keyring next) {
  loop.assert_on_loop();
  std::vector<TokenId> gone;
  for (const auto& [id, token] : keyring) {
    if (!next.contains(id)) gone.push_back(id);
  }
  keyring = std::move(next);
  return {gone.size(), gone.empty() ? 0 : on_revoked(gone)};
}

// Shared, since a posted task can be copied and a keyring cannot.
void KeyringFile::Impl::read(std::function<void(Result<Revoked>)> then) {
  stamp = FileStamp::of(path);  // before the content, so that a change in between is found later
  auto result = std::make_shared<Result<Keyring>>(read_keyring(path));
  loop.post([this, here_still = std::weak_ptr(here), result, then = std::move(then)] {
    if (here_still.expired()) return;
    if (!result->ok()) return then(result->status());
    then(replace(std::move(result->value())));
  });
}

void KeyringFile::Impl::look() {
  loop.assert_on_loop();
  reader.post([this] {
    if (FileStamp::of(path) == stamp) return;
    read([this](Result<Revoked> done) {
      if (!done.ok())
        return log(LogLevel::kWarning, LogEvent::kKeyringRead,
                   done.status().message + ". This master keeps its tokens");
      const auto& [tokens, peers] = unreported = done.value();
      unreported_until = monotonic_now() + kReported;
      log(LogLevel::kInfo, tokens > 0 ? LogEvent::kTokenRevoked : LogEvent::kKeyringRead,
          "read the keyring again, which has changed: it has " +
              count_text(keyring.size(), "token") + " now; " + count_text(tokens, "token") +
              " revoked, and " + count_text(peers, "peer") + " removed");
    });
  });
  looks->arm(monotonic_now() + kLook);
}

Result<std::unique_ptr<KeyringFile>> KeyringFile::open(net::Loop& loop, const std::string& path,
                                                       OnRevoked on_revoked) {
  const FileStamp stamp = FileStamp::of(path);
  Result<Keyring> keyring = read_keyring(path);
  if (!keyring.ok()) return keyring.status();
  std::unique_ptr<KeyringFile> file(new KeyringFile());
  file->impl_ =
      std::make_unique<Impl>(loop, path, std::move(keyring.value()), std::move(on_revoked));
  Impl* const impl = file->impl_.get();
  if (!impl->reader.status().ok()) return impl->reader.status();
  impl->stamp = stamp;
  loop.post([impl, here = std::weak_ptr(impl->here)] {
    if (here.expired()) return;
    impl->looks = std::make_unique<net::Timer>(impl->loop, [impl] { impl->look(); });
    impl->looks->arm(monotonic_now() + kLook);
  });
  return file;
}

KeyringFile::KeyringFile() = default;

KeyringFile::~KeyringFile() {
  if (impl_ != nullptr) impl_->reader.stop();
}

const std::string& KeyringFile::path() const { return impl_->path; }

size_t KeyringFile::count_at_opening() const { return impl_->count_at_opening; }

const Keyring& KeyringFile::keyring() const {
  impl_->loop.assert_on_loop();
  return impl_->keyring;
}

void KeyringFile::read_again(std::function<void(Result<Revoked>)> then) {
  impl_->loop.assert_on_loop();
  Impl* const impl = impl_.get();
  impl->reader.post([impl, then = std::move(then)] {
    impl->read([impl, then](Result<Revoked> done) {
      const Revoked before = std::exchange(impl->unreported, {});
      if (!done.ok()) return then(std::move(done));
      Revoked all = done.value();
      if (monotonic_now() < impl->unreported_until) {
        all.tokens += before.tokens;
        all.peers += before.peers;
      }
      then(all);
    });
  });
}

}  // namespace pccl::master
