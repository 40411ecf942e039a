/* Protection domains, memory regions, device memory. */
#include "walk.h"

#include <sys/mman.h>

void walk_domains(void)
{
    struct bench bench;
    bench_open(&bench);
    RETURNS(EBUSY, ibv_dealloc_pd(bench.pd));
    REFUSES(EINVAL, ibv_alloc_pd(NULL));
    RETURNS(EINVAL, ibv_dealloc_pd(NULL));

    struct ibv_td_init_attr td_init = {0};
    struct ibv_td *td = ibv_alloc_td(bench.context, &td_init);
    CHECK(td && td->context == bench.context);
    td_init.comp_mask = ~0u;
    REFUSES(EINVAL, ibv_alloc_td(bench.context, &td_init));
    REFUSES(EINVAL, ibv_alloc_td(bench.context, NULL));

    struct ibv_parent_domain_init_attr init = {.pd = bench.pd, .td = td};
    struct ibv_pd *parent = ibv_alloc_parent_domain(bench.context, &init);
    CHECK(parent && parent->context == bench.context);
    /* Objects of a parent domain are objects of the domain beneath. */
    struct ibv_mr *mr = ibv_reg_mr(parent, bench.memory, 64, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr && mr->pd == parent);
    RETURNS(EBUSY, ibv_dealloc_pd(parent));
    SUCCEEDS(ibv_dereg_mr(mr));
    RETURNS(EBUSY, ibv_dealloc_td(td));
    SUCCEEDS(ibv_dealloc_pd(parent));
    init.comp_mask = 1u << 30;
    REFUSES(EINVAL, ibv_alloc_parent_domain(bench.context, &init));
    init = (struct ibv_parent_domain_init_attr){0};
    REFUSES(EINVAL, ibv_alloc_parent_domain(bench.context, &init));
    REFUSES(EINVAL, ibv_alloc_parent_domain(bench.context, NULL));
    SUCCEEDS(ibv_dealloc_td(td));
    RETURNS(EINVAL, verbs_get_ctx(bench.context)->dealloc_td(NULL));
    bench_close(&bench);
}

static void wrong_registrations(const struct bench *bench)
{
    char *memory = bench->memory;
    REFUSES(EINVAL, ibv_reg_mr(NULL, memory, 64, 0));
    REFUSES(EINVAL, ibv_reg_mr(bench->pd, memory, 64, IBV_ACCESS_REMOTE_WRITE));
    REFUSES(EINVAL, ibv_reg_mr(bench->pd, memory, 64, IBV_ACCESS_REMOTE_ATOMIC));
    REFUSES(EINVAL, ibv_reg_mr(bench->pd, memory, 64, 1 << 17));
    REFUSES(EINVAL, ibv_reg_mr_iova2(NULL, memory, 64, 0, 0));
    CHECK(ibv_reg_mr(bench->pd, (void *)4096, 4096, 0) == NULL && errno == EFAULT);
    CHECK(ibv_reg_mr(bench->pd, memory, SIZE_MAX, 0) == NULL);
    CHECK(ibv_reg_mr(bench->pd, (void *)-4096, 8192, 0) == NULL);
    CHECK(ibv_reg_mr_iova(bench->pd, memory, 64, UINT64_MAX - 8, 0) == NULL);
    CHECK(ibv_reg_mr(bench->pd, memory, (size_t)1 << 60, IBV_ACCESS_LOCAL_WRITE) == NULL);
    /* What may be read only, may be registered so only. */
    void *constant = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(constant != MAP_FAILED);
    struct ibv_mr *mr = ibv_reg_mr(bench->pd, constant, 4096, IBV_ACCESS_REMOTE_READ);
    CHECK(mr);
    SUCCEEDS(ibv_dereg_mr(mr));
    CHECK(ibv_reg_mr(bench->pd, constant, 4096, IBV_ACCESS_LOCAL_WRITE) == NULL);
    munmap(constant, 4096);
    RETURNS(EINVAL, ibv_dereg_mr(NULL));
}

static void change(const struct bench *bench)
{
    struct ibv_pd *other = ibv_alloc_pd(bench->context);
    struct ibv_mr *mr = ibv_reg_mr(bench->pd, bench->memory, 64, IBV_ACCESS_LOCAL_WRITE);
    CHECK(other && mr && mr->addr == bench->memory && mr->length == 64 && mr->pd == bench->pd);
    SUCCEEDS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, bench->memory + 64, 32, 0));
    CHECK(mr->addr == bench->memory + 64 && mr->length == 32);
    SUCCEEDS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ));
    SUCCEEDS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0));
    CHECK(mr->pd == other);
    RETURNS(EBUSY, ibv_dealloc_pd(other));
    int refused = IBV_REREG_MR_ERR_INPUT;
    RETURNS(refused, ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0));
    RETURNS(refused, ibv_rereg_mr(mr, 1 << 20, NULL, NULL, 0, 0));
    RETURNS(refused, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0));
    RETURNS(refused, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE));
    RETURNS(refused, ibv_rereg_mr(NULL, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0));
    CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (void *)4096, 4096, 0) < 0);
    CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, bench->memory, SIZE_MAX, 0) < 0);
    SUCCEEDS(ibv_dereg_mr(mr));
    SUCCEEDS(ibv_dealloc_pd(other));
}

/* Advice is about regions with pages on demand. */
static void advice(const struct bench *bench)
{
    struct ibv_mr *mr = ibv_reg_mr(bench->pd, bench->memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    struct ibv_sge part = {.addr = (uintptr_t)bench->memory, .length = 4096, .lkey = mr ? mr->lkey : 0};
    int advised = ibv_advise_mr(bench->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &part, 1);
    CHECK(mr ? advised == 0 : advised != 0);
    SUCCEEDS(mr ? ibv_advise_mr(bench->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &part, 1) : 0);
    CHECK(ibv_advise_mr(bench->pd, (enum ibv_advise_mr_advice)77, 0, &part, 1) != 0);
    CHECK(ibv_advise_mr(bench->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, ~0u, &part, 1) != 0);
    CHECK(ibv_advise_mr(bench->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, NULL, UINT32_MAX) != 0);
    struct ibv_sge wrong = part;
    wrong.lkey ^= 0x55555500;
    CHECK(ibv_advise_mr(bench->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &wrong, 1) != 0);
    wrong = part;
    wrong.addr = UINT64_MAX - 3;
    CHECK(ibv_advise_mr(bench->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &wrong, 1) != 0);
    if (mr)
        SUCCEEDS(ibv_dereg_mr(mr));
}

void walk_memory(void)
{
    struct bench bench;
    bench_open(&bench);
    struct ibv_mr *all[5] = {
        (ibv_reg_mr)(bench.pd, bench.memory, 4096, IBV_ACCESS_LOCAL_WRITE),
        (ibv_reg_mr_iova)(bench.pd, bench.memory, 4096, 0, IBV_ACCESS_LOCAL_WRITE),
        ibv_reg_mr_iova(bench.pd, bench.memory, 4096, 1 << 20, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING),
        ibv_reg_mr_iova2(bench.pd, bench.memory, 4096, 0x123, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING),
        ibv_reg_mr_iova(bench.pd, bench.memory, 1, UINT64_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED),
    };
    for (int i = 0; i < 4; i++) {
        CHECK(all[i] && all[i]->length == 4096 && all[i]->addr == bench.memory);
        for (int k = 0; k < i; k++)
            CHECK(all[i]->lkey != all[k]->lkey && all[i]->rkey != all[k]->rkey);
    }
    for (int i = 0; i < 5; i++)
        if (all[i])
            SUCCEEDS(ibv_dereg_mr(all[i]));
    struct ibv_mr *empty = ibv_reg_mr(bench.pd, NULL, 0, 0);
    if (empty)
        SUCCEEDS(ibv_dereg_mr(empty));

    wrong_registrations(&bench);
    change(&bench);
    /* Forking is safe with or without. */
    SUCCEEDS(ibv_dontfork_range(bench.memory, 4096));
    SUCCEEDS(ibv_dofork_range(bench.memory, 4096));

    /* What a device may do without; if it does not, then properly. */
    struct ibv_mr *null_mr = ibv_alloc_null_mr(bench.pd);
    CHECK(null_mr || errno == EOPNOTSUPP);
    if (null_mr)
        SUCCEEDS(ibv_dereg_mr(null_mr));
    advice(&bench);
    bench_close(&bench);
}

void walk_device_memory(void)
{
    struct bench bench;
    bench_open(&bench);
    struct ibv_alloc_dm_attr attr = {.length = 4096, .log_align_req = 3};
    struct ibv_dm *dm = ibv_alloc_dm(bench.context, &attr);
    CHECK(dm && dm->context == bench.context);
    char text[8] = "device", back[8] = {0};
    SUCCEEDS(ibv_memcpy_to_dm(dm, 4088, text, 8));
    SUCCEEDS(ibv_memcpy_from_dm(back, dm, 4088, 8));
    CHECK(memcmp(text, back, 8) == 0);
    CHECK(ibv_memcpy_to_dm(dm, 4089, text, 8) != 0 && ibv_memcpy_from_dm(back, dm, 4096, 1) != 0);
    CHECK(ibv_memcpy_to_dm(dm, UINT64_MAX, text, 8) != 0 && ibv_memcpy_from_dm(back, dm, UINT64_MAX - 3, 8) != 0);
    CHECK(ibv_memcpy_to_dm(dm, 0, NULL, 8) == EINVAL && ibv_memcpy_from_dm(NULL, dm, 0, 8) == EINVAL);
    SUCCEEDS(ibv_memcpy_to_dm(dm, 0, NULL, 0));

    unsigned access = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    struct ibv_mr *mr = ibv_reg_dm_mr(bench.pd, dm, 0, 4096, access);
    CHECK(mr && mr->length == 4096);
    RETURNS(EBUSY, ibv_free_dm(dm));
    REFUSES(EINVAL, ibv_reg_dm_mr(bench.pd, dm, 1, 4096, access));
    CHECK(ibv_reg_dm_mr(bench.pd, dm, UINT64_MAX, 4096, access) == NULL);
    CHECK(ibv_reg_dm_mr(bench.pd, dm, 0, SIZE_MAX, access) == NULL);
    CHECK(ibv_reg_dm_mr(bench.pd, dm, 0, 4096, 1 << 17) == NULL && ibv_reg_dm_mr(bench.pd, NULL, 0, 8, access) == NULL);

    /* It is sent from as other memory is. */
    struct pair pair = connected(&bench, IBV_QPT_RC);
    post_receive(&bench, pair.qp[1], 1);
    struct ibv_sge sge = {.addr = 4088, .length = 8, .lkey = mr->lkey};
    struct ibv_send_wr send = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    SUCCEEDS(ibv_post_send(pair.qp[0], &send, &bad));
    expect(bench.cq, 1, IBV_WC_SUCCESS, IBV_WC_RECV);
    CHECK(memcmp(half_of(&bench, TARGET), "device", 7) == 0);
    pair_destroy(&pair);

    SUCCEEDS(ibv_dereg_mr(mr));
    SUCCEEDS(ibv_free_dm(dm));
    attr.length = 0;
    CHECK(ibv_alloc_dm(bench.context, &attr) == NULL);
    attr = (struct ibv_alloc_dm_attr){.length = SIZE_MAX};
    CHECK(ibv_alloc_dm(bench.context, &attr) == NULL);
    attr = (struct ibv_alloc_dm_attr){.length = 64, .log_align_req = UINT32_MAX};
    CHECK(ibv_alloc_dm(bench.context, &attr) == NULL);
    attr = (struct ibv_alloc_dm_attr){.length = 64, .comp_mask = ~0u};
    CHECK(ibv_alloc_dm(bench.context, &attr) == NULL);
    REFUSES(EINVAL, ibv_alloc_dm(bench.context, NULL));
    RETURNS(EINVAL, verbs_get_ctx(bench.context)->free_dm(NULL));
    bench_close(&bench);
}
