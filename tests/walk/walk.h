/* A walk through every exported symbol and inline function of libibverbs, with right and wrong arguments. One program
 * of several files, each about one kind of object; `main.c` names the stretches of the walk. */
#pragma once

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s does not hold (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno,         \
                    strerror(errno));                                                                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* A verb that returns 0 or an error number must return this one. */
#define RETURNS(expected, call)                                                                                        \
    do {                                                                                                               \
        int returned_ = (call);                                                                                        \
        if (returned_ != (expected)) {                                                                                 \
            fprintf(stderr, "%s:%d: %s returned %d (%s), not %d (errno %d)\n", __FILE__, __LINE__, #call, returned_,   \
                    strerror(returned_ < 0 ? -returned_ : returned_), (expected), errno);                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define SUCCEEDS(call) RETURNS(0, call)

/* A verb that returns a pointer must return NULL and set this error number. */
#define REFUSES(expected, call)                                                                                        \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        const void *returned_ = (call);                                                                                \
        if (returned_ || errno != (expected)) {                                                                        \
            fprintf(stderr, "%s:%d: %s returned %p with errno %d (%s), not NULL with %d\n", __FILE__, __LINE__, #call, \
                    returned_, errno, strerror(errno), (expected));                                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* A verb that returns -1 must set this error number. */
#define FAILS(expected, call)                                                                                          \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        long returned_ = (long)(call);                                                                                 \
        if (returned_ != -1 || errno != (expected)) {                                                                  \
            fprintf(stderr, "%s:%d: %s returned %ld with errno %d (%s), not -1 with %d\n", __FILE__, __LINE__, #call,  \
                    returned_, errno, strerror(errno), (expected));                                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Exported, and in no header that Debian installs. */
int ibv_dontfork_range(void *start, size_t size);
int ibv_dofork_range(void *start, size_t size);
int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey);
const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *directory, const char *file, char *text, size_t size);
void ibv_copy_ah_attr_from_kern(void *to, void *from);
void ibv_copy_qp_attr_from_kern(void *to, void *from);
void ibv_copy_path_rec_from_kern(void *to, void *from);
void ibv_copy_path_rec_to_kern(void *to, void *from);

enum { BUFFER_BYTES = 16384, QUEUE = 64, SGES = 2, QKEY = 0x1ee7, INLINE_BYTES = 64 };

/* What most stretches begin with: an open device, a domain, a queue, and registered memory of two halves. */
struct bench {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    char *memory;
    union ibv_gid gid;
};

/* Two queue pairs of one process that are connected with each other. */
struct pair {
    struct ibv_qp *qp[2];
};

/* How one half of the memory is used: the first is sent from, the second received into. */
enum half { SOURCE, TARGET };

/* support.c */
struct ibv_context *open_first(void);
void bench_open(struct bench *bench);
void bench_close(struct bench *bench);
char *half_of(const struct bench *bench, enum half half);
struct ibv_sge entry(const struct bench *bench, enum half half, uint32_t length);
struct ibv_qp *new_qp(const struct bench *bench, enum ibv_qp_type type, struct ibv_srq *srq);
struct ibv_qp *new_builder_qp(const struct bench *bench, enum ibv_qp_type type, uint64_t operations);
void to_init(struct ibv_qp *qp);
void to_rts(const struct bench *bench, struct ibv_qp *qp, uint32_t peer);
struct pair connected(const struct bench *bench, enum ibv_qp_type type);
void connect_pair(const struct bench *bench, struct pair *pair);
void pair_destroy(struct pair *pair);
struct ibv_ah *way_to_self(const struct bench *bench);
void post_receive(const struct bench *bench, struct ibv_qp *qp, uint64_t wr_id);
struct ibv_wc next_completion(struct ibv_cq *cq);
struct ibv_wc expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status, enum ibv_wc_opcode opcode);
void fill(const struct bench *bench, char seed);
void expect_same(const struct bench *bench, uint32_t length);

/* One stretch a function; each stands in the table of main.c. */
void walk_devices(void);
void walk_ports(void);
void walk_texts(void);
void walk_domains(void);
void walk_memory(void);
void walk_device_memory(void);
void walk_completion_queues(void);
void walk_extended_polling(void);
void walk_queue_pairs(void);
void walk_states(void);
void walk_posting(void);
void walk_wrong_posting(void);
void walk_unmapped_memory(void);
void walk_builder(void);
void walk_wrong_building(void);
void walk_shared_receive_queues(void);
void walk_extended_connections(void);
void walk_datagrams(void);
void walk_groups(void);
void walk_windows(void);
void walk_events(void);
void walk_refusals(void);
void walk_history(void);
void walk_threads(void);
