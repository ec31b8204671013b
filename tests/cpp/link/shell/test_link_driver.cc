#include "csrc/link/shell/link_driver.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>

#include "csrc/net/descriptors.h"
#include "csrc/net/keys.h"
#include "csrc/net/tls.h"
#include "tests/cpp/ring/member.h"

namespace pccl::link::shell_test {
namespace {

using net::FrameType;
using protocol::LinkState;
using ring::id;
using ring::kRun;
using ring::Member;
using ring::RawPeer;

// ---- Listening and dialling ----

TEST(LinkDriver, ListensInItsRangeOrSaysWhyNot) {
  const uint16_t free = net::free_port();
  const Member first(0, {.port_first = free, .port_last = free});
  Member second(1, {.port_first = free, .port_last = free});
  ASSERT_FALSE(second.listening().ok());
  EXPECT_EQ(second.listening().status().code, Code::kSystem);
  EXPECT_NE(second.listening().status().message.find(std::to_string(free)), std::string::npos);
}

TEST(LinkDriver, KeepsDiallingUntilThePeerIsThere) {
  const uint16_t later = net::free_port();
  Member one(0);
  one.dial(id(1), {{"127.0.0.1", later}});
  const std::string why = one.reported(id(1), LinkState::kUnreachable);
  EXPECT_NE(why.find("127.0.0.1:" + std::to_string(later)), std::string::npos) << why;
  Member two(1, {.port_first = later, .port_last = later});
  EXPECT_EQ(one.reported(id(1), LinkState::kUp), "");
  EXPECT_EQ(two.reported(id(0), LinkState::kUp), "") << "both sides know";
  one.dial(id(1), {{"127.0.0.1", later}});
  EXPECT_EQ(one.reported(id(1), LinkState::kUp, 2), "") << "it is up already";
  EXPECT_EQ(two.counters().links.size(), 1u);
}

TEST(LinkDriver, SaysInFewWordsWhyAPeerCannotBeReached) {
  Member one(0);
  one.dial(id(1), {{"127.0.0.1", net::free_port()}});
  EXPECT_EQ(one.fault(id(1)), LinkFault::kRefused);
  one.dial(id(2), {{std::string(70, 'x'), 1}});
  EXPECT_EQ(one.fault(id(2)), LinkFault::kUnknownName);
  Member five(5);
  one.dial(id(3), {{"127.0.0.1", five.port()}});
  EXPECT_EQ(one.fault(id(3)), LinkFault::kOther) << "it hangs up on whoever looks for another";
}

TEST(LinkDriver, ForgetStopsDiallingAndHangsUp) {
  Member one(0);
  one.dial(id(7), {{"127.0.0.1", net::free_port()}});
  one.reported(id(7), LinkState::kUnreachable);
  one.forget(id(7));
  Member two(1);
  one.dial(id(1), {{"127.0.0.1", two.port()}});
  one.reported(id(1), LinkState::kUp);
  one.forget(id(1));
  EXPECT_NE(two.reported(id(0), LinkState::kDown), "none");
  EXPECT_EQ(one.counters().links.size(), 0u);
  EXPECT_NE(one.reported(id(1), LinkState::kDown), "none");
}

TEST(LinkDriver, ALinkThatBreaksIsReportedByBothAndMayBeDialledAgain) {
  Member one(0);
  auto two = std::make_unique<Member>(1);
  one.dial(id(1), {{"127.0.0.1", two->port()}});
  one.reported(id(1), LinkState::kUp);
  two->forget(id(0));
  EXPECT_NE(one.reported(id(1), LinkState::kDown).find("closed the connection"), std::string::npos);
  one.dial(id(1), {{"127.0.0.1", two->port()}});
  one.reported(id(1), LinkState::kUp, 2);
  two->destroy();
  one.reported(id(1), LinkState::kDown, 2);
}

// A new attempt would take down the connection that the other end has accepted. The other end would
// report that and be dialled again, without end if nobody is fast enough.
TEST(LinkDriver, AnAttemptUnderWayGoesOnUnlessItIsTheOneThatIsDead) {
  net::RawListener slow;
  Member one(0);
  const net::Endpoint at{"127.0.0.1", slow.port()};
  one.dial(id(1), {at});
  one.dial(id(1), {at});
  RawPeer first(accept(slow.fd, nullptr, nullptr));
  const auto hello = first.hear();
  ASSERT_TRUE(hello.has_value());
  one.dial(id(1), {at}, hello->block - 1);
  EXPECT_FALSE(first.hung_up(100));
  one.dial(id(1), {at}, hello->block);
  EXPECT_TRUE(first.hung_up());
  RawPeer second(accept(slow.fd, nullptr, nullptr));
  const auto again = second.hear();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->block, hello->block + 2) << "id(0), the lower one, has the even numbers";
  net::FrameHeader answer = RawPeer::hello(FrameType::kHelloOk, id(1), id(0), kRun);
  answer.block = again->block;
  second.say(answer);
  EXPECT_EQ(one.reported(id(1), LinkState::kUp), "");
}

TEST(LinkDriver, TwoThatDialEachOtherEndUpWithOneLink) {
  for (int round = 0; round < 20; ++round) {
    Member one(0), two(1);
    one.dial(id(1), {{"127.0.0.1", two.port()}});
    two.dial(id(0), {{"127.0.0.1", one.port()}});
    EXPECT_EQ(one.reported(id(1), LinkState::kUp), "");
    EXPECT_EQ(two.reported(id(0), LinkState::kUp), "");
    EXPECT_EQ(one.counters().links.size(), 1u);
    EXPECT_EQ(two.counters().links.size(), 1u);
  }
}

// ---- Pending connections ----

TEST(LinkDriver, AStrangerWithoutTheRunIsHungUpOn) {
  Member one(0);
  RawPeer stranger = RawPeer::dial(one.port());
  stranger.say(RawPeer::hello(FrameType::kHello, id(1), id(0), kRun + 1));
  EXPECT_TRUE(stranger.hung_up());
  EXPECT_EQ(one.report_count(), 0u);
  EXPECT_EQ(one.counters().links.size(), 0u);
}

// The answer travels with the proof of the acceptor, and whoever sent a copy cannot read it.
TEST(LinkDriver, AProofIsAnsweredBeforeItIsCompleteAndNothingElseHappens) {
  const protocol::AcceptingKey accepting{1, {{1, 2, 3, 4}}};
  Member one(0, {}, accepting);
  one.begin_epoch({id(1)}, {id(1)});
  const protocol::LaneIdentity identity{id(1), id(0), 1, 7};
  const std::string introduction = net::encode(protocol::LaneIntroduction{identity, 1});
  Result<net::Tls> tls =
      net::Tls::dial(introduction, net::Key(net::lane_key(accepting.key, kRun, identity)));
  ASSERT_TRUE(tls.ok());
  RawPeer dialler = RawPeer::dial(one.port());
  dialler.say(tls.value().outgoing());
  std::vector<std::byte> answer;
  while (answer.size() < 2 * sizeof(net::HeaderBytes)) {
    std::vector<std::byte> bytes = dialler.receive();
    ASSERT_FALSE(bytes.empty());
    std::span<std::byte> ciphertext = bytes;
    for (;;) {
      Result<std::span<const std::byte>> read = tls.value().read(ciphertext);
      ASSERT_TRUE(read.ok()) << read.status().message;
      if (read.value().empty()) break;
      answer.insert(answer.end(), read.value().begin(), read.value().end());
    }
  }
  net::HeaderBytes first, second;
  std::copy_n(answer.begin(), first.size(), first.begin());
  std::copy_n(answer.begin() + first.size(), second.size(), second.begin());
  EXPECT_EQ(net::decode_header(first).value().type, FrameType::kHelloOk);
  EXPECT_EQ(net::decode_header(second).value().type, FrameType::kOpen);
  EXPECT_EQ(one.counters().links.size(), 0u);
  EXPECT_EQ(one.report_count(), 0u);
}

TEST(LinkDriver, ManyWhoSayNothingDoNotKeepOthersOut) {
  Member one(0);
  std::vector<RawPeer> silent;
  for (int count = 0; count < 350; ++count) silent.push_back(RawPeer::dial(one.port()));
  RawPeer honest = RawPeer::dial(one.port());
  honest.say(RawPeer::hello(FrameType::kHello, id(1), id(0), kRun));
  const auto answer = honest.hear();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->type, FrameType::kHelloOk);
  EXPECT_TRUE(silent.front().hung_up(1000)) << "the oldest makes room";
  EXPECT_FALSE(silent.back().hung_up(0));
}

TEST(LinkDriver, ConnectionsAreReadOnceThePeerKnowsItsIdentity) {
  Member one(0, {}, {}, false);
  std::vector<RawPeer> silent;
  for (int count = 0; count < 350; ++count) silent.push_back(RawPeer::dial(one.port()));
  RawPeer honest = RawPeer::dial(one.port());
  honest.say(RawPeer::hello(FrameType::kHello, id(1), id(0), kRun));
  EXPECT_TRUE(silent.front().hung_up(1000)) << "the oldest makes room";
  EXPECT_FALSE(honest.hung_up(0));
  one.identify(0);
  const auto answer = honest.hear();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->type, FrameType::kHelloOk);
}

TEST(LinkDriver, AConnectionThatSaysNothingIsClosedInTime) {
  Member plain(0);
  Member secured(1, {}, protocol::AcceptingKey{1, {{1, 2, 3, 4}}});
  RawPeer first = RawPeer::dial(plain.port()), second = RawPeer::dial(secured.port());
  EXPECT_TRUE(first.hung_up(20'000));
  EXPECT_TRUE(second.hung_up(20'000));
}

// A process with at most 256 descriptors listens for links, and opens as many files at once as a
// training script does. Its exit code is the number of rounds in which that failed, up to 100.
[[noreturn]] void train_with_few_descriptors(int port_to, int go_from) {
  const rlimit few{256, 256};
  setrlimit(RLIMIT_NOFILE, &few);
  Member one(0);
  const uint16_t port = one.port();
  char go = 0;
  if (::write(port_to, &port, sizeof port) != sizeof port || ::read(go_from, &go, 1) != 1)
    _exit(101);
  int failed = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<int> files;
    for (size_t i = 0; i < net::kLeftToApplication; ++i)
      files.push_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    failed += std::count(files.begin(), files.end(), -1) > 0 ? 1 : 0;
    for (const int file : files) ::close(file);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  _exit(std::min(failed, 100));
}

TEST(LinkDriver, ManyWhoSayNothingLeaveTheApplicationItsDescriptors) {
  int port_ends[2] = {-1, -1}, go_ends[2] = {-1, -1};
  ASSERT_EQ(pipe2(port_ends, O_CLOEXEC) | pipe2(go_ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) train_with_few_descriptors(port_ends[1], go_ends[0]);
  uint16_t port = 0;
  ASSERT_EQ(::read(port_ends[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  std::vector<RawPeer> silent;
  for (int count = 0; count < 350; ++count) silent.push_back(RawPeer::dial(port));
  ASSERT_EQ(::write(go_ends[1], "g", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "times of 200";
  for (const int end : {port_ends[0], port_ends[1], go_ends[0], go_ends[1]}) ::close(end);
}

TEST(LinkDriver, ASecondLinkIsRefusedWhileTheFirstAnswers) {
  Member one(0), two(1);
  one.dial(id(1), {{"127.0.0.1", two.port()}});
  one.reported(id(1), LinkState::kUp);
  RawPeer again = RawPeer::dial(two.port());
  again.say(RawPeer::hello(FrameType::kHello, id(0), id(1), kRun));
  EXPECT_TRUE(again.hung_up());
  std::this_thread::sleep_for(
      // Longer than the first link is given to answer.
      std::chrono::milliseconds(1500));
  EXPECT_EQ(two.report_count(), 1u) << "that it is up";
  EXPECT_EQ(two.counters().links.size(), 1u);
}

TEST(LinkDriver, ASecondLinkTakesThePlaceOfOneThatIsDead) {
  Member one(0);
  RawPeer mute = RawPeer::dial(one.port());
  mute.say(RawPeer::hello(FrameType::kHello, id(1), id(0), kRun));
  ASSERT_TRUE(mute.hear().has_value());
  {
    RawPeer refused = RawPeer::dial(one.port());
    refused.say(RawPeer::hello(FrameType::kHello, id(1), id(0), kRun));
    EXPECT_TRUE(refused.hung_up());
  }
  EXPECT_NE(one.reported(id(1), LinkState::kDown).find("does not answer"), std::string::npos);
  RawPeer again = RawPeer::dial(one.port());
  again.say(RawPeer::hello(FrameType::kHello, id(1), id(0), kRun));
  EXPECT_EQ(again.hear()->type, FrameType::kHelloOk);
}

TEST(LinkDriver, AMemberThatBreaksARuleLosesItsLink) {
  Member one(0);
  RawPeer hostile = RawPeer::dial(one.port());
  hostile.say(RawPeer::hello(FrameType::kHello, id(1), id(0), kRun));
  hostile.hear();
  net::FrameHeader chunk;
  chunk.type = FrameType::kChunk;
  chunk.epoch = Epoch{3};
  chunk.length = 1000;
  hostile.say(chunk);
  EXPECT_TRUE(hostile.hung_up());
  EXPECT_NE(one.reported(id(1), LinkState::kDown).find("before both sides had opened"),
            std::string::npos);
}

}  // namespace
}  // namespace pccl::link::shell_test
