/* What the stretches of the walk share. */
#include "walk.h"

#include <sched.h>
#include <time.h>

struct ibv_context *open_first(void)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count > 0 && list[count] == NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context && context->device == list[0]);
    ibv_free_device_list(list);
    return context;
}

void bench_open(struct bench *bench)
{
    bench->context = open_first();
    bench->pd = ibv_alloc_pd(bench->context);
    CHECK(bench->pd && bench->pd->context == bench->context);
    bench->cq = ibv_create_cq(bench->context, 4 * QUEUE, NULL, NULL, 0);
    CHECK(bench->cq);
    bench->memory = calloc(2, BUFFER_BYTES);
    CHECK(bench->memory);
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
    bench->mr = ibv_reg_mr(bench->pd, bench->memory, 2 * BUFFER_BYTES, access);
    CHECK(bench->mr);
    CHECK(ibv_query_gid(bench->context, 1, 0, &bench->gid) == 0);
}

void bench_close(struct bench *bench)
{
    struct ibv_wc wc;
    RETURNS(0, ibv_poll_cq(bench->cq, 1, &wc));
    SUCCEEDS(ibv_dereg_mr(bench->mr));
    free(bench->memory);
    SUCCEEDS(ibv_destroy_cq(bench->cq));
    SUCCEEDS(ibv_dealloc_pd(bench->pd));
    SUCCEEDS(ibv_close_device(bench->context));
}

char *half_of(const struct bench *bench, enum half half)
{
    return bench->memory + (half == TARGET ? BUFFER_BYTES : 0);
}

struct ibv_sge entry(const struct bench *bench, enum half half, uint32_t length)
{
    return (struct ibv_sge){.addr = (uintptr_t)half_of(bench, half), .length = length, .lkey = bench->mr->lkey};
}

static const struct ibv_qp_cap CAP = {.max_send_wr = QUEUE,
                                      .max_recv_wr = QUEUE,
                                      .max_send_sge = SGES,
                                      .max_recv_sge = SGES,
                                      .max_inline_data = INLINE_BYTES};

struct ibv_qp *new_qp(const struct bench *bench, enum ibv_qp_type type, struct ibv_srq *srq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = bench->cq, .recv_cq = bench->cq, .srq = srq, .cap = CAP, .qp_type = type, .qp_context = srq};
    struct ibv_qp *qp = ibv_create_qp(bench->pd, &init);
    CHECK(qp && qp->context == bench->context && qp->pd == bench->pd && qp->srq == srq && qp->qp_type == type);
    CHECK(qp->qp_context == srq && qp->state == IBV_QPS_RESET && init.cap.max_send_wr >= QUEUE);
    CHECK(init.cap.max_inline_data >= INLINE_BYTES);
    return qp;
}

struct ibv_qp *new_builder_qp(const struct bench *bench, enum ibv_qp_type type, uint64_t operations)
{
    struct ibv_qp_init_attr_ex init = {.send_cq = bench->cq,
                                       .recv_cq = bench->cq,
                                       .cap = CAP,
                                       .qp_type = type,
                                       .pd = bench->pd,
                                       .send_ops_flags = operations,
                                       .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS};
    struct ibv_qp *qp = ibv_create_qp_ex(bench->context, &init);
    CHECK(qp && ibv_qp_to_qp_ex(qp));
    return qp;
}

static bool is_datagram(const struct ibv_qp *qp)
{
    return qp->qp_type == IBV_QPT_UD;
}

static bool is_reliable(const struct ibv_qp *qp)
{
    return qp->qp_type != IBV_QPT_UD && qp->qp_type != IBV_QPT_UC;
}

void to_init(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qkey = QKEY,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    if (is_reliable(qp))
        attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    SUCCEEDS(ibv_modify_qp(qp, &attr, mask | (is_datagram(qp) ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
    CHECK(qp->state == IBV_QPS_INIT);
}

void to_rts(const struct bench *bench, struct ibv_qp *qp, uint32_t peer)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
                               .path_mtu = IBV_MTU_1024,
                               .dest_qp_num = peer,
                               .rq_psn = 0xfffffe,
                               .max_dest_rd_atomic = 4,
                               .min_rnr_timer = 1,
                               .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = bench->gid, .hop_limit = 1}}};
    int mask = IBV_QP_STATE;
    if (!is_datagram(qp))
        mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (is_reliable(qp))
        mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    SUCCEEDS(ibv_modify_qp(qp, &attr, mask));
    CHECK(qp->state == IBV_QPS_RTR);
    struct ibv_qp_attr ready = {.qp_state = IBV_QPS_RTS,
                                .sq_psn = 0xfffffe,
                                .timeout = 14,
                                .retry_cnt = 7,
                                .rnr_retry = 7,
                                .max_rd_atomic = 4};
    mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (is_reliable(qp))
        mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    SUCCEEDS(ibv_modify_qp(qp, &ready, mask));
    CHECK(qp->state == IBV_QPS_RTS);
}

void connect_pair(const struct bench *bench, struct pair *pair)
{
    for (int i = 0; i < 2; i++)
        to_init(pair->qp[i]);
    for (int i = 0; i < 2; i++)
        to_rts(bench, pair->qp[i], pair->qp[!i]->qp_num);
}

struct pair connected(const struct bench *bench, enum ibv_qp_type type)
{
    struct pair pair = {{new_qp(bench, type, NULL), new_qp(bench, type, NULL)}};
    connect_pair(bench, &pair);
    return pair;
}

void pair_destroy(struct pair *pair)
{
    for (int i = 0; i < 2; i++)
        SUCCEEDS(ibv_destroy_qp(pair->qp[i]));
}

struct ibv_ah *way_to_self(const struct bench *bench)
{
    struct ibv_ah_attr way = {.is_global = 1, .port_num = 1, .grh = {.dgid = bench->gid, .hop_limit = 1}};
    struct ibv_ah *ah = ibv_create_ah(bench->pd, &way);
    CHECK(ah && ah->pd == bench->pd && ah->context == bench->context);
    return ah;
}

void post_receive(const struct bench *bench, struct ibv_qp *qp, uint64_t wr_id)
{
    struct ibv_sge sge = entry(bench, TARGET, BUFFER_BYTES);
    struct ibv_recv_wr request = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
    SUCCEEDS(ibv_post_recv(qp, &request, &bad));
}

/* Under valgrind one thread runs at a time: give way, and be patient. */
struct ibv_wc next_completion(struct ibv_cq *cq)
{
    time_t until = time(NULL) + 20;
    struct ibv_wc wc;
    int count;
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) {
        CHECK(time(NULL) < until && "a completion comes");
        sched_yield();
    }
    RETURNS(1, count);
    return wc;
}

struct ibv_wc expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status, enum ibv_wc_opcode opcode)
{
    struct ibv_wc wc = next_completion(cq);
    if (wc.wr_id != wr_id || wc.status != status || (status == IBV_WC_SUCCESS && wc.opcode != opcode)) {
        fprintf(stderr, "request %llu, %s, opcode %d, not request %llu, %s, opcode %d\n", (unsigned long long)wc.wr_id,
                ibv_wc_status_str(wc.status), wc.opcode, (unsigned long long)wr_id, ibv_wc_status_str(status), opcode);
        CHECK(!"the expected completion");
    }
    return wc;
}

void fill(const struct bench *bench, char seed)
{
    for (int i = 0; i < BUFFER_BYTES; i++) {
        bench->memory[i] = (char)(seed + i * 7);
        bench->memory[BUFFER_BYTES + i] = 0;
    }
}

void expect_same(const struct bench *bench, uint32_t length)
{
    CHECK(memcmp(half_of(bench, SOURCE), half_of(bench, TARGET), length) == 0);
    CHECK(length == BUFFER_BYTES || half_of(bench, TARGET)[length] == 0);
}
