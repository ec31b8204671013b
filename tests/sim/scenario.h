// Scenario: a story in text, run over the simulated network with fixed delays, and its transcript.
// A file holds blocks:
//
//   # a comment
//   join a b c; all_reduce tag=7 count=100000; run 3; kill c; settle
//   ----
//   [  35] master > peer 1.3 (rank 2, ...) lost: ...
//
// Commands (separated by ';' or line ends):
//   join NAMES... [min_peers=N]     processes start; the first `join` sets min_peers to its number
//   of names all_reduce|broadcast|all_gather|barrier [tag=T] [count=N] [root=R] [on=a,b]
//   [timeout=MS] update_topology|are_peers_pending [on=a,b] sync [revision=R] [fill=N] [strategy=S]
//   [on=a,b] kill|stop|go|leave|unreachable NAME;  cut NAME (its master connection);  break NAME
//   NAME (their link) run MS                          lets virtual time pass settle until every
//   call has ended, 60 virtual seconds at most
#pragma once

#include <string>

namespace pccl::sim {

// Runs the commands of one block and returns its transcript, one event per line.
std::string run_scenario(const std::string& commands);

}  // namespace pccl::sim
