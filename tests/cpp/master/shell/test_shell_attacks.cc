// Hostile handshakes with the port of a master that has a keyring.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "csrc/base/log.h"
#include "master/shell/shell.h"
#include "tests/cpp/master/harness.h"
#include "tests/cpp/master/keyring_lines.h"
#include "tests/cpp/net/tls_listener.h"
#include "tests/cpp/temp_folder.h"

namespace pccl::master {
namespace {

namespace forge = net::forge;

bool is_welcome(const net::Bytes& answer) {
  protocol::Decoder decoder;
  decoder.feed(answer);
  auto message = decoder.next();
  return message.ok() && message.value() &&
         std::holds_alternative<protocol::Welcome>(*message.value());
}

TEST(ShellAttacks, NoneGetsInAndNoneIsLeft) {
  const TempFolder folder;
  const std::string keyring = folder.path() + "/keyring";
  std::ofstream(keyring) << kKeyringHead << token_line("alice000", secret_hex("a5"));
  ASSERT_EQ(chmod(keyring.c_str(), 0600), 0);
  auto shell = Shell::open({"127.0.0.1", 0}, {}, {}, protocol::kSpoken, {keyring});
  ASSERT_TRUE(shell.ok()) << shell.status().message;
  net::Bytes secret(32);
  std::fill(secret.begin(), secret.end(), std::byte{0xa5});
  forge::shown = {"alice000", net::control_key(secret)};
  net::Bytes hello;
  protocol::encode(Harness::hello(1), hello);
  testing::internal::CaptureStderr();
  forge::withstands({.port = shell.value()->port(),
                     .plain_answer = "admits only peers that have a token",
                     .said = [hello] { return hello; },
                     .is_right = is_welcome});
  EXPECT_TRUE(flush_log(std::chrono::seconds(60)));
  const std::string log = testing::internal::GetCapturedStderr();
  forge::shown = {};
  const std::string warning = "refused 1 connection from 127.0.0.1 because of its token";
  EXPECT_NE(log.find(warning), std::string::npos) << log;
  const std::string plain = "from 127.0.0.1 without a token: a peer that has no PCCL_SECRET_FILE";
  const size_t first = log.find(plain);
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find(plain, first + 1), std::string::npos) << "once in 10 seconds: " << log;
}

}  // namespace
}  // namespace pccl::master
