#include "master/shell/control_socket.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "tests/cpp/master/asker.h"
#include "tests/cpp/master/harness.h"
#include "tests/cpp/net/net_test.h"
#include "tests/cpp/temp_folder.h"

namespace pccl::master {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

struct ControlSocketTest : testing::Test {
  ~ControlSocketTest() override { close(); }

  template <typename F>
  void on_loop(F what) {
    std::promise<void> done;
    loop.post([&] {
      what();
      done.set_value();
    });
    ASSERT_EQ(done.get_future().wait_for(seconds(30)), std::future_status::ready);
  }
  // The reason why it did not open; empty if it did.
  std::string open() {
    std::string refusal;
    on_loop([&] {
      auto opened = ControlSocket::open(
          loop, path, [this](const ControlRequest& request, const ControlSocket::Answer& then) {
            then(handler(request));
          });
      if (opened.ok()) {
        control = std::move(opened.value());
      } else {
        refusal = opened.status().message;
      }
    });
    return refusal;
  }
  void close() {
    on_loop([&] { control.reset(); });
  }
  // Type and permissions of the socket file.
  mode_t mode() const {
    struct stat found {};
    return lstat(path.c_str(), &found) == 0 ? found.st_mode : 0;
  }
  size_t files() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(folder)) ++count;
    return count;
  }

  const TempFolder temporary;
  const std::string folder = temporary.path();
  std::string path = folder + "/run.journal.sock";
  std::function<nlohmann::json(const ControlRequest&)> handler = [](const ControlRequest& request) {
    return nlohmann::json{{"heard", request.run}};
  };
  net::Loop loop{"test"};
  std::unique_ptr<ControlSocket> control;
};

TEST_F(ControlSocketTest, AnswersALineAndCloses) {
  ASSERT_EQ(open(), "");
  EXPECT_EQ(Asker(path).ask("{\"command\":\"forget\",\"run\":\"a\"}\n"), "{\"heard\":\"a\"}\n");
  EXPECT_EQ(Asker(path).ask("{\"command\":\"runs\"}\r\nand more\n"), "{\"heard\":\"\"}\n");
  Asker slow(path);
  EXPECT_TRUE(slow.say("{\"command\":"));
  std::this_thread::sleep_for(milliseconds(20));  // so that the line comes in two pieces
  EXPECT_EQ(slow.ask("\"runs\"}\n"), "{\"heard\":\"\"}\n");
}

TEST_F(ControlSocketTest, AnswersWhatIsNoRequestWithAnError) {
  ASSERT_EQ(open(), "");
  for (const std::string line : {"\n", "runs\n", "{}\n", "{\"command\":\"stop\"}\n"}) {
    EXPECT_TRUE(Asker(path).ask(line).starts_with("{\"error\":\"")) << line;
  }
}

TEST_F(ControlSocketTest, ALineThatIsTooLongIsAnError) {
  ASSERT_EQ(open(), "");
  std::string line = "{\"command\":\"runs\",\"x\":\"\"}";
  line.insert(line.size() - 2, ControlSocket::kRequestBytesMax - line.size(), 'x');
  EXPECT_EQ(Asker(path).ask(line + "\n"), "{\"heard\":\"\"}\n") << "the longest that is taken";
  const std::string refused =
      "{\"error\":\"the request takes more than 65536 bytes on its line\"}\n";
  EXPECT_EQ(Asker(path).ask(line + " \n"), refused);
  EXPECT_EQ(Asker(path).ask(std::string(4u << 20, 'x')), refused)
      << "it need not end, nor is it kept";
}

TEST_F(ControlSocketTest, TalksToSoManyAtOnce) {
  ASSERT_EQ(open(), "");
  std::deque<Asker> silent;
  for (size_t i = 0; i < ControlSocket::kConnectionsMax; ++i) silent.emplace_back(path);
  EXPECT_EQ(Asker(path).on(), "") << "closed at once";
  EXPECT_EQ(silent.front().ask("{\"command\":\"runs\"}\n"), "{\"heard\":\"\"}\n");
  silent.pop_front();
  std::string heard;
  const auto until = steady_clock::now() + seconds(3);  // before silent clients are closed
  while (heard.empty() && steady_clock::now() < until) {
    Asker next(path);
    if (next.say("{\"command\":\"runs\"}\n")) heard = next.on();
  }
  EXPECT_EQ(heard, "{\"heard\":\"\"}\n") << "where one has left, another is let in";
}

TEST_F(ControlSocketTest, ClosesWhoIsSilentAndWhoDoesNotRead) {
  handler = [](const ControlRequest&) {
    return nlohmann::json{{"heard", std::string(32u << 20, 'x')}};
  };
  ASSERT_EQ(open(), "");
  const auto start = steady_clock::now();
  Asker silent(path), deaf(path), half(path);
  EXPECT_TRUE(half.say("{\"command\":"));
  EXPECT_TRUE(deaf.say("{\"command\":\"runs\"}\n"));
  EXPECT_EQ(silent.on(), "");
  EXPECT_EQ(half.on(), "");
  EXPECT_GE(steady_clock::now() - start, ControlSocket::kTimeout);
  ASSERT_TRUE(deaf.is_closed()) << "though it has read nothing";
  const size_t heard = deaf.on().size();
  EXPECT_LT(heard, 32u << 20) << "what the system held, and no more";
}

// Opens a socket whose answers the test gives itself, on the loop.
struct LateAnswers : ControlSocketTest {
  LateAnswers() {
    on_loop([&] {
      auto opened = ControlSocket::open(
          loop, path, [this](const ControlRequest&, const ControlSocket::Answer& then) {
            asked.push_back(then);
            arrived.set_value();
          });
      ASSERT_TRUE(opened.ok()) << opened.status().message;
      control = std::move(opened.value());
    });
  }
  void wait_for_request() {
    ASSERT_EQ(arrived.get_future().wait_for(seconds(30)), std::future_status::ready);
    arrived = {};
  }
  void answer(const char* said) {
    on_loop([&] { asked.back()({{"heard", said}}); });
  }
  std::vector<ControlSocket::Answer> asked;
  std::promise<void> arrived;
};

TEST_F(LateAnswers, OneRequestIsHandledHoweverMuchFollows) {
  Asker asker(path);
  EXPECT_TRUE(asker.say("{\"command\":\"runs\"}\n"));
  wait_for_request();
  EXPECT_TRUE(asker.say("{\"command\":\"runs\"}\n"));
  Asker other(path);  // its request is read after the bytes above
  EXPECT_TRUE(other.say("{\"command\":\"runs\"}\n"));
  wait_for_request();
  EXPECT_EQ(asked.size(), 2u);
  answer("other");
  EXPECT_EQ(other.on(), "{\"heard\":\"other\"}\n");
  on_loop([&] { asked.front()({{"heard", "first"}}); });
  EXPECT_EQ(asker.on(), "{\"heard\":\"first\"}\n");
}

TEST_F(LateAnswers, AnAnswerMayTakeLongerThanARequest) {
  Asker asker(path);
  EXPECT_TRUE(asker.say("{\"command\":\"runs\"}\n"));
  wait_for_request();
  EXPECT_EQ(asker.on(std::chrono::ceil<milliseconds>(ControlSocket::kTimeout) + milliseconds(500)),
            "(no end)");
  answer("late");
  EXPECT_EQ(asker.on(), "{\"heard\":\"late\"}\n");
}

TEST_F(LateAnswers, AClientThatHasGoneIsNotAnswered) {
  std::optional<Asker> asker;
  asker.emplace(path);
  EXPECT_TRUE(asker->say("{\"command\":\"runs\"}\n"));
  wait_for_request();
  asker.reset();
  Asker other(path);  // its request is read after the end of the first client
  EXPECT_TRUE(other.say("{\"command\":\"runs\"}\n"));
  wait_for_request();
  on_loop([&] { asked.front()({{"heard", "nobody"}}); });
  answer("other");
  EXPECT_EQ(other.on(), "{\"heard\":\"other\"}\n");
}

TEST_F(ControlSocketTest, ALargeAnswerArrivesWhole) {
  handler = [](const ControlRequest&) {
    return nlohmann::json{{"heard", std::string(10u << 20, 'x')}};
  };
  ASSERT_EQ(open(), "");
  Asker asker(path);
  EXPECT_TRUE(asker.say("{\"command\":\"runs\"}\n"));
  std::this_thread::sleep_for(milliseconds(1500));  // longer than other streams may take to close
  const std::string heard = asker.on();
  EXPECT_EQ(heard.size(), (10u << 20) + std::string("{\"heard\":\"\"}\n").size());
  EXPECT_TRUE(heard.ends_with("x\"}\n"));
}

TEST_F(ControlSocketTest, AnAnswerThatCannotBeSentIsSaidToBe) {
  handler = [](const ControlRequest&) {
    return nlohmann::json{{"heard", std::string(64u << 20, 'x')}};
  };
  ASSERT_EQ(open(), "");
  EXPECT_TRUE(contains(Asker(path).ask("{\"command\":\"runs\"}\n"), "more than a connection"));
}

TEST_F(ControlSocketTest, IsForItsUserWhateverTheUmask) {
  for (const mode_t mask : {0, 0777, 022}) {
    const mode_t before = umask(mask);
    EXPECT_EQ(open(), "");
    umask(before);
    EXPECT_EQ(mode(), static_cast<mode_t>(S_IFSOCK | 0600)) << std::oct << mask;
    EXPECT_EQ(files(), 1u) << "nothing else is left behind";
    close();
    EXPECT_EQ(files(), 0u) << "it goes with the master";
  }
}

TEST_F(ControlSocketTest, ReplacesWhatADeadMasterHasLeft) {
  ASSERT_EQ(open(), "");
  std::filesystem::create_hard_link(path, path + ".kept");
  close();
  std::filesystem::rename(path + ".kept", path);
  ASSERT_EQ(mode(), static_cast<mode_t>(S_IFSOCK | 0600));
  ASSERT_EQ(open(), "");
  EXPECT_EQ(Asker(path).ask("{\"command\":\"runs\"}\n"), "{\"heard\":\"\"}\n");
}

TEST_F(ControlSocketTest, AnotherInItsPlaceStays) {
  ASSERT_EQ(open(), "");
  std::filesystem::remove(path);
  std::ofstream(path) << "dear diary";
  close();
  EXPECT_EQ(std::filesystem::file_size(path), 10u);
}

TEST_F(ControlSocketTest, RefusesWhatIsNoSocket) {
  const std::string what = "the control socket " + path + " is ";
  const std::string advice = ", not a socket: move it away, or name another journal with --journal";
  std::ofstream(path) << "dear diary";
  EXPECT_EQ(open(), what + "a file" + advice);
  EXPECT_EQ(std::filesystem::file_size(path), 10u);
  std::filesystem::remove(path);
  std::filesystem::create_symlink(folder + "/elsewhere", path);
  EXPECT_EQ(open(), what + "a symbolic link" + advice);
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(open(), what + "a directory" + advice);
  EXPECT_EQ(files(), 1u);
}

TEST_F(ControlSocketTest, RefusesAnotherUsersSocket) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  ASSERT_EQ(open(), "");
  std::filesystem::create_hard_link(path, path + ".kept");
  close();
  std::filesystem::rename(path + ".kept", path);
  ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  EXPECT_TRUE(contains(open(), "belongs to another user (12345)"));
}

TEST_F(ControlSocketTest, AnotherUserIsClosedThoughTheFileLetsItIn) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  ASSERT_EQ(open(), "");
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  const int ended = net::in_child([this] {
    if (setuid(12345) != 0) return 2;
    Asker asker(path);
    const bool closed = asker.on(seconds(3)).empty();  // sooner than silent clients are closed
    return closed && !HasFailure() ? 0 : 1;
  });
  EXPECT_EQ(ended, 0);
}

TEST_F(ControlSocketTest, AForkedChildLeavesItToItsParent) {
  ASSERT_EQ(open(), "");
  const auto drop = [this] {
    control.reset();
    return 0;
  };
  EXPECT_EQ(net::in_child(drop), 0);
  EXPECT_EQ(Asker(path).ask("{\"command\":\"runs\"}\n"), "{\"heard\":\"\"}\n");
}

TEST_F(ControlSocketTest, AFolderThatCannotBeIsSaid) {
  path = folder + "/nowhere/run.journal.sock";
  const std::string refusal = open();
  EXPECT_TRUE(contains(refusal, "cannot open the folder of the control socket " + path)) << refusal;
  EXPECT_TRUE(contains(refusal, "--no-journal")) << refusal;
  EXPECT_TRUE(contains(refusal, "No such file or directory")) << refusal;
}

TEST_F(ControlSocketTest, ItsPathMayBeLong) {
  const std::string deep = folder + "/" + std::string(200, 'd') + "/" + std::string(200, 'e');
  std::filesystem::create_directories(deep);
  path = deep + "/" + std::string(200, 'f') + ".sock";
  ASSERT_EQ(open(), "");
  EXPECT_EQ(mode(), static_cast<mode_t>(S_IFSOCK | 0600));
  EXPECT_EQ(Asker(path).ask("{\"command\":\"runs\"}\n"), "{\"heard\":\"\"}\n");
  close();
  EXPECT_EQ(mode(), 0u);
}

}  // namespace
}  // namespace pccl::master
