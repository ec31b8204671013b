#include "master/shell/proofs.h"

#include <utility>
#include <vector>

#include "csrc/protocol/codec.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/reconfigure_handle.h"
#include "master/runs/rendezvous.h"

namespace pccl::master {
namespace {

using protocol::Reject;

constexpr std::string_view kHandle = "handle";  // no token has such a short id
constexpr size_t kShownDigits = 32;             // of the public key, as a name

Reject needs_handle() {
  return {Code::kAuthentication,
          "this process admits only peers that prove the key of their handle: they need the same "
          "PCCL_SECRET_FILE and PCCL_INSECURE as this process, or neither"};
}

}  // namespace

Proofs::Proofs(std::optional<pccl::Token> shared, bool handles) : handles_(handles) {
  if (!shared) return;
  auto& [id, secret] = *shared;
  shared_.insert_or_assign(id, Token{"this launch", {}, std::move(secret)});
}

Status Proofs::open_keyring(net::Loop& loop, const std::string& path,
                            KeyringFile::OnRevoked on_revoked) {
  auto opened = KeyringFile::open(loop, path, std::move(on_revoked));
  if (!opened.ok()) return opened.status();
  keyring_ = std::move(opened.value());
  return {};
}

net::Channel Proofs::accept(net::Socket socket) const {
  if (!secured()) return net::Channel(std::move(socket));
  auto find_key = [this](std::string_view shown) {
    const auto token = key_of(std::string(shown), tokens());
    return token ? token : key_of_handle(shown);
  };
  net::Channel made(std::move(socket), net::Tls::accept(std::move(find_key)),
                    monotonic_now() + protocol::kHelloTimeout);
  std::vector<std::byte> reject;
  protocol::encode(protocol::Message(handles_ ? needs_handle() : needs_token()), reject);
  made.answer_plain_text_with(reject);
  return made;
}

std::optional<net::Key> Proofs::key_of_handle(std::string_view identity) const {
  const auto names = net::handle_identity(identity);
  if (!names) return std::nullopt;
  const auto at = keys_.find(names->acceptor);
  const auto own = at == keys_.end() ? nullptr : at->second.lock();
  if (own == nullptr) return std::nullopt;
  return net::handle_control_key(*own, names->dialler);
}

std::optional<Holder> Proofs::holder_of(const std::string& identity) const {
  const auto names = net::handle_identity(identity);
  if (!names) return master::holder_of(identity, tokens());
  return Holder{std::string(kHandle), names->dialler.substr(0, kShownDigits)};
}

bool Proofs::has_handle(const Holder& holder) { return holder.token == kHandle; }

std::optional<Reject> Proofs::refuse(const Holder& holder, const std::string& run, Role role,
                                     std::optional<size_t> connections) const {
  if (!has_handle(holder)) return refuse_token(holder, tokens(), run, role, connections);
  if (role == Role::kPeer && Rendezvous::is_run_name(run)) return std::nullopt;
  return Reject{Code::kAuthentication,
                "the key of a handle lets a peer into the runs of a reconfigure only"};
}

std::optional<Reject> Proofs::refuse_handle(const std::string& identity,
                                            const protocol::ReconfigureHandle& handle) {
  const auto names = net::handle_identity(identity);
  if (!names || names->dialler == handle.key) return std::nullopt;
  return Reject{Code::kAuthentication, "reconfigure: the handle of " + short_name(handle) +
                                           " is that of another process than the one that came"};
}

void Proofs::add(const std::shared_ptr<const net::HandleKey>& key) {
  std::erase_if(keys_, [](const auto& at) { return at.second.expired(); });
  keys_[key->shown] = key;
}

Result<net::Channel> Proofs::dial(net::Socket socket, const protocol::ReconfigureHandle& to,
                                  const net::HandleKey* own, Instant by) const {
  std::string identity;
  std::optional<net::Key> key;
  if (own != nullptr) {
    auto token = net::handle_token(*own, to.key);
    if (!token) return Status{Code::kInvalidArgument, short_name(to) + " has no valid key", {}};
    identity = std::move(token->id);
    key = net::control_key(token->secret.bytes());
  } else if (!shared_.empty()) {
    identity = shared_.begin()->first;
    key = key_of(identity, shared_);
  }
  if (!key) return net::Channel(std::move(socket));
  Result<net::Tls> tls = net::Tls::dial(std::move(identity), *key);
  if (!tls.ok()) return tls.status();
  return net::Channel(std::move(socket), std::move(tls.value()), by);
}

}  // namespace pccl::master
