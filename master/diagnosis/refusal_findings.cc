#include "master/diagnosis/refusal_findings.h"

#include "master/context.h"
#include "master/text_format.h"

namespace pccl::master {
namespace {

struct Advice {
  FindingCode code;
  Severity severity;
  const char* next;
};

Advice advice_on(History::Cause cause) {
  switch (cause) {
    case History::Cause::kVersion:
      return {FindingCode::kVersionOrTermsRefused, Severity::kWarning,
              "install one version of pccl on the machine of this peer and on the master's, and "
              "start the peer again"};
    case History::Cause::kTerms:
      return {FindingCode::kVersionOrTermsRefused, Severity::kWarning,
              "correct the settings of this peer, and start it again"};
    case History::Cause::kOtherLaunch:
      return {FindingCode::kSplitWorld, Severity::kWarning,
              "end one of the two launches, or give each a run of its own"};
    case History::Cause::kState: break;
  }
  return {FindingCode::kStateRefused, Severity::kError,
          "correct the state of the named peers, and let all members call sync_shared_state again"};
}

}  // namespace

std::vector<Finding> refusal_findings(const Context& context) {
  std::vector<Finding> all;
  for (const History::Refusal& one : context.history.refusals()) {
    const Duration age = context.now - one.at;
    if (age > kRefusalsShown) continue;
    const Advice advice = advice_on(one.cause);
    const std::string where = one.cause == History::Cause::kState ? group_text(one.group) : "";
    all.push_back({advice.code,
                   advice.severity,
                   {one.whom},
                   text(age) + " ago" + where + ": " + one.text,
                   advice.next});
  }
  return all;
}

}  // namespace pccl::master
