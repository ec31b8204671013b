#include "csrc/protocol/version.h"

#include <gtest/gtest.h>

namespace pccl::protocol {
namespace {

TEST(Version, TheHighestInCommonIsSpoken) {
  EXPECT_EQ(common({8, 8}, {8, 8}), 8);
  EXPECT_EQ(common({8, 9}, {8, 10}), 9);
  EXPECT_EQ(common({8, 12}, {10, 11}), 11);
  EXPECT_EQ(common({10, 11}, {8, 12}), 11);
  EXPECT_EQ(common({8, 9}, {9, 12}), 9);
  EXPECT_EQ(common({8, 9}, {10, 12}), std::nullopt);
  EXPECT_EQ(common({10, 12}, {8, 9}), std::nullopt);
}

TEST(Version, TheOlderSideIsNamed) {
  const Speaker peer{"this peer", {8, 9}}, master{"the master", {10, 10}},
      old{"the master", {7, 7}};
  EXPECT_EQ(mismatch(peer, master),
            "version mismatch: this peer speaks versions 8 to 9 of the pccl protocol, the master "
            "speaks version 10: install a later pccl for this peer");
  EXPECT_EQ(mismatch(peer, old),
            "version mismatch: this peer speaks versions 8 to 9 of the pccl protocol, the master "
            "speaks version 7: install a later pccl for the master");
}

TEST(Version, ARunThatIsOlderKeepsItsVersion) {
  EXPECT_EQ(mismatch({"this peer", {9, 9}}, speaker_of_run("run \"r\"", 8)),
            "version mismatch: this peer speaks version 9 of the pccl protocol, run \"r\" speaks "
            "version 8: run \"r\" keeps its version until it ends, so install the pccl that its "
            "other peers have, or name another run");
}

}  // namespace
}  // namespace pccl::protocol
