// AnySource: answers members that receive from any source: it names the sends that wait for them
// (PROTOCOL.md, section 3). It keeps the open sends of the epoch that their receivers have not
// begun, and the questions of receivers that are not answered yet.
// Operations owns it. It is pure.
// Invariants:
// 1. A send is here if and only if it is open, its sender has begun it, and its receiver has not,
//    neither in this epoch nor in an earlier one of the generation.
// 2. A question of a receiver is answered with the oldest sends first, and with each send once.
// 3. A receiver has at most kAwaitedTagsMax questions, each for at most kAwaitedSendsMax sends.
// Failure: a question that is not allowed returns kProtocol.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/ids.h"
#include "csrc/base/status.h"

namespace pccl::protocol {
struct AwaitSend;
struct OpInfo;
struct SendBegun;
}  // namespace pccl::protocol

namespace pccl::master {

class AnySource {
 public:
  // The sender has begun this send, and the receiver has not.
  void begun(Epoch epoch, OpKey op, const protocol::OpInfo& send);
  // The receiver has begun this send, or the send has ended. Ignored if it is unknown.
  void taken(OpKey op);
  bool knows(OpKey op) const { return sends_.contains(op); }
  size_t size() const { return sends_.size(); }

  // The receiver asks. Replaces its earlier question about this tag.
  Status await(PeerId receiver, const protocol::AwaitSend& question);
  bool asks(PeerId receiver) const { return questions_.contains(receiver); }
  // The tag of one of its questions. REQUIRES: asks(receiver).
  const std::string& asked_tag(PeerId receiver) const;
  // Forgets the questions of a receiver that has left or resumed. A resumed receiver asks all of
  // them again, because later questions may be lost.
  void forget_questions(PeerId receiver);
  // No more sends to the receiver can begin: its questions that are still open are answered by a
  // SendBegun without a sender.
  void end_questions(Epoch epoch, PeerId receiver);

  // The answers since the last call, each with its receiver.
  using Answers = std::vector<std::pair<PeerId, protocol::SendBegun>>;
  Answers take_answers();
  void check() const;  // asserts the invariants

 private:
  using Name = std::pair<PeerId, std::string>;  // receiver, tag
  struct Queue {
    std::map<uint64_t, OpKey> sends;  // in the order in which they began
    uint32_t wanted = 0;              // answers that are still to come
  };
  struct Send {
    Name name;
    PeerId sender;
    uint64_t order = 0;
  };
  struct Answer {
    Name name;
    Epoch epoch;
    PeerId sender;
    uint32_t sequence = 0;
  };
  void want(const Name& name, Queue& queue, uint32_t count);
  void answer(Epoch epoch, OpKey op, const Send& send);
  void forget_if_empty(const Name& name);

  std::map<OpKey, Send> sends_;
  std::map<Name, Queue> queues_;
  std::map<PeerId, size_t> questions_;  // number of its tags with `wanted` above 0
  uint64_t next_order_ = 0;
  std::vector<Answer> answers_;
};

}  // namespace pccl::master
