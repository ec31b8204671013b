#include "master/epochs/any_source.h"

#include "csrc/base/assert.h"
#include "csrc/protocol/limits.h"
#include "csrc/protocol/messages.h"
#include "master/context.h"

namespace pccl::master {

void AnySource::begun(Epoch epoch, OpKey op, const protocol::OpInfo& info) {
  PCCL_ASSERT(info.kind == protocol::OpKind::kSend);
  const Send send{{info.receiver, info.tag}, info.root, next_order_++};
  const bool fresh = sends_.emplace(op, send).second;
  PCCL_ASSERT(fresh);
  Queue& queue = queues_[send.name];
  queue.sends.emplace(send.order, op);
  if (queue.wanted == 0) return;
  answer(epoch, op, send);
  want(send.name, queue, queue.wanted - 1);
}

void AnySource::taken(OpKey op) {
  const auto at = sends_.find(op);
  if (at == sends_.end()) return;
  const Name name = at->second.name;
  const size_t erased = queues_.at(name).sends.erase(at->second.order);
  PCCL_ASSERT(erased == 1);
  sends_.erase(at);
  forget_if_empty(name);
}

Status AnySource::await(PeerId receiver, const protocol::AwaitSend& question) {
  const Name name{receiver, question.tag};
  const auto known = queues_.find(name);
  const bool asks_already = known != queues_.end() && known->second.wanted > 0;
  const auto asked = questions_.find(receiver);
  const bool full = asked != questions_.end() && asked->second >= protocol::kAwaitedTagsMax;
  if (question.count > protocol::kAwaitedSendsMax || (full && !asks_already)) {
    return violation("AwaitSend for " + std::to_string(question.count) + " sends under one of " +
                     std::to_string(full ? asked->second : 0) + " tags");
  }
  Queue& queue = queues_[name];
  uint32_t wanted = question.count;
  for (const auto& [order, op] : queue.sends) {
    if (wanted == 0) break;
    answer(question.epoch, op, sends_.at(op));
    --wanted;
  }
  want(name, queue, wanted);
  forget_if_empty(name);
  return {};
}

const std::string& AnySource::asked_tag(PeerId receiver) const {
  auto at = queues_.lower_bound({receiver, {}});
  while (at->second.wanted == 0) ++at;
  PCCL_ASSERT(at->first.first == receiver);
  return at->first.second;
}

void AnySource::forget_questions(PeerId receiver) {
  for (auto at = queues_.lower_bound({receiver, {}}); at != queues_.end();) {
    const auto here = at++;
    if (here->first.first != receiver) break;
    want(here->first, here->second, 0);
    if (here->second.sends.empty()) queues_.erase(here);
  }
}

void AnySource::end_questions(Epoch epoch, PeerId receiver) {
  for (auto at = queues_.lower_bound({receiver, {}}); at != queues_.end();) {
    const auto here = at++;
    if (here->first.first != receiver) break;
    if (here->second.wanted == 0) continue;
    answers_.push_back({here->first, epoch, {}, 0});
    want(here->first, here->second, 0);
    if (here->second.sends.empty()) queues_.erase(here);
  }
}

AnySource::Answers AnySource::take_answers() {
  Answers taken;
  for (const Answer& one : std::exchange(answers_, {})) {
    const auto& [receiver, tag] = one.name;
    taken.emplace_back(receiver, protocol::SendBegun{one.epoch, one.sender, tag, one.sequence});
  }
  return taken;
}

void AnySource::want(const Name& name, Queue& queue, uint32_t count) {
  const bool wanted = queue.wanted > 0;
  queue.wanted = count;
  if (wanted == (count > 0)) return;
  size_t& questions = questions_[name.first];
  PCCL_ASSERT(!wanted || questions > 0);
  questions = wanted ? questions - 1 : questions + 1;
  if (questions == 0) questions_.erase(name.first);
}

void AnySource::answer(Epoch epoch, OpKey op, const Send& send) {
  answers_.push_back({send.name, epoch, send.sender, op.sequence});
}

void AnySource::forget_if_empty(const Name& name) {
  const auto at = queues_.find(name);
  if (at->second.sends.empty() && at->second.wanted == 0) queues_.erase(at);
}

void AnySource::check() const {
  size_t sends = 0;
  std::map<PeerId, size_t> questions;
  for (const auto& [name, queue] : queues_) {
    PCCL_ASSERT(!queue.sends.empty() || queue.wanted > 0);
    PCCL_ASSERT(queue.wanted <= protocol::kAwaitedSendsMax);
    sends += queue.sends.size();
    if (queue.wanted > 0) ++questions[name.first];
    for (const auto& [order, op] : queue.sends) {
      PCCL_ASSERT(sends_.at(op).order == order && sends_.at(op).name == name);
    }
  }
  PCCL_ASSERT(sends == sends_.size() && questions == questions_ && answers_.empty());
  for (const auto& [receiver, count] : questions_) PCCL_ASSERT(count <= protocol::kAwaitedTagsMax);
}

}  // namespace pccl::master
