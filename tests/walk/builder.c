/* The request builder of `ibv_qp_ex`: every operation, every way to name data, and what is wrong with a request. */
#include "walk.h"

enum {
    PUSHES = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
             IBV_QP_EX_WITH_SEND_WITH_IMM,
    EVERYTHING = PUSHES | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
                 IBV_QP_EX_WITH_SEND_WITH_INV,
};

static void begin(struct ibv_qp_ex *qp, uint64_t wr_id)
{
    ibv_wr_start(qp);
    qp->wr_id = wr_id;
    qp->wr_flags = IBV_SEND_SIGNALED;
}

static void set_source(const struct bench *bench, struct ibv_qp_ex *qp, uint32_t length)
{
    ibv_wr_set_sge(qp, bench->mr->lkey, (uintptr_t)half_of(bench, SOURCE), length);
}

/* The completions of a request and of its receive, in either order. */
static void both(const struct bench *bench, uint64_t sent, uint64_t received)
{
    for (int i = 0; i < 2; i++) {
        struct ibv_wc wc = next_completion(bench->cq);
        CHECK(wc.status == IBV_WC_SUCCESS && (wc.wr_id == sent || wc.wr_id == received));
    }
}

static void sends(const struct bench *bench, struct pair *pair)
{
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(pair->qp[0]);
    fill(bench, 1);
    post_receive(bench, pair->qp[1], 2);
    begin(ex, 1);
    ibv_wr_send(ex);
    set_source(bench, ex, 3000);
    SUCCEEDS(ibv_wr_complete(ex));
    both(bench, 1, 2);
    expect_same(bench, 3000);

    fill(bench, 2);
    post_receive(bench, pair->qp[1], 4);
    begin(ex, 3);
    ibv_wr_send_imm(ex, 7);
    struct ibv_sge parts[SGES] = {entry(bench, SOURCE, 10), entry(bench, SOURCE, 20)};
    parts[1].addr += 10;
    ibv_wr_set_sge_list(ex, SGES, parts);
    SUCCEEDS(ibv_wr_complete(ex));
    both(bench, 3, 4);
    expect_same(bench, 30);
}

static void writes(const struct bench *bench, struct pair *pair)
{
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(pair->qp[0]);
    uint64_t target = (uintptr_t)half_of(bench, TARGET);
    fill(bench, 5);
    begin(ex, 5);
    ibv_wr_rdma_write(ex, bench->mr->rkey, target);
    ibv_wr_set_inline_data(ex, half_of(bench, SOURCE), INLINE_BYTES);
    SUCCEEDS(ibv_wr_complete(ex));
    expect(bench->cq, 5, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    expect_same(bench, INLINE_BYTES);

    fill(bench, 6);
    post_receive(bench, pair->qp[1], 7);
    begin(ex, 6);
    ibv_wr_rdma_write_imm(ex, bench->mr->rkey, target, 8);
    struct ibv_data_buf parts[3] = {{half_of(bench, SOURCE), 10}, {NULL, 0}, {half_of(bench, SOURCE) + 10, 5}};
    ibv_wr_set_inline_data_list(ex, 3, parts);
    SUCCEEDS(ibv_wr_complete(ex));
    both(bench, 6, 7);
    expect_same(bench, 15);

    /* Several requests of one list; what was begun and aborted is never sent. */
    begin(ex, 99);
    ibv_wr_rdma_write(ex, 0, 0);
    ibv_wr_abort(ex);
    fill(bench, 7);
    begin(ex, 10);
    for (int i = 0; i < 40; i++) {
        ex->wr_id = 10 + i;
        ibv_wr_rdma_write(ex, bench->mr->rkey, target + 100 * i);
        ibv_wr_set_sge(ex, bench->mr->lkey, (uintptr_t)half_of(bench, SOURCE) + 100 * i, 100);
    }
    SUCCEEDS(ibv_wr_complete(ex));
    for (int i = 0; i < 40; i++)
        expect(bench->cq, 10 + i, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    expect_same(bench, 4000);
    ibv_wr_start(ex);
    SUCCEEDS(ibv_wr_complete(ex));
}

static void reads_and_atomics(const struct bench *bench, struct pair *pair)
{
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(pair->qp[0]);
    uint64_t *counter = (uint64_t *)half_of(bench, TARGET), *before = (uint64_t *)half_of(bench, SOURCE);
    *counter = 11;
    begin(ex, 1);
    ibv_wr_rdma_read(ex, bench->mr->rkey, (uintptr_t)counter);
    set_source(bench, ex, 8);
    SUCCEEDS(ibv_wr_complete(ex));
    expect(bench->cq, 1, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    CHECK(*before == 11);
    begin(ex, 2);
    ibv_wr_atomic_fetch_add(ex, bench->mr->rkey, (uintptr_t)counter, 4);
    set_source(bench, ex, 8);
    SUCCEEDS(ibv_wr_complete(ex));
    expect(bench->cq, 2, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD);
    CHECK(*before == 11 && *counter == 15);
    begin(ex, 3);
    ibv_wr_atomic_cmp_swp(ex, bench->mr->rkey, (uintptr_t)counter, 15, 1);
    set_source(bench, ex, 8);
    SUCCEEDS(ibv_wr_complete(ex));
    expect(bench->cq, 3, IBV_WC_SUCCESS, IBV_WC_COMP_SWAP);
    CHECK(*before == 15 && *counter == 1);
}

static void invalidations(const struct bench *bench, struct pair *pair)
{
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(pair->qp[0]);
    struct ibv_mw *mw = ibv_alloc_mw(bench->pd, IBV_MW_TYPE_2);
    CHECK(mw);
    struct ibv_mw_bind_info info = {.mr = bench->mr,
                                    .addr = (uintptr_t)bench->memory,
                                    .length = 64,
                                    .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
    uint32_t rkey = ibv_inc_rkey(mw->rkey);
    begin(ex, 1);
    ibv_wr_bind_mw(ex, mw, rkey, &info);
    SUCCEEDS(ibv_wr_complete(ex));
    expect(bench->cq, 1, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
    begin(ex, 2);
    ibv_wr_local_inv(ex, rkey);
    SUCCEEDS(ibv_wr_complete(ex));
    expect(bench->cq, 2, IBV_WC_SUCCESS, IBV_WC_LOCAL_INV);

    /* Bound at the peer, and invalidated from here. */
    rkey = ibv_inc_rkey(rkey);
    struct ibv_qp_ex *peer = ibv_qp_to_qp_ex(pair->qp[1]);
    begin(peer, 3);
    ibv_wr_bind_mw(peer, mw, rkey, &info);
    SUCCEEDS(ibv_wr_complete(peer));
    expect(bench->cq, 3, IBV_WC_SUCCESS, IBV_WC_BIND_MW);
    post_receive(bench, pair->qp[1], 5);
    begin(ex, 4);
    ibv_wr_send_inv(ex, rkey);
    set_source(bench, ex, 1);
    SUCCEEDS(ibv_wr_complete(ex));
    both(bench, 4, 5);
    begin(ex, 6);
    ibv_wr_bind_mw(ex, NULL, 0, NULL);
    CHECK(ibv_wr_complete(ex) != 0);
    begin(ex, 6);
    ibv_wr_bind_mw(ex, NULL, 0, &info);
    CHECK(ibv_wr_complete(ex) != 0);
    info.mr = NULL;
    begin(ex, 6);
    ibv_wr_bind_mw(ex, mw, rkey, &info);
    CHECK(ibv_wr_complete(ex) != 0);
    SUCCEEDS(ibv_dealloc_mw(mw));
}

static void datagrams(const struct bench *bench)
{
    struct ibv_qp *qp = new_builder_qp(bench, IBV_QPT_UD, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
    struct ibv_ah *ah = way_to_self(bench);
    to_init(qp);
    to_rts(bench, qp, 0);
    for (int with_imm = 0; with_imm < 2; with_imm++) {
        post_receive(bench, qp, 2);
        begin(ex, 1);
        with_imm ? ibv_wr_send_imm(ex, 5) : ibv_wr_send(ex);
        ibv_wr_set_ud_addr(ex, ah, qp->qp_num, QKEY);
        set_source(bench, ex, 1000);
        SUCCEEDS(ibv_wr_complete(ex));
        both(bench, 1, 2);
    }
    /* Without an address, with none, and one before there is a request. */
    begin(ex, 1);
    ibv_wr_send(ex);
    CHECK(ibv_wr_complete(ex) != 0);
    begin(ex, 1);
    ibv_wr_send(ex);
    ibv_wr_set_ud_addr(ex, NULL, qp->qp_num, QKEY);
    CHECK(ibv_wr_complete(ex) != 0);
    begin(ex, 1);
    ibv_wr_set_ud_addr(ex, ah, qp->qp_num, QKEY);
    CHECK(ibv_wr_complete(ex) != 0);
    SUCCEEDS(ibv_destroy_ah(ah));
    SUCCEEDS(ibv_destroy_qp(qp));
}

/* What a device may offer beyond: writes of 8 bytes at once, and requests cut into packets. */
static void optional(const struct bench *bench)
{
    struct ibv_qp_init_attr_ex init = {
        .send_cq = bench->cq,
        .recv_cq = bench->cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8},
        .qp_type = IBV_QPT_RC,
        .pd = bench->pd,
        .send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS};
    struct pair pair = {{ibv_create_qp_ex(bench->context, &init), NULL}};
    if (pair.qp[0]) {
        struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(pair.qp[0]);
        uint64_t word = 0x0123456789abcdef, *target = (uint64_t *)half_of(bench, TARGET);
        pair.qp[1] = new_qp(bench, IBV_QPT_RC, NULL);
        connect_pair(bench, &pair);
        begin(ex, 1);
        ibv_wr_atomic_write(ex, bench->mr->rkey, (uintptr_t)target, &word);
        SUCCEEDS(ibv_wr_complete(ex));
        CHECK(next_completion(bench->cq).status == IBV_WC_SUCCESS && *target == word);
        begin(ex, 2);
        ibv_wr_atomic_write(ex, bench->mr->rkey, (uintptr_t)target, NULL);
        CHECK(ibv_wr_complete(ex) != 0);
        pair_destroy(&pair);
    }
    init.qp_type = IBV_QPT_UD;
    init.send_ops_flags = IBV_QP_EX_WITH_TSO;
    struct ibv_qp *qp = ibv_create_qp_ex(bench->context, &init);
    if (qp) {
        struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
        begin(ex, 3);
        ibv_wr_send_tso(ex, bench->memory, 14, 100);
        ibv_wr_abort(ex);
        SUCCEEDS(ibv_destroy_qp(qp));
    }
}

void walk_builder(void)
{
    struct bench bench;
    bench_open(&bench);
    struct pair pair = {{new_builder_qp(&bench, IBV_QPT_RC, EVERYTHING), new_builder_qp(&bench, IBV_QPT_RC, EVERYTHING)}};
    connect_pair(&bench, &pair);
    sends(&bench, &pair);
    writes(&bench, &pair);
    reads_and_atomics(&bench, &pair);
    invalidations(&bench, &pair);
    pair_destroy(&pair);
    pair = (struct pair){{new_builder_qp(&bench, IBV_QPT_UC, PUSHES), new_builder_qp(&bench, IBV_QPT_UC, PUSHES)}};
    connect_pair(&bench, &pair);
    sends(&bench, &pair);
    pair_destroy(&pair);
    datagrams(&bench);
    optional(&bench);
    bench_close(&bench);
}

/* A way to spoil a request that has been begun. */
static void spoil(const struct bench *bench, struct ibv_qp_ex *ex, int how)
{
    struct ibv_sge parts[SGES + 1] = {entry(bench, SOURCE, 1), entry(bench, SOURCE, 1), entry(bench, SOURCE, 1)};
    struct ibv_data_buf buffers[2] = {{bench->memory, SIZE_MAX}, {bench->memory, SIZE_MAX}};
    switch (how) {
    case 0:
        ibv_wr_set_sge_list(ex, SGES + 1, parts);
        break;
    case 1:
        ibv_wr_set_sge_list(ex, SIZE_MAX, parts);
        break;
    case 2:
        ibv_wr_set_sge_list(ex, 1, NULL);
        break;
    case 3:
        ibv_wr_set_inline_data(ex, NULL, 8);
        break;
    case 4:
        ibv_wr_set_inline_data(ex, bench->memory, 2 * BUFFER_BYTES);
        break;
    case 5:
        ibv_wr_set_inline_data(ex, bench->memory, SIZE_MAX);
        break;
    case 6:
        ibv_wr_set_inline_data_list(ex, 2, NULL);
        break;
    case 7:
        ibv_wr_set_inline_data_list(ex, 2, buffers);
        break;
    case 8:
        ibv_wr_set_inline_data_list(ex, SIZE_MAX, buffers);
        break;
    case 9:
        buffers[0] = (struct ibv_data_buf){NULL, 8};
        ibv_wr_set_inline_data_list(ex, 1, buffers);
        break;
    case 10:
        buffers[0] = (struct ibv_data_buf){bench->memory, 2 * BUFFER_BYTES};
        ibv_wr_set_inline_data_list(ex, 1, buffers);
        break;
    case 11:
        ibv_wr_set_sge_list(ex, INT32_MAX, parts);
        break;
    default:
        ibv_wr_set_ud_addr(ex, NULL, 0, 0);
    }
}

void walk_wrong_building(void)
{
    enum { WAYS = 13 };
    struct bench bench;
    bench_open(&bench);
    struct pair pair = {{new_builder_qp(&bench, IBV_QPT_RC, EVERYTHING), new_qp(&bench, IBV_QPT_RC, NULL)}};
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(pair.qp[0]);
    begin(ex, 1);
    ibv_wr_rdma_write(ex, bench.mr->rkey, (uintptr_t)bench.memory);
    set_source(&bench, ex, 8);
    CHECK(ibv_wr_complete(ex) != 0 && "in RESET");
    connect_pair(&bench, &pair);
    for (int how = 0; how < WAYS; how++) {
        begin(ex, 1);
        ibv_wr_rdma_write(ex, bench.mr->rkey, (uintptr_t)half_of(&bench, TARGET));
        spoil(&bench, ex, how);
        CHECK(ibv_wr_complete(ex) != 0);
        /* Data without a request. */
        begin(ex, 1);
        spoil(&bench, ex, how);
        CHECK(ibv_wr_complete(ex) != 0);
        /* What is spoilt may be aborted. */
        begin(ex, 1);
        ibv_wr_send(ex);
        spoil(&bench, ex, how);
        ibv_wr_abort(ex);
    }
    begin(ex, 1);
    ibv_wr_set_xrc_srqn(ex, 1);
    CHECK(ibv_wr_complete(ex) != 0);
    /* More than the queue holds: nothing of it is sent. */
    begin(ex, 1);
    for (int i = 0; i < 10000; i++) {
        ibv_wr_rdma_write(ex, bench.mr->rkey, (uintptr_t)half_of(&bench, TARGET));
        set_source(&bench, ex, 8);
    }
    CHECK(ibv_wr_complete(ex) != 0);
    begin(ex, 2);
    ibv_wr_rdma_write(ex, bench.mr->rkey, (uintptr_t)half_of(&bench, TARGET));
    set_source(&bench, ex, 8);
    SUCCEEDS(ibv_wr_complete(ex));
    expect(bench.cq, 2, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    pair_destroy(&pair);
    bench_close(&bench);
}
