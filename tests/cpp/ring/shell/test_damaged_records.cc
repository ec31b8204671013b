// A bit of an encrypted connection is flipped on its way, in the middle of each kind of operation.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <thread>

#include "csrc/net/keys.h"
#include "csrc/ring/shell/data_plane.h"
#include "tests/cpp/ring/member.h"

namespace pccl::ring {
namespace {

using protocol::LinkState;

// A connection through a third party, who flips a bit of one byte, in one direction.
class Meddler {
 public:
  // `forth`: in the data of the dialler.
  Meddler(uint16_t target, bool forth, size_t at)
      : thread_([this, target, forth, at] {
          const int dialler = ::accept4(listener_.fd, nullptr, nullptr, SOCK_CLOEXEC);
          const int acceptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
          sockaddr_in address = listener_.address;
          address.sin_port = htons(target);
          EXPECT_EQ(::connect(acceptor, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
          size_t left = at;
          while (pass(dialler, acceptor, forth ? &left : nullptr) &&
                 pass(acceptor, dialler, forth ? nullptr : &left)) {
            std::array<pollfd, 2> ends = {{{dialler, POLLIN, 0}, {acceptor, POLLIN, 0}}};
            ::poll(ends.data(), ends.size(), -1);
          }
          ::close(dialler);
          ::close(acceptor);
        }) {}
  ~Meddler() { thread_.join(); }  // both members have closed their ends
  uint16_t port() const { return listener_.port(); }

 private:
  // Passes on the bytes that are there. False at their end.
  static bool pass(int from, int to, size_t* left) {
    std::array<std::byte, 4096> bytes;
    const ssize_t count = ::recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count <= 0) return count < 0 && errno == EAGAIN;
    const auto size = static_cast<size_t>(count);
    if (left != nullptr) {
      if (*left < size) bytes.at(*left) ^= std::byte{4};
      *left = *left < size ? SIZE_MAX : *left - size;
    }
    return ::send(to, bytes.data(), size, MSG_NOSIGNAL) == count;
  }

  net::RawListener listener_;
  std::thread thread_;
};

struct Damage {
  const char* name;
  Pattern pattern;
  bool forth;  // in the data of rank 0, which dials
  bool save = true;
};

class DamagedRecord : public ::testing::TestWithParam<Damage> {
 protected:
  static constexpr size_t kCount = (1u << 20) / 4;
  static Task task(Pattern pattern, uint32_t rank) {
    Task task{.epoch = Epoch{1},
              .op = {},
              .digest = 5,
              .shape = {.pattern = pattern,
                        .rank = rank,
                        .world = 2,
                        .element_bytes = 4,
                        .count = kCount,
                        .block_bytes = {},
                        .wan = pattern == Pattern::kPairwise}};
    if (pattern == Pattern::kDirect) {
      task.shape.shares = {protocol::kSharesTotal / 2, protocol::kSharesTotal / 2};
      for (uint32_t other = 0; other < 2; ++other)
        task.parts.push_back({.peer = other == rank ? PeerId{} : id(other)});
      return task;
    }
    if (pattern != Pattern::kBroadcast || rank == 1) task.upstream = id(1 - rank);
    if (pattern != Pattern::kBroadcast || rank == 0) task.downstream = id(1 - rank);
    return task;
  }
  static float value(uint32_t rank, size_t at) {
    return static_cast<float>(1000 * (rank + 1) + at % 1000);
  }
};

INSTANTIATE_TEST_SUITE_P(
    Of, DamagedRecord,
    ::testing::Values(Damage{"AllReduceForth", Pattern::kAllReduce, true},
                      Damage{"AllReduceBack", Pattern::kAllReduce, false},
                      Damage{"Broadcast", Pattern::kBroadcast, true},
                      Damage{"PairwiseForth", Pattern::kPairwise, true},
                      Damage{"PairwiseBack", Pattern::kPairwise, false},
                      Damage{"DirectForth", Pattern::kDirect, true},
                      Damage{"DirectBack", Pattern::kDirect, false},
                      Damage{"AllReduceUnsaved", Pattern::kAllReduce, true, false},
                      Damage{"BroadcastUnsaved", Pattern::kBroadcast, true, false}),
    [](const auto& one) { return one.param.name; });

// An operation that saves leaves the tensors as they were. Without that, an element is as before or
// has its result: nothing that was not verified is in it.
TEST_P(DamagedRecord, ReachesNoTensor) {
  const Damage& damage = GetParam();
  const protocol::AcceptingKey accepting{1, {{1, 2, 3, 4}}};
  for (const size_t byte : {10'000u, 300'000u, 900'000u}) {
    SCOPED_TRACE("byte " + std::to_string(byte));
    std::array<std::unique_ptr<Member>, 2> members;
    for (uint32_t rank = 0; rank < 2; ++rank)
      members[rank] = std::make_unique<Member>(rank, link::DriverOptions{}, accepting);
    const Meddler meddler(members[1]->port(), damage.forth, byte);
    const protocol::LaneIdentity identity{id(0), id(1), 1, 7};
    members[0]->dial(id(1), {{"127.0.0.1", meddler.port()}}, 0,
                     protocol::LaneCredential{
                         identity, protocol::Key(net::lane_key(accepting.key, kRun, identity))});
    std::array<std::vector<float>, 2> tensors;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(members[rank]->reported(id(1 - rank), LinkState::kUp), "");
      members[rank]->begin_epoch({id(1 - rank)}, {id(1 - rank)});
      for (size_t at = 0; at < kCount; ++at) tensors[rank].push_back(value(rank, at));
    }
    for (uint32_t rank = 0; rank < 2; ++rank) {
      members[rank]->post(
          task(damage.pattern, rank),
          {.spans = {std::as_writable_bytes(std::span(tensors[rank]))}, .save = damage.save});
    }
    const uint32_t receiver = damage.forth ? 1 : 0;
    EXPECT_NE(members[receiver]->reported(id(1 - receiver), LinkState::kDown).find("damaged"),
              std::string::npos);
    EXPECT_NE(members[1 - receiver]->reported(id(receiver), LinkState::kDown), "none");
    for (uint32_t rank = 0; rank < 2; ++rank) {
      members[rank]->end({{}, Ending::kAborted});
      ASSERT_TRUE(members[rank]->drained({}));
      size_t changed = 0, wrong = 0;
      for (size_t at = 0; at < kCount; ++at) {
        const float before = value(rank, at);
        const float result =
            damage.pattern == Pattern::kBroadcast ? value(0, at) : value(0, at) + value(1, at);
        changed += tensors[rank][at] != before ? 1 : 0;
        wrong += tensors[rank][at] != before && tensors[rank][at] != result ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0u) << "rank " << rank;
      EXPECT_TRUE(changed == 0 || !damage.save) << "rank " << rank;
    }
  }
}

}  // namespace
}  // namespace pccl::ring
