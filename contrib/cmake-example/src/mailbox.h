// A mailbox: what one process puts into its outgoing memory gets into the incoming memory of another, over a reliable
// connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <infiniband/verbs.h>

namespace mailbox {

// What one side must tell the other before they can talk, over whatever channel they have. Plain bytes.
struct Address {
  ibv_gid gid;
  uint32_t qp_number;
  uint32_t first_psn;
  uint64_t outgoing;
  uint64_t incoming;
  uint32_t rkey;
};

// A verb failed.
struct VerbError : std::runtime_error {
  VerbError(const std::string& verb, int error_number);
};

// One end of a connection, with its own memory, which the peer may read and write.
class Mailbox {
 public:
  // On the first RDMA device, with this much memory each way.
  explicit Mailbox(size_t bytes);

  Address address() const;
  // To the peer's QP; from here on both sides may work.
  void connect(const Address& peer);

  char* outgoing() { return memory_.data(); }
  char* incoming() { return memory_.data() + memory_.size() / 2; }

  // Each starts one operation on the first `bytes`.
  void receive(size_t bytes);
  // The peer must have posted a receive.
  void send(size_t bytes);
  // From the own outgoing memory into the peer's incoming memory.
  void write(const Address& peer, size_t bytes);
  // From the peer's outgoing memory into the own incoming memory.
  void read(const Address& peer, size_t bytes);

  // How the oldest send, write or read ended, and the oldest receive; waits for it, but not for ever.
  ibv_wc sent() { return wait(sends_.get()); }
  ibv_wc received() { return wait(receives_.get()); }

 private:
  template <typename T>
  using Handle = std::unique_ptr<T, int (*)(T*)>;

  ibv_sge piece(const char* start, size_t bytes) const;
  void start(ibv_send_wr request, ibv_sge place);
  static ibv_wc wait(ibv_cq* completions);

  std::vector<char> memory_;
  // In the order in which they are made: each needs those above it.
  Handle<ibv_context> device_;
  Handle<ibv_pd> domain_;
  Handle<ibv_mr> region_;
  Handle<ibv_cq> sends_;
  Handle<ibv_cq> receives_;
  Handle<ibv_qp> queue_pair_;
  ibv_gid gid_{};
};

}  // namespace mailbox
