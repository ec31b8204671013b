// Losses: the members that the present epoch has lost since it began, and those that have left it,
// with the reasons. Epochs owns it, and empties it when the next epoch begins. It is pure.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/log.h"
#include "csrc/protocol/messages.h"
#include "master/members/loss_cause.h"

namespace pccl::master {

class Losses {
 public:
  struct Loss {
    protocol::Member member;
    std::string why;
    LogLevel level = LogLevel::kInfo;
    bool left = false;  // by its own decision; the epoch continues without it
    LossCause cause = LossCause::kRemoved;
  };

  void add(Loss loss) { all_.push_back(std::move(loss)); }
  void clear() { all_.clear(); }

  bool empty() const { return all_.empty(); }
  size_t size() const { return all_.size(); }
  // Whether some loss ends the epoch.
  bool end_the_epoch() const {
    return std::any_of(all_.begin(), all_.end(), [](const Loss& loss) { return !loss.left; });
  }
  std::vector<protocol::Member> members() const {
    std::vector<protocol::Member> members;
    for (const Loss& loss : all_) members.push_back(loss.member);
    return members;
  }
  // The most severe log level of all losses, for the log line about their consequence.
  LogLevel level() const {
    LogLevel level = LogLevel::kInfo;
    for (const Loss& loss : all_) level = std::min(level, loss.level);
    return level;
  }
  std::string reasons() const {
    std::string out;
    for (const Loss& loss : all_) out += (out.empty() ? "" : "; ") + loss.why;
    return out;
  }

 private:
  std::vector<Loss> all_;
};

}  // namespace pccl::master
