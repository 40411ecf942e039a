/* Several threads at once on one context: each with queue pairs of its own, all on shared ones, and one that waits for
 * events while others make and destroy objects. */
#define _GNU_SOURCE
#include "walk.h"

#include <pthread.h>
#include <sched.h>

enum { THREADS = 4, ROUNDS = 30, SHARED_SENDS = 200 };

static struct bench shared;
static struct pair shared_pair;
static struct ibv_srq *shared_srq;

/* Makes, uses and destroys objects of all kinds. */
static void *makes_and_destroys(void *unused)
{
    (void)unused;
    for (int round = 0; round < ROUNDS / 5; round++) {
        struct bench own = {.context = shared.context, .gid = shared.gid};
        own.pd = ibv_alloc_pd(own.context);
        own.cq = ibv_create_cq(own.context, 4 * QUEUE, NULL, NULL, 0);
        own.memory = calloc(2, BUFFER_BYTES);
        CHECK(own.pd && own.cq && own.memory);
        own.mr = ibv_reg_mr(own.pd, own.memory, 2 * BUFFER_BYTES,
                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
        CHECK(own.mr);
        /* What fails is told to a journal that all threads share. */
        REFUSES(EINVAL, ibv_create_cq(own.context, -1, NULL, NULL, 0));
        struct pair pair = connected(&own, IBV_QPT_RC);
        fill(&own, (char)round);
        post_receive(&own, pair.qp[1], 1);
        struct ibv_sge sge = entry(&own, SOURCE, BUFFER_BYTES);
        struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
        SUCCEEDS(ibv_post_send(pair.qp[0], &send, &bad));
        expect(own.cq, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
        expect_same(&own, BUFFER_BYTES);
        struct ibv_ah *ah = way_to_self(&own);
        struct ibv_mw *mw = ibv_alloc_mw(own.pd, IBV_MW_TYPE_2);
        CHECK(mw);
        SUCCEEDS(ibv_dealloc_mw(mw));
        SUCCEEDS(ibv_destroy_ah(ah));
        pair_destroy(&pair);
        SUCCEEDS(ibv_dereg_mr(own.mr));
        SUCCEEDS(ibv_destroy_cq(own.cq));
        SUCCEEDS(ibv_dealloc_pd(own.pd));
        free(own.memory);
    }
    return NULL;
}

/* What a request stands for: made by the thread that posts, read and freed by the one that polls. */
struct token {
    int number;
};

/* Requests posted, and completions taken. A program keeps within what its completion queue holds. */
static int posted, polled;

/* Until the queue has room for one more completion. */
static void wait_for_room(void)
{
    int before = __atomic_fetch_add(&posted, 1, __ATOMIC_ACQ_REL);
    while (before - __atomic_load_n(&polled, __ATOMIC_ACQUIRE) >= shared.cq->cqe - THREADS)
        sched_yield();
}

/* All threads post to one queue pair. */
static void *posts(void *unused)
{
    (void)unused;
    for (int i = 0; i < SHARED_SENDS; i++) {
        struct token *token = malloc(sizeof *token);
        CHECK(token);
        token->number = i;
        wait_for_room();
        struct ibv_sge sge = entry(&shared, SOURCE, 64);
        struct ibv_send_wr send = {.wr_id = (uintptr_t)token,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_RDMA_WRITE,
                                   .send_flags = IBV_SEND_SIGNALED,
                                   .wr.rdma = {.remote_addr = (uintptr_t)half_of(&shared, TARGET),
                                               .rkey = shared.mr->rkey}},
                           *bad;
        int result;
        while ((result = ibv_post_send(shared_pair.qp[0], &send, &bad)) == ENOMEM)
            sched_yield();
        SUCCEEDS(result);
    }
    return NULL;
}

/* Several threads poll one queue, and each takes what it gets. */
static void *polls(void *unused)
{
    (void)unused;
    while (__atomic_load_n(&polled, __ATOMIC_ACQUIRE) < THREADS * SHARED_SENDS) {
        struct ibv_wc wc[8];
        int count = ibv_poll_cq(shared.cq, 8, wc);
        CHECK(count >= 0);
        for (int i = 0; i < count; i++) {
            struct token *token = (struct token *)(uintptr_t)wc[i].wr_id;
            CHECK(wc[i].status == IBV_WC_SUCCESS && token->number >= 0 && token->number < SHARED_SENDS);
            free(token);
        }
        __atomic_add_fetch(&polled, count, __ATOMIC_ACQ_REL);
        if (count == 0)
            sched_yield();
    }
    return NULL;
}

/* Messages that are waited for by events, with receives from a shared queue. */
static void *waits_for_events(void *unused)
{
    (void)unused;
    struct ibv_comp_channel *channel = ibv_create_comp_channel(shared.context);
    struct ibv_cq *cq = ibv_create_cq(shared.context, QUEUE, NULL, channel, 0), *from;
    CHECK(channel && cq);
    struct bench own = shared;
    own.cq = cq;
    struct pair pair = {{new_qp(&own, IBV_QPT_RC, NULL), new_qp(&own, IBV_QPT_RC, shared_srq)}};
    connect_pair(&own, &pair);
    for (int round = 0; round < ROUNDS; round++) {
        struct token *token = malloc(sizeof *token);
        CHECK(token);
        token->number = round;
        struct ibv_sge sge = entry(&shared, TARGET, 64), source = entry(&shared, SOURCE, 64);
        struct ibv_recv_wr receive = {.wr_id = (uintptr_t)token, .sg_list = &sge, .num_sge = 1}, *bad;
        struct ibv_send_wr send = {.sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
        struct ibv_wc wc;
        void *with;
        SUCCEEDS(ibv_req_notify_cq(cq, 0));
        SUCCEEDS(ibv_post_srq_recv(shared_srq, &receive, &bad));
        SUCCEEDS(ibv_post_send(pair.qp[0], &send, &bad_send));
        SUCCEEDS(ibv_get_cq_event(channel, &from, &with));
        CHECK(from == cq);
        ibv_ack_cq_events(cq, 1);
        RETURNS(1, ibv_poll_cq(cq, 1, &wc));
        /* Of another thread's, perhaps: the receives are shared. */
        token = (struct token *)(uintptr_t)wc.wr_id;
        CHECK(wc.status == IBV_WC_SUCCESS && token->number < ROUNDS);
        free(token);
    }
    pair_destroy(&pair);
    SUCCEEDS(ibv_destroy_cq(cq));
    SUCCEEDS(ibv_destroy_comp_channel(channel));
    return NULL;
}

/* Questions, and a device opened beside. */
static void *asks(void *unused)
{
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        struct ibv_port_attr port;
        struct ibv_device_attr device;
        union ibv_gid gid;
        SUCCEEDS(ibv_query_port(shared.context, 1, &port));
        RETURNS(EINVAL, ibv_query_port(shared.context, 77, &port));
        SUCCEEDS(ibv_query_device(shared.context, &device));
        SUCCEEDS(ibv_query_gid(shared.context, 1, 0, &gid));
        CHECK(strlen(ibv_wc_status_str(IBV_WC_SUCCESS)) > 0);
        if (round % 10 == 0) {
            struct ibv_context *context = open_first();
            SUCCEEDS(ibv_close_device(context));
        }
    }
    return NULL;
}

static void together(void *(*const works[])(void *), int kinds, int each)
{
    pthread_t threads[32];
    int count = 0;
    for (int k = 0; k < kinds; k++)
        for (int i = 0; i < each; i++)
            CHECK(pthread_create(&threads[count++], NULL, works[k], NULL) == 0);
    while (count > 0)
        CHECK(pthread_join(threads[--count], NULL) == 0);
}

void walk_threads(void)
{
    bench_open(&shared);
    struct ibv_srq_init_attr init = {.attr = {.max_wr = QUEUE, .max_sge = 1}};
    shared_srq = ibv_create_srq(shared.pd, &init);
    CHECK(shared_srq);
    shared_pair = connected(&shared, IBV_QPT_RC);
    fill(&shared, 1);

    void *(*const streams[])(void *) = {posts};
    void *(*const all[])(void *) = {makes_and_destroys, waits_for_events, asks};
    pthread_t pollers[2];
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&pollers[i], NULL, polls, NULL) == 0);
    together(streams, 1, THREADS);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(pollers[i], NULL) == 0);
    CHECK(polled == THREADS * SHARED_SENDS);
    together(all, 3, THREADS / 2);

    pair_destroy(&shared_pair);
    SUCCEEDS(ibv_destroy_srq(shared_srq));
    bench_close(&shared);
}
