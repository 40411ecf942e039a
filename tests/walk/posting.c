/* Posting by lists of requests: every operation of every kind of queue pair, and what is wrong with a list. */
#include "walk.h"

#include <sys/mman.h>

static struct ibv_send_wr request(const struct bench *bench, enum ibv_wr_opcode opcode, struct ibv_sge *sge)
{
    struct ibv_send_wr wr = {.wr_id = 1000 + opcode,
                             .sg_list = sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .imm_data = 0x04030201};
    wr.wr.rdma.remote_addr = (uintptr_t)half_of(bench, TARGET);
    wr.wr.rdma.rkey = bench->mr->rkey;
    return wr;
}

static void one_send(const struct bench *bench, struct pair *pair, enum ibv_wr_opcode opcode, uint32_t length,
                     unsigned flags)
{
    struct ibv_sge sge = entry(bench, SOURCE, length);
    struct ibv_send_wr wr = request(bench, opcode, &sge), *bad;
    wr.send_flags |= flags;
    bool receives = opcode != IBV_WR_RDMA_WRITE;
    fill(bench, (char)length);
    if (receives)
        post_receive(bench, pair->qp[1], 7);
    SUCCEEDS(ibv_post_send(pair->qp[0], &wr, &bad));
    /* Which of the two comes first is open. */
    for (int i = 0; i < 1 + receives; i++) {
        struct ibv_wc wc = next_completion(bench->cq);
        CHECK(wc.status == IBV_WC_SUCCESS);
        if (wc.wr_id == 7) {
            bool written = opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
            CHECK(wc.opcode == (written ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV) && wc.byte_len == length);
            CHECK(wc.qp_num == pair->qp[1]->qp_num);
            if (opcode != IBV_WR_SEND)
                CHECK(wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == 0x04030201);
        } else {
            CHECK(wc.wr_id == wr.wr_id && wc.qp_num == pair->qp[0]->qp_num);
        }
    }
    expect_same(bench, length);
}

static void read_and_count(const struct bench *bench, struct pair *pair)
{
    fill(bench, 3);
    memcpy(half_of(bench, TARGET), "remote", 7);
    struct ibv_sge sge = entry(bench, SOURCE, 7);
    struct ibv_send_wr wr = request(bench, IBV_WR_RDMA_READ, &sge), *bad;
    SUCCEEDS(ibv_post_send(pair->qp[0], &wr, &bad));
    expect(bench->cq, wr.wr_id, IBV_WC_SUCCESS, IBV_WC_RDMA_READ);
    CHECK(memcmp(half_of(bench, SOURCE), "remote", 7) == 0);

    uint64_t *counter = (uint64_t *)half_of(bench, TARGET), *before = (uint64_t *)half_of(bench, SOURCE);
    *counter = 40;
    sge.length = 8;
    wr = request(bench, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
    wr.wr.atomic.remote_addr = (uintptr_t)counter;
    wr.wr.atomic.rkey = bench->mr->rkey;
    wr.wr.atomic.compare_add = 2;
    SUCCEEDS(ibv_post_send(pair->qp[0], &wr, &bad));
    expect(bench->cq, wr.wr_id, IBV_WC_SUCCESS, IBV_WC_FETCH_ADD);
    CHECK(*before == 40 && *counter == 42);
    wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.wr.atomic.compare_add = 42;
    wr.wr.atomic.swap = 7;
    SUCCEEDS(ibv_post_send(pair->qp[0], &wr, &bad));
    expect(bench->cq, wr.wr_id, IBV_WC_SUCCESS, IBV_WC_COMP_SWAP);
    CHECK(*before == 42 && *counter == 7);
}

/* A chain of several requests with several entries, of which only the last is signaled. */
static void chain(const struct bench *bench, struct pair *pair)
{
    enum { LENGTH = 20 };
    struct ibv_sge sges[LENGTH][SGES];
    struct ibv_send_wr list[LENGTH], *bad;
    fill(bench, 9);
    for (int i = 0; i < LENGTH; i++) {
        for (int k = 0; k < SGES; k++)
            sges[i][k] = (struct ibv_sge){.addr = (uintptr_t)half_of(bench, SOURCE) + 20 * i + 10 * k,
                                          .length = 10,
                                          .lkey = bench->mr->lkey};
        list[i] = request(bench, IBV_WR_RDMA_WRITE, sges[i]);
        list[i].num_sge = SGES;
        list[i].wr.rdma.remote_addr += 20 * i;
        list[i].send_flags = i % 3 == 0 ? IBV_SEND_INLINE : i + 1 == LENGTH ? IBV_SEND_SIGNALED : 0;
        list[i].next = i + 1 < LENGTH ? &list[i + 1] : NULL;
    }
    SUCCEEDS(ibv_post_send(pair->qp[0], list, &bad));
    expect(bench->cq, list[0].wr_id, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE);
    expect_same(bench, 20 * LENGTH);
    SUCCEEDS(ibv_post_send(pair->qp[0], NULL, &bad));
    SUCCEEDS(ibv_post_recv(pair->qp[0], NULL, NULL));
}

void walk_posting(void)
{
    struct bench bench;
    bench_open(&bench);
    static const uint32_t LENGTHS[] = {0, 1, 63, 1024, 1025, BUFFER_BYTES};
    static const enum ibv_wr_opcode PUSHES[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
                                                IBV_WR_RDMA_WRITE_WITH_IMM};
    static const enum ibv_qp_type TYPES[] = {IBV_QPT_RC, IBV_QPT_UC};
    for (size_t t = 0; t < sizeof TYPES / sizeof *TYPES; t++) {
        struct pair pair = connected(&bench, TYPES[t]);
        for (size_t o = 0; o < sizeof PUSHES / sizeof *PUSHES; o++)
            for (size_t l = 0; l < sizeof LENGTHS / sizeof *LENGTHS; l++) {
                if (TYPES[t] == IBV_QPT_UC && PUSHES[o] == IBV_WR_RDMA_WRITE)
                    continue; /* Nobody tells when it has arrived. */
                one_send(&bench, &pair, PUSHES[o], LENGTHS[l], LENGTHS[l] <= INLINE_BYTES ? IBV_SEND_INLINE : 0);
                one_send(&bench, &pair, PUSHES[o], LENGTHS[l], IBV_SEND_SOLICITED);
            }
        if (TYPES[t] == IBV_QPT_RC) {
            one_send(&bench, &pair, IBV_WR_RDMA_WRITE, 100, IBV_SEND_FENCE);
            read_and_count(&bench, &pair);
            chain(&bench, &pair);
        }
        pair_destroy(&pair);
    }
    bench_close(&bench);
}

/* Numbers of entries that no list has. */
static const int COUNTS[] = {-1, INT32_MIN, INT32_MAX, 299};

/* Nothing is read by such a number, whatever the request is. One that has no data leaves these members as they are. */
static void entries_that_nobody_reads(const struct bench *bench)
{
    for (int opcode = -1; opcode < 20; opcode++) {
        struct pair pair = connected(bench, IBV_QPT_RC);
        for (size_t i = 0; i < sizeof COUNTS / sizeof *COUNTS; i++) {
            struct ibv_sge sge = entry(bench, SOURCE, 8);
            struct ibv_send_wr wr = request(bench, IBV_WR_SEND, &sge), *bad = NULL;
            wr.opcode = (enum ibv_wr_opcode)opcode;
            wr.num_sge = COUNTS[i];
            for (int is_inline = 0; is_inline < 2; is_inline++) {
                wr.send_flags = is_inline ? IBV_SEND_INLINE : 0;
                if (opcode != IBV_WR_LOCAL_INV)
                    CHECK(ibv_post_send(pair.qp[0], &wr, &bad) != 0 && bad == &wr);
            }
        }
        struct ibv_send_wr wr = {.wr_id = 1, .sg_list = (void *)8, .num_sge = INT32_MAX, .opcode = IBV_WR_LOCAL_INV}, *bad;
        SUCCEEDS(ibv_post_send(pair.qp[0], &wr, &bad));
        CHECK(next_completion(bench->cq).status != IBV_WC_SUCCESS && "it invalidates key 0, which there is not");
        pair_destroy(&pair);
    }
}

static void refused_receives(const struct bench *bench, struct ibv_qp *qp)
{
    struct ibv_sge sges[300] = {entry(bench, TARGET, 1)};
    struct ibv_recv_wr receive = {.sg_list = sges, .num_sge = 1}, *bad = NULL;
    for (size_t i = 0; i < sizeof COUNTS / sizeof *COUNTS; i++) {
        receive.num_sge = COUNTS[i];
        RETURNS(EINVAL, ibv_post_recv(qp, &receive, &bad));
        CHECK(bad == &receive);
        RETURNS(EINVAL, ibv_post_recv(qp, &receive, NULL));
    }
    receive = (struct ibv_recv_wr){.sg_list = NULL, .num_sge = 1};
    RETURNS(EINVAL, ibv_post_recv(qp, &receive, &bad));
    CHECK(qp->context->ops.post_recv(NULL, &receive, &bad) == EINVAL);
}

static void refused_sends(const struct bench *bench, struct ibv_qp *qp)
{
    struct ibv_sge sges[300];
    for (int i = 0; i < 300; i++)
        sges[i] = entry(bench, SOURCE, 1);
    struct ibv_send_wr wr = request(bench, IBV_WR_SEND, sges), *bad = NULL;
    for (size_t i = 0; i < sizeof COUNTS / sizeof *COUNTS; i++) {
        wr.num_sge = COUNTS[i];
        RETURNS(EINVAL, ibv_post_send(qp, &wr, &bad));
        CHECK(bad == &wr);
        RETURNS(EINVAL, ibv_post_send(qp, &wr, NULL));
    }
    wr = request(bench, IBV_WR_SEND, NULL);
    RETURNS(EINVAL, ibv_post_send(qp, &wr, &bad));
    wr = request(bench, IBV_WR_SEND, sges);
    sges[0].length = BUFFER_BYTES;
    wr.send_flags |= IBV_SEND_INLINE;
    CHECK(ibv_post_send(qp, &wr, &bad) != 0);
    wr.num_sge = 2;
    CHECK(ibv_post_send(qp, &wr, &bad) != 0);
    sges[0] = (struct ibv_sge){.addr = 0, .length = 8};
    wr.num_sge = 1;
    CHECK(ibv_post_send(qp, &wr, &bad) != 0);
    wr.num_sge = 2;
    CHECK(ibv_post_send(qp, &wr, &bad) != 0);
    sges[0] = (struct ibv_sge){.addr = (uintptr_t)bench->memory, .length = UINT32_MAX, .lkey = bench->mr->lkey};
    sges[1] = sges[0];
    CHECK(ibv_post_send(qp, &wr, &bad) != 0);
    wr.send_flags = 0;
    CHECK(ibv_post_send(qp, &wr, &bad) != 0);
    sges[0] = entry(bench, SOURCE, 1);
    wr = request(bench, IBV_WR_SEND, sges);
    static const int NO_OPCODES[] = {-1, IBV_WR_TSO, IBV_WR_DRIVER1, 12, 13, 77, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof NO_OPCODES / sizeof *NO_OPCODES; i++) {
        wr.opcode = (enum ibv_wr_opcode)NO_OPCODES[i];
        CHECK(ibv_post_send(qp, &wr, &bad) != 0 && bad == &wr);
    }
    wr = request(bench, IBV_WR_BIND_MW, sges);
    memset(&wr.bind_mw, 0, sizeof wr.bind_mw);
    CHECK(ibv_post_send(qp, &wr, &bad) != 0);
    CHECK(qp->context->ops.post_send(NULL, &wr, &bad) == EINVAL);
}

/* One request that the card refuses, which ends the connection. */
static void ends_in(const struct bench *bench, struct ibv_send_wr *wr, enum ibv_wc_status status)
{
    struct ibv_send_wr *bad;
    struct pair pair = connected(bench, IBV_QPT_RC);
    SUCCEEDS(ibv_post_send(pair.qp[0], wr, &bad));
    expect(bench->cq, wr->wr_id, status, 0);
    /* From now on everything is flushed. */
    SUCCEEDS(ibv_post_send(pair.qp[0], wr, &bad));
    expect(bench->cq, wr->wr_id, IBV_WC_WR_FLUSH_ERR, 0);
    pair_destroy(&pair);
}

static void wrong_keys(const struct bench *bench)
{
    struct ibv_sge sge = entry(bench, SOURCE, 8);
    struct ibv_send_wr right = request(bench, IBV_WR_RDMA_WRITE, &sge), wr = right;
    wr.wr.rdma.rkey ^= 0x5500;
    ends_in(bench, &wr, IBV_WC_REM_ACCESS_ERR);
    wr = right;
    wr.wr.rdma.remote_addr = UINT64_MAX - 3;
    ends_in(bench, &wr, IBV_WC_REM_ACCESS_ERR);
    wr = right;
    wr.wr.rdma.remote_addr += 2 * BUFFER_BYTES - 4;
    ends_in(bench, &wr, IBV_WC_REM_ACCESS_ERR);
    wr.opcode = IBV_WR_RDMA_READ;
    ends_in(bench, &wr, IBV_WC_REM_ACCESS_ERR);
    wr = right;
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    wr.wr.atomic.remote_addr = (uintptr_t)bench->memory + 3;
    wr.wr.atomic.rkey = bench->mr->rkey;
    ends_in(bench, &wr, IBV_WC_REM_INV_REQ_ERR);
    wr = right;
    sge.lkey ^= 0x5500;
    ends_in(bench, &wr, IBV_WC_LOC_PROT_ERR);
    sge = entry(bench, TARGET, BUFFER_BYTES + 1);
    wr.wr.rdma.remote_addr = (uintptr_t)bench->memory;
    ends_in(bench, &wr, IBV_WC_LOC_PROT_ERR);
    sge = entry(bench, SOURCE, 8);
    sge.addr = UINT64_MAX - 3;
    ends_in(bench, &wr, IBV_WC_LOC_PROT_ERR);

    /* A region of another domain, and one without the right. */
    struct ibv_pd *other = ibv_alloc_pd(bench->context);
    struct ibv_mr *foreign = ibv_reg_mr(other, bench->memory, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_mr *closed = ibv_reg_mr(bench->pd, bench->memory, 64, 0);
    CHECK(other && foreign && closed);
    sge = entry(bench, SOURCE, 8);
    sge.lkey = foreign->lkey;
    ends_in(bench, &wr, IBV_WC_LOC_PROT_ERR);
    sge = entry(bench, SOURCE, 8);
    wr.wr.rdma.rkey = foreign->rkey;
    ends_in(bench, &wr, IBV_WC_REM_ACCESS_ERR);
    wr.wr.rdma.rkey = closed->rkey;
    ends_in(bench, &wr, IBV_WC_REM_ACCESS_ERR);
    /* The region's memory is read for a write, and written for a read. */
    wr = right;
    wr.opcode = IBV_WR_RDMA_READ;
    sge.lkey = closed->lkey;
    ends_in(bench, &wr, IBV_WC_LOC_PROT_ERR);
    SUCCEEDS(ibv_dereg_mr(closed));
    SUCCEEDS(ibv_dereg_mr(foreign));
    SUCCEEDS(ibv_dealloc_pd(other));
}

/* A list longer than the queue, towards a peer that never answers: the first request that did not fit is named. */
static void too_long(const struct bench *bench)
{
    enum { MANY = 4000, NOBODY = 0xfffff0 };
    struct ibv_sge sge = entry(bench, SOURCE, 8);
    struct ibv_qp *qp = new_qp(bench, IBV_QPT_RC, NULL);
    to_init(qp);
    to_rts(bench, qp, NOBODY);
    struct ibv_send_wr *list = calloc(MANY, sizeof *list), *bad = NULL;
    for (int i = 0; i < MANY; i++) {
        list[i] = request(bench, IBV_WR_RDMA_WRITE, &sge);
        list[i].wr_id = i;
        list[i].next = i + 1 < MANY ? &list[i + 1] : NULL;
    }
    RETURNS(ENOMEM, ibv_post_send(qp, list, &bad));
    long sent = bad - list;
    CHECK(sent >= QUEUE && sent < MANY);
    RETURNS(ENOMEM, ibv_post_send(qp, bad, NULL));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    SUCCEEDS(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    for (long i = 0; i < sent; i++)
        expect(bench->cq, i, IBV_WC_WR_FLUSH_ERR, IBV_WC_RDMA_WRITE);
    free(list);
    SUCCEEDS(ibv_destroy_qp(qp));
}

void walk_wrong_posting(void)
{
    struct bench bench;
    bench_open(&bench);
    struct ibv_sge sge = entry(&bench, SOURCE, 8);
    struct ibv_send_wr wr = request(&bench, IBV_WR_SEND, &sge), *bad = NULL;
    struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad_receive = NULL;

    struct ibv_qp *qp = new_qp(&bench, IBV_QPT_RC, NULL);
    RETURNS(EINVAL, ibv_post_send(qp, &wr, &bad));
    RETURNS(EINVAL, ibv_post_recv(qp, &receive, &bad_receive));
    CHECK(bad == &wr && bad_receive == &receive);
    to_init(qp);
    RETURNS(EINVAL, ibv_post_send(qp, &wr, &bad));
    /* One more than there is room for: those before it stay. */
    refused_receives(&bench, qp);
    int posted = 0;
    while (ibv_post_recv(qp, &receive, &bad_receive) == 0)
        CHECK(++posted < 100000);
    CHECK(posted >= QUEUE && bad_receive == &receive);
    to_rts(&bench, qp, qp->qp_num);
    refused_sends(&bench, qp);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    SUCCEEDS(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
    for (int i = 0; i < posted; i++)
        expect(bench.cq, 1, IBV_WC_WR_FLUSH_ERR, 0);
    SUCCEEDS(ibv_destroy_qp(qp));

    entries_that_nobody_reads(&bench);
    too_long(&bench);
    wrong_keys(&bench);
    bench_close(&bench);
}

/* Memory that is unmapped while it is registered ends the request, not the program. */
void walk_unmapped_memory(void)
{
    struct bench bench;
    bench_open(&bench);
    char *gone = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(gone != MAP_FAILED);
    struct ibv_mr *mr = ibv_reg_mr(bench.pd, gone, 8192, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    CHECK(mr && munmap(gone + 4096, 4096) == 0);
    struct ibv_sge sge = {.addr = (uintptr_t)gone + 4096, .length = 64, .lkey = mr->lkey};
    struct ibv_send_wr wr = request(&bench, IBV_WR_RDMA_WRITE, &sge);
    ends_in(&bench, &wr, IBV_WC_LOC_PROT_ERR);
    sge = entry(&bench, SOURCE, 64);
    wr.wr.rdma.remote_addr = (uintptr_t)gone + 4096;
    wr.wr.rdma.rkey = mr->rkey;
    ends_in(&bench, &wr, IBV_WC_REM_ACCESS_ERR);
    SUCCEEDS(ibv_dereg_mr(mr));
    munmap(gone, 4096);
    bench_close(&bench);
}
