// Identities as types, so that a rank cannot be passed for an epoch. Plain values: copy them,
// compare them, put them in ordered maps. `text()` gives the form that logs and error messages use.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace pccl {

// One process in one run, assigned by the master and never reused: (master incarnation << 32) |
// counter. 0: nobody.
struct PeerId {
  uint64_t value = 0;
  friend auto operator<=>(const PeerId&, const PeerId&) = default;
  explicit operator bool() const { return value != 0; }
};

// A fixed member list of a peer group: (master incarnation << 32) | counter, never reused. 0: none.
struct Epoch {
  uint64_t value = 0;
  friend auto operator<=>(const Epoch&, const Epoch&) = default;
  explicit operator bool() const { return value != 0; }
};

// A position in an epoch's member list; means nothing in another epoch.
struct Rank {
  int32_t value = -1;
  friend auto operator<=>(const Rank&, const Rank&) = default;
};

// A peer group of a run, chosen by the application (for instance the local rank of a GPU).
struct GroupId {
  uint32_t value = 0;
  friend auto operator<=>(const GroupId&, const GroupId&) = default;
};

// The 64-bit name of a tag's text. The text itself travels in Begin only.
struct TagId {
  uint64_t value = 0;
  friend auto operator<=>(const TagId&, const TagId&) = default;
};

// An operation inside one generation: the n-th call under a tag. The generation is known from the
// epoch beside it.
struct OpKey {
  TagId tag;
  uint32_t sequence = 0;
  friend auto operator<=>(const OpKey&, const OpKey&) = default;
};

// Returns the FNV-1a hash of `tag`; the default tag (empty text) is TagId{0}.
TagId tag_id(std::string_view tag);

// "65a1.3": incarnation in hexadecimal, then the counter.
std::string text(PeerId peer);
// The same form.
std::string text(Epoch epoch);

}  // namespace pccl
