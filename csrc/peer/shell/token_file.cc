#include "csrc/peer/shell/token_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace pccl::peer {
namespace {

constexpr size_t kBytesMax = 4096;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

// The text of the file without the white space around it. It must be wiped.
struct Content {
  std::array<char, kBytesMax + 1> bytes{};
  size_t size = 0;

  std::string_view text() const {
    constexpr std::string_view kSpace = " \t\r\n";
    const std::string_view all(bytes.data(), size);
    const size_t first = all.find_first_not_of(kSpace);
    if (first == std::string_view::npos) return {};
    return all.substr(first, all.find_last_not_of(kSpace) + 1 - first);
  }
};

// Returns why the content cannot be read; empty: it was read.
std::string read_content(int fd, Content& content) {
  struct stat found {};
  if (::fstat(fd, &found) != 0) return std::string("cannot be looked at: ") + strerror(errno);
  if (!S_ISREG(found.st_mode)) return "is no file";
  if ((found.st_mode & kOthers) != 0) return "is open to others: run `chmod 600` on it";
  while (content.size < content.bytes.size()) {
    const ssize_t got =
        ::read(fd, content.bytes.data() + content.size, content.bytes.size() - content.size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::string("cannot be read: ") + strerror(errno);
    if (got == 0) return {};
    content.size += static_cast<size_t>(got);
  }
  return "has more than " + std::to_string(kBytesMax) + " bytes: is it the right file?";
}

bool same(const Token& a, const Token& b) {
  return a.id == b.id && std::ranges::equal(a.secret.bytes(), b.secret.bytes());
}

}  // namespace

Result<Token> read_token(const std::string& path) {
  const auto refusal = [&path](const std::string& why) {
    return Status{Code::kSystem, "PCCL_SECRET_FILE " + path + " " + why, {}};
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return refusal(std::string("cannot be opened: ") + strerror(errno));
  Content content;
  const std::string why = read_content(fd, content);
  ::close(fd);
  Result<Token> token = why.empty() ? parse_token(content.text()) : Result<Token>(refusal(why));
  explicit_bzero(content.bytes.data(), content.bytes.size());
  if (!token.ok() && why.empty()) return refusal(token.status().message);
  return token;
}

TokenWatch::TokenWatch(std::string path, std::shared_ptr<const Token> token, Callbacks callbacks)
    : path_(std::move(path)), callbacks_(std::move(callbacks)), token_(std::move(token)) {
  loop_.post([this] {
    timer_ = std::make_unique<net::Timer>(loop_, [this] { look(); });
    look();
  });
}

TokenWatch::~TokenWatch() {
  loop_.post([this] { timer_.reset(); });
  loop_.stop();
}

void TokenWatch::look() {
  timer_->arm(monotonic_now() + kLook);
  // Taken before the content is read: a change between the two is seen at the next look.
  const FileStamp found = FileStamp::of(path_);
  if (stamp_ == found) return;
  stamp_ = found;
  Result<Token> token = read_token(path_);
  if (!token.ok()) {
    if (!std::exchange(warned_, true))
      callbacks_.on_warning(token.status().message + ". This peer keeps the token that it has");
    return;
  }
  warned_ = false;
  if (same(token.value(), *token_)) return;
  token_ = std::make_shared<const Token>(std::move(token.value()));
  callbacks_.on_token(token_);
}

}  // namespace pccl::peer
