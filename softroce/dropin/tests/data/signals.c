/* What becomes of a signal that somebody sends to a program with a device, and of lists of devices over a fork.
 * `signals ignored|default|handled NUMBER`, `signals forked`; status 0 is success. */
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition);                                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static volatile sig_atomic_t got;
static volatile sig_atomic_t sender;

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    got = number;
    sender = info->si_pid;
}

static struct ibv_context *open_first(void)
{
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count > 0);
    struct ibv_context *context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    CHECK(context);
    return context;
}

/* Both before the device is there and after: ours stands in front from then on. */
static void send_signal(const char *disposition, int number)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO, .sa_sigaction = on_signal};
    if (strcmp(disposition, "ignored") == 0)
        action = (struct sigaction){.sa_handler = SIG_IGN};
    else if (strcmp(disposition, "default") == 0)
        action = (struct sigaction){.sa_handler = SIG_DFL};
    CHECK(sigaction(number, &action, NULL) == 0);
    struct ibv_context *context = open_first();
    /* Twice: the first must not use up what stands in front. */
    for (int i = 0; i < 2; i++) {
        got = 0;
        CHECK(kill(getpid(), number) == 0);
        CHECK(strcmp(disposition, "default") != 0);
        if (strcmp(disposition, "handled") == 0)
            CHECK(got == number && sender == getpid());
    }
    CHECK(ibv_close_device(context) == 0);
}

static void forked(void)
{
    CHECK(ibv_close_device(open_first()) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    CHECK(ibv_close_device(open_first()) == 0);
    /* By exit, at which the leaks of each are looked for. */
    if (child == 0)
        exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
    alarm(20);
    if (argc == 3)
        send_signal(argv[1], atoi(argv[2]));
    else if (argc == 2 && strcmp(argv[1], "forked") == 0)
        forked();
    else
        return 2;
    return 0;
}
