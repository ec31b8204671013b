#include "csrc/torch/call_options.h"

#include "csrc/base/text.h"
#include "csrc/protocol/limits.h"
#include "csrc/torch/errors.h"

namespace pccl::torch_layer {

CallOptions& call_options() {
  static thread_local CallOptions options;
  return options;
}

void check_tag(const std::string& tag) {
  if (tag.size() > protocol::kTagBytesMax) {
    raise_value_error("a tag of " + std::to_string(tag.size()) + " bytes; at most " +
                      std::to_string(protocol::kTagBytesMax) + " are allowed");
  }
  if (tag.starts_with(kOwnTags)) {
    raise_value_error("the tag \"" + printable(tag) + "\" begins with \"" + std::string(kOwnTags) +
                      "\", as pccl's own tags do: use another one");
  }
  if (!is_printable(tag)) {
    raise_value_error("the tag \"" + printable(tag) +
                      "\" has characters that cannot be shown; allowed is text without control "
                      "and formatting characters");
  }
}

void check_priority(int64_t priority) {
  if (priority >= protocol::kPriorityMin && priority <= protocol::kPriorityMax) return;
  raise_value_error("the priority is " + std::to_string(priority) + ", a number from " +
                    std::to_string(protocol::kPriorityMin) + " to " +
                    std::to_string(protocol::kPriorityMax) + " is needed");
}

}  // namespace pccl::torch_layer
