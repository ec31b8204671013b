// MasterSearch is the time from the break of the connection to the master until the master has
// taken the peer back, or is given up. It belongs to the PeerCore, and writes the log lines about
// this time. If the peer itself has closed the connection, in order to show a new token, the search
// is planned: nothing is logged until something else goes wrong.
// A hosted master never comes back, since it has no journal. So the search for it ends as soon as
// its port is certainly closed: nothing listens there for kRefusedTime.
// Invariant: it has a deadline exactly while it is under way.
#pragma once

#include <optional>
#include <string>

#include "csrc/base/status.h"
#include "csrc/peer/context.h"

namespace pccl::peer {

class MasterSearch {
 public:
  explicit MasterSearch(Context& context) : context_(context) {}

  // An attempt to connect has failed. This alone begins no search.
  void failed(const std::string& why) { why_ = why; }
  // The connection of a welcomed peer has closed, or one more attempt has failed. `refused`:
  // nothing listens at the address of the master.
  void begin(const std::string& why, bool planned, bool refused);
  void found();                        // the master has taken the peer back
  void give_up(const Status& reason);  // the peer is out of the run
  bool under_way() const { return since_.has_value(); }
  // The reason why the last attempt to connect failed or the connection broke. May be empty.
  const std::string& why() const { return why_; }

  Status over() const;  // kMasterLost if the search is over, otherwise ok
  std::optional<Instant> deadline() const;

  void check() const;  // asserts the invariant

 private:
  Duration limit() const;
  Status lost(Duration after) const;

  Context& context_;
  std::string why_;
  std::optional<Instant> since_;
  // The first and the last of the attempts in a row that were refused.
  std::optional<Instant> refused_first_, refused_last_;
  bool planned_ = false;
};

}  // namespace pccl::peer
