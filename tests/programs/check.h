/* What the programs here share. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Ends the process with status 1 and words unless the condition holds. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "process %d, line %d: %s does not hold (errno %d)\n", getpid(), __LINE__, #condition,     \
                    errno);                                                                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* The first device. */
__attribute__((unused)) static struct ibv_context *open_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    return context;
}

#endif
