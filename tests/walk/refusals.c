/* What a device may not offer: it is refused as by a device without it. An object that nobody makes is made up. */
#include "walk.h"

#include <unistd.h>

static bool is_refusal(int result)
{
    return result == EOPNOTSUPP || result == EINVAL;
}

static void flows(const struct bench *bench)
{
    struct ibv_qp *qp = new_qp(bench, IBV_QPT_UD, NULL);
    struct ibv_flow_attr attr = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof attr, .port = 1};
    CHECK(ibv_create_flow(qp, &attr) == NULL && is_refusal(errno));
    struct ibv_flow flow = {.context = bench->context};
    CHECK(is_refusal(ibv_destroy_flow(&flow)));
    struct ibv_flow_action_esp_attr esp = {0};
    CHECK(ibv_create_flow_action_esp(bench->context, &esp) == NULL && is_refusal(errno));
    struct ibv_flow_action action = {.context = bench->context};
    CHECK(is_refusal(ibv_modify_flow_action_esp(&action, &esp)));
    CHECK(is_refusal(ibv_destroy_flow_action(&action)));
    SUCCEEDS(ibv_destroy_qp(qp));
}

static void work_queues(const struct bench *bench)
{
    struct ibv_wq_init_attr attr = {
        .wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = bench->pd, .cq = bench->cq};
    CHECK(ibv_create_wq(bench->context, &attr) == NULL && is_refusal(errno));
    struct ibv_wq queue = {.context = bench->context};
    struct ibv_wq_attr change = {.attr_mask = IBV_WQ_ATTR_STATE};
    CHECK(is_refusal(ibv_modify_wq(&queue, &change)));
    CHECK(is_refusal(ibv_destroy_wq(&queue)));
    /* A work queue of nobody's has no function to post by. */
    struct ibv_recv_wr receive = {0}, *bad;
    if (queue.post_recv)
        CHECK(ibv_post_wq_recv(&queue, &receive, &bad) != 0);
    struct ibv_wq *list[1] = {&queue};
    struct ibv_rwq_ind_table_init_attr table_attr = {.log_ind_tbl_size = 0, .ind_tbl = list};
    CHECK(ibv_create_rwq_ind_table(bench->context, &table_attr) == NULL && is_refusal(errno));
    struct ibv_rwq_ind_table table = {.context = bench->context};
    CHECK(is_refusal(ibv_destroy_rwq_ind_table(&table)));
}

static void tags(const struct bench *bench)
{
    struct ibv_srq_init_attr_ex init = {.attr = {.max_wr = 4, .max_sge = 1},
                                        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                                     IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
                                        .srq_type = IBV_SRQT_TM,
                                        .pd = bench->pd,
                                        .cq = bench->cq,
                                        .tm_cap = {.max_num_tags = 4, .max_ops = 4}};
    CHECK(ibv_create_srq_ex(bench->context, &init) == NULL && is_refusal(errno));
    struct ibv_srq_init_attr plain = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(bench->pd, &plain);
    struct ibv_ops_wr op = {.opcode = IBV_WR_TAG_ADD}, *bad = NULL;
    CHECK(srq && ibv_post_srq_ops(srq, &op, &bad) != 0 && bad == &op);
    SUCCEEDS(ibv_destroy_srq(srq));
}

/* Counters may be there, with nothing that could be counted. */
static void counters(const struct bench *bench)
{
    struct ibv_counters_init_attr init = {0};
    struct ibv_counters made_up = {.context = bench->context};
    struct ibv_counters *counters = ibv_create_counters(bench->context, &init);
    CHECK(counters || is_refusal(errno));
    struct ibv_counters *which = counters ? counters : &made_up;
    struct ibv_flow flow = {.context = bench->context};
    struct ibv_counter_attach_attr attach = {.counter_desc = IBV_COUNTER_PACKETS};
    uint64_t values[2];
    CHECK(ibv_attach_counters_point_flow(which, &attach, &flow) != 0);
    int read = ibv_read_counters(which, values, 2, 0);
    CHECK(read == 0 || is_refusal(read));
    CHECK(ibv_read_counters(which, NULL, UINT32_MAX, ~0u) != 0);
    int gone = ibv_destroy_counters(which);
    CHECK(counters ? gone == 0 : is_refusal(gone));
    init.comp_mask = ~0u;
    CHECK(ibv_create_counters(bench->context, &init) == NULL);
}

/* A device may let objects be found by their numbers, which they then outlive. */
static void imports(const struct bench *bench)
{
    struct ibv_pd *found = ibv_import_pd(bench->context, bench->pd->handle);
    CHECK(found || errno == EOPNOTSUPP);
    if (found) {
        struct ibv_mr *mr = ibv_import_mr(bench->pd, bench->mr->handle);
        CHECK(mr && mr->rkey == bench->mr->rkey);
        RETURNS(EBUSY, ibv_dereg_mr(bench->mr));
        ibv_unimport_mr(mr);
        ibv_unimport_pd(found);
        struct ibv_alloc_dm_attr attr = {.length = 64};
        struct ibv_dm *dm = ibv_alloc_dm(bench->context, &attr);
        CHECK(dm);
        struct ibv_dm *again = ibv_import_dm(bench->context, dm->handle);
        CHECK(again);
        RETURNS(EBUSY, ibv_free_dm(dm));
        ibv_unimport_dm(again);
        SUCCEEDS(ibv_free_dm(dm));
    }
    struct ibv_context *context = ibv_import_device(dup(bench->context->cmd_fd));
    CHECK(context || errno == EOPNOTSUPP);
    if (context)
        SUCCEEDS(ibv_close_device(context));
    CHECK(ibv_import_device(-1) == NULL && errno != 0);
    CHECK(ibv_import_device(0) == NULL);
    struct ibv_pd *pd = ibv_import_pd(bench->context, UINT32_MAX);
    CHECK(pd == NULL);
    CHECK(ibv_import_mr(bench->pd, UINT32_MAX) == NULL);
    CHECK(ibv_import_dm(bench->context, UINT32_MAX) == NULL);
    ibv_unimport_pd(NULL);
    ibv_unimport_mr(NULL);
    ibv_unimport_dm(NULL);
    CHECK(ibv_reg_dmabuf_mr(bench->pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE) == NULL);
    CHECK(ibv_reg_dmabuf_mr(NULL, UINT64_MAX, SIZE_MAX, UINT64_MAX, 0, -1) == NULL);
}

static void raw_packets(const struct bench *bench)
{
    struct ibv_qp_init_attr init = {.send_cq = bench->cq,
                                    .recv_cq = bench->cq,
                                    .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
                                    .qp_type = IBV_QPT_RAW_PACKET};
    CHECK(ibv_create_qp(bench->pd, &init) == NULL && (is_refusal(errno) || errno == EPERM));
}

void walk_refusals(void)
{
    struct bench bench;
    bench_open(&bench);
    flows(&bench);
    work_queues(&bench);
    tags(&bench);
    counters(&bench);
    imports(&bench);
    raw_packets(&bench);
    bench_close(&bench);
}
