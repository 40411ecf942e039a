/* A verbs program that does something wrong, or whose peer does: a parent sends to its child, over an RC connection.
 * Each command is one mistake. The status is 1 after an error completion, and 3 when all went well. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "rc.h"

enum { SIZE = 8192 };

struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *memory;
};

struct address {
    uint32_t qpn, rkey;
    uint64_t va;
    union ibv_gid gid;
};

static const char *mistake;

static int is(const char *name)
{
    return strcmp(mistake, name) == 0;
}

static struct end open_end(void)
{
    struct end end = {.context = open_device(), .memory = calloc(1, SIZE)};
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    CHECK((end.pd = ibv_alloc_pd(end.context)) && (end.cq = ibv_create_cq(end.context, 64, NULL, NULL, 0)));
    CHECK((end.mr = ibv_reg_mr(end.pd, end.memory, SIZE, access)));
    end.qp = create_rc(end.pd, end.cq, access);
    return end;
}

static void connect_to(struct end *end, const struct address *peer)
{
    struct patience patience = {
        .min_rnr_timer = 1, .timeout = 10 /* 4 ms */, .retry_cnt = 3, .rnr_retry = is("hang") ? 7 : 2};
    connect_rc(end->qp, peer->qpn, peer->gid, patience);
}

static struct address address_of(const struct end *end)
{
    struct address own = {
        .qpn = end->qp->qp_num, .rkey = end->mr->rkey, .va = (uintptr_t)end->memory};
    CHECK(ibv_query_gid(end->context, 1, 0, &own.gid) == 0);
    return own;
}

static void post_receive(struct end *end, uint32_t length)
{
    struct ibv_sge sge = {.addr = (uintptr_t)end->memory, .length = length, .lkey = end->mr->lkey};
    struct ibv_recv_wr request = {.wr_id = 7, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK(ibv_post_recv(end->qp, &request, &bad) == 0);
}

/* The peer: connects, posts its receive, and stays until the other end of the socket is closed. */
static void serve(int socket)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct end end = open_end();
    struct address own = address_of(&end), peer;
    CHECK(write(socket, &own, sizeof own) == sizeof own && read(socket, &peer, sizeof peer) == sizeof peer);
    connect_to(&end, &peer);
    if (is("long-message"))
        post_receive(&end, 100);
    CHECK(write(socket, "r", 1) == 1);
    char end_of_it;
    if (!is("absent"))
        (void)!read(socket, &end_of_it, 1);
    _exit(0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    mistake = argv[1];
    int sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(sockets[0]);
        serve(sockets[1]);
    }
    close(sockets[1]);
    struct end end = open_end();
    struct address own = address_of(&end), peer;
    char ready;
    CHECK(read(sockets[0], &peer, sizeof peer) == sizeof peer && write(sockets[0], &own, sizeof own) == sizeof own);
    CHECK(read(sockets[0], &ready, 1) == 1);
    if (is("absent"))
        CHECK(waitpid(child, NULL, 0) == child);
    if (is("wrong-gid"))
        inet_pton(AF_INET6, "::ffff:127.9.9.9", &peer.gid);
    if (is("wrong-index")) {
        struct ibv_qp_attr attr = {
            .qp_state = IBV_QPS_RTR,
            .path_mtu = IBV_MTU_1024,
            .dest_qp_num = peer.qpn,
            .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer.gid, .sgid_index = 77}},
        };
        return ibv_modify_qp(end.qp, &attr,
                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0;
    }
    connect_to(&end, &peer);
    struct ibv_sge sge = {
        .addr = (uintptr_t)end.memory, .length = is("long-message") ? 5000 : 64, .lkey = end.mr->lkey};
    int writes = is("wrong-rkey") || is("crash");
    struct ibv_send_wr request = {
        .wr_id = 42,
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = writes ? IBV_WR_RDMA_WRITE : IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = peer.va, .rkey = peer.rkey ^ 0x100},
    }, *bad;
    CHECK(ibv_post_send(end.qp, &request, &bad) == 0);
    struct ibv_wc wc;
    while (ibv_poll_cq(end.cq, 1, &wc) == 0)
        ;
    if (is("crash"))
        raise(SIGSEGV);
    return wc.status == IBV_WC_SUCCESS ? 3 : 1;
}
