/* A verbs program that runs out of something. Each command is one case; status 0 is success: errors, and no end. */
#define _GNU_SOURCE
#include "rc.h"

#include <string.h>
#include <sys/resource.h>

enum { SIZE = 8192, MORE_THAN_ANY_LIMIT = 1 << 20 };

static const struct patience PATIENCE = {.min_rnr_timer = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
static char memory[SIZE];

struct bench {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct ibv_qp *qp[2];
};

static struct bench bench_open(void)
{
    struct bench bench = {.context = open_device()};
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    union ibv_gid gid;
    CHECK(ibv_query_gid(bench.context, 1, 0, &gid) == 0);
    CHECK((bench.pd = ibv_alloc_pd(bench.context)) && (bench.cq = ibv_create_cq(bench.context, 16, NULL, NULL, 0)));
    CHECK((bench.mr = ibv_reg_mr(bench.pd, memory, SIZE, access)));
    for (int i = 0; i < 2; i++)
        bench.qp[i] = create_rc(bench.pd, bench.cq, access);
    for (int i = 0; i < 2; i++)
        connect_rc(bench.qp[i], bench.qp[!i]->qp_num, gid, PATIENCE);
    return bench;
}

static int post_write(const struct bench *bench)
{
    struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = SIZE / 2, .lkey = bench->mr->lkey};
    struct ibv_send_wr request = {
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)memory + SIZE / 2, .rkey = bench->mr->rkey},
    }, *bad;
    return ibv_post_send(bench->qp[0], &request, &bad);
}

static void traffic_goes_on(const struct bench *bench)
{
    struct ibv_wc wc;
    int count;
    CHECK(post_write(bench) == 0);
    while ((count = ibv_poll_cq(bench->cq, 1, &wc)) == 0)
        ;
    CHECK(count == 1 && wc.status == IBV_WC_SUCCESS);
}

/* Lets the process have so many bytes more. */
static void limit_memory(long more)
{
    long pages;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld", &pages) == 1 && fclose(file) == 0);
    struct rlimit limit = {.rlim_cur = pages * sysconf(_SC_PAGESIZE) + more, .rlim_max = RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* Of each kind as many as there is memory for. The last one is refused, and all that there is goes on. */
static void no_memory(void)
{
    struct bench bench = bench_open();
    struct ibv_device_attr device;
    CHECK(ibv_query_device(bench.context, &device) == 0);
    limit_memory(40 << 20);
    for (int kind = 0; kind < 6; kind++) {
        struct ibv_qp_init_attr queues = {
            .send_cq = bench.cq,
            .recv_cq = bench.cq,
            .cap = {device.max_qp_wr, device.max_qp_wr, device.max_sge, device.max_sge, 0},
            .qp_type = IBV_QPT_RC,
        };
        struct ibv_srq_init_attr shared = {.attr = {.max_wr = device.max_srq_wr, .max_sge = device.max_srq_sge}};
        struct ibv_alloc_dm_attr dm = {.length = 1 << 16};
        void *made = &bench;
        for (int i = 0; made && i < MORE_THAN_ANY_LIMIT; i++)
            made = kind == 0   ? (void *)ibv_create_cq(bench.context, device.max_cqe, NULL, NULL, 0)
                   : kind == 1 ? (void *)ibv_create_qp(bench.pd, &queues)
                   : kind == 2 ? (void *)ibv_create_srq(bench.pd, &shared)
                   : kind == 3 ? (void *)ibv_reg_mr(bench.pd, memory, SIZE, 0)
                   : kind == 4 ? (void *)ibv_alloc_pd(bench.context)
                               : (void *)ibv_alloc_dm(bench.context, &dm);
        CHECK(made == NULL && errno == ENOMEM);
    }
    CHECK(ibv_resize_cq(bench.cq, device.max_cqe) == ENOMEM);
    traffic_goes_on(&bench);
}

static long processor_ms(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_utime.tv_sec * 1000 + usage.ru_utime.tv_usec / 1000 + usage.ru_stime.tv_sec * 1000 +
           usage.ru_stime.tv_usec / 1000;
}

/* Who closes all descriptors has no card any more, and no thread that spins. */
static void closed_descriptors(void)
{
    struct bench bench = bench_open();
    traffic_goes_on(&bench);
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    struct ibv_wc wc;
    post_write(&bench);
    ibv_poll_cq(bench.cq, 1, &wc);
    long before = processor_ms();
    usleep(500000);
    CHECK(processor_ms() - before < 250);
    /* What is left is not given back: its descriptors may be somebody else's by now. */
}

/* No descriptor is left for new things; what there is goes on. */
static void no_descriptors(void)
{
    struct bench bench = bench_open();
    struct rlimit limit = {64, 64};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (dup(0) >= 0)
        ;
    CHECK(ibv_create_comp_channel(bench.context) == NULL && errno == EMFILE);
    CHECK(ibv_open_device(bench.context->device) == NULL && errno == EMFILE);
    traffic_goes_on(&bench);
}

/* Threads of their own are refused: so is the device. */
static void no_threads(void)
{
    struct rlimit limit = {0, 0};
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && setrlimit(RLIMIT_NPROC, &limit) == 0);
    CHECK(ibv_open_device(list[0]) == NULL && errno == EAGAIN);
    ibv_free_device_list(list);
}

/* The number of an error arrives, whatever becomes of the words about it on standard error. */
static void no_words(void)
{
    CHECK(setenv("SOFTROCE_DEBUG", "1", 1) == 0);
    struct ibv_context *context = open_device();
    int code = ibv_alloc_pd(NULL) == NULL ? errno : 0;
    struct ibv_port_attr port;
    int other = ibv_query_port(context, 7, &port);
    exit(code == EINVAL && other == EINVAL ? 0 : 1);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"memory", no_memory},   {"closed", closed_descriptors}, {"descriptors", no_descriptors},
        {"threads", no_threads}, {"words", no_words},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
            alarm(40);
            cases[i].run();
            return 0;
        }
    return 2;
}
