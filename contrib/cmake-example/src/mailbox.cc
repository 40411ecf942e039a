#include "mailbox.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace mailbox {
namespace {

constexpr uint8_t kPort = 1;
constexpr uint8_t kGidIndex = 0;
constexpr int kQueueDepth = 16;
constexpr uint32_t kFirstPsn = 100;
constexpr std::chrono::seconds kPatience{10};

template <typename T>
T* made(T* object, const char* verb) {
  if (object == nullptr) throw VerbError(verb, errno);
  return object;
}

void check(int error_number, const char* verb) {
  if (error_number != 0) throw VerbError(verb, error_number);
}

ibv_context* open_first_device() {
  int count = 0;
  std::unique_ptr<ibv_device*[], void (*)(ibv_device**)> devices(ibv_get_device_list(&count), ibv_free_device_list);
  if (!devices || count == 0) throw VerbError("ibv_get_device_list", ENODEV);
  return made(ibv_open_device(devices[0]), "ibv_open_device");
}

ibv_cq* create_completion_queue(ibv_context* device) {
  return made(ibv_create_cq(device, kQueueDepth, nullptr, nullptr, 0), "ibv_create_cq");
}

ibv_qp* create_queue_pair(ibv_pd* domain, ibv_cq* sends, ibv_cq* receives) {
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = sends;
  attributes.recv_cq = receives;
  attributes.cap.max_send_wr = kQueueDepth;
  attributes.cap.max_recv_wr = kQueueDepth;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 1;
  attributes.sq_sig_all = 1;
  return made(ibv_create_qp(domain, &attributes), "ibv_create_qp");
}

void to_init(ibv_qp* queue_pair) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = kPort;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  check(ibv_modify_qp(queue_pair, &attributes,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        "ibv_modify_qp to INIT");
}

void to_ready_to_receive(ibv_qp* queue_pair, const Address& peer) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = peer.qp_number;
  attributes.rq_psn = peer.first_psn;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;
  // RoCE has no LIDs: the way to the peer is its GID.
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.grh.dgid = peer.gid;
  attributes.ah_attr.grh.sgid_index = kGidIndex;
  attributes.ah_attr.grh.hop_limit = 64;
  attributes.ah_attr.port_num = kPort;
  check(ibv_modify_qp(queue_pair, &attributes,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
        "ibv_modify_qp to RTR");
}

void to_ready_to_send(ibv_qp* queue_pair) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = kFirstPsn;
  attributes.timeout = 14;
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.max_rd_atomic = 1;
  check(ibv_modify_qp(queue_pair, &attributes,
                      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_MAX_QP_RD_ATOMIC),
        "ibv_modify_qp to RTS");
}

}  // namespace

VerbError::VerbError(const std::string& verb, int error_number)
    : std::runtime_error(verb + ": " + std::strerror(error_number)) {}

Mailbox::Mailbox(size_t bytes)
    : memory_(2 * bytes),
      device_(open_first_device(), ibv_close_device),
      domain_(made(ibv_alloc_pd(device_.get()), "ibv_alloc_pd"), ibv_dealloc_pd),
      region_(made(ibv_reg_mr(domain_.get(), memory_.data(), memory_.size(),
                              IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE),
                   "ibv_reg_mr"),
              ibv_dereg_mr),
      sends_(create_completion_queue(device_.get()), ibv_destroy_cq),
      receives_(create_completion_queue(device_.get()), ibv_destroy_cq),
      queue_pair_(create_queue_pair(domain_.get(), sends_.get(), receives_.get()), ibv_destroy_qp) {
  check(ibv_query_gid(device_.get(), kPort, kGidIndex, &gid_), "ibv_query_gid");
  to_init(queue_pair_.get());
}

Address Mailbox::address() const {
  const auto start = reinterpret_cast<uint64_t>(memory_.data());
  return {gid_, queue_pair_->qp_num, kFirstPsn, start, start + memory_.size() / 2, region_->rkey};
}

void Mailbox::connect(const Address& peer) {
  to_ready_to_receive(queue_pair_.get(), peer);
  to_ready_to_send(queue_pair_.get());
}

void Mailbox::receive(size_t bytes) {
  ibv_sge place = piece(incoming(), bytes);
  ibv_recv_wr request{};
  request.sg_list = &place;
  request.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  check(ibv_post_recv(queue_pair_.get(), &request, &refused), "ibv_post_recv");
}

void Mailbox::send(size_t bytes) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND;
  start(request, piece(outgoing(), bytes));
}

void Mailbox::write(const Address& peer, size_t bytes) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma.remote_addr = peer.incoming;
  request.wr.rdma.rkey = peer.rkey;
  start(request, piece(outgoing(), bytes));
}

void Mailbox::read(const Address& peer, size_t bytes) {
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_READ;
  request.wr.rdma.remote_addr = peer.outgoing;
  request.wr.rdma.rkey = peer.rkey;
  start(request, piece(incoming(), bytes));
}

ibv_sge Mailbox::piece(const char* start, size_t bytes) const {
  return {reinterpret_cast<uint64_t>(start), static_cast<uint32_t>(bytes), region_->lkey};
}

void Mailbox::start(ibv_send_wr request, ibv_sge place) {
  request.sg_list = &place;
  request.num_sge = 1;
  ibv_send_wr* refused = nullptr;
  check(ibv_post_send(queue_pair_.get(), &request, &refused), "ibv_post_send");
}

ibv_wc Mailbox::wait(ibv_cq* completions) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  ibv_wc completion{};
  for (;;) {
    const int count = ibv_poll_cq(completions, 1, &completion);
    if (count < 0) throw VerbError("ibv_poll_cq", -count);
    if (count == 1) return completion;
    if (std::chrono::steady_clock::now() > end) throw VerbError("waiting for a completion", ETIMEDOUT);
    std::this_thread::yield();
  }
}

}  // namespace mailbox
