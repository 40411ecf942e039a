/* Queue pairs: how they are made, changed and looked at. */
#include "walk.h"

static void wrong_creation(const struct bench *bench)
{
    const struct ibv_qp_init_attr right = {.send_cq = bench->cq,
                                           .recv_cq = bench->cq,
                                           .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
                                           .qp_type = IBV_QPT_RC};
    struct ibv_qp_init_attr init = right;
    REFUSES(EINVAL, ibv_create_qp(NULL, &init));
    REFUSES(EINVAL, ibv_create_qp(bench->pd, NULL));
    init.send_cq = NULL;
    REFUSES(EINVAL, ibv_create_qp(bench->pd, &init));
    init = right;
    init.recv_cq = NULL;
    REFUSES(EINVAL, ibv_create_qp(bench->pd, &init));
    for (int type = -1; type < 20; type++) {
        init = right;
        init.qp_type = (enum ibv_qp_type)type;
        struct ibv_qp *qp = ibv_create_qp(bench->pd, &init);
        CHECK(qp || errno == EINVAL || errno == EOPNOTSUPP || errno == EPERM);
        CHECK(qp == NULL || type == IBV_QPT_RC || type == IBV_QPT_UC || type == IBV_QPT_UD ||
              type == IBV_QPT_XRC_SEND);
        if (qp)
            SUCCEEDS(ibv_destroy_qp(qp));
    }
    uint32_t *const sizes[] = {&init.cap.max_send_wr, &init.cap.max_recv_wr, &init.cap.max_send_sge,
                               &init.cap.max_recv_sge, &init.cap.max_inline_data};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        init = right;
        *sizes[i] = UINT32_MAX;
        CHECK(ibv_create_qp(bench->pd, &init) == NULL && (errno == EINVAL || errno == ENOMEM));
        *sizes[i] = INT32_MAX;
        CHECK(ibv_create_qp(bench->pd, &init) == NULL && (errno == EINVAL || errno == ENOMEM));
    }
}

static void wrong_extended_creation(const struct bench *bench)
{
    const struct ibv_qp_init_attr_ex right = {
        .send_cq = bench->cq,
        .recv_cq = bench->cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .pd = bench->pd,
        .comp_mask = IBV_QP_INIT_ATTR_PD};
    struct ibv_qp_init_attr_ex init = right;
    struct ibv_qp *plain = ibv_create_qp_ex(bench->context, &init);
    CHECK(plain && ibv_qp_to_qp_ex(plain) == NULL && ibv_qp_to_qp_ex(NULL) == NULL);
    SUCCEEDS(ibv_destroy_qp(plain));
    init.comp_mask = 0;
    CHECK(ibv_create_qp_ex(bench->context, &init) == NULL);
    /* Every further attribute, and some that nobody knows. */
    for (int bit = 1; bit < 32; bit++) {
        init = right;
        init.comp_mask |= 1u << bit;
        init.create_flags = 1u << 31;
        init.send_ops_flags = 1ull << 63;
        init.max_tso_header = 64;
        struct ibv_qp *qp = ibv_create_qp_ex(bench->context, &init);
        CHECK(qp == NULL);
    }
    for (int bit = 0; bit < 64; bit++) {
        init = right;
        init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = 1ull << bit;
        struct ibv_qp *qp = ibv_create_qp_ex(bench->context, &init);
        CHECK(qp || errno == EOPNOTSUPP || errno == EINVAL);
        CHECK(qp == NULL || ibv_qp_to_qp_ex(qp) == (struct ibv_qp_ex *)qp);
        if (qp)
            SUCCEEDS(ibv_destroy_qp(qp));
    }
    REFUSES(EINVAL, verbs_get_ctx(bench->context)->create_qp_ex(bench->context, NULL));
}

void walk_queue_pairs(void)
{
    struct bench bench;
    bench_open(&bench);
    wrong_creation(&bench);
    wrong_extended_creation(&bench);

    struct ibv_qp *qp = new_qp(&bench, IBV_QPT_RC, NULL);
    RETURNS(EBUSY, ibv_destroy_cq(bench.cq));
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    SUCCEEDS(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init));
    CHECK(attr.qp_state == IBV_QPS_RESET && attr.cap.max_send_wr >= QUEUE && init.send_cq == bench.cq);
    (void)ibv_query_qp(qp, &attr, -1, &init);
    SUCCEEDS(ibv_query_qp(qp, &attr, 0, &init));
    RETURNS(EINVAL, ibv_query_qp(NULL, &attr, IBV_QP_STATE, &init));
    RETURNS(EINVAL, ibv_query_qp(qp, NULL, IBV_QP_STATE, &init));
    RETURNS(EINVAL, ibv_query_qp(qp, &attr, IBV_QP_STATE, NULL));

    /* Whether data lands in order; for each operation and for numbers that are none. */
    for (int opcode = -1; opcode < 40; opcode++)
        CHECK(ibv_query_qp_data_in_order(qp, (enum ibv_wr_opcode)opcode, 0) >= 0);
    (void)ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, ~0u);
    CHECK(ibv_query_qp_data_in_order(NULL, IBV_WR_SEND, 0) <= 0);

    /* Without enhanced connection establishment a device knows no options at all. */
    struct ibv_ece ece = {0};
    int known = ibv_query_ece(qp, &ece);
    CHECK(known == 0 || known == EOPNOTSUPP);
    ece = (struct ibv_ece){0};
    RETURNS(known, ibv_set_ece(qp, &ece));
    ece.vendor_id = 0x1234;
    CHECK(ibv_set_ece(qp, &ece) != 0);
    ece = (struct ibv_ece){.comp_mask = ~0u};
    CHECK(ibv_set_ece(qp, &ece) != 0 && ibv_set_ece(qp, NULL) != 0 && ibv_query_ece(qp, NULL) != 0);
    CHECK(ibv_set_ece(NULL, &ece) != 0 && ibv_query_ece(NULL, &ece) != 0);

    struct ibv_qp_rate_limit_attr limit = {.rate_limit = 1000};
    int limited = ibv_modify_qp_rate_limit(qp, &limit);
    CHECK(limited == 0 || limited == EOPNOTSUPP || limited == EINVAL);
    SUCCEEDS(ibv_destroy_qp(qp));
    RETURNS(EINVAL, ibv_destroy_qp(NULL));
    bench_close(&bench);
}

/* Every single attribute and every state, sensible or not, in each state. */
static void hammer(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    for (int fill_with = 0; fill_with < 2; fill_with++) {
        for (int bit = 1; bit < 32; bit++) {
            memset(&attr, fill_with ? 0xff : 0, sizeof attr);
            int result = ibv_modify_qp(qp, &attr, (int)(1u << bit));
            CHECK(result == 0 || result == EINVAL || result == EOPNOTSUPP || result == ENOMEM || result == EPERM);
        }
        /* The states that lead nowhere, and those beyond the last. */
        static const int NO_STATES[] = {-1, 5, 7, 8, 100, INT32_MAX, INT32_MIN};
        for (size_t i = 0; i < sizeof NO_STATES / sizeof *NO_STATES; i++) {
            memset(&attr, fill_with ? 0xff : 0, sizeof attr);
            attr.qp_state = (enum ibv_qp_state)NO_STATES[i];
            RETURNS(EINVAL, ibv_modify_qp(qp, &attr, IBV_QP_STATE));
        }
    }
    memset(&attr, 0, sizeof attr);
    RETURNS(EINVAL, ibv_modify_qp(qp, NULL, IBV_QP_STATE));
    RETURNS(EINVAL, ibv_modify_qp(NULL, &attr, IBV_QP_STATE));
    CHECK(ibv_modify_qp(qp, &attr, -1) != 0);
}

static void wrong_ways(const struct bench *bench, struct ibv_qp *qp)
{
    /* An address of nobody, a path MTU that is none, numbers beyond 24 bits. */
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = IBV_MTU_1024,
                               .dest_qp_num = qp->qp_num,
                               .max_dest_rd_atomic = 1,
                               .min_rnr_timer = 1,
                               .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = bench->gid}}};
    const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    struct ibv_qp_attr wrong = attr;
    wrong.path_mtu = (enum ibv_mtu)77;
    RETURNS(EINVAL, ibv_modify_qp(qp, &wrong, mask));
    wrong = attr;
    wrong.ah_attr.port_num = 77;
    RETURNS(EINVAL, ibv_modify_qp(qp, &wrong, mask));
    wrong = attr;
    wrong.ah_attr.is_global = 0;
    RETURNS(EINVAL, ibv_modify_qp(qp, &wrong, mask));
    wrong = attr;
    wrong.ah_attr.grh.sgid_index = 255;
    RETURNS(EINVAL, ibv_modify_qp(qp, &wrong, mask));
    wrong = attr;
    memset(&wrong.ah_attr.grh.dgid, 0, sizeof wrong.ah_attr.grh.dgid);
    CHECK(ibv_modify_qp(qp, &wrong, mask) != 0);
    wrong = attr;
    wrong.max_dest_rd_atomic = 255;
    RETURNS(EINVAL, ibv_modify_qp(qp, &wrong, mask));
    RETURNS(EINVAL, ibv_modify_qp(qp, &attr, mask & ~IBV_QP_AV));
    RETURNS(EINVAL, ibv_modify_qp(qp, &attr, mask | IBV_QP_QKEY));
}

void walk_states(void)
{
    struct bench bench;
    bench_open(&bench);
    static const enum ibv_qp_type TYPES[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        struct ibv_qp *qp = new_qp(&bench, TYPES[i], NULL);
        hammer(qp);
        to_init(qp);
        to_init(qp);
        hammer(qp);
        if (TYPES[i] == IBV_QPT_RC)
            wrong_ways(&bench, qp);
        to_rts(&bench, qp, qp->qp_num);
        hammer(qp);
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD};
        CHECK(TYPES[i] == IBV_QPT_UC || ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
        hammer(qp);
        attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_ERR};
        SUCCEEDS(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
        SUCCEEDS(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
        hammer(qp);
        attr.qp_state = IBV_QPS_RTS;
        RETURNS(EINVAL, ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
        attr.qp_state = IBV_QPS_RESET;
        SUCCEEDS(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
        SUCCEEDS(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
        SUCCEEDS(ibv_destroy_qp(qp));
    }
    bench_close(&bench);
}
