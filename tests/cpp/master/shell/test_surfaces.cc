#include "master/shell/surfaces.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>

#include "master/shell/shell.h"
#include "tests/cpp/master/asker.h"
#include "tests/cpp/master/client.h"
#include "tests/cpp/master/visitor.h"
#include "tests/cpp/temp_folder.h"

namespace pccl::master {
namespace {

// The surfaces of a whole master.
struct SurfacesTest : testing::Test {
  SurfacesTest() {
    auto opened = Shell::open({"127.0.0.1", 0},
                              {.path = temporary.path() + "/journal",
                               .on_failure = [this](const Status&) { failure.set_value(); }});
    EXPECT_TRUE(opened.ok()) << opened.status().message;
    shell = std::move(opened.value());
    const auto url = shell->open_http({.at = {"127.0.0.1", 0}}, "");
    EXPECT_TRUE(url.ok());
    const std::string shown = url.ok() ? url.value() : "http://:0/";
    EXPECT_TRUE(shown.starts_with("http://127.0.0.1:")) << shown;
    port = static_cast<uint16_t>(std::stoi(shown.substr(shown.rfind(':') + 1)));
  }
  nlohmann::json body(const std::string& target) const {
    const std::string answer = Visitor(port).ask(target);
    return nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n")), nullptr, false);
  }
  std::string control(const std::string& line) const {
    return Asker(temporary.path() + "/journal.sock").ask(line + "\n");
  }
  const TempFolder temporary;
  std::promise<void> failure;  // of the journal
  std::unique_ptr<Shell> shell;
  uint16_t port = 0;
};

TEST_F(SurfacesTest, ShowTheSameRuns) {
  Client peer(shell->port());
  peer.join("night");
  const nlohmann::json runs = body("/api/v1/runs");
  EXPECT_EQ(runs, nlohmann::json::parse(control("{\"command\":\"runs\"}")));
  EXPECT_EQ(runs.at("runs").at(0).at("run"), "night");
  nlohmann::json page = body("/api/v1/run/night");
  nlohmann::json asked = nlohmann::json::parse(control("{\"command\":\"status\"}"));
  for (nlohmann::json* one : {&page, &asked}) {
    EXPECT_EQ(one->at("schema"), 1);
    EXPECT_EQ(one->at("groups").at(0).at("peers").size(), 1u);
  }
  for (auto field = page.begin(); field != page.end(); ++field)
    EXPECT_TRUE(asked.contains(field.key())) << field.key();
  EXPECT_EQ(page.size(), asked.size());
}

TEST_F(SurfacesTest, AMasterIsHealthyWhileItsJournalCanBeWritten) {
  EXPECT_EQ(body("/healthz"), (nlohmann::json{{"healthy", true}}));
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit full{std::filesystem::file_size(temporary.path() + "/journal") + 8, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  Client peer(shell->port());
  peer.say(Harness::hello(1));
  const bool failed =
      failure.get_future().wait_for(std::chrono::seconds(30)) == std::future_status::ready;
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(failed);
  EXPECT_EQ(body("/healthz"), (nlohmann::json{{"error", "the journal cannot be written"}}));
}

}  // namespace
}  // namespace pccl::master
