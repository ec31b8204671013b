//   state of a piece    event                                     to
//   absent              next                                      under way
//   under way           arrived                                   under way, and the peer is free
//   under way           verified                                  here
//   under way           refused                                   absent

#include "csrc/peer/state/swarm.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "csrc/base/assert.h"

namespace pccl::peer {

void Bits::set_all() {
  for (size_t at = 0; at < words_.size(); ++at) {
    const size_t left = size_ - at * 64;
    words_[at] = left >= 64 ? ~uint64_t{0} : (uint64_t{1} << left) - 1;
  }
}

size_t Bits::count() const {
  size_t count = 0;
  for (const uint64_t word : words_) count += static_cast<size_t>(std::popcount(word));
  return count;
}

Swarm::Swarm(Setup setup)
    : sources_(static_cast<uint32_t>(setup.sources.size())),
      receivers_(static_cast<uint32_t>(setup.receivers.size())),
      per_peer_(setup.per_peer),
      here_(std::move(setup.here)),
      absent_(std::move(setup.wanted)),
      no_owner_(receivers_) {
  PCCL_ASSERT(here_.size() == absent_.size() && per_peer_ > 0);
  for (size_t index = 0; index < absent_.words(); ++index)
    absent_.set_word(index, absent_.word(index) & ~here_.word(index));
  here_count_ = here_.count();
  left_ = absent_.count();
  for (uint32_t index = 0; index < sources_; ++index) {
    if (setup.sources[index] == setup.self) continue;
    Other other{.peer = setup.sources[index], .source = true, .said = true, .index = index};
    other.has = Bits(here_.size());
    other.has.set_all();
    others_.push_back(std::move(other));
  }
  for (uint32_t index = 0; index < receivers_; ++index) {
    if (setup.receivers[index] == setup.self) {
      self_ = index;
      continue;
    }
    Other other{.peer = setup.receivers[index], .index = index};
    other.has = Bits(here_.size());
    others_.push_back(std::move(other));
  }
  // Receivers begin with different peers.
  if (!others_.empty())
    std::rotate(others_.begin(), others_.begin() + self_ % others_.size(), others_.end());
}

Swarm::Other* Swarm::find(PeerId peer) {
  const auto at = std::find_if(others_.begin(), others_.end(),
                               [peer](const Other& other) { return other.peer == peer; });
  return at == others_.end() ? nullptr : &*at;
}

const Swarm::Other* Swarm::find(PeerId peer) const { return const_cast<Swarm*>(this)->find(peer); }

bool Swarm::is_source(PeerId peer) const {
  const Other* const other = find(peer);
  return other != nullptr && other->source;
}

bool Swarm::excluded(PeerId peer) const {
  const Other* const other = find(peer);
  return other == nullptr || other->excluded;
}

void Swarm::exclude(PeerId peer) {
  Other* const other = find(peer);
  if (other == nullptr) return;
  other->excluded = true;
  if (!other->source) no_owner_[other->index] = true;
}

// The next piece to ask `other` for: a piece that is absent here.
//   `other` is a source     the first piece of the share that this peer takes from `other`
//   `other` is a receiver   the first piece that `other` owns; if there is none, the first piece
//                           that `other` has
std::optional<uint32_t> Swarm::choose(const Other& other) const {
  std::optional<uint32_t> any;
  for (size_t index = 0; index < absent_.words(); ++index) {
    for (uint64_t word = absent_.word(index) & other.has.word(index); word != 0; word &= word - 1) {
      const auto piece = static_cast<uint32_t>(index * 64 + std::countr_zero(word));
      if (other.source) {
        if (takes_from_source(piece, other.index)) return piece;
      } else {
        if (piece % receivers_ == other.index) return piece;
        if (!any) any = piece;
      }
    }
  }
  return any;
}

bool Swarm::takes_from_source(uint32_t piece, uint32_t source) const {
  const uint32_t owner = piece % receivers_;
  return piece % sources_ == source && (owner == self_ || no_owner_[owner]);
}

std::optional<uint32_t> Swarm::last_absent() const {
  for (size_t index = absent_.words(); index > 0; --index) {
    const uint64_t word = absent_.word(index - 1);
    if (word != 0) return static_cast<uint32_t>((index - 1) * 64 + 63 - std::countl_zero(word));
  }
  return std::nullopt;
}

// If pieces come from most other receivers, the remaining pieces will come from them, too: then no
// spare piece is needed.
bool Swarm::may_ask_for_spare() const {
  const auto busy = std::count_if(others_.begin(), others_.end(), [](const Other& other) {
    return !other.source && other.under_way > 0;
  });
  return busy <= std::max<std::ptrdiff_t>((receivers_ - 1) / 2, 1);
}

std::optional<Swarm::Ask> Swarm::next() {
  if (left_ == 0) return std::nullopt;
  for (Other& other : others_) {
    if (other.excluded || other.under_way >= per_peer_) continue;
    std::optional<uint32_t> piece = choose(other);
    bool spare = false;
    if (!piece && other.source && other.under_way == 0 && may_ask_for_spare()) {
      piece = last_absent();
      spare = true;
    }
    if (!piece) continue;
    absent_.reset(*piece);
    ++other.under_way;
    other.spare |= spare;
    under_way_[*piece] = {other.peer, spare};
    return Ask{other.peer, *piece, spare};
  }
  return std::nullopt;
}

void Swarm::arrived(uint32_t piece, PeerId from) {
  UnderWay& of = under_way_.at(piece);
  PCCL_ASSERT(of.peer == from && !of.arrived);
  of.arrived = true;
  Other& other = *find(from);
  PCCL_ASSERT(other.under_way > 0);
  --other.under_way;
  if (of.spare) other.spare = false;
}

void Swarm::verified(uint32_t piece) {
  PCCL_ASSERT(under_way_.at(piece).arrived && left_ > 0);
  under_way_.erase(piece);
  here_.set(piece);
  ++here_count_;
  --left_;
}

void Swarm::refused(uint32_t piece, PeerId from) {
  PCCL_ASSERT(under_way_.at(piece).arrived && under_way_.at(piece).peer == from);
  under_way_.erase(piece);
  absent_.set(piece);
  exclude(from);
}

void Swarm::has(PeerId peer, const Bits& pieces) {
  Other* const other = find(peer);
  if (other == nullptr || other->source) return;
  PCCL_ASSERT(pieces.size() == here_.size());
  for (size_t index = 0; index < pieces.words(); ++index)
    other->has.set_word(index, other->has.word(index) | pieces.word(index));
  other->said = true;
}

size_t Swarm::busy() const {
  return static_cast<size_t>(std::count_if(others_.begin(), others_.end(),
                                           [](const Other& other) { return other.under_way > 0; }));
}

std::vector<uint32_t> Swarm::lost() const {
  Bits some = here_;
  for (const Other& other : others_) {
    if (other.excluded) continue;
    if (other.source || !other.said) return {};
    for (size_t index = 0; index < some.words(); ++index)
      some.set_word(index, some.word(index) | other.has.word(index));
  }
  std::vector<uint32_t> lost;
  for (uint32_t piece = 0; piece < here_.size(); ++piece) {
    const bool wanted = absent_.test(piece);
    if (wanted && !some.test(piece)) lost.push_back(piece);
  }
  return lost;
}

void Swarm::check() const {
  PCCL_ASSERT(here_.count() == here_count_ && absent_.count() + under_way_.size() == left_);
  for (size_t index = 0; index < here_.words(); ++index)
    PCCL_ASSERT((here_.word(index) & absent_.word(index)) == 0);
  std::map<PeerId, uint32_t> counts;
  for (const auto& [piece, of] : under_way_) {
    PCCL_ASSERT(!here_.test(piece) && !absent_.test(piece));
    const Other* const other = find(of.peer);
    PCCL_ASSERT(other != nullptr && other->has.test(piece));
    if (!of.arrived) ++counts[of.peer];
  }
  for (const Other& other : others_) {
    const auto at = counts.find(other.peer);
    PCCL_ASSERT(other.under_way == (at == counts.end() ? 0 : at->second));
    PCCL_ASSERT(other.under_way <= per_peer_);
  }
}

}  // namespace pccl::peer
