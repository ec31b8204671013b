// Notifier looks at the findings of all runs of a master every two seconds, logs those that stand,
// and runs the operator's command for them (pccl master --notify). Notifications
// (operator/notifications.h) decides. The Shell owns it, on its loop. The command runs on a loop of
// its own, so that its start delays no peer.
// Failure: a command that fails, or takes longer than ten seconds, is logged, and is not repeated.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "csrc/net/command.h"
#include "csrc/net/loop.h"
#include "master/operator/notifications.h"

namespace pccl::master {

class Notifier {
 public:
  struct Options {
    std::string command;  // a line of the shell; empty: none runs
    Duration after = std::chrono::seconds(60);
    // Tests have less patience.
    Duration look = std::chrono::seconds(2);
    Duration limit = std::chrono::seconds(10);
  };
  // `findings`: the present ones of all runs.
  Notifier(net::Loop& loop, Options options, std::function<FindingsByRun()> findings);
  ~Notifier();
  Notifier(const Notifier&) = delete;
  Notifier& operator=(const Notifier&) = delete;

 private:
  void look();
  void begin_command();
  void run(const std::string& input);
  void ended(const Status& status);

  net::Loop& loop_;
  const Options options_;
  const std::function<FindingsByRun()> findings_;
  Notifications notifications_;
  net::Timer timer_;
  const std::shared_ptr<int> here_ = std::make_shared<int>();  // expires with this object
  std::unique_ptr<net::Loop> runner_;                          // from the first command on
  std::unique_ptr<net::Command> command_;                      // on the runner
};

}  // namespace pccl::master
