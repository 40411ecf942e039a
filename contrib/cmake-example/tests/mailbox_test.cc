// Two ends of a connection in one process.
#include "mailbox.h"

#include <cstring>
#include <string>

#include <gtest/gtest.h>

namespace {

using mailbox::Address;
using mailbox::Mailbox;

constexpr size_t kBytes = 64 * 1024;

class Connected : public testing::Test {
 protected:
  Connected() {
    here.connect(there.address());
    there.connect(here.address());
    for (size_t i = 0; i < kBytes; ++i) here.outgoing()[i] = static_cast<char>(i * 7 + i / 256);
  }

  bool arrived() { return std::memcmp(here.outgoing(), there.incoming(), kBytes) == 0; }

  Mailbox here{kBytes};
  Mailbox there{kBytes};
};

TEST_F(Connected, ASentMessageArrivesWhole) {
  there.receive(kBytes);
  here.send(kBytes);
  const ibv_wc received = there.received();
  ASSERT_EQ(received.status, IBV_WC_SUCCESS) << ibv_wc_status_str(received.status);
  EXPECT_EQ(received.byte_len, kBytes);
  EXPECT_EQ(here.sent().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(arrived());
}

TEST_F(Connected, AWriteChangesThePeersMemory) {
  here.write(there.address(), kBytes);
  EXPECT_EQ(here.sent().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(arrived());
}

TEST_F(Connected, AReadFetchesThePeersMemory) {
  std::strcpy(there.outgoing(), "theirs");
  here.read(there.address(), kBytes);
  EXPECT_EQ(here.sent().status, IBV_WC_SUCCESS);
  EXPECT_STREQ(here.incoming(), "theirs");
}

TEST_F(Connected, AWrongKeyIsRefusedAndChangesNothing) {
  Address forged = there.address();
  forged.rkey ^= 0xff00;
  here.write(forged, kBytes);
  const ibv_wc refused = here.sent();
  EXPECT_EQ(refused.status, IBV_WC_REM_ACCESS_ERR) << ibv_wc_status_str(refused.status);
  EXPECT_EQ(std::string(there.incoming(), kBytes), std::string(kBytes, '\0'));
}

TEST_F(Connected, AMessageLongerThanItsReceiveFailsOnBothSides) {
  there.receive(kBytes / 2);
  here.send(kBytes);
  EXPECT_EQ(there.received().status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(here.sent().status, IBV_WC_REM_INV_REQ_ERR);
}

}  // namespace
