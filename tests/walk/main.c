/* Walks the stretches that the arguments name, or all but one: `walk`, `walk posting builder`, `walk --without events`. */
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
    {"unmapped-memory", walk_unmapped_memory},
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

static bool is_wanted(const char *name, char **arguments)
{
    bool without = arguments[0] && strcmp(arguments[0], "--without") == 0;
    bool named = false;
    for (char **argument = arguments; *argument; argument++)
        named |= strcmp(*argument, name) == 0;
    return arguments[0] == NULL || named != without;
}

int main(int argc, char **argv)
{
    enum { HANG_SECONDS = 100 };
    int walked = 0;
    (void)argc;
    alarm(HANG_SECONDS);
    for (size_t i = 0; i < sizeof STRETCHES / sizeof *STRETCHES; i++) {
        if (!is_wanted(STRETCHES[i].name, argv + 1))
            continue;
        printf("%s\n", STRETCHES[i].name);
        fflush(stdout);
        STRETCHES[i].walk();
        walked++;
    }
    printf("%d stretches walked\n", walked);
    return walked == 0;
}
