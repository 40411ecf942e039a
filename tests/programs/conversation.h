/* One end of a reliable connection, and conversations over it, of which every byte is checked. */
#ifndef CONVERSATION_H
#define CONVERSATION_H

#include <stdint.h>
#include <string.h>
#include <time.h>

#include "rc.h"

enum { SIZE = 5000, PATIENCE_S = 20 };

struct end {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *memory; /* SIZE bytes to send, then SIZE bytes to receive into */
    int sent, received; /* completions that nobody has waited for yet */
};

struct address {
    uint32_t qpn;
    union ibv_gid gid;
};

static struct end open_end(void)
{
    struct end end = {.context = open_device(), .memory = malloc(2 * SIZE)};
    CHECK((end.pd = ibv_alloc_pd(end.context)) && (end.channel = ibv_create_comp_channel(end.context)));
    CHECK((end.cq = ibv_create_cq(end.context, 64, NULL, end.channel, 0)));
    CHECK((end.mr = ibv_reg_mr(end.pd, end.memory, 2 * SIZE, IBV_ACCESS_LOCAL_WRITE)));
    end.qp = create_rc(end.pd, end.cq, 0);
    return end;
}

static void close_end(struct end *end)
{
    CHECK(ibv_destroy_qp(end->qp) == 0 && ibv_dereg_mr(end->mr) == 0 && ibv_destroy_cq(end->cq) == 0);
    CHECK(ibv_destroy_comp_channel(end->channel) == 0 && ibv_dealloc_pd(end->pd) == 0);
    CHECK(ibv_close_device(end->context) == 0);
    free(end->memory);
}

static struct address address_of(const struct end *end)
{
    struct address own = {.qpn = end->qp->qp_num};
    CHECK(ibv_query_gid(end->context, 1, 0, &own.gid) == 0);
    return own;
}

static void post_receive(struct end *end)
{
    struct ibv_sge sge = {.addr = (uintptr_t)end->memory + SIZE, .length = SIZE, .lkey = end->mr->lkey};
    struct ibv_recv_wr request = {.sg_list = &sge, .num_sge = 1}, *bad;
    CHECK(ibv_post_recv(end->qp, &request, &bad) == 0);
}

static const struct patience patient = {.min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};

static void join_peer(struct end *end, const struct address *peer, struct patience patience)
{
    connect_rc(end->qp, peer->qpn, peer->gid, patience);
    post_receive(end);
}

/* Towards the end that another process describes through a socket. */
static void connect_with(struct end *end, int socket, struct patience patience)
{
    struct address own = address_of(end), peer;
    CHECK(write(socket, &own, sizeof own) == sizeof own && read(socket, &peer, sizeof peer) == sizeof peer);
    join_peer(end, &peer, patience);
    char mark = 1;
    CHECK(write(socket, &mark, 1) == 1 && read(socket, &mark, 1) == 1);
}

static void connect_end(struct end *end, int socket)
{
    connect_with(end, socket, patient);
}

/* Polls until the counter shows a completion of its kind, and takes it off. */
static void await_one(struct end *end, int *counter)
{
    struct ibv_wc wc;
    time_t until = time(NULL) + PATIENCE_S;
    while (*counter == 0) {
        int count = ibv_poll_cq(end->cq, 1, &wc);
        CHECK(count >= 0 && time(NULL) < until);
        if (count == 0)
            continue;
        if (wc.status != IBV_WC_SUCCESS)
            fprintf(stderr, "process %d: a completion says %s\n", getpid(), ibv_wc_status_str(wc.status));
        CHECK(wc.status == IBV_WC_SUCCESS);
        ++*(wc.opcode == IBV_WC_RECV ? &end->received : &end->sent);
    }
    --*counter;
}

static uint8_t pattern(uint32_t round, size_t at)
{
    return (uint8_t)(round * 31 + at * 7 + at / 256);
}

static void send_round(struct end *end, uint32_t round)
{
    for (size_t i = 0; i < SIZE; i++)
        end->memory[i] = pattern(round, i);
    struct ibv_sge sge = {.addr = (uintptr_t)end->memory, .length = SIZE, .lkey = end->mr->lkey};
    struct ibv_send_wr request = {
        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
    CHECK(ibv_post_send(end->qp, &request, &bad) == 0);
}

static void check_round(struct end *end, uint32_t round)
{
    for (size_t i = 0; i < SIZE; i++)
        CHECK(end->memory[SIZE + i] == pattern(round, i));
    memset(end->memory + SIZE, 0, SIZE);
    post_receive(end);
}

/* One message there and one back, of which every byte is checked. */
static void ask(struct end *end, uint32_t round)
{
    send_round(end, round);
    await_one(end, &end->received);
    check_round(end, ~round);
    await_one(end, &end->sent);
}

static void answer(struct end *end, uint32_t round)
{
    await_one(end, &end->received);
    check_round(end, round);
    send_round(end, ~round);
    await_one(end, &end->sent);
}

/* Over a queue pair that is connected to itself. */
static void ask_itself(struct end *end, uint32_t round)
{
    send_round(end, round);
    await_one(end, &end->received);
    check_round(end, round);
    await_one(end, &end->sent);
}

static void join_itself(struct end *end)
{
    struct address own = address_of(end);
    join_peer(end, &own, patient);
}

enum { ROUNDS = 50 };

/* Opens an end of its own, and asks or answers. Both ends close only when both are done. */
static void converse(int socket, void (*part)(struct end *, uint32_t))
{
    struct end end = open_end();
    connect_end(&end, socket);
    for (uint32_t round = 0; round < ROUNDS; round++)
        part(&end, round);
    char mark = 1;
    CHECK(write(socket, &mark, 1) == 1 && read(socket, &mark, 1) == 1);
    close_end(&end);
}

#endif
