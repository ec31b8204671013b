#include "master/shell_journal.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "tests/cpp/master/harness.h"

namespace pccl::master {
namespace {

// A folder of its own, gone with the test.
struct JournalFileTest : testing::Test {
  JournalFileTest() {
    std::string name = testing::TempDir() + "journal.XXXXXX";
    folder = mkdtemp(name.data());
  }
  ~JournalFileTest() override { std::filesystem::remove_all(folder); }

  Result<std::unique_ptr<JournalFile>> open(bool fresh = false, uint32_t incarnation_min = 1) {
    return JournalFile::open(path(), fresh, incarnation_min,
                             [this](const Status& why) { failure.set_value(why); });
  }
  std::string path() const { return folder + "/deep/down/run.journal"; }
  // Returns when it is durable.
  static void write(JournalFile& journal, const Entry& entry) {
    std::promise<void> durable;
    journal.write(entry, [&] { durable.set_value(); });
    durable.get_future().get();
  }

  std::string folder;
  std::promise<Status> failure;
};

TEST_F(JournalFileTest, ALaterMasterFindsWhatWasWritten) {
  {
    auto journal = open();
    ASSERT_TRUE(journal.ok()) << journal.status().message;
    EXPECT_EQ(journal.value()->memory().incarnation, 1u);
    write(*journal.value(), RunOpened{"r", 42});
    journal.value()->write(RunRecorded{"r", SharedStateRecord{{0}, 5, 6}}, [] {});
  }  // ends after all that was asked for is written
  auto journal = open();
  ASSERT_TRUE(journal.ok());
  EXPECT_EQ(journal.value()->memory().incarnation, 2u);
  EXPECT_EQ(journal.value()->memory().runs.at("r").run_id, 42u);
  EXPECT_EQ(journal.value()->memory().runs.at("r").shared_states.at({0}).revision, 5u);
}

TEST_F(JournalFileTest, IncarnationsGrowThoughTheClockIsSetBack) {
  EXPECT_EQ(open(false, 1000).value()->memory().incarnation, 1000u);
  EXPECT_EQ(open(false, 500).value()->memory().incarnation, 1001u);
}

TEST_F(JournalFileTest, IsOneMastersAtATime) {
  auto first = open();
  ASSERT_TRUE(first.ok());
  const auto second = open();
  ASSERT_FALSE(second.ok());
  EXPECT_TRUE(contains(second.status().message, "is in use by another master"));
  first = Status{Code::kSystem, "", {}};
  EXPECT_TRUE(open().ok());
}

TEST_F(JournalFileTest, FreshSetsAsideWhatThereIs) {
  write(*open().value(), RunOpened{"r", 42});
  EXPECT_TRUE(open(true).value()->memory().runs.empty());
  EXPECT_TRUE(std::filesystem::exists(path() + ".old"));
}

TEST_F(JournalFileTest, ATornEndIsCutOffAndDamageIsNot) {
  write(*open().value(), RunOpened{"r", 42});
  std::ofstream(path(), std::ios::app) << "torn";
  EXPECT_EQ(open().value()->memory().runs.size(), 1u);
  std::ofstream(path(), std::ios::trunc) << "this is somebody's diary";
  const auto damaged = open();
  ASSERT_FALSE(damaged.ok());
  EXPECT_TRUE(contains(damaged.status().message, path() + " is not a journal of pccl"));
  EXPECT_TRUE(contains(damaged.status().message, "--new"));
  std::string kept;
  std::getline(std::ifstream(path()), kept);
  EXPECT_EQ(kept, "this is somebody's diary") << "what it cannot read it does not touch";
}

TEST_F(JournalFileTest, DoesNotGrowForEver) {
  auto journal = open();
  ASSERT_TRUE(journal.ok());
  write(*journal.value(), RunOpened{"r", 42});
  const std::string reason(4000, 'x');
  for (uint64_t revision = 0; revision < 2000; ++revision) {
    MembershipRecord record;
    record.current.end = protocol::EpochEnd{{}, {}, {}, reason, {}, {}};
    record.peer_timeout_ms = static_cast<uint32_t>(revision);
    journal.value()->write(RunRecorded{"r", record}, [] {});
    if (revision % 10 == 0) write(*journal.value(), Started{1});  // frames of a moderate size
  }
  write(*journal.value(), Started{1});
  EXPECT_LT(std::filesystem::file_size(path()), 2u << 20) << "8 MB were written";
  journal = Status{Code::kSystem, "", {}};
  EXPECT_EQ(open().value()->memory().runs.at("r").memberships.at({0}).peer_timeout_ms, 1999u);
}

TEST_F(JournalFileTest, AFullDiskIsToldOnce) {
  auto journal = open();
  ASSERT_TRUE(journal.ok());
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit full{std::filesystem::file_size(path()) + 8, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  std::atomic<int> written{0};
  for (uint64_t id = 0; id < 3; ++id) {
    journal.value()->write(RunOpened{"r", id}, [&] { ++written; });
  }
  const Status why = failure.get_future().get();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(contains(why.message, "cannot write to the journal " + path() + ": File too large"))
      << why.message;
  journal = Status{Code::kSystem, "", {}};
  EXPECT_EQ(written, 0);
  EXPECT_TRUE(open().value()->memory().runs.empty()) << "the torn frame is not read";
}

TEST_F(JournalFileTest, APlaceThatCannotBeIsSaid) {
  std::ofstream(folder + "/file") << "";
  const auto journal = JournalFile::open(folder + "/file/run.journal", false, 1, {});
  ASSERT_FALSE(journal.ok());
  EXPECT_TRUE(contains(journal.status().message, "Not a directory")) << journal.status().message;
}

}  // namespace
}  // namespace pccl::master
