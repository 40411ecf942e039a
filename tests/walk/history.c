/* Names that programs reach by version: those of the first release, and the private ones of vendor libraries. */
#define _GNU_SOURCE
#include "walk.h"

#include <dlfcn.h>

typedef long (*function)(void *, void *, void *, void *);

static function find(const char *name, const char *version)
{
    void *found = dlvsym(RTLD_DEFAULT, name, version);
    if (!found)
        fprintf(stderr, "there is no %s@%s\n", name, version);
    CHECK(found);
    function call;
    memcpy(&call, &found, sizeof call);
    return call;
}

/* Names whose functions return nothing. */
static bool returns_nothing(const char *name)
{
    static const char *const NOTHING[] = {
        "ibv_ack_async_event", "ibv_ack_cq_events",        "ibv_free_device_list", "ibv_register_driver", "__verbs_log",
        "verbs_init_cq",       "verbs_register_driver_34", "verbs_set_ops",        "verbs_uninit_context",
        "__ioctl_final_num_attrs"};
    for (size_t i = 0; i < sizeof NOTHING / sizeof *NOTHING; i++)
        if (strcmp(name, NOTHING[i]) == 0)
            return true;
    return false;
}

/* A number that is an error, or NULL with one; some set -1. */
static void is_refused(const char *name, const char *version)
{
    errno = 0;
    long result = find(name, version)(NULL, NULL, NULL, NULL);
    bool refused = (int)result == EOPNOTSUPP || (int)result == EINVAL || (result == 0 && errno == EOPNOTSUPP) ||
                   ((int)result == -1 && errno != 0);
    if (!refused && !returns_nothing(name)) {
        fprintf(stderr, "%s@%s returned %ld with errno %d\n", name, version, result, errno);
        exit(1);
    }
}

/* Of the list of exported symbols that the variable names: programs of the first release had other structs, and no
 * driver can come behind this library. All such names are refused, whatever is passed. */
static void old_and_private_names(void)
{
    const char *path = getenv("WALK_EXPORTS");
    FILE *list = path ? fopen(path, "r") : NULL;
    CHECK(list && "WALK_EXPORTS names the list of exported symbols");
    char name[100], version[100], visibility[100], section[100], kind[100];
    int called = 0;
    while (fscanf(list, "%99s %99s %99s %99s %*s %99s %*s", name, version, visibility, section, kind) == 5) {
        if (strcmp(kind, "DF") == 0 && (strcmp(visibility, "hidden") == 0 || strstr(version, "PRIVATE"))) {
            is_refused(name, version);
            called++;
        }
    }
    fclose(list);
    CHECK(called > 100);
    const bool *flag = dlvsym(RTLD_DEFAULT, "verbs_allow_disassociate_destroy", "IBVERBS_PRIVATE_34");
    CHECK(flag && !*flag);
}

static void gid_types(void)
{
    struct ibv_context *context = open_first();
    int (*query)(struct ibv_context *, uint8_t, unsigned, int *);
    function found = find("ibv_query_gid_type", "IBVERBS_PRIVATE_34");
    memcpy(&query, &found, sizeof query);
    int type = -1;
    SUCCEEDS(query(context, 1, 0, &type));
    CHECK(type == 1);
    CHECK(query(NULL, 1, 0, &type) == -1 && query(context, 1, 0, NULL) == -1);
    (void)query(context, 77, UINT32_MAX, &type);
    SUCCEEDS(ibv_close_device(context));
}

void walk_history(void)
{
    old_and_private_names();
    gid_types();
}
