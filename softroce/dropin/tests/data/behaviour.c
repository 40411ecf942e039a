/* A verbs program that checks how the library behaves towards C. Each command is one case; status 0 is success. */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s does not hold (errno %d)\n", __LINE__, #condition, errno);                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static struct ibv_context *open_first(void)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count > 0 && list[count] == NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    CHECK(context);
    return context;
}

static struct ibv_comp_channel *channel;

static void *wait_for_completion(void *unused)
{
    struct ibv_cq *cq;
    void *cookie;
    (void)unused;
    ibv_get_cq_event(channel, &cq, &cookie);
    return NULL;
}

static void *wait_for_async(void *context)
{
    struct ibv_async_event event;
    ibv_get_async_event(context, &event);
    return NULL;
}

static struct ibv_cq *polled;

static void *poll_for_ever(void *unused)
{
    struct ibv_wc wc;
    (void)unused;
    for (;;) {
        ibv_poll_cq(polled, 1, &wc);
        pthread_testcancel();
    }
    return NULL;
}

/* Threads that wait for events, or poll, can be cancelled. */
static void cancel(void)
{
    struct ibv_context *context = open_first();
    channel = ibv_create_comp_channel(context);
    CHECK(channel);
    pthread_t threads[2];
    CHECK(pthread_create(&threads[0], NULL, wait_for_completion, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, wait_for_async, context) == 0);
    usleep(50000);
    for (int i = 0; i < 2; i++) {
        void *result;
        CHECK(pthread_cancel(threads[i]) == 0);
        CHECK(pthread_join(threads[i], &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
    }
    polled = ibv_create_cq(context, 16, NULL, channel, 0);
    CHECK(polled);
    for (int i = 0; i < 50; i++) {
        void *result;
        CHECK(pthread_create(&threads[0], NULL, poll_for_ever, NULL) == 0);
        usleep(1000 + 37 * i);
        CHECK(pthread_cancel(threads[0]) == 0 && pthread_join(threads[0], &result) == 0);
        CHECK(result == PTHREAD_CANCELED);
    }
    CHECK(ibv_destroy_cq(polled) == 0);
    CHECK(ibv_destroy_comp_channel(channel) == 0);
    CHECK(ibv_close_device(context) == 0);
}

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
    (void)number;
    if (++signals == 4)
        _exit(0);
}

static void start_timer(int flags)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    struct itimerval often = {{0, 30000}, {0, 30000}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
}

/* A handler that lets calls go on does not end a wait; the handler itself ends the program, with success. */
static void signal_goes_on(void)
{
    channel = ibv_create_comp_channel(open_first());
    CHECK(channel);
    start_timer(SA_RESTART);
    wait_for_completion(NULL);
    exit(1);
}

/* A handler that interrupts calls ends a wait. */
static void signal_interrupts(void)
{
    struct ibv_async_event event;
    struct ibv_context *context = open_first();
    start_timer(0);
    CHECK(ibv_get_async_event(context, &event) == -1 && errno == EINTR);
}

static void nonblocking(void)
{
    struct ibv_context *context = open_first();
    struct ibv_async_event event;
    struct ibv_cq *cq;
    void *cookie;
    channel = ibv_create_comp_channel(context);
    CHECK(channel);
    CHECK(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
    CHECK(fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK) == 0);
    CHECK(ibv_get_cq_event(channel, &cq, &cookie) == -1 && errno == EAGAIN);
    CHECK(ibv_get_async_event(context, &event) == -1 && errno == EAGAIN);
    struct pollfd entry = {.fd = channel->fd, .events = POLLIN};
    CHECK(poll(&entry, 1, 0) == 0);
}

/* A forked child opens a device of its own; what it has inherited answers errors; the parent is not disturbed. */
static void forked(void)
{
    struct ibv_context *context = open_first();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    CHECK(pd && cq);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct ibv_wc wc;
        CHECK(ibv_poll_cq(cq, 1, &wc) <= 0);
        CHECK(ibv_alloc_pd(context) == NULL);
        struct ibv_device_attr attr;
        struct ibv_alloc_dm_attr wanted = {.length = 64};
        struct ibv_dm *dm = ibv_alloc_dm(context, &wanted);
        CHECK(ibv_query_device(context, &attr) == 0 && dm && ibv_free_dm(dm) == 0);
        struct ibv_context *own = open_first();
        struct ibv_pd *own_pd = ibv_alloc_pd(own);
        CHECK(own_pd && ibv_dealloc_pd(own_pd) == 0 && ibv_close_device(own) == 0);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}

static struct ibv_qp *new_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .qp_context = &signals,
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp && qp->qp_context == &signals && qp->pd == pd && qp->send_cq == cq && qp->qp_type == IBV_QPT_RC);
    CHECK(init.cap.max_recv_wr >= 4);
    return qp;
}

static void to_init(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    CHECK(ibv_modify_qp(qp, &attr, mask & ~IBV_QP_PORT) == EINVAL);
    CHECK(ibv_modify_qp(qp, &attr, mask) == 0 && qp->state == IBV_QPS_INIT);
}

/* Of a list, the requests before the bad one are posted, and the bad one is named. */
static void bad_request(void)
{
    struct ibv_context *context = open_first();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_qp *qp = new_qp(pd, cq);
    static char memory[64];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr && mr->addr == memory && mr->length == sizeof memory && mr->pd == pd);
    struct ibv_sge sges[40];
    for (int i = 0; i < 40; i++)
        sges[i] = (struct ibv_sge){.addr = (uintptr_t)memory, .length = 1, .lkey = mr->lkey};
    struct ibv_recv_wr requests[3] = {
        {.wr_id = 1, .next = &requests[1], .sg_list = sges, .num_sge = 1},
        {.wr_id = 2, .next = &requests[2], .sg_list = sges, .num_sge = 40},
        {.wr_id = 3, .sg_list = sges, .num_sge = 1},
    };
    struct ibv_recv_wr *bad = NULL;
    CHECK(ibv_post_recv(qp, requests, &bad) == EINVAL && bad == &requests[0]);
    to_init(qp);
    CHECK(ibv_post_recv(qp, requests, &bad) == EINVAL && bad == &requests[1]);
    requests[1].num_sge = -1;
    CHECK(ibv_post_recv(qp, requests, &bad) == EINVAL && bad == &requests[1]);
    struct ibv_send_wr send = {.wr_id = 4, .sg_list = sges, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send = NULL;
    CHECK(ibv_post_send(qp, &send, &bad_send) == EINVAL && bad_send == &send);

    /* In the error state the two that were posted come back, flushed. */
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    struct ibv_wc wc[4];
    CHECK(ibv_poll_cq(cq, 4, wc) == 2 && wc[0].wr_id == 1 && wc[0].status == IBV_WC_WR_FLUSH_ERR);
    struct ibv_qp_init_attr init;
    CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR && init.send_cq == cq);

    CHECK(ibv_dealloc_pd(pd) == EBUSY && ibv_destroy_cq(cq) == EBUSY);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_destroy_cq(cq) == 0 && ibv_close_device(context) == 0);
}

struct end {
    uint32_t qpn;
    union ibv_gid gid;
};

/* To RTR and RTS towards a peer. */
static void to_rts(struct ibv_qp *qp, const struct end *peer)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer->qpn,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 1}},
    };
    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
    struct ibv_qp_attr ready = {
        .qp_state = IBV_QPS_RTS, .timeout = 12, .retry_cnt = 3, .rnr_retry = 7, .max_rd_atomic = 1};
    CHECK(ibv_modify_qp(qp, &ready,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                            IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

/* Towards another queue pair of the same device. */
static void join_qp(struct ibv_qp *qp, uint32_t qpn)
{
    struct end peer = {.qpn = qpn};
    CHECK(ibv_query_gid(qp->context, 1, 0, &peer.gid) == 0);
    to_rts(qp, &peer);
}

/* Towards the end that the other process describes through the pipes. */
static void connect_qp(struct ibv_qp *qp, int from_peer, int to_peer)
{
    struct end own = {.qpn = qp->qp_num}, peer;
    CHECK(ibv_query_gid(qp->context, 1, 0, &own.gid) == 0);
    CHECK(write(to_peer, &own, sizeof own) == sizeof own && read(from_peer, &peer, sizeof peer) == sizeof peer);
    to_rts(qp, &peer);
    char ready_mark = 1;
    CHECK(write(to_peer, &ready_mark, 1) == 1 && read(from_peer, &ready_mark, 1) == 1);
}

/* A program that ends right after its last message, with everything open, leaves its peer with a success. */
static void leaves_at_once(void)
{
    int to_receiver[2], to_sender[2];
    CHECK(pipe(to_receiver) == 0 && pipe(to_sender) == 0);
    pid_t receiver = fork();
    CHECK(receiver >= 0);
    struct ibv_context *context = open_first();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_qp *qp = new_qp(pd, cq);
    static char memory[64];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = sizeof memory, .lkey = mr->lkey};
    struct ibv_wc wc;
    to_init(qp);
    if (receiver == 0) {
        struct ibv_recv_wr request = {.sg_list = &sge, .num_sge = 1}, *bad;
        CHECK(ibv_post_recv(qp, &request, &bad) == 0);
        connect_qp(qp, to_receiver[0], to_sender[1]);
        while (ibv_poll_cq(cq, 1, &wc) == 0)
            ;
        exit(wc.status != IBV_WC_SUCCESS);
    }
    connect_qp(qp, to_sender[0], to_receiver[1]);
    struct ibv_send_wr request = {
        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
    CHECK(ibv_post_send(qp, &request, &bad) == 0);
    while (ibv_poll_cq(cq, 1, &wc) == 0)
        ;
    CHECK(wc.status == IBV_WC_SUCCESS);
    int status;
    CHECK(waitpid(receiver, &status, 0) == receiver && status == 0);
}

static sigjmp_buf after_fault;

static void on_fault(int number)
{
    siglongjmp(after_fault, number);
}

/* One fault of the program's own, which its own handler must get. */
static void fault_of_ours(void)
{
    static volatile char *volatile nowhere = NULL;
    if (sigsetjmp(after_fault, 1) == 0) {
        *nowhere = 1;
        CHECK(!"reached after a fault");
    }
}

/* Registered memory that is not there any more ends the request, not the program, which goes on to get its own
 * faults. A process may connect a queue pair with another of its own. */
static void unmapped(void)
{
    struct sigaction action = {.sa_handler = on_fault};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    struct ibv_context *context = open_first();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    size_t size = 3 * 4096;
    char *gone = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static char memory[64];
    struct ibv_mr *local = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *remote = ibv_reg_mr(pd, gone, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(gone != MAP_FAILED && local && remote);
    CHECK(munmap(gone + 4096, 4096) == 0);
    struct ibv_sge sges[2] = {
        {.addr = (uintptr_t)memory, .length = 64, .lkey = local->lkey},
        {.addr = (uintptr_t)gone + 4096, .length = 64, .lkey = remote->lkey},
    };
    /* First the peer's memory is gone, then the own. */
    enum ibv_wc_status expected[2] = {IBV_WC_REM_ACCESS_ERR, IBV_WC_LOC_PROT_ERR};
    for (int i = 0; i < 2; i++) {
        struct ibv_qp *qp[2] = {new_qp(pd, cq), new_qp(pd, cq)};
        for (int k = 0; k < 2; k++)
            to_init(qp[k]);
        for (int k = 0; k < 2; k++)
            join_qp(qp[k], qp[!k]->qp_num);
        struct ibv_send_wr request = {
            .sg_list = &sges[i], .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
            .wr.rdma = {.remote_addr = (uintptr_t)gone + (i ? 0 : 4096), .rkey = remote->rkey}}, *bad;
        CHECK(ibv_post_send(qp[0], &request, &bad) == 0);
        struct ibv_wc wc;
        while (ibv_poll_cq(cq, 1, &wc) == 0)
            ;
        if (wc.status != expected[i])
            fprintf(stderr, "status %d: %s\n", i, ibv_wc_status_str(wc.status));
        CHECK(wc.status == expected[i]);
        fault_of_ours();
        CHECK(ibv_destroy_qp(qp[0]) == 0 && ibv_destroy_qp(qp[1]) == 0);
    }
}

/* A list of the builder with a bad request is refused as a whole (ibv_wr_post(3)), a long one too. */
static void builder_aborts(void)
{
    struct ibv_context *context = open_first();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    static char memory[64];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_UD,
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 20, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags = IBV_QP_EX_WITH_SEND,
    };
    struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
    CHECK(qp && mr);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 5};
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
    struct ibv_ah_attr way = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}};
    CHECK(ibv_query_gid(context, 1, 0, &way.grh.dgid) == 0);
    struct ibv_ah *ah = ibv_create_ah(pd, &way);
    CHECK(ah);
    /* The last of each list is longer than a datagram can be, or one more than the queue holds. */
    const struct {
        int count;
        uint32_t last_length;
        int expected;
    } lists[] = {{2, 1 << 20, EINVAL}, {20, 1 << 20, EINVAL}, {21, 1, ENOMEM}, {20, 1, 0}};
    struct ibv_wc wc;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
        ibv_wr_start(ex);
        ex->wr_flags = IBV_SEND_SIGNALED;
        for (int j = 1; j <= lists[i].count; j++) {
            ex->wr_id = j;
            ibv_wr_send(ex);
            ibv_wr_set_ud_addr(ex, ah, qp->qp_num, 5);
            ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, j == lists[i].count ? lists[i].last_length : 1);
        }
        CHECK(ibv_wr_complete(ex) == lists[i].expected);
    }
    for (uint64_t j = 1; j <= 20; j++) {
        while (ibv_poll_cq(cq, 1, &wc) == 0)
            ;
        CHECK(wc.wr_id == j && wc.status == IBV_WC_SUCCESS);
    }
    CHECK(ibv_destroy_ah(ah) == 0 && ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}

/* NULL and nonsense are errors, not crashes. */
static void nonsense(void)
{
    struct ibv_context *context = open_first();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    union ibv_gid gid;
    struct ibv_port_attr port;
    CHECK(ibv_alloc_pd(NULL) == NULL && errno == EINVAL);
    CHECK(ibv_open_device(NULL) == NULL && errno == EINVAL);
    CHECK(ibv_dealloc_pd(NULL) == EINVAL);
    CHECK(ibv_destroy_qp(NULL) == EINVAL && ibv_destroy_cq(NULL) == EINVAL && ibv_dereg_mr(NULL) == EINVAL);
    CHECK(ibv_create_cq(context, -1, NULL, NULL, 0) == NULL && errno == EINVAL);
    CHECK(ibv_create_cq(context, 1, NULL, NULL, 99) == NULL && errno == EINVAL);
    CHECK(ibv_query_gid(context, 1, 9999, &gid) == -1 && errno == EINVAL);
    CHECK(ibv_query_port(context, 9, &port) == EINVAL);
    CHECK(ibv_reg_mr(pd, (void *)8192, 4096, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EFAULT);
    CHECK(ibv_reg_mr(pd, &gid, sizeof gid, IBV_ACCESS_REMOTE_WRITE) == NULL && errno == EINVAL);
    struct ibv_qp_init_attr init = {.qp_type = 77};
    CHECK(ibv_create_qp(pd, &init) == NULL && errno == EINVAL);
    CHECK(ibv_alloc_mw(pd, (enum ibv_mw_type)7) == NULL && errno == EINVAL);
    CHECK(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, 0) == NULL && errno == EOPNOTSUPP);
    CHECK(ibv_close_device(context) == 0);
}

/* A queue pair that went through RESET forgets its completions, and those of others stay. */
static void reset_forgets(void)
{
    struct ibv_context *context = open_first();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
    struct ibv_qp *qps[3] = {new_qp(pd, cq), new_qp(pd, cq), new_qp(pd, cq)};
    for (int i = 0; i < 3; i++) {
        struct ibv_recv_wr *bad, receive = {.wr_id = i};
        struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
        to_init(qps[i]);
        CHECK(ibv_post_recv(qps[i], &receive, &bad) == 0);
        CHECK(ibv_modify_qp(qps[i], &error, IBV_QP_STATE) == 0);
    }
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    CHECK(ibv_modify_qp(qps[0], &reset, IBV_QP_STATE) == 0 && ibv_destroy_qp(qps[2]) == 0);
    struct ibv_wc wc[3];
    CHECK(ibv_poll_cq(cq, 3, wc) == 1 && wc[0].wr_id == 1 && wc[0].qp_num == qps[1]->qp_num);
    CHECK(ibv_destroy_qp(qps[0]) == 0 && ibv_destroy_qp(qps[1]) == 0 && ibv_destroy_cq(cq) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}

static enum ibv_wc_status next_status(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    int got;
    while ((got = ibv_poll_cq(cq, 1, &wc)) == 0)
        ;
    CHECK(got == 1);
    return wc.status;
}

/* How a WRITE of `from` to the start of `to` ends. */
static enum ibv_wc_status write_between_new_qps(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_sge *from,
                                                struct ibv_mr *to)
{
    struct ibv_qp *qp[2] = {new_qp(pd, cq), new_qp(pd, cq)};
    for (int k = 0; k < 2; k++)
        to_init(qp[k]);
    for (int k = 0; k < 2; k++)
        join_qp(qp[k], qp[!k]->qp_num);
    struct ibv_send_wr request = {
        .sg_list = from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)to->addr, .rkey = to->rkey}}, *bad;
    CHECK(ibv_post_send(qp[0], &request, &bad) == 0);
    enum ibv_wc_status status = next_status(cq);
    CHECK(ibv_destroy_qp(qp[0]) == 0 && ibv_destroy_qp(qp[1]) == 0);
    return status;
}

/* A window is unbound by binding it to nothing, for which no region is needed. */
static void unbind(void)
{
    struct ibv_context *context = open_first();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_qp *qp = new_qp(pd, cq);
    to_init(qp);
    join_qp(qp, qp->qp_num);
    static char memory[64];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    CHECK(mr && mw);
    struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED};
    bind.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)memory, sizeof memory, IBV_ACCESS_REMOTE_WRITE};
    CHECK(ibv_bind_mw(qp, mw, &bind) == 0 && next_status(cq) == IBV_WC_SUCCESS);
    CHECK(ibv_dereg_mr(mr) == EBUSY);
    bind.bind_info = (struct ibv_mw_bind_info){NULL, 0, sizeof memory, IBV_ACCESS_REMOTE_WRITE};
    CHECK(ibv_bind_mw(qp, mw, &bind) == EINVAL);
    bind.bind_info.length = 0;
    CHECK(ibv_bind_mw(qp, mw, &bind) == 0 && next_status(cq) == IBV_WC_SUCCESS);
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_mw(mw) == 0);
    struct ibv_ece ece = {0};
    CHECK(ibv_set_ece(qp, &ece) == EOPNOTSUPP && ibv_query_ece(qp, &ece) == EOPNOTSUPP);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
    CHECK(ibv_close_device(context) == 0);
}

/* On-demand memory need not be there when it is registered; advice brings it in, or tells that there is none. */
static void on_demand(void)
{
    struct ibv_context *context = open_first();
    struct ibv_device_attr_ex attr;
    CHECK(ibv_query_device_ex(context, NULL, &attr) == 0);
    if (!(attr.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT))
        return;
    struct ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(context);
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND;
    char *gone = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), here[64];
    CHECK(ibv_reg_mr(pd, gone, 4096, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EFAULT);
    struct ibv_mr *mr = ibv_reg_mr(pd, gone, 4096, access);
    struct ibv_mr *all = ibv_reg_mr(pd, NULL, SIZE_MAX, access);
    struct ibv_mr *pinned = ibv_reg_mr(pd, here, sizeof here, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *wall = ibv_reg_mr(pd, here, sizeof here, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(mr && all && pinned && wall);
    struct ibv_sge there = {(uintptr_t)gone, 4096, mr->lkey}, beyond = {(uintptr_t)gone, 4097, mr->lkey};
    struct ibv_sge mine = {(uintptr_t)here, sizeof here, all->lkey}, plain = {(uintptr_t)here, 8, pinned->lkey};
    struct ibv_sge nothing = {(uintptr_t)here, 8, 0};
    enum ibv_advise_mr_advice write = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    CHECK(ibv_advise_mr(pd, write, IBV_ADVISE_MR_FLAG_FLUSH, &mine, 1) == 0);
    CHECK(ibv_advise_mr(pd, write, IBV_ADVISE_MR_FLAG_FLUSH, &there, 1) == EFAULT);
    CHECK(ibv_advise_mr(pd, write, 0, &there, 1) == 0);
    CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH, &there, 1) == 0);
    CHECK(ibv_advise_mr(pd, write, 0, &beyond, 1) == EFAULT && ibv_advise_mr(pd, write, 0, &nothing, 1) == EFAULT);
    CHECK(ibv_advise_mr(other, write, 0, &mine, 1) == EFAULT && ibv_advise_mr(pd, write, 0, &plain, 1) == EINVAL);
    CHECK(ibv_advise_mr(pd, write, 8, &mine, 1) == EINVAL && ibv_advise_mr(pd, write, 0, NULL, 1) == EINVAL);
    CHECK(ibv_advise_mr(pd, (enum ibv_advise_mr_advice)9, 0, &mine, 1) == EOPNOTSUPP);
    /* A WRITE from memory that is not there fails, and works once it is. */
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    for (int i = 0; i < 2; i++) {
        CHECK(i == 0 || mprotect(gone, 4096, PROT_READ | PROT_WRITE) == 0);
        enum ibv_wc_status expected = i ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
        CHECK(write_between_new_qps(pd, cq, &(struct ibv_sge){(uintptr_t)gone, 64, mr->lkey}, wall) == expected);
    }
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(all) == 0 && ibv_dereg_mr(pinned) == 0 && ibv_dereg_mr(wall) == 0);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_dealloc_pd(other) == 0 && ibv_close_device(context) == 0);
}

/* What is imported is the same object, which stays until it is given back. */
static void import(void)
{
    struct ibv_context *context = open_first();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    char bytes[64], back[64];
    struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_alloc_dm_attr attr = {.length = sizeof bytes};
    struct ibv_dm *dm = ibv_alloc_dm(context, &attr);
    CHECK(mr && dm);
    int other[2];
    CHECK(ibv_import_device(-1) == NULL && errno == EINVAL);
    CHECK(pipe(other) == 0 && ibv_import_device(other[0]) == NULL && errno == EOPNOTSUPP);
    struct ibv_context *again = ibv_import_device(dup(context->cmd_fd));
    CHECK(again && again != context && again->device == context->device);
    struct ibv_pd *pd_again = ibv_import_pd(again, pd->handle);
    struct ibv_mr *mr_again = ibv_import_mr(pd_again, mr->handle);
    struct ibv_dm *dm_again = ibv_import_dm(again, dm->handle);
    CHECK(pd_again && pd_again->context == again && dm_again);
    CHECK(mr_again && mr_again->rkey == mr->rkey && mr_again->lkey == mr->lkey && mr_again->length == mr->length);
    CHECK(ibv_import_pd(again, 999) == NULL && errno == ENOENT);
    memset(bytes, 7, sizeof bytes);
    CHECK(ibv_memcpy_to_dm(dm, 0, bytes, sizeof bytes) == 0);
    CHECK(ibv_memcpy_from_dm(back, dm_again, 0, sizeof back) == 0 && memcmp(bytes, back, sizeof back) == 0);
    struct ibv_cq *cq = ibv_create_cq(again, 4, NULL, NULL, 0);
    struct ibv_qp *qp = new_qp(pd_again, cq);
    CHECK(ibv_dereg_mr(mr) == EBUSY && ibv_free_dm(dm) == EBUSY && ibv_dealloc_pd(pd) == EBUSY);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
    ibv_unimport_mr(mr_again);
    ibv_unimport_dm(dm_again);
    ibv_unimport_pd(pd_again);
    ibv_unimport_mr(mr); /* not imported: nothing happens */
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_free_dm(dm) == 0);
    int cmd_fd = again->cmd_fd;
    CHECK(ibv_close_device(again) == 0 && fcntl(cmd_fd, F_GETFD) == -1);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"cancel", cancel},           {"signal-goes-on", signal_goes_on}, {"signal-interrupts", signal_interrupts},
        {"nonblocking", nonblocking}, {"forked", forked},                 {"bad-request", bad_request},
        {"nonsense", nonsense},       {"leaves-at-once", leaves_at_once},
        {"unmapped", unmapped},       {"builder-aborts", builder_aborts}, {"reset-forgets", reset_forgets},
        {"on-demand", on_demand},     {"import", import},                 {"unbind", unbind},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
            alarm(strncmp(argv[1], "signal", 6) ? 20 : 0);
            cases[i].run();
            return 0;
        }
    return 2;
}
