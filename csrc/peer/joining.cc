#include "csrc/peer/joining.h"

#include <algorithm>
#include <utility>

#include "csrc/protocol/reconfigure_handle.h"

namespace pccl::peer {
namespace {

// The peer searches for a master for this time before it logs a warning, because peers and master
// may start in any order.
constexpr Duration kWarnAfter = std::chrono::seconds(1);
// If the join has more time left than this, the message does not show it: the time is practically
// unlimited.
constexpr Duration kShownMax = std::chrono::hours(24 * 365);
// The join ends at this number of refusals of the token.
constexpr int kRefusalsMax = 2;
// The host of a reconfigure ends it at the timeout of the first caller, with a reason that names
// who is missing. Only if this reason does not come does the caller end it alone, so much later.
constexpr Duration kReasonGrace = std::chrono::seconds(1);
constexpr const char* kSilent = "it does not answer";

uint32_t milliseconds(Duration duration) {
  const auto count = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  return static_cast<uint32_t>(std::min<int64_t>(count, UINT32_MAX));
}

}  // namespace

Status host_lost(const protocol::Rendezvous& meets, const std::string& why) {
  return {Code::kPeerLost,
          "reconfigure (uuid " + std::to_string(meets.uuid) + "): rank 0, " +
              short_name(meets.handles[0]) + ", where all meet, is not there (" + why +
              "): its process has ended, or its port cannot be reached from here",
          {}};
}

void Joining::begin(Handle handle) {
  PCCL_ASSERT(membership_.phase() == Phase::kIdle);
  handle_ = handle;
  since_ = context_.now;
}

uint32_t Joining::founders() const {
  return context_.options.founders > 0 ? context_.options.founders : context_.options.min_peers;
}

protocol::Hello Joining::hello() const {
  const Options& options = context_.options;
  protocol::Hello hello;
  hello.versions = options.versions;
  hello.library = options.library;
  hello.run = options.run;
  hello.group = options.group;
  hello.founders = founders();
  hello.min_peers = options.min_peers;
  hello.rank = options.rank;
  hello.join_timeout_ms = milliseconds(options.join_timeout);
  hello.launch = options.launch;
  hello.name = options.name;
  // Once welcomed, this peer gives all settings: a restarted master may have forgotten a run that
  // has no members yet.
  hello.rendezvous = options.rendezvous;
  hello.settings = found_master() ? give_all(context_.settings) : options.given;
  return hello;
}

bool Joining::joins() const {
  return membership_.phase() > Phase::kIdle && membership_.phase() < Phase::kMember;
}

bool Joining::found_master() const { return membership_.phase() >= Phase::kWelcomed; }

bool Joining::warns() const { return !found_master() && !warned_ && !context_.options.rendezvous; }

Duration Joining::search_max() const {
  // The host of a reconfigure keeps the Hello until its own process calls.
  if (context_.options.rendezvous) return join_max();
  return std::min(context_.settings.peer_timeout, context_.options.join_timeout);
}

Duration Joining::join_max() const {
  const Duration most = context_.options.join_timeout;
  return context_.options.rendezvous ? most + kReasonGrace : most;
}

Status Joining::check(const protocol::Welcome& welcome) const {
  const Options& options = context_.options;
  if (!options.versions.contains(welcome.version)) {
    return violation("Welcome to a run of version " + std::to_string(welcome.version) +
                     ", which this peer does not speak");
  }
  if (!welcome.peer) return violation("Welcome without an id for this peer");
  if (welcome.accepting.has_value() != options.secured) {
    return violation(options.secured ? "Welcome without a key, to a peer with a token"
                                     : "Welcome with a key, in plain text");
  }
  const Status bad = protocol::check(welcome.settings);
  return bad.ok() ? bad : violation("Welcome to a run whose " + bad.message);
}

// Without a token it is this peer itself that refuses to speak plain text.
bool Joining::on_refusal() {
  PCCL_ASSERT(!found_master());
  const bool tries_again = context_.options.secured && !context_.options.rendezvous;
  return !tries_again || ++refusals_ >= kRefusalsMax;
}

void Joining::on_welcome() {
  PCCL_ASSERT(found_master());
  if (!std::exchange(warned_, false)) return;
  context_.note(LogLevel::kWarning, LogEvent::kReconnected,
                "the " + context_.master() + " answers after " + text(context_.now - since_));
}

void Joining::on_admission() {
  PCCL_ASSERT(membership_.phase() == Phase::kMember);
  if (std::exchange(notice_, {}).empty()) return;
  context_.note(LogLevel::kWarning, LogEvent::kAdmitted,
                "admitted after " + text(context_.now - since_));
}

void Joining::on_notice(const std::string& text) {
  if (text != notice_) {
    context_.note(LogLevel::kWarning, joins() ? LogEvent::kNotAdmitted : LogEvent::kNotice,
                  joins() ? "not admitted yet: " + text + gives_up() : text);
  }
  notice_ = text;
}

std::string Joining::gives_up() const {
  const Duration left = context_.options.join_timeout - (context_.now - since_);
  return left > kShownMax ? "" : "; this process gives up in " + pccl::text(left);
}

Status Joining::on_time(const std::string& closed_why) {
  if (!joins()) return {};
  const protocol::Rendezvous* const host = meets();
  const Duration waited = context_.now - since_;
  const std::string reason = closed_why.empty() ? "no answer" : closed_why;
  if (!found_master() && waited >= search_max()) {
    if (host != nullptr) return host_lost(*host, kSilent);
    return {Code::kMasterLost,
            "no " + context_.master() + " within " + text(waited) + " (" + reason +
                "): is `pccl master` running there, and can its port be reached from here?",
            {}};
  }
  if (warns() && waited >= kWarnAfter) {
    warned_ = true;
    context_.note(LogLevel::kWarning, LogEvent::kMasterLost,
                  "still no " + context_.master() + " (" + reason + "); trying for " +
                      text(context_.settings.peer_timeout - waited) + " more");
  }
  if (waited < join_max()) return {};
  context_.send(protocol::Leave{});
  return host != nullptr ? host_lost(*host, kSilent) : too_late();
}

Status Joining::too_late() const {
  const Options& options = context_.options;
  const std::string group =
      "run \"" + options.run + "\"" +
      (options.group.value == 0 ? "" : ", peer group " + std::to_string(options.group.value));
  const std::string word =
      notice_.empty()
          ? "it begins when " + std::to_string(founders()) +
                (founders() == 1 ? " peer is" : " peers are") +
                " there, later ones are admitted when all members call pccl.update_topology()"
          : "the master's last word was: " + notice_;
  return {Code::kTooFewPeers,
          "not admitted to " + group + " within " + text(options.join_timeout) + "; " + word,
          {}};
}

std::optional<Instant> Joining::deadline() const {
  if (!joins()) return std::nullopt;
  Instant first = since_ + join_max();
  if (!found_master()) first = std::min(first, since_ + search_max());
  if (warns()) first = std::min(first, since_ + kWarnAfter);
  return first;
}

}  // namespace pccl::peer
