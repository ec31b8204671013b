#include "csrc/peer/state/swarm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "tests/cpp/chance.h"

namespace pccl::peer {
namespace {

PeerId id(uint64_t number) { return {number}; }

// All peers of one state sync. Sources come first. Each step lets one request, one answer or one
// piece of news arrive.
struct World {
  World(uint32_t sources, uint32_t receivers, uint32_t pieces) : count(pieces) {
    for (uint32_t i = 0; i < sources; ++i) source_ids.push_back(id(i + 1));
    for (uint32_t i = 0; i < receivers; ++i) receiver_ids.push_back(id(100 + i));
    for (const PeerId self : receiver_ids) {
      Bits wanted(pieces);
      wanted.set_all();
      swarms.emplace(self, Swarm({self, source_ids, receiver_ids, wanted, Bits(pieces), 2}));
    }
  }
  struct Flight {
    PeerId to;
    Swarm::Ask ask;
  };
  // In rounds: every peer sends one piece in each, the spare ones last, if it is asked for any.
  // Returns the number of rounds.
  int run() {
    std::map<PeerId, std::deque<Flight>> asked;
    for (int round = 0; round < 10'000; ++round) {
      bool all = true;
      for (auto& [self, swarm] : swarms) {
        while (const auto ask = swarm.next()) asked[ask->peer].push_back({self, *ask});
        swarm.check();
        all &= swarm.complete();
      }
      if (all) return round;
      std::vector<Flight> arriving;
      for (auto& [from, flights] : asked) {
        auto at = std::find_if(flights.begin(), flights.end(),
                               [](const Flight& flight) { return !flight.ask.spare; });
        if (at == flights.end()) at = flights.begin();
        if (at == flights.end()) continue;
        arriving.push_back(*at);
        flights.erase(at);
        ++sent[from];
      }
      for (const Flight& flight : arriving) {
        swarms.at(flight.to).arrived(flight.ask.piece, flight.ask.peer);
        swarms.at(flight.to).verified(flight.ask.piece);
      }
      for (auto& [self, swarm] : swarms) {
        for (const auto& [other, others] : swarms) swarm.has(other, others.here());
      }
    }
    return -1;
  }
  const uint32_t count;
  std::vector<PeerId> source_ids, receiver_ids;
  std::map<PeerId, Swarm> swarms;
  std::map<PeerId, uint32_t> sent;
};

TEST(Swarm, OneSourceSendsItsStateAboutOnce) {
  World world(1, 4, 256);
  const int rounds = world.run();
  EXPECT_LE(world.sent[id(1)], 256u * 13 / 10);
  EXPECT_LE(rounds, 256 * 12 / 10) << "serving one alone takes 256";
  EXPECT_GE(world.sent[id(100)], 256u / 2) << "newcomers serve each other";
}

TEST(Swarm, TwoSourcesShareTheWork) {
  World world(2, 2, 256);
  EXPECT_LE(world.run(), 256 * 7 / 10);
  EXPECT_LE(world.sent[id(1)], 256u * 6 / 10);
  EXPECT_LE(world.sent[id(2)], 256u * 6 / 10);
}

TEST(Swarm, OneReceiverTakesHalfFromEachOfTwo) {
  World world(2, 1, 64);
  EXPECT_LE(world.run(), 34);
}

TEST(Swarm, OwnPiecesComeFirstAndTwoAtATime) {
  Bits wanted(6);
  wanted.set_all();
  Swarm swarm({id(10), {id(1)}, {id(10), id(11)}, wanted, Bits(6), 2});
  EXPECT_EQ(swarm.next()->piece, 0u);
  EXPECT_EQ(swarm.next()->piece, 2u);
  EXPECT_FALSE(swarm.next().has_value()) << "two are under way";
  Bits has(6);
  has.set(0);
  has.set(5);
  has.set(4);
  swarm.has(id(11), has);
  const auto from_owner = swarm.next();
  EXPECT_EQ(from_owner->peer, id(11));
  EXPECT_EQ(from_owner->piece, 5u) << "the piece that it owns";
  EXPECT_EQ(swarm.next()->piece, 4u) << "then any that it has";
  swarm.check();
}

TEST(Swarm, APieceThatNoOtherPeerHasIsAskedForAsASpare) {
  Bits wanted(3);
  wanted.set_all();
  Swarm swarm({id(10), {id(1)}, {id(10), id(11)}, wanted, Bits(3), 4});
  EXPECT_FALSE(swarm.next()->spare);
  EXPECT_FALSE(swarm.next()->spare);
  EXPECT_FALSE(swarm.next().has_value()) << "its own pieces come first";
  swarm.arrived(0, id(1));
  swarm.arrived(2, id(1));
  const auto spare = swarm.next();
  EXPECT_TRUE(spare->spare && spare->piece == 1);
  EXPECT_FALSE(swarm.next().has_value());
}

TEST(Swarm, AWrongPieceComesFromSomebodyElse) {
  Bits wanted(2);
  wanted.set_all();
  Swarm swarm({id(10), {}, {id(10), id(11), id(12)}, wanted, Bits(2), 2});
  Bits has(2);
  has.set(0);
  swarm.has(id(11), has);
  const auto ask = swarm.next();
  ASSERT_EQ(ask->peer, id(11));
  swarm.arrived(0, id(11));
  swarm.refused(0, id(11));
  EXPECT_TRUE(swarm.excluded(id(11)));
  EXPECT_FALSE(swarm.next().has_value());
  EXPECT_TRUE(swarm.lost().empty()) << "12 has not said what it has";
  swarm.has(id(12), has);
  EXPECT_EQ(swarm.next()->peer, id(12));
  EXPECT_EQ(swarm.lost(), std::vector<uint32_t>{1});
  swarm.check();
}

TEST(Swarm, APieceThatIsHereOrNotWantedIsNotAskedFor) {
  Bits wanted(4), here(4);
  wanted.set(0);
  wanted.set(3);
  here.set(1);
  here.set(2);
  here.set(3);
  Swarm swarm({id(10), {id(1)}, {id(10)}, wanted, here, 2});
  EXPECT_EQ(swarm.next()->piece, 0u);
  EXPECT_FALSE(swarm.next().has_value());
  swarm.arrived(0, id(1));
  swarm.verified(0);
  EXPECT_TRUE(swarm.complete());
  EXPECT_EQ(swarm.here_count(), 4u);
}

// Every receiver gets each piece that some peer has. It does not matter which peer has it at first,
// nor which answers are refused on the way.
TEST(Swarm, EveryPieceThatSomebodyHasGetsEverywhere) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Chance chance(seed);
    const auto pieces = static_cast<uint32_t>(1 + chance.below(70));
    World world(0, static_cast<uint32_t>(2 + chance.below(4)), pieces);
    world.swarms.clear();
    Bits all(pieces);
    for (const PeerId self : world.receiver_ids) {
      Bits wanted(pieces), here(pieces);
      wanted.set_all();
      for (uint32_t piece = 0; piece < pieces; ++piece) {
        const bool last = self == world.receiver_ids.back() && !all.test(piece);
        if (chance.below(3) > 0 && !last) continue;
        here.set(piece);
        all.set(piece);
      }
      world.swarms.emplace(self, Swarm({self, {}, world.receiver_ids, wanted, here, 2}));
    }
    for (auto& [self, swarm] : world.swarms) {
      for (const auto& [other, others] : world.swarms) swarm.has(other, others.here());
      EXPECT_TRUE(swarm.lost().empty());
    }
    EXPECT_GE(world.run(), 0) << "seed " << seed;
  }
}

TEST(Bits, CountsAndSetsAll) {
  Bits bits(70);
  bits.set_all();
  EXPECT_EQ(bits.count(), 70u);
  bits.reset(69);
  EXPECT_FALSE(bits.test(69));
  EXPECT_EQ(bits.count(), 69u);
}

}  // namespace
}  // namespace pccl::peer
