// Normal case: the reader thread reads the whole file and posts the new keyring to the loop, which
// compares it with the old one.
// Failures: whatever is wrong with the file is the answer, and the old keyring stays.
#include "master/shell/keyring_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>

#include "csrc/base/text.h"
#include "master/shell/files.h"

namespace pccl::master {
namespace {

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

  net::Loop& loop;
  const std::string path;
  const size_t count_at_opening;
  Keyring keyring;
  const OnRevoked on_revoked;
  const std::shared_ptr<int> here = std::make_shared<int>();  // expires with this object
  net::Loop reader{"pccl-keyring"};
};

KeyringFile::Revoked KeyringFile::Impl::replace(Keyring next) {
  std::vector<TokenId> gone;
  for (const auto& [id, token] : keyring) {
    if (!next.contains(id)) gone.push_back(id);
  }
  keyring = std::move(next);
  return {gone.size(), gone.empty() ? 0 : on_revoked(gone)};
}

Result<std::unique_ptr<KeyringFile>> KeyringFile::open(net::Loop& loop, const std::string& path,
                                                       OnRevoked on_revoked) {
  Result<Keyring> keyring = read_keyring(path);
  if (!keyring.ok()) return keyring.status();
  std::unique_ptr<KeyringFile> file(new KeyringFile());
  file->impl_ =
      std::make_unique<Impl>(loop, path, std::move(keyring.value()), std::move(on_revoked));
  if (!file->impl_->reader.status().ok()) return file->impl_->reader.status();
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
    // Shared, since a posted task can be copied and a keyring cannot.
    auto read = std::make_shared<Result<Keyring>>(read_keyring(impl->path));
    impl->loop.post([impl, here = std::weak_ptr(impl->here), read, then] {
      if (here.expired()) return;
      if (!read->ok()) return then(read->status());
      then(impl->replace(std::move(read->value())));
    });
  });
}

}  // namespace pccl::master
