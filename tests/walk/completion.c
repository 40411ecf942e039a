/* Completion channels and queues, plain and extended. */
#include "walk.h"

#include <fcntl.h>
#include <poll.h>

static void wrong_queues(struct ibv_context *context, struct ibv_comp_channel *channel)
{
    REFUSES(EINVAL, ibv_create_cq(NULL, 16, NULL, NULL, 0));
    REFUSES(EINVAL, ibv_create_cq(context, 0, NULL, NULL, 0));
    REFUSES(EINVAL, ibv_create_cq(context, -1, NULL, NULL, 0));
    REFUSES(EINVAL, ibv_create_cq(context, INT32_MAX, NULL, NULL, 0));
    REFUSES(EINVAL, ibv_create_cq(context, INT32_MIN, NULL, NULL, 0));
    REFUSES(EINVAL, ibv_create_cq(context, 16, NULL, channel, -1));
    REFUSES(EINVAL, ibv_create_cq(context, 16, NULL, channel, context->num_comp_vectors));
    REFUSES(EINVAL, ibv_create_cq(context, 16, NULL, channel, INT32_MAX));
    REFUSES(EINVAL, ibv_create_comp_channel(NULL));
    RETURNS(EINVAL, ibv_destroy_comp_channel(NULL));
    RETURNS(EINVAL, ibv_destroy_cq(NULL));
    RETURNS(EINVAL, ibv_resize_cq(NULL, 8));
    ibv_ack_cq_events(NULL, 1);
}

void walk_completion_queues(void)
{
    struct ibv_context *context = open_first();
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    CHECK(channel && channel->fd >= 0 && channel->context == context);
    int cookie;
    struct ibv_cq *cq = ibv_create_cq(context, 16, &cookie, channel, 0);
    CHECK(cq && cq->cq_context == &cookie && cq->channel == channel && cq->cqe >= 16);
    wrong_queues(context, channel);

    SUCCEEDS(ibv_resize_cq(cq, 64));
    CHECK(cq->cqe >= 64);
    SUCCEEDS(ibv_resize_cq(cq, 8));
    RETURNS(EINVAL, ibv_resize_cq(cq, 0));
    RETURNS(EINVAL, ibv_resize_cq(cq, -1));
    RETURNS(EINVAL, ibv_resize_cq(cq, INT32_MAX));

    struct ibv_wc wc[4];
    RETURNS(0, ibv_poll_cq(cq, 4, wc));
    RETURNS(0, ibv_poll_cq(cq, 0, wc));
    RETURNS(0, ibv_poll_cq(cq, 0, NULL));
    CHECK(ibv_poll_cq(cq, -1, wc) < 0 && ibv_poll_cq(cq, INT32_MIN, wc) < 0 && ibv_poll_cq(cq, 1, NULL) < 0);
    CHECK(context->ops.poll_cq(NULL, 1, wc) < 0);
    SUCCEEDS(ibv_req_notify_cq(cq, 0));
    SUCCEEDS(ibv_req_notify_cq(cq, 1));
    CHECK(context->ops.req_notify_cq(NULL, 0) == EINVAL);

    struct ibv_modify_cq_attr moderation = {.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {1, 0}};
    SUCCEEDS(ibv_modify_cq(cq, &moderation));
    moderation.attr_mask = 0;
    RETURNS(EINVAL, ibv_modify_cq(cq, &moderation));
    moderation.attr_mask = ~0u;
    RETURNS(EINVAL, ibv_modify_cq(cq, &moderation));
    RETURNS(EINVAL, ibv_modify_cq(cq, NULL));

    struct ibv_cq *from;
    void *with;
    CHECK(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
    FAILS(EAGAIN, ibv_get_cq_event(channel, &from, &with));
    FAILS(EINVAL, ibv_get_cq_event(NULL, &from, &with));
    FAILS(EINVAL, ibv_get_cq_event(channel, NULL, NULL));
    /* Acknowledging what never came changes nothing. */
    ibv_ack_cq_events(cq, 0);
    ibv_ack_cq_events(cq, UINT32_MAX);

    RETURNS(EBUSY, ibv_destroy_comp_channel(channel));
    SUCCEEDS(ibv_destroy_cq(cq));
    SUCCEEDS(ibv_destroy_comp_channel(channel));
    SUCCEEDS(ibv_close_device(context));
}

static void wrong_extended_queues(struct ibv_context *context)
{
    struct ibv_cq_init_attr_ex init = {.cqe = 16, .wc_flags = 1ull << 63};
    CHECK(ibv_create_cq_ex(context, &init) == NULL && (errno == EOPNOTSUPP || errno == EINVAL));
    init = (struct ibv_cq_init_attr_ex){.cqe = 16, .comp_mask = 1u << 31};
    CHECK(ibv_create_cq_ex(context, &init) == NULL && (errno == EOPNOTSUPP || errno == EINVAL));
    init = (struct ibv_cq_init_attr_ex){.cqe = 16, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = 1u << 31};
    CHECK(ibv_create_cq_ex(context, &init) == NULL && (errno == EOPNOTSUPP || errno == EINVAL));
    init = (struct ibv_cq_init_attr_ex){.cqe = UINT32_MAX};
    REFUSES(EINVAL, ibv_create_cq_ex(context, &init));
    init = (struct ibv_cq_init_attr_ex){.cqe = 0};
    REFUSES(EINVAL, ibv_create_cq_ex(context, &init));
    init = (struct ibv_cq_init_attr_ex){.cqe = 16, .comp_vector = UINT32_MAX};
    REFUSES(EINVAL, ibv_create_cq_ex(context, &init));
    REFUSES(EINVAL, ibv_create_cq_ex(context, NULL));
    /* Of frames and tags nothing is known here. */
    for (int bit = 0; bit < 64; bit++) {
        init = (struct ibv_cq_init_attr_ex){.cqe = 16, .wc_flags = 1ull << bit};
        struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &init);
        if (cq)
            SUCCEEDS(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
    }
}

static int start_patiently(struct ibv_cq_ex *cq)
{
    struct ibv_poll_cq_attr attr = {0};
    int result;
    while ((result = ibv_start_poll(cq, &attr)) == ENOENT)
        poll(NULL, 0, 1);
    return result;
}

/* Reads every member of the completion at hand that the device knows. */
static void read_all(struct ibv_cq_ex *cq, const struct pair *pair, uint32_t length)
{
    CHECK(cq->status == IBV_WC_SUCCESS && cq->wr_id == 5);
    CHECK(ibv_wc_read_opcode(cq) == IBV_WC_RECV && ibv_wc_read_byte_len(cq) == length);
    CHECK(ibv_wc_read_vendor_err(cq) == 0 && ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM);
    CHECK(ibv_wc_read_imm_data(cq) == 0x01020304 && ibv_wc_read_qp_num(cq) == pair->qp[1]->qp_num);
    (void)ibv_wc_read_src_qp(cq);
    (void)ibv_wc_read_slid(cq);
    (void)ibv_wc_read_sl(cq);
    (void)ibv_wc_read_dlid_path_bits(cq);
    CHECK(ibv_wc_read_completion_ts(cq) > 0);
    CHECK(ibv_wc_read_completion_wallclock_ns(cq) > 1600000000ull * 1000000000);
    /* Of VLANs, flow tags and tag matching a device may know nothing; it then leaves these functions out. */
    if (cq->read_cvlan)
        (void)ibv_wc_read_cvlan(cq);
    if (cq->read_flow_tag)
        (void)ibv_wc_read_flow_tag(cq);
    struct ibv_wc_tm_info info;
    if (cq->read_tm_info)
        ibv_wc_read_tm_info(cq, &info);
}

void walk_extended_polling(void)
{
    struct bench bench;
    bench_open(&bench);
    wrong_extended_queues(bench.context);
    struct ibv_cq_init_attr_ex init = {
        .cqe = 16,
        .cq_context = &bench,
        .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
        .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
        .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
    };
    struct ibv_cq_ex *cq = ibv_create_cq_ex(bench.context, &init);
    CHECK(cq && cq->cq_context == &bench && cq->cqe >= 16);
    struct ibv_poll_cq_attr wrong = {.comp_mask = ~0u};
    RETURNS(EINVAL, ibv_start_poll(cq, &wrong));
    RETURNS(ENOENT, ibv_start_poll(cq, NULL));

    struct bench with = bench;
    with.cq = ibv_cq_ex_to_cq(cq);
    struct pair pair = connected(&with, IBV_QPT_RC);
    struct ibv_sge sge = entry(&bench, SOURCE, 100);
    struct ibv_send_wr send = {
        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = 0x01020304}, *bad;
    for (int round = 0; round < 2; round++) {
        post_receive(&bench, pair.qp[1], 5);
        post_receive(&bench, pair.qp[1], 5);
        SUCCEEDS(ibv_post_send(pair.qp[0], &send, &bad));
        SUCCEEDS(ibv_post_send(pair.qp[0], &send, &bad));
        SUCCEEDS(start_patiently(cq));
        read_all(cq, &pair, 100);
        int result;
        while ((result = ibv_next_poll(cq)) == ENOENT) {
            ibv_end_poll(cq);
            SUCCEEDS(start_patiently(cq));
            break;
        }
        read_all(cq, &pair, 100);
        ibv_end_poll(cq);
    }

    /* An invalidated key stands where the immediate value stands. */
    struct ibv_mw *mw = ibv_alloc_mw(bench.pd, IBV_MW_TYPE_2);
    CHECK(mw);
    struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW,
                               .send_flags = IBV_SEND_SIGNALED,
                               .bind_mw = {.mw = mw,
                                           .rkey = ibv_inc_rkey(mw->rkey),
                                           .bind_info = {.mr = bench.mr,
                                                         .addr = (uintptr_t)bench.memory,
                                                         .length = 64,
                                                         .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}}};
    SUCCEEDS(ibv_post_send(pair.qp[1], &bind, &bad));
    SUCCEEDS(start_patiently(cq));
    CHECK(cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(cq) == IBV_WC_BIND_MW);
    ibv_end_poll(cq);
    post_receive(&bench, pair.qp[1], 6);
    send.opcode = IBV_WR_SEND_WITH_INV;
    send.invalidate_rkey = bind.bind_mw.rkey;
    SUCCEEDS(ibv_post_send(pair.qp[0], &send, &bad));
    SUCCEEDS(start_patiently(cq));
    CHECK(cq->status == IBV_WC_SUCCESS && ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_INV);
    CHECK(ibv_wc_read_invalidated_rkey(cq) == bind.bind_mw.rkey);
    ibv_end_poll(cq);
    RETURNS(ENOENT, ibv_start_poll(cq, NULL));
    SUCCEEDS(ibv_dealloc_mw(mw));
    pair_destroy(&pair);
    SUCCEEDS(ibv_destroy_cq(with.cq));
    bench_close(&bench);
}
