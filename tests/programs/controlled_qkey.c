/* Sets a Q_Key with the highest bit, which takes CAP_NET_RAW. The status is the error number. */
#include <string.h>

#include "check.h"

int main(void)
{
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    CHECK(pd && cq);
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {.max_send_wr = 1, .max_recv_wr = 1}, .qp_type = IBV_QPT_UD};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x80010000};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    int error = ibv_modify_qp(qp, &attr, mask);
    CHECK(qp->state == (error ? IBV_QPS_RESET : IBV_QPS_INIT));
    /* Any other key is free. */
    attr.qkey = 0x7fffffff;
    CHECK(error == 0 || ibv_modify_qp(qp, &attr, mask) == 0);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
    CHECK(ibv_close_device(context) == 0);
    return error;
}
