#include "master/shell/journal_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "csrc/base/assert.h"
#include "csrc/base/log.h"
#include "csrc/net/loop.h"
#include "master/runs/journal_compaction.h"
#include "master/shell/files.h"

namespace pccl::master {
namespace {

using Bytes = std::vector<std::byte>;

constexpr FileKind kFile = {S_IFREG, "a file",
                            "name the file itself with --journal, or do without (--no-journal)",
                            kOtherJournal};

// Checks the opened file, since a different one may have taken its place after the check of the
// path.
Status check_file(const std::string& what, const File& file) {
  struct stat found {};
  if (::fstat(file.get(), &found) != 0) return system_error("cannot look at " + what);
  return check(what, found, kFile);
}

Status write_all(const File& file, const Bytes& bytes, const std::string& path) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t wrote = ::write(file.get(), bytes.data() + at, bytes.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return system_error("cannot write to the journal " + path);
    at += static_cast<size_t>(wrote);
  }
  return {};
}

Status make_durable(const File& file, const std::string& path) {
  if (::fsync(file.get()) == 0) return {};
  return system_error("cannot make the journal " + path + " durable");
}

Result<Bytes> read_all(const std::string& path) {
  const File file = open_file(path, O_RDONLY);
  if (!file.open() && errno == ENOENT) return Bytes{};
  if (!file.open()) return system_error("cannot read the journal " + path);
  const Status status = check_file("the journal " + path, file);
  if (!status.ok()) return status;
  Bytes bytes;
  for (;;) {
    constexpr size_t kPiece = 1u << 16;
    const size_t at = bytes.size();
    bytes.resize(at + kPiece);
    const ssize_t got = ::read(file.get(), bytes.data() + at, kPiece);
    if (got < 0 && errno != EINTR) return system_error("cannot read the journal " + path);
    bytes.resize(at + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return bytes;
  }
}

// A second lock of the same file, beside flock(): for this kind of lock the system names the
// holder.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// " (process 4711)". Empty if the holder is not known, for example in another container.
std::string holder_of(const File& file) {
  struct flock lock = whole_file();
  const bool known = ::fcntl(file.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  return known && lock.l_pid > 0 ? " (process " + std::to_string(lock.l_pid) + ")" : "";
}

}  // namespace

// The members below `loop` belong to the loop once the journal is open.
struct JournalFile::Impl {
  Status open(bool fresh, uint32_t incarnation_min);
  Status take_lock();
  Status replace();  // replaces the file by a short one
  void add(Entry entry, std::function<void()> then);
  void flush();
  Status write_frame(const std::vector<Entry>& entries);

  std::string path;
  std::function<void(const Status&)> on_failure;
  File lock;
  Memory at_opening;
  bool taken = false;  // at_opening
  net::Loop loop{"pccl-journal"};

  File file;
  Memory memory;
  size_t bytes = 0;            // of the file
  size_t bytes_compacted = 0;  // size after the last replacement
  std::atomic<bool> failed = false;
  std::atomic<uint64_t> durable = 0;  // entries
  struct Asked {
    Entry entry;
    std::function<void()> then;
  };
  std::vector<Asked> proposals;
};

Status JournalFile::Impl::take_lock() {
  std::error_code error;
  std::filesystem::create_directories(folder_of(path), error);
  const std::string name = path + ".lock";
  const std::string what = "the journal's lock " + name;
  Status status = check_place(what, name, kFile);
  if (!status.ok()) return status;
  lock = open_file(name, O_RDWR | O_CREAT);
  if (!lock.open()) {
    return system_error("cannot make " + what +
                        " (--journal names another place, --no-journal does without)");
  }
  status = check_file(what, lock);
  if (!status.ok()) return status;
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) {
    struct flock named = whole_file();
    static_cast<void>(::fcntl(lock.get(), F_SETLK, &named));  // for holder_of() alone
    return {};
  }
  if (errno != EWOULDBLOCK) return system_error("cannot lock the journal " + path);
  return {
      Code::kSystem,
      "the journal " + path + " is in use by another master" + holder_of(lock) +
          ", probably at the same port: end that one, or give this one another --port, or another "
          "--journal",
      {}};
}

Status JournalFile::Impl::open(bool fresh, uint32_t incarnation_min) {
  if (!loop.status().ok()) return loop.status();
  Status status = check_place("the journal " + path, path, kFile);
  if (status.ok()) status = take_lock();
  if (!status.ok()) return status;
  if (fresh && ::access(path.c_str(), F_OK) == 0) {
    const std::string old = path + ".old";
    if (::rename(path.c_str(), old.c_str()) != 0)
      return system_error("cannot rename the journal " + path);
    log(LogLevel::kWarning, LogEvent::kJournalRepaired,
        "begins afresh; what the journal held is in " + old);
  }
  Result<Bytes> content = read_all(path);
  if (!content.ok()) return content.status();
  if (content.value().empty() && ::access(path.c_str(), F_OK) == 0) {
    log(LogLevel::kWarning, LogEvent::kJournalRepaired,
        "the journal " + path +
            " is an empty file, so this master knows no runs. No master leaves an empty journal: "
            "if there were runs, end this master and put back a copy");
  }
  Result<journal::Replayed> replayed = journal::replay(content.value());
  if (!replayed.ok()) {
    return {Code::kSystem,
            "the journal " + path + " " + replayed.status().message +
                ". Put back a copy that can be read, or begin afresh with --new (its runs are then "
                "unknown, and their peers have to join again)",
            {}};
  }
  const size_t torn = content.value().size() - replayed.value().bytes;
  if (torn > 0) {
    log(LogLevel::kWarning, LogEvent::kJournalRepaired,
        "the journal ended in " + std::to_string(torn) +
            " bytes of a write that was cut off; nobody was told of it");
  }
  memory = std::move(replayed.value().memory);
  memory.apply(Started{std::max(memory.incarnation + 1, incarnation_min)});
  at_opening = memory;
  return replace();
}

// The next journal gets its name when all its bytes are durable. So after a crash of the process or
// of the machine, the name stands for the whole old file or for the whole new one, and after the
// first start perhaps for no file. From then on the file only grows. Hence no crash leaves a file
// that is empty or shorter than its compact form, and journal::replay() refuses a shorter one.
// An empty file is accepted with a warning, because the operator may have made it to choose its
// place or its mode.
Status JournalFile::Impl::replace() {
  const std::string name = path + ".tmp";
  // Removes the file that an earlier attempt has left. If it is a link, its target stays.
  if (::unlink(name.c_str()) != 0 && errno != ENOENT)
    return system_error("cannot remove " + name + ", where the next journal goes");
  File next = open_file(name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
  if (!next.open()) return system_error("cannot make the journal " + name);
  Status status;
  size_t written = 0;
  journal::compact(memory, [&](const Bytes& piece) {
    if (status.ok()) status = write_all(next, piece, name);
    written += piece.size();
  });
  if (status.ok()) status = make_durable(next, name);
  if (!status.ok()) return status;
  if (::rename(name.c_str(), path.c_str()) != 0)
    return system_error("cannot rename the journal " + name);
  const File folder(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.open() || ::fsync(folder.get()) != 0)
    return system_error("cannot make the folder of the journal " + path + " durable");
  file = std::move(next);
  bytes = bytes_compacted = written;
  return {};
}

void JournalFile::Impl::add(Entry entry, std::function<void()> then) {
  loop.assert_on_loop();
  const bool first = proposals.empty();
  proposals.push_back({std::move(entry), std::move(then)});
  if (first) loop.post([this] { flush(); });  // runs after the requests that are queued already
}

void JournalFile::Impl::flush() {
  if (failed || proposals.empty()) return;
  std::vector<Asked> now;
  now.swap(proposals);
  std::vector<Entry> entries;
  entries.reserve(now.size());
  for (Asked& one : now) entries.push_back(std::move(one.entry));
  const Status status = write_frame(entries);
  if (!status.ok()) {
    failed = true;
    return on_failure(status);
  }
  durable += now.size();
  for (const Asked& one : now) one.then();
}

Status JournalFile::Impl::write_frame(const std::vector<Entry>& entries) {
  for (const Entry& entry : entries) memory.apply(entry);
  if (journal::needs_compaction(bytes, bytes_compacted)) return replace();
  Bytes frame;
  journal::append(entries, frame);
  bytes += frame.size();
  const Status status = write_all(file, frame, path);
  return status.ok() ? make_durable(file, path) : status;
}

Result<std::unique_ptr<JournalFile>> JournalFile::open(
    const std::string& path, bool fresh, uint32_t incarnation_min,
    std::function<void(const Status&)> on_failure) {
  std::unique_ptr<JournalFile> journal(new JournalFile());
  journal->impl_->path = path;
  journal->impl_->on_failure = std::move(on_failure);
  const Status status = journal->impl_->open(fresh, incarnation_min);
  if (!status.ok()) return status;
  return journal;
}

JournalCounts JournalFile::counts() const { return {impl_->durable, impl_->failed}; }

JournalFile::JournalFile() : impl_(std::make_unique<Impl>()) {}

JournalFile::~JournalFile() {
  impl_->loop.stop();
  impl_->flush();  // the last requests; the thread has ended
}

Memory JournalFile::take_memory() {
  PCCL_ASSERT(!impl_->taken);
  impl_->taken = true;
  return std::move(impl_->at_opening);
}

void JournalFile::write(Entry entry, std::function<void()> then) {
  Impl* const impl = impl_.get();
  impl->loop.post([impl, entry = std::move(entry), then = std::move(then)]() mutable {
    impl->add(std::move(entry), std::move(then));
  });
}

}  // namespace pccl::master
