#include "master/shell/journal_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "tests/cpp/master/harness.h"
#include "tests/cpp/temp_folder.h"

namespace pccl::master {
namespace {

// A folder of its own, removed with the test.
struct JournalFileTest : testing::Test {
  Result<std::unique_ptr<JournalFile>> open(bool fresh = false, uint32_t incarnation_min = 1) {
    return JournalFile::open(path(), fresh, incarnation_min,
                             [this](const Status& why) { failure.set_value(why); });
  }
  std::string path() const { return folder + "/deep/down/run.journal"; }
  // Returns when the entry is durable.
  static void write(JournalFile& journal, const Entry& entry) {
    std::promise<void> durable;
    journal.write(entry, [&] { durable.set_value(); });
    durable.get_future().get();
  }

  const TempFolder temporary;
  const std::string folder = temporary.path();
  std::promise<Status> failure;
};

TEST_F(JournalFileTest, ALaterMasterFindsWhatWasWritten) {
  {
    auto journal = open();
    ASSERT_TRUE(journal.ok()) << journal.status().message;
    EXPECT_EQ(journal.value()->take_memory().incarnation, 1u);
    write(*journal.value(), RunOpened{"r", 42, "10.0.0.1"});
    journal.value()->write(RunRecorded{"r", SharedStateRecord{{0}, 5, 6}}, [] {});
  }  // the destructor first writes all that was requested
  auto journal = open();
  ASSERT_TRUE(journal.ok());
  const Memory memory = journal.value()->take_memory();
  EXPECT_EQ(memory.incarnation, 2u);
  EXPECT_EQ(memory.runs.at("r").run_id, 42u);
  EXPECT_EQ(memory.runs.at("r").shared_states.at({0}).revision, 5u);
}

TEST_F(JournalFileTest, DurableEntriesAreCounted) {
  auto journal = open();
  ASSERT_TRUE(journal.ok());
  EXPECT_EQ(journal.value()->counts().writes, 0u);
  write(*journal.value(), RunOpened{"r", 42, "10.0.0.1"});
  write(*journal.value(), RunForgotten{"r"});
  EXPECT_EQ(journal.value()->counts().writes, 2u);
  EXPECT_FALSE(journal.value()->counts().failed);
}

using JournalFileDeathTest = JournalFileTest;

TEST_F(JournalFileDeathTest, ItsMemoryIsTakenOnce) {
  auto journal = open();
  journal.value()->take_memory();
  EXPECT_DEATH(journal.value()->take_memory(), "assertion failed: !impl_->taken");
}

TEST_F(JournalFileTest, IncarnationsGrowThoughTheClockIsSetBack) {
  EXPECT_EQ(open(false, 1000).value()->take_memory().incarnation, 1000u);
  EXPECT_EQ(open(false, 500).value()->take_memory().incarnation, 1001u);
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
  write(*open().value(), RunOpened{"r", 42, "10.0.0.1"});
  EXPECT_TRUE(open(true).value()->take_memory().runs.empty());
  EXPECT_TRUE(std::filesystem::exists(path() + ".old"));
}

// Files that somebody else has put where the master writes its own.
struct JournalTrapTest : JournalFileTest {
  JournalTrapTest() {
    std::filesystem::create_directories(folder + "/deep/down");
    std::ofstream(diary()) << "dear diary";
  }
  std::string diary() const { return folder + "/diary"; }
  std::string diary_content() const {
    std::string content;
    std::getline(std::ifstream(diary()), content);
    return content;
  }
  std::string refusal() {
    const auto refused = open();
    return refused.ok() ? "opened" : refused.status().message;
  }
};

TEST_F(JournalTrapTest, ALinkInPlaceOfTheNextJournalIsNotFollowed) {
  std::filesystem::create_symlink(diary(), path() + ".tmp");
  ASSERT_TRUE(open().ok()) << "what lies there is stale, and goes";
  EXPECT_EQ(diary_content(), "dear diary");
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(path())));
  std::filesystem::create_hard_link(diary(), path() + ".tmp");
  ASSERT_TRUE(open().ok());
  EXPECT_EQ(diary_content(), "dear diary");
}

TEST_F(JournalTrapTest, ALinkInPlaceOfTheLockIsRefused) {
  std::filesystem::create_symlink(folder + "/made", path() + ".lock");
  EXPECT_TRUE(contains(refusal(), "lock " + path() + ".lock is a symbolic link")) << refusal();
  EXPECT_FALSE(std::filesystem::exists(folder + "/made"));
}

TEST_F(JournalTrapTest, ALinkInPlaceOfTheJournalIsRefused) {
  std::filesystem::create_symlink(diary(), path());
  EXPECT_TRUE(contains(refusal(), "the journal " + path() + " is a symbolic link")) << refusal();
  EXPECT_TRUE(std::filesystem::is_symlink(path())) << "and stays";
  EXPECT_TRUE(contains(refusal(), "name the file itself")) << refusal();
}

TEST_F(JournalTrapTest, ALinkToTheFolderIsAnOrdinaryPlace) {
  std::filesystem::create_directory_symlink(folder + "/deep", folder + "/elsewhere");
  const auto journal =
      JournalFile::open(folder + "/elsewhere/run.journal", false, 1, [](const Status&) {});
  EXPECT_TRUE(journal.ok());
}

TEST_F(JournalTrapTest, AnythingButAFileIsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_TRUE(contains(refusal(), "the journal " + path() + " is a FIFO")) << refusal();
  EXPECT_FALSE(std::filesystem::exists(path() + ".lock")) << "nothing is left behind";
  std::filesystem::remove(path());
  std::filesystem::create_directory(path());
  EXPECT_TRUE(contains(refusal(), "is a directory")) << refusal();
  EXPECT_TRUE(contains(refusal(), "--no-journal")) << refusal();
  std::filesystem::remove(path());
  ASSERT_EQ(mkfifo((path() + ".lock").c_str(), 0600), 0);
  EXPECT_TRUE(contains(refusal(), ".lock is a FIFO")) << refusal();
  const auto device = JournalFile::open("/dev/null", false, 1, [](const Status&) {});
  ASSERT_FALSE(device.ok());
  EXPECT_TRUE(contains(device.status().message, "the journal /dev/null is a device"));
  EXPECT_FALSE(std::filesystem::exists("/dev/null.lock"));
}

TEST_F(JournalTrapTest, AFileOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  std::ofstream(path() + ".lock") << "";
  ASSERT_EQ(chown((path() + ".lock").c_str(), 12345, 12345), 0);
  EXPECT_TRUE(contains(refusal(), ".lock belongs to another user")) << refusal();
}

TEST_F(JournalFileTest, ATornEndIsCutOffAndDamageIsNot) {
  write(*open().value(), RunOpened{"r", 42, "10.0.0.1"});
  std::ofstream(path(), std::ios::app) << "torn";
  EXPECT_EQ(open().value()->take_memory().runs.size(), 1u);
  std::ofstream(path(), std::ios::trunc) << "this is somebody's diary";
  const auto damaged = open();
  ASSERT_FALSE(damaged.ok());
  EXPECT_TRUE(contains(damaged.status().message, path() + " is not a journal of pccl"));
  EXPECT_TRUE(contains(damaged.status().message, "--new"));
  std::string kept;
  std::getline(std::ifstream(path()), kept);
  EXPECT_EQ(kept, "this is somebody's diary") << "what it cannot read it does not touch";
}

TEST_F(JournalFileTest, ACutFileIsRefusedAndStays) {
  write(*open().value(), RunOpened{"r", 42, "10.0.0.1"});
  ASSERT_TRUE(open().ok());  // writes the file anew, in its compact form
  const std::string whole = folder + "/whole";
  std::filesystem::copy_file(path(), whole);
  const size_t bytes = std::filesystem::file_size(whole);
  for (size_t size = 1; size < bytes; ++size) {
    std::filesystem::copy_file(whole, path(), std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(path(), size);
    const auto cut = open();
    ASSERT_FALSE(cut.ok()) << "cut at " << size;
    const std::string why =
        "the journal " + path() + " was cut off: it has " + std::to_string(size) + " bytes";
    EXPECT_TRUE(contains(cut.status().message, why)) << cut.status().message;
    EXPECT_TRUE(contains(cut.status().message, "Put back a copy")) << cut.status().message;
    ASSERT_EQ(std::filesystem::file_size(path()), size) << "it was replaced";
  }
  std::filesystem::copy_file(whole, path(), std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(open().value()->take_memory().runs.at("r").run_id, 42u);
}

TEST_F(JournalFileTest, AnEmptyFileHasNoRuns) {
  std::filesystem::create_directories(folder + "/deep/down");
  std::ofstream(path()) << "";
  EXPECT_TRUE(open().value()->take_memory().runs.empty());
}

TEST_F(JournalFileTest, DoesNotGrowForEver) {
  auto journal = open();
  ASSERT_TRUE(journal.ok());
  write(*journal.value(), RunOpened{"r", 42, "10.0.0.1"});
  const std::string reason(4000, 'x');
  for (uint64_t revision = 0; revision < 2000; ++revision) {
    MembershipRecord record;
    record.current.end = protocol::EpochEnd{{}, {}, {}, reason, {}, {}};
    record.members.resize(1);
    record.founders = static_cast<uint32_t>(revision);
    journal.value()->write(RunRecorded{"r", record}, [] {});
    // This keeps the size of frames moderate.
    if (revision % 10 == 0) write(*journal.value(), Started{1});
  }
  write(*journal.value(), Started{1});
  EXPECT_LT(std::filesystem::file_size(path()), 2u << 20) << "8 MB were written";
  journal = Status{Code::kSystem, "", {}};
  EXPECT_EQ(open().value()->take_memory().runs.at("r").memberships.at({0}).founders, 1999u);
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
    journal.value()->write(RunOpened{"r", id, "10.0.0.1"}, [&] { ++written; });
  }
  const Status why = failure.get_future().get();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(contains(why.message, "cannot write to the journal " + path() + ": File too large"))
      << why.message;
  journal = Status{Code::kSystem, "", {}};
  EXPECT_EQ(written, 0);
  EXPECT_TRUE(open().value()->take_memory().runs.empty()) << "the torn frame is not read";
}

TEST_F(JournalFileTest, APlaceThatCannotBeIsSaid) {
  std::ofstream(folder + "/file") << "";
  const auto journal = JournalFile::open(folder + "/file/run.journal", false, 1, {});
  ASSERT_FALSE(journal.ok());
  EXPECT_TRUE(contains(journal.status().message, "Not a directory")) << journal.status().message;
}

}  // namespace
}  // namespace pccl::master
