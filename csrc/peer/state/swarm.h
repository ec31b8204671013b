// Swarm chooses the next piece that a receiver of a state sync requests, and the peer to ask
// (PROTOCOL.md, section 5.3). It has a list of the pieces of each peer: a source has all pieces;
// other receivers report their verified pieces. It belongs to StateSync and is pure. With k sources
// and n receivers, piece p has an owner: receiver p mod n. The owner takes the piece from source p
// mod k. The others take it from the owner, or from any receiver that has it. So each source sends
// its share once. A receiver that has asked a source for all of its own pieces asks for one more
// piece, which the source sends only when it has nothing else to send (`spare`). So a slow owner
// delays no receiver.
// Invariants:
//   1. A piece is in exactly one state: here, absent, or under way from one peer.
//   2. At most `per_peer` pieces are under way from one peer, and one of them is spare.
//   3. No peer is asked for a piece that it does not have.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "csrc/base/ids.h"

namespace pccl::peer {

// A set of small numbers, as a list of bits.
class Bits {
 public:
  explicit Bits(size_t size = 0) : words_((size + 63) / 64), size_(size) {}
  size_t size() const { return size_; }
  bool test(size_t at) const { return ((words_[at / 64] >> (at % 64)) & 1) != 0; }
  void set(size_t at) { words_[at / 64] |= uint64_t{1} << (at % 64); }
  void reset(size_t at) { words_[at / 64] &= ~(uint64_t{1} << (at % 64)); }
  void set_all();
  size_t count() const;
  uint64_t word(size_t index) const { return words_[index]; }
  void set_word(size_t index, uint64_t value) { words_[index] = value; }
  size_t words() const { return words_.size(); }
  bool operator==(const Bits&) const = default;

 private:
  std::vector<uint64_t> words_;
  size_t size_;
};

class Swarm {
 public:
  struct Setup {
    PeerId self;
    std::vector<PeerId> sources, receivers;
    Bits wanted, here;      // by piece: wanted by this peer; here at this peer (a source has all)
    uint32_t per_peer = 2;  // maximum number of pieces under way from one peer
  };
  struct Ask {
    PeerId peer;
    uint32_t piece = 0;
    bool spare = false;
  };

  Swarm() = default;
  explicit Swarm(Setup setup);

  // The next request, which is under way from now on; nothing if there is none now.
  std::optional<Ask> next();
  // All bytes of the piece have arrived from this peer. It may be asked for another piece.
  void arrived(uint32_t piece, PeerId from);
  void verified(uint32_t piece);              // REQUIRES: arrived
  void refused(uint32_t piece, PeerId from);  // the piece was wrong: `from` is asked no more
  void has(PeerId peer, const Bits& pieces);  // `peer`, a receiver, has reported these pieces

  const Bits& here() const { return here_; }
  size_t here_count() const { return here_count_; }
  size_t busy() const;  // number of peers that pieces are under way from
  bool complete() const { return left_ == 0; }
  // The wanted pieces that no peer has. Empty while there is a source, or while some receiver has
  // not reported its pieces.
  std::vector<uint32_t> lost() const;
  bool is_source(PeerId peer) const;
  bool excluded(PeerId peer) const;
  void exclude(PeerId peer);  // this peer is asked no more
  void check() const;         // asserts the invariants

 private:
  struct Other {
    PeerId peer;
    bool source = false, said = false, excluded = false;
    uint32_t index = 0;  // position among the sources, or among the receivers
    Bits has = Bits();
    uint32_t under_way = 0;
    bool spare = false;  // a spare piece is under way
  };
  Other* find(PeerId peer);
  const Other* find(PeerId peer) const;
  std::optional<uint32_t> choose(const Other& other) const;
  std::optional<uint32_t> last_absent() const;
  bool may_ask_for_spare() const;
  bool takes_from_source(uint32_t piece, uint32_t source) const;

  uint32_t self_ = 0;  // index of this peer among the receivers
  uint32_t sources_ = 0, receivers_ = 0, per_peer_ = 2;
  std::vector<Other> others_;
  Bits here_, absent_;
  // By receiver: it is excluded, and others take its pieces from sources.
  std::vector<bool> no_owner_;
  size_t here_count_ = 0;
  size_t left_ = 0;  // number of wanted pieces that are not here
  struct UnderWay {
    PeerId peer;
    bool spare = false, arrived = false;
  };
  std::map<uint32_t, UnderWay> under_way_;
};

}  // namespace pccl::peer
