/* A program written for InfiniBand, which addresses its peer by LID and never fills in a GID. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>

#include "check.h"

enum { INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT };
enum { RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN };
enum { RTR_RELIABLE = RTR | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER };

static void connected(struct ibv_pd *pd, struct ibv_cq *cq, enum ibv_qp_type type, int ready_mask)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {.max_send_wr = 1, .max_recv_wr = 1}, .qp_type = type};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    CHECK(ibv_modify_qp(qp, &attr, INIT | IBV_QP_ACCESS_FLAGS) == 0);
    struct ibv_port_attr port;
    CHECK(ibv_query_port(pd->context, 1, &port) == 0);
    CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET && port.lid == 0);
    struct ibv_qp_attr ready = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = qp->qp_num,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.dlid = port.lid, .port_num = 1},
    };
    CHECK(ibv_modify_qp(qp, &ready, ready_mask) == EINVAL && errno == EINVAL);

    /* The queue pair is as it was: with a GID it gets ready. */
    CHECK(qp->state == IBV_QPS_INIT);
    CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_INIT);
    ready.ah_attr.is_global = 1;
    ready.ah_attr.grh.hop_limit = 1;
    CHECK(ibv_query_gid(pd->context, 1, 0, &ready.ah_attr.grh.dgid) == 0);
    CHECK(ibv_modify_qp(qp, &ready, ready_mask) == 0 && qp->state == IBV_QPS_RTR);
    CHECK(ibv_destroy_qp(qp) == 0);
}

int main(void)
{
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    CHECK(pd && cq);
    connected(pd, cq, IBV_QPT_RC, RTR_RELIABLE);
    connected(pd, cq, IBV_QPT_UC, RTR);
    struct ibv_ah_attr path = {.dlid = 1, .port_num = 1};
    CHECK(ibv_create_ah(pd, &path) == NULL && errno == EINVAL);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    puts("refused");
    return 0;
}
