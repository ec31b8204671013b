#include "tests/sim/insider.h"

#include <utility>
#include <variant>

namespace pccl::sim {

// Its words (kDone) leave as usual. So an abort request beside them, instead of Done, is the lie by
// words.
std::vector<protocol::Message> Insider::instead_of(protocol::Message message) {
  std::vector<protocol::Message> all;
  if (auto* begin = std::get_if<protocol::Begin>(&message)) {
    const bool is_send = begin->info.kind == protocol::OpKind::kSend;
    if (!is_send) of_interest_.insert(begin->op);
    change(*begin);
    const bool early = tempted() && is_of_interest(begin->op);
    all.push_back(*begin);
    if (!early) return all;
    lie();
    all.emplace_back(protocol::Done{begin->epoch, begin->op, 0});
    return all;
  }
  if (auto* done = std::get_if<protocol::Done>(&message);
      done != nullptr && is_of_interest(done->op) && tempted()) {
    lie();
    if (chance_.once_in(2)) all.push_back(*done);
    all.emplace_back(protocol::AbortRequest{done->epoch, done->op, Code::kSystem, "a lie"});
    return all;
  }
  if (auto* report = std::get_if<protocol::LinkReport>(&message)) {
    const bool is_up = report->state == protocol::LinkState::kUp;
    all.emplace_back(*report);
    if (!is_up || has_dropped_ || !tempted()) return all;
    has_dropped_ = true;
    lie();
    report->state = protocol::LinkState::kDown;
  }
  if (auto* answer = std::get_if<protocol::AbortAnswer>(&message)) change(*answer);
  if (auto* vote = std::get_if<protocol::Vote>(&message)) change(*vote);
  if (auto* report = std::get_if<protocol::StateReport>(&message)) change(*report);
  const auto* const resume = std::get_if<protocol::Resume>(&message);
  if (resume == nullptr) {
    all.push_back(std::move(message));
    return all;
  }
  all.emplace_back(changed(*resume));
  // Otherwise the operation would wait for its timeout.
  for (const protocol::OpReport& op : resume->ops) {
    if (op.state != protocol::OpState::kNotDone)
      all.emplace_back(protocol::Done{resume->epoch, op.op, 0});
  }
  return all;
}

void Insider::change(protocol::Begin& begin) {
  if (has_described_ || !is_of_interest(begin.op) || !chance_.once_in(100)) return;
  has_described_ = true;
  lie();
  ++begin.info.count;
}

void Insider::change(protocol::AbortAnswer& answer) {
  if (!tempted()) return;
  lie();
  answer.state = some_state();
}

void Insider::change(protocol::Vote& vote) {
  if (has_voted_ || !tempted()) return;
  has_voted_ = true;
  lie();
  // An older number would be silence: the others wait for it until their timeout, as for any member
  // that is late.
  if (vote.offer.digest && chance_.once_in(2)) {
    *vote.offer.digest ^= 1;
  } else {
    ++vote.number;
  }
}

void Insider::change(protocol::StateReport& report) {
  for (protocol::OpReport& op : report.ops) {
    if (!is_of_interest(op.op) || !tempted()) continue;
    lie();
    op.state = some_state();
    if (chance_.once_in(4)) op.finished = chance_.below(1000);
  }
}

// Its last verdict is repeated as the next one, about an operation that is open; or it has seen no
// verdict, or all that there will be.
protocol::Resume Insider::changed(protocol::Resume resume) {
  if (!chance_.once_in(2)) return resume;
  lie();
  for (protocol::OpReport& op : resume.ops) {
    if (is_of_interest(op.op)) op.state = some_state();
  }
  switch (chance_.below(4)) {
    case 0: {
      protocol::Verdict invented;
      if (!resume.verdicts.empty()) invented = resume.verdicts.back();
      if (!resume.ops.empty() && is_of_interest(resume.ops[0].op)) invented.op = resume.ops[0].op;
      invented.outcome = protocol::Outcome::kCommitted;
      invented.code = Code::kOk;
      invented.text.clear();
      resume.verdicts.push_back(std::move(invented));
      ++resume.verdict_index;
      break;
    }
    case 1:
      resume.stable_index = resume.verdict_index;
      resume.verdicts.clear();
      break;
    case 2:
      resume.verdict_index = resume.stable_index = 0;
      resume.verdicts.clear();
      break;
    default:
      if (!resume.last_answer) break;
      resume.last_answer->code = Code::kSharedState;
      resume.last_answer->text = "a lie";
  }
  return resume;
}

}  // namespace pccl::sim
