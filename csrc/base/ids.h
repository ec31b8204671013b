// ids: each kind of identifier as its own type, so that a rank cannot be passed as an epoch. Plain
// values that can be copied, compared and put in ordered maps. `text()` returns the form that logs
// and error messages use.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace pccl {

// Names one process of one run. The master assigns the number and never reuses it: (master
// incarnation << 32) | counter. 0: no process.
struct PeerId {
  uint64_t value = 0;
  friend auto operator<=>(const PeerId&, const PeerId&) = default;
  explicit operator bool() const { return value != 0; }
};

// Names a fixed list of members of a peer group. The number is never reused: (master incarnation <<
// 32) | counter. 0: no epoch.
struct Epoch {
  uint64_t value = 0;
  friend auto operator<=>(const Epoch&, const Epoch&) = default;
  explicit operator bool() const { return value != 0; }
};

// Names a peer group of a run. The application chooses the number, for instance the local rank of a
// GPU.
struct GroupId {
  uint32_t value = 0;
  friend auto operator<=>(const GroupId&, const GroupId&) = default;
};

// A 64-bit number that stands for the text of a tag. The text itself is sent in Begin only.
struct TagId {
  uint64_t value = 0;
  friend auto operator<=>(const TagId&, const TagId&) = default;
};

// Names an operation of one generation: the n-th call under a tag. An OpKey does not contain the
// generation. It is always sent with an epoch, and each epoch belongs to one generation.
struct OpKey {
  TagId tag;
  uint32_t sequence = 0;
  friend auto operator<=>(const OpKey&, const OpKey&) = default;
};

// Returns the FNV-1a hash of `tag`; the default tag (empty text) is TagId{0}.
TagId tag_id(std::string_view tag);

// "65a1.3": incarnation in hexadecimal, then the counter.
std::string text(PeerId peer);
// The same form as for a PeerId.
std::string text(Epoch epoch);

}  // namespace pccl
