/* Address handles, datagrams, multicast, memory windows. */
#include "walk.h"

enum { GRH_BYTES = 40 };

static void wrong_ways(const struct bench *bench)
{
    const struct ibv_ah_attr right = {.is_global = 1, .port_num = 1, .grh = {.dgid = bench->gid, .hop_limit = 1}};
    struct ibv_ah_attr way = right;
    REFUSES(EINVAL, ibv_create_ah(NULL, &way));
    REFUSES(EINVAL, ibv_create_ah(bench->pd, NULL));
    way.port_num = 0;
    REFUSES(EINVAL, ibv_create_ah(bench->pd, &way));
    way.port_num = 255;
    REFUSES(EINVAL, ibv_create_ah(bench->pd, &way));
    way = right;
    way.is_global = 0;
    REFUSES(EINVAL, ibv_create_ah(bench->pd, &way));
    way = right;
    way.grh.sgid_index = 255;
    REFUSES(EINVAL, ibv_create_ah(bench->pd, &way));
    way = right;
    memset(&way.grh.dgid, 0, sizeof way.grh.dgid);
    CHECK(ibv_create_ah(bench->pd, &way) == NULL);
    way = right;
    memset(&way.grh, 0xff, sizeof way.grh);
    CHECK(ibv_create_ah(bench->pd, &way) == NULL);
    RETURNS(EINVAL, ibv_destroy_ah(NULL));

    uint8_t mac[6] = {0};
    uint16_t vlan = 0;
    way = right;
    int resolved = ibv_resolve_eth_l2_from_gid(bench->context, &way, mac, &vlan);
    CHECK(resolved == 0 || resolved == EOPNOTSUPP || resolved == -1);
}

/* An answer goes to where a datagram came from. */
static void answer(const struct bench *bench, struct ibv_wc *wc)
{
    struct ibv_grh *grh = (struct ibv_grh *)half_of(bench, TARGET);
    struct ibv_ah_attr back;
    SUCCEEDS(ibv_init_ah_from_wc(bench->context, 1, wc, grh, &back));
    CHECK(back.is_global && back.port_num == 1 && memcmp(&back.grh.dgid, &bench->gid, 16) == 0);
    struct ibv_ah *ah = ibv_create_ah_from_wc(bench->pd, wc, grh, 1);
    CHECK(ah);
    SUCCEEDS(ibv_destroy_ah(ah));
    FAILS(EINVAL, ibv_init_ah_from_wc(NULL, 1, wc, grh, &back));
    FAILS(EINVAL, ibv_init_ah_from_wc(bench->context, 1, NULL, grh, &back));
    FAILS(EINVAL, ibv_init_ah_from_wc(bench->context, 1, wc, grh, NULL));
    CHECK(ibv_init_ah_from_wc(bench->context, 1, wc, NULL, &back) == -1);
    CHECK(ibv_init_ah_from_wc(bench->context, 77, wc, grh, &back) == -1);
    CHECK(ibv_create_ah_from_wc(NULL, wc, grh, 1) == NULL && ibv_create_ah_from_wc(bench->pd, NULL, grh, 1) == NULL);
    CHECK(ibv_create_ah_from_wc(bench->pd, wc, NULL, 1) == NULL);
    struct ibv_grh nonsense;
    memset(&nonsense, 0xff, sizeof nonsense);
    CHECK(ibv_init_ah_from_wc(bench->context, 1, wc, &nonsense, &back) == -1);
    wc->wc_flags &= ~IBV_WC_GRH;
    CHECK(ibv_init_ah_from_wc(bench->context, 1, wc, grh, &back) == -1);
}

void walk_datagrams(void)
{
    struct bench bench;
    bench_open(&bench);
    wrong_ways(&bench);
    struct ibv_qp *qp = new_qp(&bench, IBV_QPT_UD, NULL);
    struct ibv_ah *ah = way_to_self(&bench);
    to_init(qp);
    to_rts(&bench, qp, 0);
    struct ibv_sge sge = entry(&bench, SOURCE, 500);
    struct ibv_send_wr send = {.wr_id = 1,
                               .sg_list = &sge,
                               .num_sge = 1,
                               .send_flags = IBV_SEND_SIGNALED,
                               .wr.ud = {.ah = ah, .remote_qpn = qp->qp_num, .remote_qkey = QKEY}}, *bad;
    static const enum ibv_wr_opcode OPCODES[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM};
    for (int i = 0; i < 2; i++) {
        fill(&bench, (char)i);
        post_receive(&bench, qp, 2);
        send.opcode = OPCODES[i];
        SUCCEEDS(ibv_post_send(qp, &send, &bad));
        for (int k = 0; k < 2; k++) {
            struct ibv_wc wc = next_completion(bench.cq);
            CHECK(wc.status == IBV_WC_SUCCESS);
            if (wc.wr_id == 1)
                continue;
            CHECK(wc.byte_len == GRH_BYTES + 500 && wc.src_qp == qp->qp_num && wc.wc_flags & IBV_WC_GRH);
            CHECK(memcmp(half_of(&bench, TARGET) + GRH_BYTES, half_of(&bench, SOURCE), 500) == 0);
            answer(&bench, &wc);
        }
    }
    send.wr.ud.ah = NULL;
    CHECK(ibv_post_send(qp, &send, &bad) != 0 && bad == &send);
    send.wr.ud.ah = ah;
    send.opcode = IBV_WR_RDMA_WRITE;
    CHECK(ibv_post_send(qp, &send, &bad) != 0);
    send.opcode = IBV_WR_SEND;
    sge.length = BUFFER_BYTES;
    CHECK(ibv_post_send(qp, &send, &bad) != 0);
    SUCCEEDS(ibv_destroy_ah(ah));
    SUCCEEDS(ibv_destroy_qp(qp));
    bench_close(&bench);
}

void walk_groups(void)
{
    struct bench bench;
    bench_open(&bench);
    /* ::ffff:239.77.1.2 */
    union ibv_gid group = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 239, [13] = 77, [14] = 1, [15] = 2}};
    struct ibv_qp *qp = new_qp(&bench, IBV_QPT_UD, NULL), *other = new_qp(&bench, IBV_QPT_RC, NULL);
    to_init(qp);
    to_rts(&bench, qp, 0);
    SUCCEEDS(ibv_attach_mcast(qp, &group, 0));
    (void)ibv_attach_mcast(qp, &group, 0);
    SUCCEEDS(ibv_detach_mcast(qp, &group, 0));
    CHECK(ibv_detach_mcast(qp, &group, 0) != 0);
    CHECK(ibv_attach_mcast(other, &group, 0) != 0 && ibv_detach_mcast(other, &group, 0) != 0);
    CHECK(ibv_attach_mcast(qp, &bench.gid, 0) != 0);
    RETURNS(EINVAL, ibv_attach_mcast(qp, NULL, 0));
    RETURNS(EINVAL, ibv_attach_mcast(NULL, &group, 0));
    RETURNS(EINVAL, ibv_detach_mcast(qp, NULL, 0));
    RETURNS(EINVAL, ibv_detach_mcast(NULL, &group, 0));
    /* A member may go without leaving. */
    SUCCEEDS(ibv_attach_mcast(qp, &group, 0));
    int left = ibv_destroy_qp(qp);
    if (left == EBUSY) {
        SUCCEEDS(ibv_detach_mcast(qp, &group, 0));
        SUCCEEDS(ibv_destroy_qp(qp));
    }
    SUCCEEDS(ibv_destroy_qp(other));
    bench_close(&bench);
}

/* A window that does not lie in its region: refused at once, or by an error completion. */
static void binds_beyond(const struct bench *bench, struct ibv_mw *mw)
{
    const uint64_t ranges[][2] = {{(uintptr_t)bench->memory, UINT64_MAX}, {UINT64_MAX - 3, 8}, {0, 1},
                                  {(uintptr_t)bench->memory, 2 * BUFFER_BYTES + 1}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        struct pair pair = connected(bench, IBV_QPT_RC);
        struct ibv_mw_bind bind = {.wr_id = 3,
                                   .bind_info = {.mr = bench->mr,
                                                 .addr = ranges[i][0],
                                                 .length = ranges[i][1],
                                                 .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
        if (ibv_bind_mw(pair.qp[0], mw, &bind) == 0) {
            struct ibv_wc wc = next_completion(bench->cq);
            CHECK(wc.wr_id == 3 && (wc.status == IBV_WC_MW_BIND_ERR || wc.status == IBV_WC_LOC_QP_OP_ERR ||
                                    wc.status == IBV_WC_LOC_PROT_ERR));
        }
        pair_destroy(&pair);
    }
}

void walk_windows(void)
{
    struct bench bench;
    bench_open(&bench);
    struct pair pair = connected(&bench, IBV_QPT_RC);
    struct ibv_mw *one = ibv_alloc_mw(bench.pd, IBV_MW_TYPE_1), *two = ibv_alloc_mw(bench.pd, IBV_MW_TYPE_2);
    CHECK(one && two && one->type == IBV_MW_TYPE_1 && two->pd == bench.pd);
    REFUSES(EINVAL, ibv_alloc_mw(bench.pd, (enum ibv_mw_type)0));
    REFUSES(EINVAL, ibv_alloc_mw(bench.pd, (enum ibv_mw_type)-1));
    REFUSES(EINVAL, bench.context->ops.alloc_mw(NULL, IBV_MW_TYPE_1));

    struct ibv_mw_bind right = {.wr_id = 1,
                                .send_flags = IBV_SEND_SIGNALED,
                                .bind_info = {.mr = bench.mr,
                                              .addr = (uintptr_t)half_of(&bench, TARGET),
                                              .length = 128,
                                              .mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ}},
                       bind = right;
    SUCCEEDS(ibv_bind_mw(pair.qp[1], one, &bind));
    expect(bench.cq, 1, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
    struct ibv_sge sge = entry(&bench, SOURCE, 128);
    struct ibv_send_wr write = {.wr_id = 2,
                                .sg_list = &sge,
                                .num_sge = 1,
                                .opcode = IBV_WR_RDMA_WRITE,
                                .send_flags = IBV_SEND_SIGNALED,
                                .wr.rdma = {.remote_addr = (uintptr_t)half_of(&bench, TARGET), .rkey = one->rkey}},
                       *bad;
    fill(&bench, 4);
    SUCCEEDS(ibv_post_send(pair.qp[0], &write, &bad));
    expect(bench.cq, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    expect_same(&bench, 128);
    RETURNS(EBUSY, ibv_dereg_mr(bench.mr));

    RETURNS(EINVAL, ibv_bind_mw(pair.qp[1], two, &bind));
    RETURNS(EINVAL, bench.context->ops.bind_mw(NULL, one, &bind));
    RETURNS(EINVAL, bench.context->ops.bind_mw(pair.qp[1], NULL, &bind));
    RETURNS(EINVAL, bench.context->ops.bind_mw(pair.qp[1], one, NULL));
    bind.bind_info.mw_access_flags = 1 << 17;
    CHECK(ibv_bind_mw(pair.qp[1], one, &bind) != 0);
    /* Unbound: by a length of zero, or when it goes. */
    bind = right;
    bind.bind_info.length = 0;
    SUCCEEDS(ibv_bind_mw(pair.qp[1], one, &bind));
    expect(bench.cq, 1, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
    write.wr.rdma.rkey = one->rkey;
    SUCCEEDS(ibv_post_send(pair.qp[0], &write, &bad));
    expect(bench.cq, 2, IBV_WC_REM_ACCESS_ERR, 0);
    pair_destroy(&pair);
    binds_beyond(&bench, one);
    RETURNS(EINVAL, bench.context->ops.dealloc_mw(NULL));
    SUCCEEDS(ibv_dealloc_mw(two));
    SUCCEEDS(ibv_dealloc_mw(one));
    bench_close(&bench);
}
