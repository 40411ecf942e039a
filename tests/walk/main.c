/* Walks one stretch, named by the argument, or all of them, one after another. */
#include "walk.h"

#include <unistd.h>

static const struct {
    const char *name;
    void (*walk)(void);
} STRETCHES[] = {
    {"devices", walk_devices},
    {"ports", walk_ports},
    {"texts", walk_texts},
    {"domains", walk_domains},
    {"memory", walk_memory},
    {"device-memory", walk_device_memory},
    {"completion-queues", walk_completion_queues},
    {"extended-polling", walk_extended_polling},
    {"queue-pairs", walk_queue_pairs},
    {"states", walk_states},
    {"posting", walk_posting},
    {"wrong-posting", walk_wrong_posting},
    {"builder", walk_builder},
    {"wrong-building", walk_wrong_building},
    {"shared-receive-queues", walk_shared_receive_queues},
    {"extended-connections", walk_extended_connections},
    {"datagrams", walk_datagrams},
    {"groups", walk_groups},
    {"windows", walk_windows},
    {"events", walk_events},
    {"refusals", walk_refusals},
    {"history", walk_history},
    {"threads", walk_threads},
};

int main(int argc, char **argv)
{
    enum { HANG_SECONDS = 100 };
    int walked = 0;
    alarm(HANG_SECONDS);
    for (size_t i = 0; i < sizeof STRETCHES / sizeof *STRETCHES; i++) {
        if (argc > 1 && strcmp(argv[1], STRETCHES[i].name) != 0)
            continue;
        printf("%s\n", STRETCHES[i].name);
        fflush(stdout);
        STRETCHES[i].walk();
        walked++;
    }
    if (walked == 0)
        fprintf(stderr, "there is no stretch %s\n", argv[1]);
    return walked == 0;
}
