// Operations on device tensors, from the copy out to the copy in: Staging and a FakeDevice on each
// rank, around Engines that exchange real frames. Each seed is a story with delays, lost ranks,
// timeouts, and copies that fail. PCCL_STAGING_SEEDS=n runs n stories.

#include <cstdlib>
#include <cstring>
#include <optional>

#include "csrc/memory/staging.h"
#include "tests/cpp/ring/world.h"
#include "tests/doubles/fake_device.h"

namespace pccl::ring {
namespace {

using memory::FakeDevice;
using memory::Staging;

constexpr uint64_t kSeeds = 1000;
constexpr std::byte kEmpty{0x77};  // in the ring's memory before the data is staged

struct DeviceTensor : memory::DeviceMemory {
  Bytes bytes;
};

void move(const memory::DeviceCopy& copy, FakeDevice::Direction direction) {
  std::byte* const device = static_cast<DeviceTensor&>(*copy.device).bytes.data();
  const bool out = direction == FakeDevice::Direction::kOut;
  std::memcpy(out ? copy.host.data() : device, out ? device : copy.host.data(), copy.host.size());
}

// One rank's part of one operation.
struct Part {
  explicit Part(memory::Device& on) : staging(on) {}
  Staging staging;
  std::vector<std::shared_ptr<DeviceTensor>> device;
  std::vector<Bytes> input;
  std::vector<std::span<std::byte>> pinned;
  bool given_verdict = false, broken = false, copied_in = false;
};

struct Tally {
  uint64_t committed = 0, aborted = 0, failed_out = 0, failed_in = 0, lost = 0;
};

class Story {
 public:
  Story(uint64_t seed, Tally& tally)
      : world_(static_cast<uint32_t>(2 + seed % 3), seed), parts_(world_.size()), tally_(tally) {
    uint32_t fails_one_in = 0;
    if (chance(3)) fails_one_in = 6;
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      devices_.push_back(
          std::make_unique<FakeDevice>(FakeDevice::Options{.seed = world_.random(),
                                                           .fails_one_in = fails_one_in,
                                                           .delay_max = chance(2) ? 3u : 60u},
                                       move));
    }
    for (uint32_t number = 0; number <= world_.random() % 4; ++number) plan(number);
  }

  void run() {
    std::vector<std::pair<uint32_t, OpKey>> posts;
    for (const auto& [key, call] : calls_) {
      for (uint32_t rank = 0; rank < world_.size(); ++rank) {
        if (world_.takes_part(rank, call)) posts.emplace_back(rank, key);
      }
    }
    std::shuffle(posts.begin(), posts.end(), world_.random);
    for (int step = 0; step < kStepsMax && !over(posts); ++step) {
      if (!posts.empty() && chance(3)) {
        post(posts.back().first, posts.back().second);
        posts.pop_back();
      }
      if (chance(200)) abort(key_at_random());  // a timeout
      if (chance(400)) lose(static_cast<uint32_t>(world_.random() % world_.size()));
      world_.move();
      if (chance(3)) poll();
      commit_what_is_done();
    }
    EXPECT_TRUE(over(posts)) << "it hangs";
    check();
  }

 private:
  static constexpr int kStepsMax = 200'000;

  bool chance(uint64_t one_in) { return world_.random() % one_in == 0; }

  void plan(uint32_t number) {
    const bool pair = world_.size() == 2;
    constexpr Pattern kPatterns[] = {Pattern::kAllReduce, Pattern::kOneShot,  Pattern::kAllGather,
                                     Pattern::kBroadcast, Pattern::kTransfer, Pattern::kPairwise};
    Call call{.key = {TagId{1}, number},
              .pattern = kPatterns[world_.random() % (pair ? 6 : 5)],
              .count = world_.random() % 3000,
              .root = static_cast<uint32_t>(world_.random() % world_.size()),
              .block_bytes = {}};
    if (call.pattern == Pattern::kOneShot) call.count = 1 + call.count % 100;
    if (call.pattern == Pattern::kTransfer) call.block_bytes = {4 * call.count};
    calls_.emplace(call.key, call);
  }

  // The input goes to the device. The ring's memory gets it when it is staged, and only then the
  // ring gets the operation.
  void post(uint32_t rank, OpKey key) {
    if (ended_.contains(key)) return;
    auto part = std::make_unique<Part>(*devices_[rank]);
    const bool parked = !chance(6);  // otherwise there is nothing to copy out
    world_.prepare(rank, calls_.at(key));
    Posted& posted = world_.at(rank, key);
    for (const Bytes& bytes : posted.before) {
      auto device = std::make_shared<DeviceTensor>();
      device->bytes = bytes;
      part->input.push_back(bytes);
      part->pinned.push_back(part->staging.pin(bytes.size()).value());
      if (!bytes.empty() && parked) part->staging.add_out({device, part->pinned.back()});
      if (!bytes.empty()) part->staging.add_in({device, part->pinned.back()});
      part->device.push_back(device);
    }
    if (parked) {
      for (Bytes& bytes : posted.memory) std::fill(bytes.begin(), bytes.end(), kEmpty);
    }
    const Status begun = part->staging.begin();
    parts_[rank][key] = std::move(part);
    if (!begun.ok()) {  // as if the call had been refused: it never reached the ring
      parts_[rank].erase(key);
      return abort(key);
    }
    if (!parked) return world_.start(rank, key);
    if (!parts_[rank].at(key)->staging.parked()) staged(rank, key);
  }

  void staged(uint32_t rank, OpKey key) {
    Posted& posted = world_.at(rank, key);
    if (ended_.contains(key)) return;
    const Part& part = *parts_[rank].at(key);
    for (size_t i = 0; i < posted.memory.size(); ++i) {
      posted.memory[i].assign(part.pinned[i].begin(), part.pinned[i].end());
      EXPECT_EQ(posted.memory[i], part.input[i]) << "it says too early that the data is here";
    }
    posted.before = posted.memory;
    world_.start(rank, key);
  }

  OpKey key_at_random() {
    auto at = calls_.begin();
    std::advance(at, world_.random() % calls_.size());
    return at->first;
  }

  void abort(OpKey key) { end(key, false); }
  void end(OpKey key, bool committed) {
    if (!ended_.emplace(key, committed).second) return;
    ++(committed ? tally_.committed : tally_.aborted);
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      world_.end(rank, key, committed);
      const auto at = parts_[rank].find(key);
      if (at == parts_[rank].end()) continue;
      Part& part = *at->second;
      if (committed) {
        const std::vector<Bytes>& result = world_.result(rank, key);
        for (size_t i = 0; i < result.size(); ++i)
          std::copy(result[i].begin(), result[i].end(), part.pinned[i].begin());
      }
      part.staging.end(committed);
    }
  }

  // All survivors learn of it, and what is in flight fails.
  void lose(uint32_t rank) {
    if (std::exchange(lost_, true)) return;
    ++tally_.lost;
    for (uint32_t other = 0; other < world_.size(); ++other) {
      if (other != rank) world_.cut(rank, other);
    }
    for (const auto& [key, call] : calls_) abort(key);
  }

  void commit_what_is_done() {
    for (const auto& [key, call] : calls_) {
      if (ended_.contains(key)) continue;
      bool done = true;
      for (uint32_t rank = 0; rank < world_.size(); ++rank) {
        if (!world_.takes_part(rank, call)) continue;
        done &= parts_[rank].contains(key) && world_.at(rank, key).transferred == 1;
      }
      if (done) end(key, true);
    }
  }

  void poll() {
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      for (auto& [key, part] : parts_[rank]) {
        if (part->staging.over()) continue;
        const Staging::News news = part->staging.poll();
        if (news.staged && news.staged->ok()) staged(rank, key);
        if (news.staged && !news.staged->ok()) {
          ++tally_.failed_out;
          abort(key);
        }
        if (!news.finished) continue;
        EXPECT_TRUE(ended_.at(key)) << "finished without being committed";
        part->copied_in = news.finished->ok();
        part->broken = !news.finished->ok();
        if (part->broken) ++tally_.failed_in;
      }
    }
  }

  bool over(const std::vector<std::pair<uint32_t, OpKey>>& posts) const {
    if (!posts.empty() && ended_.size() < calls_.size()) return false;
    for (const auto& [key, call] : calls_) {
      if (!ended_.contains(key)) return false;
    }
    for (const auto& rank : parts_) {
      for (const auto& [key, part] : rank) {
        if (!part->staging.over()) return false;
      }
    }
    return true;
  }

  void check() {
    for (const auto& [key, call] : calls_) inputs(key);
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      EXPECT_EQ(world_.engine(rank).counters().operations_open, 0u);
      world_.engine(rank).check();
      for (auto& [key, part] : parts_[rank]) {
        const bool committed = ended_.at(key);
        EXPECT_TRUE(part->copied_in || part->broken || !committed) << "its end was not told";
        for (size_t block = 0; block < part->device.size(); ++block) {
          const Bytes& found = part->device[block]->bytes;
          if (!committed) {
            EXPECT_EQ(found, part->input[block]) << "copied in, but not committed";
          } else if (part->copied_in) {
            EXPECT_EQ(found, expected(rank, key, block)) << "wrong result";
          }
        }
      }
      parts_[rank].clear();
      EXPECT_EQ(devices_[rank]->pinned_bytes(), 0u);
      EXPECT_EQ(devices_[rank]->copies_under_way(), 0u);
    }
  }

  // Computed from the inputs. The values are small whole numbers, so sums are exact.
  Bytes expected(uint32_t rank, OpKey key, size_t block) {
    const Call& call = calls_.at(key);
    if (call.pattern == Pattern::kAllGather) return inputs(key)[block][block];
    if (call.pattern == Pattern::kBroadcast || call.pattern == Pattern::kTransfer)
      return inputs(key)[call.root][block];
    Bytes sum = inputs(key)[rank][0];
    for (size_t at = 0; at + 4 <= sum.size(); at += 4) {
      float total = 0;
      for (uint32_t other = 0; other < world_.size(); ++other) {
        float value = 0;
        std::memcpy(&value, inputs(key)[other][0].data() + at, 4);
        total += value;
      }
      std::memcpy(sum.data() + at, &total, 4);
    }
    return sum;
  }
  std::map<uint32_t, std::vector<Bytes>>& inputs(OpKey key) {
    auto& found = inputs_[key];
    for (uint32_t rank = 0; rank < world_.size() && found.size() < world_.size(); ++rank) {
      const auto at = parts_[rank].find(key);
      if (at != parts_[rank].end() && at->second) found[rank] = at->second->input;
    }
    return found;
  }

  World world_;
  std::vector<std::unique_ptr<FakeDevice>> devices_;  // must outlive the parts
  std::vector<std::map<OpKey, std::unique_ptr<Part>>> parts_;
  std::map<OpKey, Call> calls_;
  std::map<OpKey, bool> ended_;  // committed
  std::map<OpKey, std::map<uint32_t, std::vector<Bytes>>> inputs_;
  bool lost_ = false;
  Tally& tally_;
};

TEST(Staged, StoriesOfDelaysFailuresAndLosses) {
  const char* const given = std::getenv("PCCL_STAGING_SEEDS");
  const uint64_t seeds = given == nullptr ? kSeeds : std::strtoull(given, nullptr, 10);
  Tally tally;
  for (uint64_t seed = 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Story(seed, tally).run();
  }
  EXPECT_GT(tally.committed, seeds);
  for (const uint64_t count : {tally.aborted, tally.failed_out, tally.failed_in, tally.lost})
    EXPECT_GT(count, seeds / 50);
}

}  // namespace
}  // namespace pccl::ring
