/* Completion events and asynchronous events. */
#include "walk.h"

#include <fcntl.h>
#include <poll.h>

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    return poll(&entry, 1, timeout_ms) == 1;
}

static void no_waiting(int fd)
{
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
}

static void completion_events(const struct bench *bench)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(bench->context);
    struct ibv_cq *cq = ibv_create_cq(bench->context, 16, channel, channel, 0), *from = NULL;
    void *with = NULL;
    CHECK(channel && cq);
    struct bench own = *bench;
    own.cq = cq;
    struct pair pair = connected(&own, IBV_QPT_RC);
    struct ibv_sge sge = entry(bench, SOURCE, 8);
    struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    for (int solicited = 0; solicited < 2; solicited++) {
        SUCCEEDS(ibv_req_notify_cq(cq, solicited));
        post_receive(bench, pair.qp[1], 1);
        CHECK(!is_readable(channel->fd, 0));
        send.send_flags = solicited ? IBV_SEND_SOLICITED : 0;
        SUCCEEDS(ibv_post_send(pair.qp[0], &send, &bad));
        CHECK(is_readable(channel->fd, 20000));
        SUCCEEDS(ibv_get_cq_event(channel, &from, &with));
        CHECK(from == cq && with == channel);
        expect(cq, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
        ibv_ack_cq_events(cq, 1);
    }
    no_waiting(channel->fd);
    FAILS(EAGAIN, ibv_get_cq_event(channel, &from, &with));
    RETURNS(EBUSY, ibv_destroy_comp_channel(channel));
    pair_destroy(&pair);
    SUCCEEDS(ibv_destroy_cq(cq));
    SUCCEEDS(ibv_destroy_comp_channel(channel));
}

/* A peer that writes where it may not, and a queue that overflows. */
static void asynchronous_events(const struct bench *bench)
{
    struct pair pair = connected(bench, IBV_QPT_RC);
    struct ibv_sge sge = entry(bench, SOURCE, 8);
    struct ibv_send_wr wrong = {.wr_id = 1,
                                .sg_list = &sge,
                                .num_sge = 1,
                                .opcode = IBV_WR_RDMA_WRITE,
                                .send_flags = IBV_SEND_SIGNALED,
                                .wr.rdma = {.remote_addr = 0, .rkey = 0}},
                       *bad;
    SUCCEEDS(ibv_post_send(pair.qp[0], &wrong, &bad));
    expect(bench->cq, 1, IBV_WC_REM_ACCESS_ERR, 0);
    struct ibv_async_event event;
    CHECK(is_readable(bench->context->async_fd, 20000));
    SUCCEEDS(ibv_get_async_event(bench->context, &event));
    CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR && event.element.qp == pair.qp[1]);
    CHECK(strlen(ibv_event_type_str(event.event_type)) > 0);
    ibv_ack_async_event(&event);
    /* Twice is once too often, and harmless. */
    ibv_ack_async_event(&event);
    ibv_ack_async_event(NULL);
    pair_destroy(&pair);

    struct bench own = *bench;
    own.cq = ibv_create_cq(bench->context, 1, NULL, NULL, 0);
    CHECK(own.cq);
    int room = own.cq->cqe;
    struct ibv_qp *qp = new_qp(&own, IBV_QPT_RC, NULL);
    to_init(qp);
    struct ibv_recv_wr receive = {0}, *bad_receive;
    for (int i = 0; i <= room && i < QUEUE; i++)
        SUCCEEDS(ibv_post_recv(qp, &receive, &bad_receive));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    SUCCEEDS(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    if (room < QUEUE) {
        CHECK(is_readable(bench->context->async_fd, 20000));
        SUCCEEDS(ibv_get_async_event(bench->context, &event));
        CHECK(event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == own.cq);
        ibv_ack_async_event(&event);
    }
    SUCCEEDS(ibv_destroy_qp(qp));
    no_waiting(bench->context->async_fd);
    while (ibv_get_async_event(bench->context, &event) == 0)
        ibv_ack_async_event(&event);
    CHECK(errno == EAGAIN);
    SUCCEEDS(ibv_destroy_cq(own.cq));
    FAILS(EINVAL, ibv_get_async_event(NULL, &event));
    FAILS(EINVAL, ibv_get_async_event(bench->context, NULL));
    struct ibv_async_event port = {.element.port_num = 1, .event_type = IBV_EVENT_PORT_ACTIVE};
    ibv_ack_async_event(&port);
}

void walk_events(void)
{
    struct bench bench;
    bench_open(&bench);
    completion_events(&bench);
    asynchronous_events(&bench);
    bench_close(&bench);
}
