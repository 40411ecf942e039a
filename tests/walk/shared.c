/* Shared receive queues and extended reliable connections (XRC). */
#include "walk.h"

#include <poll.h>
#include <fcntl.h>

static struct ibv_srq *new_srq(const struct bench *bench)
{
    struct ibv_srq_init_attr init = {.srq_context = (void *)bench, .attr = {.max_wr = QUEUE, .max_sge = SGES}};
    struct ibv_srq *srq = ibv_create_srq(bench->pd, &init);
    CHECK(srq && srq->srq_context == bench && srq->pd == bench->pd && init.attr.max_wr >= QUEUE);
    return srq;
}

static void wrong_shared_queues(const struct bench *bench)
{
    struct ibv_srq_init_attr init = {.attr = {.max_wr = UINT32_MAX, .max_sge = 1}};
    CHECK(ibv_create_srq(bench->pd, &init) == NULL && (errno == EINVAL || errno == ENOMEM));
    init.attr = (struct ibv_srq_attr){.max_wr = 4, .max_sge = UINT32_MAX};
    CHECK(ibv_create_srq(bench->pd, &init) == NULL && (errno == EINVAL || errno == ENOMEM));
    init.attr = (struct ibv_srq_attr){.max_wr = 4, .max_sge = 1};
    REFUSES(EINVAL, ibv_create_srq(NULL, &init));
    REFUSES(EINVAL, ibv_create_srq(bench->pd, NULL));
    for (int bit = 0; bit < 32; bit++) {
        struct ibv_srq_init_attr_ex ex = {.attr = {.max_wr = 4, .max_sge = 1},
                                          .srq_type = (enum ibv_srq_type)(bit % 5),
                                          .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | 1u << bit};
        CHECK(ibv_create_srq_ex(bench->context, &ex) == NULL);
    }
    REFUSES(EINVAL, verbs_get_ctx(bench->context)->create_srq_ex(bench->context, NULL));
    struct ibv_srq_attr attr = {0};
    uint32_t number;
    RETURNS(EINVAL, ibv_query_srq(NULL, &attr));
    RETURNS(EINVAL, ibv_modify_srq(NULL, &attr, IBV_SRQ_LIMIT));
    RETURNS(EINVAL, ibv_destroy_srq(NULL));
    RETURNS(EINVAL, verbs_get_ctx(bench->context)->get_srq_num(NULL, &number));
    struct ibv_recv_wr receive = {0}, *bad;
    CHECK(bench->context->ops.post_srq_recv(NULL, &receive, &bad) == EINVAL);
}

void walk_shared_receive_queues(void)
{
    struct bench bench;
    bench_open(&bench);
    wrong_shared_queues(&bench);
    struct ibv_srq *srq = new_srq(&bench);
    struct ibv_srq_attr attr;
    SUCCEEDS(ibv_query_srq(srq, &attr));
    CHECK(attr.max_wr >= QUEUE && attr.max_sge >= SGES && attr.srq_limit == 0);
    RETURNS(EINVAL, ibv_query_srq(srq, NULL));
    RETURNS(EINVAL, ibv_modify_srq(srq, NULL, IBV_SRQ_LIMIT));
    RETURNS(EINVAL, ibv_modify_srq(srq, &attr, 1 << 20));
    attr.srq_limit = UINT32_MAX;
    RETURNS(EINVAL, ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
    attr.max_wr = UINT32_MAX;
    CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) != 0);
    attr.max_wr = 2 * QUEUE;
    int resized = ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
    CHECK(resized == 0 || resized == EINVAL || resized == EOPNOTSUPP);
    attr.srq_limit = 1;
    SUCCEEDS(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
    uint32_t number;
    (void)ibv_get_srq_num(srq, &number);
    CHECK(ibv_get_srq_num(srq, NULL) != 0);

    struct ibv_sge sges[8];
    for (int i = 0; i < 8; i++)
        sges[i] = entry(&bench, TARGET, 512);
    struct ibv_recv_wr list[2] = {{.wr_id = 1, .next = &list[1], .sg_list = sges, .num_sge = 1},
                                  {.wr_id = 2, .sg_list = sges, .num_sge = 8}}, *bad = NULL;
    list[1].num_sge = INT32_MAX;
    RETURNS(EINVAL, ibv_post_srq_recv(srq, list, &bad));
    CHECK(bad == &list[1]);
    list[1].num_sge = -1;
    list[0].next = NULL;
    RETURNS(EINVAL, ibv_post_srq_recv(srq, &list[1], NULL));
    SUCCEEDS(ibv_post_srq_recv(srq, NULL, &bad));

    /* Two receivers share it. What it holds when it goes is gone. */
    struct pair pairs[2];
    for (int i = 0; i < 2; i++) {
        pairs[i] = (struct pair){{new_qp(&bench, IBV_QPT_RC, NULL), new_qp(&bench, IBV_QPT_RC, srq)}};
        connect_pair(&bench, &pairs[i]);
    }
    RETURNS(EBUSY, ibv_destroy_srq(srq));
    struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = sges, .num_sge = 1};
    SUCCEEDS(ibv_post_srq_recv(srq, &receive, &bad));
    CHECK(ibv_post_recv(pairs[0].qp[1], &receive, &bad) != 0);
    for (int i = 0; i < 2; i++) {
        struct ibv_sge sge = entry(&bench, SOURCE, 100);
        struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
        SUCCEEDS(ibv_post_send(pairs[i].qp[0], &send, &bad_send));
        struct ibv_wc wc = expect(bench.cq, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
        CHECK(wc.qp_num == pairs[i].qp[1]->qp_num);
    }
    int posted = 0;
    while (ibv_post_srq_recv(srq, &receive, &bad) == 0)
        CHECK(++posted < 100000);
    CHECK(bad == &receive);
    /* It had fallen below its limit. */
    struct ibv_async_event event;
    SUCCEEDS(ibv_get_async_event(bench.context, &event));
    CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
    ibv_ack_async_event(&event);
    for (int i = 0; i < 2; i++)
        pair_destroy(&pairs[i]);
    SUCCEEDS(ibv_destroy_srq(srq));
    bench_close(&bench);
}

static struct ibv_xrcd *new_domain(const struct bench *bench)
{
    struct ibv_xrcd_init_attr init = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
    struct ibv_xrcd *domain = ibv_open_xrcd(bench->context, &init);
    CHECK(domain && domain->context == bench->context);
    init.oflags = 0;
    CHECK(ibv_open_xrcd(bench->context, &init) == NULL);
    init.fd = 12345;
    CHECK(ibv_open_xrcd(bench->context, &init) == NULL);
    init.comp_mask = 0;
    REFUSES(EINVAL, ibv_open_xrcd(bench->context, &init));
    init.comp_mask = ~0u;
    REFUSES(EINVAL, ibv_open_xrcd(bench->context, &init));
    REFUSES(EINVAL, ibv_open_xrcd(bench->context, NULL));
    return domain;
}

static struct ibv_qp *new_target(const struct bench *bench, struct ibv_xrcd *domain)
{
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = domain};
    struct ibv_qp *qp = ibv_create_qp_ex(bench->context, &init);
    CHECK(qp && qp->qp_type == IBV_QPT_XRC_RECV);
    init.xrcd = NULL;
    REFUSES(EINVAL, ibv_create_qp_ex(bench->context, &init));
    return qp;
}

static void open_again(const struct bench *bench, struct ibv_xrcd *domain, const struct ibv_qp *target)
{
    struct ibv_qp_open_attr open = {.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
                                                 IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE,
                                    .qp_num = target->qp_num,
                                    .xrcd = domain,
                                    .qp_context = (void *)bench,
                                    .qp_type = IBV_QPT_XRC_RECV};
    struct ibv_qp *again = ibv_open_qp(bench->context, &open);
    CHECK(again && again->qp_num == target->qp_num && again->qp_context == bench);
    SUCCEEDS(ibv_destroy_qp(again));
    struct ibv_qp_open_attr wrong = open;
    wrong.qp_num = 0xffffff;
    CHECK(ibv_open_qp(bench->context, &wrong) == NULL);
    wrong = open;
    wrong.xrcd = NULL;
    REFUSES(EINVAL, ibv_open_qp(bench->context, &wrong));
    wrong = open;
    wrong.qp_type = IBV_QPT_RC;
    REFUSES(EINVAL, ibv_open_qp(bench->context, &wrong));
    wrong = open;
    wrong.comp_mask = ~0u;
    REFUSES(EINVAL, ibv_open_qp(bench->context, &wrong));
    wrong.comp_mask = 0;
    REFUSES(EINVAL, ibv_open_qp(bench->context, &wrong));
    REFUSES(EINVAL, ibv_open_qp(bench->context, NULL));
}

/* A message for no queue of the domain is refused, and each handle of its target is told, by its own pointer. Events
 * that were not taken go with their handle. */
static void tells_each_handle(const struct bench *bench, struct ibv_xrcd *domain, const struct pair *pair)
{
    struct ibv_qp_open_attr open = {
        .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
        .qp_num = pair->qp[1]->qp_num,
        .xrcd = domain,
        .qp_type = IBV_QPT_XRC_RECV};
    enum { HANDLES = 4 };
    struct ibv_qp *handles[HANDLES] = {pair->qp[1]};
    for (int i = 1; i < HANDLES; i++)
        CHECK((handles[i] = ibv_open_qp(bench->context, &open)));
    struct ibv_sge source = entry(bench, SOURCE, 8);
    struct ibv_send_wr send = {.wr_id = 3, .sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    send.qp_type.xrc.remote_srqn = 0xffffff;
    SUCCEEDS(ibv_post_send(pair->qp[0], &send, &bad));
    CHECK(next_completion(bench->cq).status != IBV_WC_SUCCESS);
    SUCCEEDS(ibv_destroy_qp(handles[HANDLES - 1]));
    struct ibv_async_event events[HANDLES];
    for (int i = 0; i < HANDLES - 1; i++)
        SUCCEEDS(ibv_get_async_event(bench->context, &events[i]));
    for (int i = 0; i < HANDLES - 1; i++) {
        int told = 0;
        for (int k = 0; k < HANDLES - 1; k++)
            told += events[k].event_type == IBV_EVENT_QP_ACCESS_ERR && events[k].element.qp == handles[i];
        CHECK(told == 1);
    }
    struct pollfd descriptor = {.fd = bench->context->async_fd, .events = POLLIN};
    CHECK(poll(&descriptor, 1, 0) == 0 && "that were all");
    for (int i = 0; i < HANDLES - 1; i++)
        ibv_ack_async_event(&events[i]);
    for (int i = 1; i < HANDLES - 1; i++)
        SUCCEEDS(ibv_destroy_qp(handles[i]));
}

void walk_extended_connections(void)
{
    struct bench bench;
    bench_open(&bench);
    struct ibv_xrcd *domain = new_domain(&bench);
    struct ibv_srq_init_attr_ex init = {.attr = {.max_wr = QUEUE, .max_sge = 1},
                                        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                                     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
                                        .srq_type = IBV_SRQT_XRC,
                                        .pd = bench.pd,
                                        .xrcd = domain,
                                        .cq = bench.cq};
    struct ibv_srq *srq = ibv_create_srq_ex(bench.context, &init);
    uint32_t number = 0;
    CHECK(srq);
    SUCCEEDS(ibv_get_srq_num(srq, &number));
    CHECK(number != 0);
    init.xrcd = NULL;
    REFUSES(EINVAL, ibv_create_srq_ex(bench.context, &init));
    init.xrcd = domain;
    init.cq = NULL;
    REFUSES(EINVAL, ibv_create_srq_ex(bench.context, &init));

    struct ibv_qp *target = new_target(&bench, domain);
    open_again(&bench, domain, target);
    RETURNS(EBUSY, ibv_close_xrcd(domain));

    /* By a list, and by the builder. */
    struct ibv_qp *initiator = new_builder_qp(&bench, IBV_QPT_XRC_SEND, IBV_QP_EX_WITH_SEND);
    struct pair pair = {{initiator, target}};
    connect_pair(&bench, &pair);
    struct ibv_sge sge = entry(&bench, TARGET, 512), source = entry(&bench, SOURCE, 300);
    struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
    struct ibv_send_wr send = {.wr_id = 2, .sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
    send.qp_type.xrc.remote_srqn = number;
    for (int by_builder = 0; by_builder < 2; by_builder++) {
        fill(&bench, (char)by_builder);
        SUCCEEDS(ibv_post_srq_recv(srq, &receive, &bad));
        struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(initiator);
        if (by_builder) {
            ibv_wr_start(ex);
            ex->wr_id = 2;
            ex->wr_flags = 0;
            ibv_wr_send(ex);
            ibv_wr_set_xrc_srqn(ex, number);
            ibv_wr_set_sge(ex, source.lkey, source.addr, source.length);
            SUCCEEDS(ibv_wr_complete(ex));
        } else {
            SUCCEEDS(ibv_post_send(initiator, &send, &bad_send));
        }
        expect(bench.cq, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
        expect_same(&bench, 300);
    }
    /* A target sends nothing, an initiator receives nothing. */
    CHECK(ibv_post_send(target, &send, &bad_send) != 0);
    CHECK(ibv_post_recv(initiator, &receive, &bad) != 0 && ibv_post_recv(target, &receive, &bad) != 0);
    tells_each_handle(&bench, domain, &pair);
    pair_destroy(&pair);
    SUCCEEDS(ibv_destroy_srq(srq));
    SUCCEEDS(ibv_close_xrcd(domain));
    bench_close(&bench);
}
