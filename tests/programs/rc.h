/* The steps of a queue pair of a reliable connection. */
#ifndef RC_H
#define RC_H

#include "check.h"

/* For how long a queue pair tries: the members that struct ibv_qp_attr has for it. */
struct patience {
    uint8_t min_rnr_timer, timeout, retry_cnt, rnr_retry;
};

/* Made, and in INIT. Its requests have one entry. */
static inline struct ibv_qp *create_rc(struct ibv_pd *pd, struct ibv_cq *cq, int access)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    return qp;
}

/* To RTR and RTS, toward the queue pair of this number and address. */
static inline void connect_rc(struct ibv_qp *qp, uint32_t qpn, union ibv_gid gid, struct patience patience)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = qpn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = patience.min_rnr_timer,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}},
    };
    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .timeout = patience.timeout,
        .retry_cnt = patience.retry_cnt,
        .rnr_retry = patience.rnr_retry,
        .max_rd_atomic = 1,
    };
    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

#endif
