#include "master/shell/proofs.h"

#include <gtest/gtest.h>

#include "master/runs/rendezvous.h"

namespace pccl::master {
namespace {

using net::HandleKey;

const std::string kRun = Rendezvous::run_name("5f1c03aa5f1c03aa", 7);

TEST(Proofs, AMasterIsSecuredByATokenOrByHandles) {
  EXPECT_FALSE(Proofs({}, false).secured());
  EXPECT_TRUE(Proofs({}, true).secured());
  pccl::Token token{"abcdefgh", *Secret::from_hex(std::string(64, 'a'))};
  EXPECT_TRUE(Proofs(std::move(token), false).secured());
}

TEST(Proofs, TheKeyOfAHandleLetsAPeerIntoRunsOfAReconfigureOnly) {
  const Proofs proofs({}, true);
  const HandleKey own = net::make_handle_key(), other = net::make_handle_key();
  const auto holder = proofs.holder_of(net::handle_token(own, other.shown)->id);
  ASSERT_TRUE(holder);
  EXPECT_EQ(holder->name, own.shown.substr(0, 32));
  EXPECT_FALSE(proofs.refuse(*holder, kRun, Role::kPeer, {}));
  EXPECT_TRUE(proofs.refuse(*holder, kRun, Role::kObserver, {}));
  EXPECT_TRUE(proofs.refuse(*holder, "night", Role::kPeer, {}));
  EXPECT_FALSE(proofs.holder_of("abcdefgh")) << "a token that nobody has";
}

TEST(Proofs, APeerTakesPartWithItsOwnHandleOnly) {
  const HandleKey own = net::make_handle_key(), other = net::make_handle_key();
  const std::string identity = net::handle_token(own, other.shown)->id;
  const protocol::ReconfigureHandle mine{{"10.0.0.1", 4000}, "aa", 1, own.shown};
  const protocol::ReconfigureHandle its{{"10.0.0.2", 4000}, "bb", 1, other.shown};
  EXPECT_FALSE(Proofs::refuse_handle(identity, mine));
  const auto refused = Proofs::refuse_handle(identity, its);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->text,
            "reconfigure: the handle of 10.0.0.2:4000 (group bb) is that of another process than "
            "the one that came");
  EXPECT_FALSE(Proofs::refuse_handle("", its)) << "plain text: handles have no keys";
}

}  // namespace
}  // namespace pccl::master
