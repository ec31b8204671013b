// MasterSearch is the time from the break of the connection to the master until the master has
// taken the peer back, or is given up. It belongs to the PeerCore, and it writes the lines of the
// log about it. If the peer itself has closed the connection, in order to show a new token, the
// search is planned: then it is no news for a person until something else goes wrong.
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
  // The connection of a welcomed peer has closed, or one more attempt has failed.
  void begin(const std::string& why, bool planned);
  void found();                        // the master has taken the peer back
  void give_up(const Status& reason);  // the peer is out of the run
  bool under_way() const { return since_.has_value(); }
  // Why the last attempt to connect failed, or the connection broke. May be empty.
  const std::string& why() const { return why_; }

  Status on_time() const;  // kMasterLost when the search has taken too long, otherwise ok
  std::optional<Instant> deadline() const;

  void check() const;  // asserts the invariant

 private:
  Context& context_;
  std::string why_;
  std::optional<Instant> since_;
  bool planned_ = false;
};

}  // namespace pccl::peer
