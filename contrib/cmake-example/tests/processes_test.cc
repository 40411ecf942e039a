// The two ends of a connection in two processes.
#include "mailbox.h"

#include <cstring>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace {

using mailbox::Address;
using mailbox::Mailbox;

constexpr char kQuestion[] = "what is the answer?";
constexpr char kAnswer[] = "forty-two";
constexpr size_t kBytes = 4096;
constexpr int kRounds = 100;

// Tells the other process the own address, and learns its.
Address exchange(int channel, const Address& own) {
  Address theirs{};
  if (write(channel, &own, sizeof own) != sizeof own || read(channel, &theirs, sizeof theirs) != sizeof theirs) {
    throw std::runtime_error("the other process is gone");
  }
  return theirs;
}

// Leaves the calling process with a number that tells where it failed.
void answer_questions(int channel) {
  Mailbox mailbox(kBytes);
  mailbox.receive(kBytes);
  mailbox.connect(exchange(channel, mailbox.address()));
  std::strcpy(mailbox.outgoing(), kAnswer);
  for (int round = 0; round < kRounds; ++round) {
    if (mailbox.received().status != IBV_WC_SUCCESS) _exit(2);
    if (std::strcmp(mailbox.incoming(), kQuestion) != 0) _exit(3);
    // For the next question, which follows the answer.
    mailbox.receive(kBytes);
    mailbox.send(sizeof kAnswer);
    if (mailbox.sent().status != IBV_WC_SUCCESS) _exit(4);
  }
}

TEST(Processes, QuestionsAreAnsweredByAnotherProcess) {
  int channel[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, channel), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      answer_questions(channel[1]);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "the answering process: %s\n", error.what());
      _exit(1);
    }
    _exit(0);
  }

  Mailbox mailbox(kBytes);
  mailbox.connect(exchange(channel[0], mailbox.address()));
  std::strcpy(mailbox.outgoing(), kQuestion);
  for (int round = 0; round < kRounds; ++round) {
    mailbox.receive(kBytes);
    mailbox.send(sizeof kQuestion);
    const ibv_wc sent = mailbox.sent();
    ASSERT_EQ(sent.status, IBV_WC_SUCCESS) << ibv_wc_status_str(sent.status);
    const ibv_wc received = mailbox.received();
    ASSERT_EQ(received.status, IBV_WC_SUCCESS) << ibv_wc_status_str(received.status);
    EXPECT_EQ(received.byte_len, sizeof kAnswer);
    EXPECT_STREQ(mailbox.incoming(), kAnswer);
  }

  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "wait status " << status;
}

}  // namespace
