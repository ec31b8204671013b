// Meetings: the peers that come to a master of a process for a reconfigure, and the calls of this
// process (rendezvous.h decides). The Shell owns it, on its loop, and has the connections. A
// connection that waits belongs to no run yet. It is kept until its peer gives up, an hour at most.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/net/handle_keys.h"
#include "csrc/net/loop.h"
#include "csrc/protocol/messages.h"
#include "master/runs/rendezvous.h"
#include "master/shell/invitation.h"

namespace pccl::master {

class Meetings {
 public:
  using Key = std::shared_ptr<const net::HandleKey>;
  struct Callbacks {
    // The owner of this key can be reached from now on, as long as it exists.
    std::function<void(const Key&)> add_key;
    std::function<void(ConnectionId, const protocol::Message&)> send;
    // Lets the peer into the run that its Hello names.
    std::function<void(ConnectionId, const protocol::Hello&)> admit;
    // A further message of a peer that was let in.
    std::function<void(ConnectionId, const protocol::Message&)> receive;
    std::function<void(ConnectionId, const std::string& run, const protocol::Reject&)> refuse;
    // Ends a run that has not begun, and gives its peers the reason.
    std::function<void(const std::string& run, const protocol::Reject&)> end;
    // The run goes on with these members, in this order. regrouped() has to follow.
    std::function<void(const std::string& run, const RegroupAgreed&)> regroup;
    // The channel to another process, with the key of the own handle, if handles have keys.
    std::function<Result<net::Channel>(net::Socket, const protocol::ReconfigureHandle& to,
                                       const net::HandleKey* own, Instant by)>
        dial;
    // Some of these were called at a time that this object has chosen: finish_turn() is due.
    std::function<void()> on_stepped;
  };
  // The call of this process ends without its peer, for this reason. Called on the loop.
  using Failed = std::function<void(const protocol::Reject&)>;

  Meetings(net::Loop& loop, Callbacks callbacks);

  // ---- The own process ----
  // `key`: of the next handle of the group; null: handles have none.
  void open(const std::string& group, const Key& key);
  void close(const std::string& group);
  void call(const std::string& group, Rendezvous::Call call, Failed failed);
  void over(const std::string& group, const std::optional<protocol::Reject>& failed,
            const Key& next);

  // ---- Peers ----
  // REQUIRES: the Hello has a rendezvous.
  void arrive(ConnectionId id, const protocol::Hello& hello);
  // A member of the run has called a reconfigure. `rank`: its present one there. kProtocol if it
  // waits for another one.
  Status offer(ConnectionId id, const std::string& run, uint32_t rank,
               const protocol::Regroup& message);
  bool waits(ConnectionId id) const { return waiting_.contains(id); }
  // A message of a peer that waits: it is kept until the peer is let in. REQUIRES: it waits.
  void receive(ConnectionId id, protocol::Message message);
  void closed(ConnectionId id) { gone_.push_back(id); }
  // Must be called at the end of every turn of the loop: carries out what follows from the
  // connections that have closed. A run may end then, which nobody may use at that time.
  void finish_turn();
  void begun(const std::string& run);
  void regrouped(const std::string& run, bool begun) { core_.regrouped(run, begun); }

 private:
  struct Waiting {
    protocol::Hello hello;
    std::optional<protocol::Register> registered = {};
    Duration beat{};  // between two pings, which show the peer that this master lives
    Instant ping_at{};
  };
  void renew(const std::string& group, const Key& key);
  void on_time();
  void carry_out(const Rendezvous::Decisions& decisions);
  void carry_out(const Rendezvous::Admit& decision);
  void carry_out(const Rendezvous::Refuse& decision);
  void carry_out(const Rendezvous::SendToDoor& decision);
  void carry_out(const Rendezvous::Regroup& decision);
  void carry_out(const Rendezvous::End& decision);
  void carry_out(const Rendezvous::Fail& decision);
  void carry_out(const Rendezvous::Invite& decision);
  void carry_out(const Rendezvous::Dismiss& decision);
  void arm();

  net::Loop& loop_;
  const Callbacks callbacks_;
  Rendezvous core_;
  std::map<ConnectionId, Waiting> waiting_;
  std::map<ConnectionId, int64_t> offered_;      // members that wait for an answer, and their uuid
  std::vector<ConnectionId> gone_;               // in this turn
  std::map<std::string, Failed> failed_;         // of the calls under way, by group
  std::map<std::string, std::deque<Key>> keys_;  // of the last handles, by group
  // By the group of this process, and the rank of the invited one.
  std::map<std::pair<std::string, uint32_t>, std::unique_ptr<Invitation>> invitations_;
  net::Timer timer_;
};

}  // namespace pccl::master
