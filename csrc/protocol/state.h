// state: values that the master and the peers compute in the same way from the list of the entries
// of a shared state: its hash, its validity, and the entries of another list that it lacks. Pure
// functions: any thread may call them. A list is in the order of its keys, which are unique. The
// functions are safe with any other list, too.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "csrc/protocol/messages.h"

namespace pccl::protocol {

using StateEntries = std::vector<StateEntry>;

// Returns one number for the content of a state: its keys, dtypes, shapes and hashes, but not its
// revision. The hashes cover the bytes of the tensors.
uint64_t state_hash(const StateEntries& entries);

// The words that state_hash() takes from a list, except the hashes of the entries. While the layout
// of a state does not change, state_hash() of new content is faster with them.
class LayoutWords {
 public:
  LayoutWords() = default;
  explicit LayoutWords(const StateEntries& entries);
  // Returns state_hash() of the entries with `hashes` in place of their hashes. REQUIRES: one hash
  // for each entry.
  uint64_t state_hash(std::span<const uint64_t> hashes) const;

 private:
  std::vector<uint64_t> words_;
  std::vector<uint32_t> counts_;  // the number of words of each entry
};

// Returns the number of bytes of the tensor; nothing if the shape has a negative size or the number
// is too large.
std::optional<uint64_t> bytes_of(const StateEntry& entry);
// Whether the entries are in the order of their keys, without duplicates, each entry has a result
// of bytes_of(), and all tensors together have at most kStateBytesMax bytes.
bool is_sensible(const StateEntries& entries);

bool same_layout(const StateEntry& a, const StateEntry& b);  // key, dtype and shape
bool same_layouts(const StateEntries& a, const StateEntries& b);
// Whether `all` has each entry of `some`, with the same layout.
bool is_part_of(const StateEntries& some, const StateEntries& all);
// The positions of the elected entries that `own` does not have, or has with another hash.
std::vector<uint32_t> lacking(const StateEntries& own, const StateEntries& elected);

}  // namespace pccl::protocol
