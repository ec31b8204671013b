#include "master/shell/shell.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <list>
#include <thread>

#include "csrc/base/log.h"
#include "csrc/protocol/limits.h"
#include "master/shell/loopback.h"
#include "master/shell/meetings.h"
#include "tests/cpp/master/asker.h"
#include "tests/cpp/master/client.h"
#include "tests/cpp/master/keyring_lines.h"
#include "tests/cpp/temp_folder.h"

namespace pccl::master {
namespace {

class ShellTest : public testing::Test {
 protected:
  ShellTest() {
    auto opened = Shell::open({"127.0.0.1", 0});
    EXPECT_TRUE(opened.ok()) << opened.status().message;
    shell = std::move(opened.value());
  }
  std::unique_ptr<Shell> shell;
};

TEST_F(ShellTest, AdmitsAPeerAndSaysWhereItIsSeen) {
  Client peer(shell->port());
  const protocol::Welcome welcome = peer.join("run");
  EXPECT_EQ(welcome.seen_host, "127.0.0.1");
  EXPECT_TRUE(welcome.loopback_only);
  EXPECT_NE(welcome.run_id, 0u);
  EXPECT_GT(welcome.incarnation, 1600000000u) << "seconds of the clock, while there is no journal";
}

TEST_F(ShellTest, ServesManyRunsIndependently) {
  Client one(shell->port()), other(shell->port());
  EXPECT_NE(one.join("one").run_id, other.join("other").run_id);
}

// A process of a reconfigure, under a name that would lead into another run.
protocol::Hello stray(const std::string& group) {
  protocol::Hello hello = Harness::hello(1);
  hello.run = "run";
  hello.join_timeout_ms = 50;
  hello.rendezvous = protocol::Rendezvous{
      7, {{{"10.0.0.1", 4000}, group, 1}, {{"10.0.0.2", 4000}, "other", 1}}, 1, {}};
  return hello;
}

TEST_F(ShellTest, RefusesAStrayProcessOfAReconfigure) {
  Client caller(shell->port());
  caller.say(stray("unknown"));
  const auto stale = caller.hear_a<protocol::Reject>();
  ASSERT_TRUE(stale);
  EXPECT_EQ(stale->code, Code::kPeerLost) << stale->text;
  Client hasty(shell->port());
  protocol::Hello hello = stray("unknown");
  hello.settings.peer_timeout = Duration{0};
  hasty.say(hello);
  const auto bad = hasty.hear_a<protocol::Reject>();
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->code, Code::kInvalidArgument) << bad->text;
}

TEST_F(ShellTest, LetsAProcessOfAReconfigureIntoNoOtherRun) {
  shell->announce("run");
  shell->with_meetings([](Meetings& all) { all.open("group", nullptr); });
  Client caller(shell->port());
  caller.say(stray("group"));
  const auto late = caller.hear_a<protocol::Reject>();
  ASSERT_TRUE(late) << "the run of its Hello would welcome it";
  EXPECT_EQ(late->code, Code::kOperationTimeout) << late->text;
}

TEST_F(ShellTest, ConnectsBackToTheAddressThatAsks) {
  Client caller(shell->port(), "127.0.0.9");
  protocol::DialBack question;
  question.port = shell->port();  // it listens on 127.0.0.1 only
  caller.say(question);
  const auto answer = caller.hear_a<protocol::DialedBack>();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->host, "127.0.0.9");
  EXPECT_FALSE(answer->connected);
  EXPECT_EQ(answer->fault, LinkFault::kRefused);
  EXPECT_TRUE(caller.hears_the_end());
}

TEST_F(ShellTest, AMachineThatWaitsForItsAnswerMayNotJoin) {
  Client caller(shell->port());
  std::vector<std::byte> both;
  protocol::DialBack question;
  question.port = shell->port();
  protocol::encode(question, both);
  protocol::Hello hello;
  hello.run = "run";
  protocol::encode(hello, both);
  caller.say_bytes(both);
  EXPECT_TRUE(caller.hears_the_end()) << "without an answer, and without a Welcome";
}

struct ShellWithAJournalTest : testing::Test {
  Result<std::unique_ptr<Shell>> open() {
    Remembering remembering;
    remembering.path = folder + "/journal";
    return Shell::open({"127.0.0.1", 0}, remembering);
  }
  const TempFolder temporary;
  const std::string folder = temporary.path();
};

TEST_F(ShellWithAJournalTest, AnswersAtTheSocketBesideIt) {
  auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().message;
  EXPECT_EQ(Asker(folder + "/journal.sock").ask("{\"command\":\"runs\"}\n"), "{\"runs\":[]}\n");
  Client peer(opened.value()->port());
  peer.join("night");
  const std::string runs = Asker(folder + "/journal.sock").ask("{\"command\":\"runs\"}\n");
  EXPECT_TRUE(contains(runs, "\"run\":\"night\"")) << runs;
  const std::string forgot =
      Asker(folder + "/journal.sock").ask("{\"command\":\"forget\",\"run\":\"day\"}\n");
  EXPECT_TRUE(contains(forgot, "{\"error\":")) << forgot;
  opened = Status{Code::kSystem, "", {}};
  EXPECT_FALSE(std::filesystem::exists(folder + "/journal.sock"));
}

TEST_F(ShellWithAJournalTest, DoesNotOpenWithoutTheSocket) {
  std::filesystem::create_directory(folder + "/journal.sock");
  const auto opened = open();
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code, Code::kSystem);
  EXPECT_TRUE(contains(opened.status().message, "is a directory, not a socket"));
}

struct ShellWithAKeyringTest : ShellWithAJournalTest {
  ShellWithAKeyringTest() { write({"alice000", "bob00000"}); }
  void write(const std::vector<std::string>& ids) const {
    std::ofstream file(keyring, std::ios::trunc);
    file << kKeyringHead;
    for (const std::string& id : ids) file << token_line(id, secret_hex("a5"));
    EXPECT_EQ(chmod(keyring.c_str(), 0600), 0);
  }
  Result<std::unique_ptr<Shell>> open() const {
    return Shell::open({"127.0.0.1", 0}, {.path = folder + "/journal"}, {}, protocol::kSpoken,
                       {keyring});
  }
  std::string revoke(const std::string& ids) const {
    return Asker(folder + "/journal.sock")
        .ask("{\"command\":\"revoke\",\"tokens\":[" + ids + "]}\n");
  }
  const std::string keyring = folder + "/keyring";
};

TEST_F(ShellWithAKeyringTest, KnowsItsTokensAndForgetsThoseThatAreRevoked) {
  auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().message;
  EXPECT_EQ(opened.value()->token_count(), 2u);
  write({"bob00000"});
  EXPECT_EQ(revoke("\"alice000\""), "{\"revoked\":{\"peers\":0,\"tokens\":1}}\n");
  EXPECT_EQ(revoke("\"alice000\""), "{\"revoked\":{\"peers\":0,\"tokens\":0}}\n");
  EXPECT_EQ(opened.value()->token_count(), 2u) << "at the start";
}

TEST_F(ShellWithAKeyringTest, SaysThatAnotherKeyringWasChanged) {
  auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().message;
  EXPECT_EQ(revoke("\"alice000\""), "{\"error\":\"the keyring of this master, " + keyring +
                                        ", still has the token alice000: name that keyring with "
                                        "--keyring\"}\n");
}

TEST_F(ShellWithAKeyringTest, KeepsItsTokensIfItCannotReadThem) {
  auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().message;
  std::filesystem::remove(keyring);
  const std::string refused = revoke("\"alice000\"");
  EXPECT_TRUE(contains(refused, "{\"error\":\"there is no keyring")) << refused;
  EXPECT_TRUE(contains(refused, ". This master keeps its tokens\"}")) << refused;
  write({});
  EXPECT_TRUE(contains(revoke(""), "\"tokens\":2")) << "it had them all the time";
}

TEST_F(ShellWithAKeyringTest, DoesNotOpenWithADamagedOne) {
  std::ofstream(keyring, std::ios::trunc) << "dear diary";
  const auto opened = open();
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code, Code::kSystem);
  EXPECT_TRUE(contains(opened.status().message, "is damaged in line 1"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/journal")) << "nothing else is touched";
}

TEST_F(ShellWithAJournalTest, WithoutAKeyringThereIsNothingToRevoke) {
  auto opened = open();
  ASSERT_TRUE(opened.ok()) << opened.status().message;
  const std::string refused =
      Asker(folder + "/journal.sock").ask("{\"command\":\"revoke\",\"tokens\":[]}\n");
  EXPECT_TRUE(contains(refused, "was started without --keyring")) << refused;
}

// The first half of a message of the largest possible size.
std::vector<std::byte> half_a_message() {
  std::vector<std::byte> bytes;
  protocol::encode(Harness::hello(1), bytes);
  const uint32_t claimed = protocol::kMessageBytesMax;
  std::memcpy(bytes.data(), &claimed, sizeof claimed);
  bytes.resize(protocol::kMessageBytesMax / 2);
  return bytes;
}

TEST_F(ShellTest, PendingConnectionsTogetherHoldOnlySoMuch) {
  const std::vector<std::byte> bytes = half_a_message();
  std::deque<Client> pending;
  for (size_t sent = 0; sent <= protocol::kUndecodedBytesMax; sent += bytes.size()) {
    pending.emplace_back(shell->port()).say_bytes(bytes);
  }
  size_t closed = 0;
  for (Client& one : pending) closed += one.hears_the_end(milliseconds(200)) ? 1 : 0;
  EXPECT_EQ(closed, 1u) << "the last straw, and no more";
  Client peer(shell->port());
  peer.join("run");
}

TEST_F(ShellTest, ThoseWhoHaveIntroducedThemselvesHoldNoMore) {
  const std::vector<std::byte> bytes = half_a_message();
  Client other(shell->port());
  other.join("other");
  other.say_bytes(std::span(bytes).first(bytes.size() / 8));
  std::deque<Client> greedy;
  for (size_t sent = 0; sent < protocol::kUndecodedBytesMax; sent += bytes.size()) {
    Client& one = greedy.emplace_back(shell->port());
    protocol::Hello hello = Harness::hello(2);
    hello.run = "greedy";
    one.say(hello);
    EXPECT_TRUE(one.hear_a<protocol::Welcome>().has_value());
    one.say_bytes(bytes);
  }
  size_t closed = 0;
  for (Client& one : greedy) closed += one.hears_the_end(milliseconds(200)) ? 1 : 0;
  EXPECT_EQ(closed, 1u);
  EXPECT_FALSE(other.hears_the_end(milliseconds(10))) << "another run loses nothing by it";
}

TEST(ShellWithASmallBudget, ThoseWhoDoNotReadHoldOnlySoMuch) {
  auto opened = Shell::open({"127.0.0.1", 0}, {}, {.unsent = 1u << 20});
  ASSERT_TRUE(opened.ok()) << opened.status().message;
  Client deaf(opened.value()->port()), other(opened.value()->port());
  deaf.join("deaf");
  other.join("other");
  std::vector<std::byte> pings;
  for (uint64_t i = 0; i < 10000; ++i) protocol::encode(protocol::Ping{i, 0, {}}, pings);
  // The system's buffers take some megabytes before anything queues in the master.
  size_t said = 0;
  while (deaf.may_say_bytes(pings) && said < (64u << 20)) said += pings.size();
  EXPECT_LT(said, 64u << 20);
  other.say(protocol::Ping{1, 0, {}});
  EXPECT_TRUE(other.hear_a<protocol::Pong>().has_value());
}

// A master in a process of its own, with at most `descriptors` descriptors.
class MasterWithFewDescriptors {
 public:
  explicit MasterWithFewDescriptors(rlim_t descriptors) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) serve(descriptors, ends[1]);
    ::close(ends[1]);
    EXPECT_EQ(read(ends[0], &port_, sizeof port_), static_cast<ssize_t>(sizeof port_));
    ::close(ends[0]);
  }
  ~MasterWithFewDescriptors() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  uint16_t port() const { return port_; }

 private:
  [[noreturn]] static void serve(rlim_t descriptors, int to) {
    const rlimit few{descriptors, descriptors};
    setrlimit(RLIMIT_NOFILE, &few);
    auto shell = Shell::open({"127.0.0.1", 0});
    if (!shell.ok()) _exit(1);
    const uint16_t port = shell.value()->port();
    if (write(to, &port, sizeof port) != static_cast<ssize_t>(sizeof port)) _exit(1);
    for (;;) pause();
  }
  pid_t pid_ = -1;
  uint16_t port_ = 0;
};

// Keeps `count` silent connections to a master open, and replaces each one that is closed.
class SilentCrowd {
 public:
  SilentCrowd(uint16_t port, size_t count) : port_(port) {
    for (size_t i = 0; i < count; ++i) silent_.emplace_back(port);
    renewing_ = std::thread([this] {
      while (!over_) reconfigure();
    });
  }
  ~SilentCrowd() {
    over_ = true;
    renewing_.join();
  }
  // Waits until a connection that the master closed was replaced; false if none was in time.
  bool comes_again() const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (reconfigured_ == 0 && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(milliseconds(1));
    return reconfigured_ > 0;
  }

 private:
  void reconfigure() {
    for (auto one = silent_.begin(); one != silent_.end() && !over_;) {
      if (!one->hears_the_end(milliseconds(0))) {
        ++one;
        continue;
      }
      one = silent_.erase(one);
      silent_.emplace_back(port_);
      ++reconfigured_;
    }
  }
  const uint16_t port_;
  std::list<Client> silent_;
  std::atomic<bool> over_{false};
  std::atomic<size_t> reconfigured_{0};
  std::thread renewing_;
};

// Acts as a peer does: it connects again if it is closed before it could send anything.
bool is_welcomed_within(std::chrono::seconds limit, uint16_t port, const std::string& run) {
  protocol::Hello hello = Harness::hello(1);
  hello.run = run;
  const auto until = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < until) {
    Client newcomer(port);
    std::vector<std::byte> bytes;
    protocol::encode(hello, bytes);
    const auto heard = newcomer.may_say_bytes(bytes) ? newcomer.on() : std::nullopt;
    if (heard && std::holds_alternative<protocol::Welcome>(*heard)) return true;
  }
  return false;
}

TEST(ShellWithFewDescriptors, WelcomesANewcomerThroughACrowdOfSilentOnes) {
  const MasterWithFewDescriptors master(256);
  Client member(master.port());
  member.join("run");
  const SilentCrowd crowd(master.port(), 600);
  EXPECT_TRUE(crowd.comes_again());
  for (int i = 0; i < 5; ++i) {
    const std::string run = "run " + std::to_string(i);
    EXPECT_TRUE(is_welcomed_within(std::chrono::seconds(2), master.port(), run)) << run;
  }
  member.say(protocol::Ping{1, 0, {}});
  EXPECT_TRUE(member.hear_a<protocol::Pong>().has_value()) << "a member keeps its connection";
}

TEST(ShellWithFewDescriptors, KeepsSomeForMembersThatComeBack) {
  const MasterWithFewDescriptors master(256);
  Client member(master.port());
  const protocol::Welcome welcome = member.join("run");
  std::list<Client> others;
  std::optional<protocol::Reject> refused;
  protocol::Hello hello = Harness::hello(1);
  while (!refused && others.size() < 256) {
    Client& other = others.emplace_back(master.port());
    hello.run = "r" + std::to_string(others.size());
    other.say(hello);
    const auto heard = other.on();
    ASSERT_TRUE(heard.has_value());
    if (const auto* reject = std::get_if<protocol::Reject>(&*heard)) refused = *reject;
  }
  ASSERT_TRUE(refused.has_value());
  EXPECT_TRUE(contains(refused->text, "its limit of 256 open files")) << refused->text;
  EXPECT_TRUE(contains(refused->text, "ulimit -n")) << refused->text;
  member.close();
  protocol::Resume resume;
  resume.run = "run";
  resume.run_id = welcome.run_id;
  resume.peer = welcome.peer;
  Client again(master.port());
  again.say(resume);
  EXPECT_TRUE(again.hear_a<protocol::Resumed>().has_value());
}

TEST_F(ShellTest, AMessageMayComeInPiecesAndSeveralAtOnce) {
  Client peer(shell->port());
  std::vector<std::byte> bytes;
  protocol::encode(Harness::hello(1), bytes);
  const size_t hello_bytes = bytes.size();
  protocol::encode(protocol::Register{"", 1}, bytes);
  protocol::encode(protocol::Ping{7, 0, {}}, bytes);
  const std::span<const std::byte> all(bytes);
  for (size_t i = 0; i + 1 < hello_bytes; ++i) peer.say_bytes(all.subspan(i, 1));
  peer.say_bytes(all.subspan(hello_bytes - 1));
  EXPECT_TRUE(peer.hear_a<protocol::Welcome>().has_value());
  EXPECT_TRUE(peer.hear_a<protocol::EpochStart>().has_value());
  EXPECT_EQ(peer.hear_a<protocol::Pong>()->counter, 7u);
}

// ---- Versions ----

// All ranges start at the lowest version of this build, so that its codec reads the messages.
protocol::VersionRange from_lowest(uint16_t to) {
  return {protocol::kSpoken.lowest, static_cast<uint16_t>(protocol::kSpoken.lowest + to)};
}
protocol::Hello hello_of(const std::string& run, const protocol::VersionRange& versions) {
  protocol::Hello hello = Harness::hello(1);
  hello.run = run;
  hello.versions = versions;
  return hello;
}
// The reply to this Hello: the version of the run, or the reason for the refusal.
std::string answer_to(const Shell& shell, const protocol::Hello& hello) {
  Client peer(shell.port());
  peer.say(hello);
  const auto heard = peer.on();
  if (heard && std::holds_alternative<protocol::Welcome>(*heard))
    return std::to_string(std::get<protocol::Welcome>(*heard).version);
  const auto* reject = heard ? std::get_if<protocol::Reject>(&*heard) : nullptr;
  EXPECT_TRUE(reject != nullptr && peer.hears_the_end());
  return reject == nullptr ? "nothing" : reject->text;
}

TEST_F(ShellTest, WithoutACommonVersionBothAreNamed) {
  const std::string text = answer_to(*shell, hello_of("run", {77, 78}));
  EXPECT_TRUE(contains(text, "this peer speaks versions 77 to 78 of the pccl protocol")) << text;
  EXPECT_TRUE(contains(text, "the master speaks " + protocol::text(protocol::kSpoken))) << text;
}

TEST(ShellOfSeveralVersions, ARunSpeaksTheHighestThatItsFirstPeerHasInCommonWithTheMaster) {
  auto opened = Shell::open({"127.0.0.1", 0}, {}, {}, from_lowest(4));
  ASSERT_TRUE(opened.ok()) << opened.status().message;
  const Shell& shell = *opened.value();
  const auto version = [](uint16_t to) { return std::to_string(from_lowest(to).highest); };
  Client first(shell.port());
  first.say(hello_of("run", from_lowest(2)));
  EXPECT_EQ(first.hear_a<protocol::Welcome>()->version, from_lowest(2).highest);
  EXPECT_EQ(answer_to(shell, hello_of("run", from_lowest(9))), version(2));
  EXPECT_EQ(answer_to(shell, hello_of("another", from_lowest(9))), version(4));
  EXPECT_EQ(answer_to(shell, hello_of("a third", from_lowest(1))), version(1));
  const std::string text = answer_to(shell, hello_of("run", from_lowest(1)));
  EXPECT_TRUE(contains(text, "run \"run\" speaks version " + version(2))) << text;
}

TEST_F(ShellWithAJournalTest, ARunKeepsItsVersionOverARestart) {
  const auto open_with = [this](uint16_t to) {
    return Shell::open({"127.0.0.1", 0}, {.path = folder + "/journal"}, {}, from_lowest(to));
  };
  uint64_t run_id = 0;
  {
    auto opened = open_with(4);
    ASSERT_TRUE(opened.ok()) << opened.status().message;
    Client peer(opened.value()->port());
    peer.say(hello_of("run", from_lowest(2)));
    const auto welcome = peer.hear_a<protocol::Welcome>();
    ASSERT_TRUE(welcome.has_value());
    run_id = welcome->run_id;
    peer.say(protocol::Register{"", 1});
    ASSERT_TRUE(peer.hear_a<protocol::EpochStart>().has_value());
  }
  {
    auto opened = open_with(5);
    ASSERT_TRUE(opened.ok()) << opened.status().message;
    Client peer(opened.value()->port());
    peer.say(hello_of("run", from_lowest(5)));
    const auto welcome = peer.hear_a<protocol::Welcome>();
    ASSERT_TRUE(welcome.has_value());
    EXPECT_EQ(welcome->run_id, run_id);
    EXPECT_EQ(welcome->version, from_lowest(2).highest);
  }
  // No peer can come back to a master that does not speak its version: the run has ended.
  auto opened = open_with(1);
  ASSERT_TRUE(opened.ok()) << opened.status().message;
  Client peer(opened.value()->port());
  peer.say(hello_of("run", from_lowest(5)));
  const auto welcome = peer.hear_a<protocol::Welcome>();
  ASSERT_TRUE(welcome.has_value());
  EXPECT_NE(welcome->run_id, run_id);
  EXPECT_EQ(welcome->version, from_lowest(1).highest);
}

TEST_F(ShellTest, ARunWhoseNameCannotBeShownIsRefused) {
  Client peer(shell->port());
  protocol::Hello hello = Harness::hello(1);
  hello.run = "x\nforged\x1b[2J";
  peer.say(hello);
  auto reject = peer.hear_a<protocol::Reject>();
  ASSERT_TRUE(reject.has_value());
  EXPECT_TRUE(contains(reject->text, "characters that cannot be shown: \"x\\nforged\\x1b[2J\""))
      << reject->text;
  EXPECT_TRUE(peer.hears_the_end());
  Client late(shell->port());
  protocol::Resume resume;
  resume.run = hello.run;
  late.say(resume);
  reject = late.hear_a<protocol::Reject>();
  ASSERT_TRUE(reject.has_value());
  EXPECT_TRUE(contains(reject->text, "cannot be shown")) << reject->text;
  EXPECT_TRUE(late.hears_the_end());
}

TEST_F(ShellTest, ATagThatCannotBeShownCostsTheConnection) {
  Client peer(shell->port());
  peer.join("run");
  protocol::Begin begin;
  begin.info.tag = "a\nb";
  peer.say(begin);
  EXPECT_TRUE(peer.hears_the_end());
}

TEST_F(ShellTest, AnInvalidMessageClosesTheConnection) {
  Client pending(shell->port());
  const std::string text = "GET / HTTP/1.1\r\n\r\n";
  pending.say_bytes(std::as_bytes(std::span(text)));
  EXPECT_TRUE(pending.hears_the_end());
  Client impolite(shell->port());
  impolite.say(protocol::Leave{});
  EXPECT_TRUE(impolite.hears_the_end());
  Client peer(shell->port());
  peer.join("run");
  peer.say_bytes(std::as_bytes(std::span(text)));
  EXPECT_TRUE(peer.hears_the_end());
}

TEST_F(ShellTest, LinesOfTheLogSayWhichRunTheyAreAbout) {
  Client peer(shell->port()), stranger(shell->port()), late(shell->port());
  peer.join("night");
  ASSERT_TRUE(set_log_level("info"));
  testing::internal::CaptureStderr();
  const char text[] = "GET / HTTP/1.1\r\n\r\n";
  peer.say_bytes(std::as_bytes(std::span(text)));
  EXPECT_TRUE(peer.hears_the_end());
  stranger.say_bytes(std::as_bytes(std::span(text)));
  EXPECT_TRUE(stranger.hears_the_end());
  protocol::Resume resume;
  resume.run = "day";
  late.say(resume);
  EXPECT_TRUE(late.hear_a<protocol::Reject>().has_value());
  EXPECT_TRUE(flush_log(std::chrono::seconds(60)));
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(set_log_level("warning"));
  EXPECT_TRUE(contains(log, "Z warning: run \"night\": closed the connection of peer ")) << log;
  EXPECT_TRUE(contains(log, "Z warning: closed the connection of 127.0.0.1: a message of ")) << log;
  EXPECT_TRUE(contains(log, "Z info: run \"day\": refused a peer at 127.0.0.1: ")) << log;
}

TEST_F(ShellTest, ASilentConnectionIsClosed) {
  const auto start = std::chrono::steady_clock::now();
  Client silent(shell->port());
  EXPECT_TRUE(silent.hears_the_end());
  EXPECT_GE(std::chrono::steady_clock::now() - start, protocol::kHelloTimeout - milliseconds(100));
}

TEST_F(ShellTest, APeerResumesAndALaterLifeOfTheRunRefusesIt) {
  Client peer(shell->port());
  const protocol::Welcome welcome = peer.join("run");
  peer.close();
  protocol::Resume resume;
  resume.run = "run";
  resume.run_id = welcome.run_id;
  resume.peer = welcome.peer;
  Client again(shell->port());
  again.say(resume);
  EXPECT_TRUE(again.hear_a<protocol::Resumed>().has_value());
  EXPECT_TRUE(again.hear_a<protocol::EpochStart>().has_value()) << "as if it had never seen it";
  again.say(protocol::Leave{});
  EXPECT_TRUE(again.hears_the_end());
  Client late(shell->port());
  late.say(resume);
  EXPECT_EQ(late.hear_a<protocol::Reject>()->code, Code::kKicked) << "the run has ended";
  Client fresh(shell->port());
  EXPECT_NE(fresh.join("run").run_id, welcome.run_id);
  Client later(shell->port());
  later.say(resume);
  EXPECT_EQ(later.hear_a<protocol::Reject>()->code, Code::kMasterLost) << "another life of it";
}

TEST_F(ShellTest, ThePortIsItsOwn) {
  auto second = Shell::open({"127.0.0.1", shell->port()});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code, Code::kSystem);
  EXPECT_EQ(second.status().message, "cannot listen on 127.0.0.1:" + std::to_string(shell->port()) +
                                         ": address already in use, another process listens "
                                         "there: end it, or take another port");
}

TEST_F(ShellTest, DrainingWaitsUntilAllPeersAreDismissed) {
  shell->drain("run", std::chrono::seconds(60));  // no peer is connected
  Client peer(shell->port());
  peer.join("run");
  const auto start = std::chrono::steady_clock::now();
  shell->drain("run", milliseconds(200));  // the peer does not answer
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(190));
  // Its limit is far beyond that of the test: it ends when the peer has gone.
  auto drained =
      std::async(std::launch::async, [this] { shell->drain("run", std::chrono::hours(1)); });
  EXPECT_TRUE(peer.hear_a<protocol::FreezeRequest>().has_value());
  peer.say(protocol::StateReport{peer.epoch(), {}});
  EXPECT_TRUE(peer.hear_a<protocol::EpochEnd>().has_value());
  EXPECT_TRUE(peer.hear_a<protocol::Farewell>().has_value());
  EXPECT_TRUE(peer.hears_the_end());
  EXPECT_EQ(drained.wait_for(milliseconds(0)), std::future_status::timeout) << "it may not read it";
  peer.close();
  drained.get();
}

protocol::Hello hello_to(const std::string& run) {
  protocol::Hello hello = Harness::hello(1);
  hello.run = run;
  return hello;
}

TEST_F(ShellTest, ARunEndsWhileOthersGoOn) {
  shell->announce("short");
  shell->announce("long");
  Client other(shell->port()), peer(shell->port());
  other.join("long");
  peer.join("short");
  auto drained =
      std::async(std::launch::async, [this] { shell->drain("short", std::chrono::seconds(60)); });
  EXPECT_TRUE(peer.hear_a<protocol::FreezeRequest>().has_value());
  peer.say(protocol::StateReport{peer.epoch(), {}});
  EXPECT_TRUE(peer.hear_a<protocol::EpochEnd>().has_value());
  EXPECT_TRUE(peer.hear_a<protocol::Farewell>().has_value());
  peer.close();
  drained.get();
  other.say(protocol::Leave{});
  EXPECT_TRUE(other.hears_the_end()) << "and no FreezeRequest before";
  Client late(shell->port());
  late.say(hello_to("short"));
  EXPECT_EQ(late.hear_a<protocol::Reject>()->code, Code::kMasterLost) << "its host has left";
  EXPECT_TRUE(late.hears_the_end());
  shell->drain("never", std::chrono::seconds(60));  // there is no such run
}

TEST_F(ShellTest, OnlyAnnouncedRunsAreServed) {
  shell->announce("mine");
  Client stranger(shell->port()), peer(shell->port());
  stranger.say(hello_to("another"));
  EXPECT_EQ(stranger.hear_a<protocol::Reject>()->code, Code::kMasterLost);
  peer.join("mine");
}

TEST_F(ShellTest, ItsEndClosesEverything) {
  Client peer(shell->port()), silent(shell->port());
  peer.join("run");
  shell.reset();
  EXPECT_TRUE(peer.hears_the_end());
  EXPECT_TRUE(silent.hears_the_end());
}

TEST(ShellAddress, KnowsWhatIsLoopback) {
  EXPECT_TRUE(is_loopback({"127.0.0.1", 1}));
  EXPECT_TRUE(is_loopback({"::1", 1}));
  EXPECT_TRUE(is_loopback({"localhost", 1}));
  EXPECT_FALSE(is_loopback({"0.0.0.0", 1}));
  EXPECT_FALSE(is_loopback({"::", 1}));
  EXPECT_FALSE(is_loopback({"", 1}));
}

}  // namespace
}  // namespace pccl::master
