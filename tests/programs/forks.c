/* A verbs program that forks in every way that programs do. Each command is one case; status 0 is success. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "conversation.h"

extern char **environ;
static const char *own_path;

/* ---------------------------------------------------------------- processes */

static void expect_success(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void pair(int sockets[2])
{
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
}

static pid_t checked_fork(void)
{
    pid_t child = fork();
    CHECK(child >= 0);
    return child;
}

/* A child, made by fork, that asks over its end of the sockets. */
static pid_t asking_child(int sockets[2])
{
    pid_t child = checked_fork();
    if (child == 0) {
        close(sockets[0]);
        converse(sockets[1], ask);
        exit(0);
    }
    close(sockets[1]);
    return child;
}

/* A process that has nothing to do with those that fork: it answers until the socket closes. */
static pid_t start_answering(int sockets[2])
{
    pid_t child = checked_fork();
    if (child != 0) {
        close(sockets[1]);
        return child;
    }
    close(sockets[0]);
    struct end end = open_end();
    connect_end(&end, sockets[1]);
    uint32_t rounds;
    while (read(sockets[1], &rounds, sizeof rounds) == sizeof rounds)
        for (uint32_t round = 0; round < rounds; round++)
            answer(&end, round);
    close_end(&end);
    exit(0);
}

/* ---------------------------------------------------------------- traffic in the background */

static atomic_int stop_traffic;
static atomic_uint rounds_done;

struct traffic {
    pthread_t thread;
    pid_t peer;
    int socket;
    struct end end;
};

static void *run_traffic(void *data)
{
    struct traffic *traffic = data;
    while (!atomic_load(&stop_traffic)) {
        uint32_t rounds = 10;
        CHECK(write(traffic->socket, &rounds, sizeof rounds) == sizeof rounds);
        for (uint32_t round = 0; round < rounds; round++)
            ask(&traffic->end, round);
        atomic_fetch_add(&rounds_done, rounds);
    }
    return NULL;
}

/* A thread of this process that talks with another process all the time. */
static void start_traffic(struct traffic *traffic)
{
    int sockets[2];
    pair(sockets);
    traffic->peer = start_answering(sockets);
    traffic->socket = sockets[0];
    CHECK(fcntl(traffic->socket, F_SETFD, FD_CLOEXEC) == 0);
    traffic->end = open_end();
    connect_end(&traffic->end, traffic->socket);
    CHECK(pthread_create(&traffic->thread, NULL, run_traffic, traffic) == 0);
}

/* It went on all the time, with the right data. */
static void end_traffic(struct traffic *traffic)
{
    unsigned before = atomic_load(&rounds_done);
    time_t until = time(NULL) + PATIENCE_S;
    while (atomic_load(&rounds_done) < before + 20)
        CHECK(time(NULL) < until);
    atomic_store(&stop_traffic, 1);
    CHECK(pthread_join(traffic->thread, NULL) == 0);
    CHECK(shutdown(traffic->socket, SHUT_RDWR) == 0);
    expect_success(traffic->peer);
    close_end(&traffic->end);
}

/* ---------------------------------------------------------------- cases */

static void before_open(void)
{
    int sockets[2];
    pair(sockets);
    pid_t child = asking_child(sockets);
    converse(sockets[0], answer);
    expect_success(child);
}

static void after_open(void)
{
    int sockets[2];
    pair(sockets);
    struct end unused = open_end();
    pid_t child = asking_child(sockets);
    converse(sockets[0], answer);
    expect_success(child);
    close_end(&unused);
}

/* Children come and go while a thread talks: some end at once, some talk with this process. */
static void mid_traffic(void)
{
    struct traffic traffic;
    start_traffic(&traffic);
    for (int i = 0; i < 30; i++) {
        if (i % 3 == 0) {
            int sockets[2];
            pair(sockets);
            pid_t child = asking_child(sockets);
            converse(sockets[0], answer);
            expect_success(child);
            close(sockets[0]);
            continue;
        }
        pid_t child = checked_fork();
        if (child == 0) {
            if (i % 3 == 1)
                _exit(0);
            exit(0);
        }
        expect_success(child);
    }
    end_traffic(&traffic);
}

static void fork_init_called(void)
{
    CHECK(ibv_fork_init() == 0);
    CHECK(ibv_is_fork_initialized() != IBV_FORK_DISABLED);
    mid_traffic();
    CHECK(ibv_fork_init() == 0);
}

/* Whatever a child does with what it has inherited ends with an error, at once. */
static void use_inherited(struct end *end)
{
    struct ibv_sge sge = {.addr = (uintptr_t)end->memory, .length = 8, .lkey = end->mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive = NULL;
    struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send = NULL;
    CHECK(ibv_post_recv(end->qp, &receive, &bad_receive) == ENODEV && bad_receive == &receive);
    CHECK(ibv_post_send(end->qp, &send, &bad_send) == ENODEV && bad_send == &send);
    struct ibv_wc wc;
    CHECK(ibv_poll_cq(end->cq, 1, &wc) < 0);
    CHECK(ibv_req_notify_cq(end->cq, 0) == ENODEV);
    CHECK(ibv_resize_cq(end->cq, 128) == ENODEV);

    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_qp_init_attr init = {
        .send_cq = end->cq, .recv_cq = end->cq, .cap = {.max_send_wr = 1, .max_send_sge = 1}, .qp_type = IBV_QPT_RC};
    CHECK(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE) == ENODEV);
    CHECK(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init) == ENODEV);
    init.send_cq = init.recv_cq = end->cq;
    CHECK(ibv_create_qp(end->pd, &init) == NULL && errno == ENODEV);

    struct ibv_ah_attr path = {.is_global = 1, .port_num = 1};
    CHECK(ibv_query_gid(end->context, 1, 0, &path.grh.dgid) == 0 || errno == ENODEV);
    CHECK(ibv_alloc_pd(end->context) == NULL && errno == ENODEV);
    CHECK(ibv_reg_mr(end->pd, end->memory, SIZE, 0) == NULL && errno == ENODEV);
    CHECK(ibv_create_cq(end->context, 1, NULL, NULL, 0) == NULL && errno == ENODEV);
    CHECK(ibv_create_ah(end->pd, &path) == NULL && errno == ENODEV);

    struct ibv_cq *cq;
    void *cookie;
    struct ibv_async_event event;
    CHECK(ibv_get_cq_event(end->channel, &cq, &cookie) == -1 && errno == ENODEV);
    CHECK(ibv_get_async_event(end->context, &event) == -1 && errno == ENODEV);
}

static void inherited(void)
{
    int sockets[2];
    pair(sockets);
    struct traffic traffic;
    start_traffic(&traffic);
    struct end end = open_end();
    join_itself(&end);
    for (int i = 0; i < 4; i++) {
        pid_t child = checked_fork();
        if (child == 0) {
            use_inherited(&end);
            use_inherited(&traffic.end);
            /* To give them back is no error, in any child, and leaves nothing behind for its exit. */
            if (i % 2 == 0)
                close_end(&end);
            exit(0);
        }
        expect_success(child);
    }
    /* What the children did has not reached the parent's objects. */
    struct ibv_wc wc;
    CHECK(ibv_poll_cq(end.cq, 1, &wc) == 0);
    ask_itself(&end, 7);
    end_traffic(&traffic);
    close_end(&end);
}

/* A process, its child and its grandchild talk with each other, each on a device of its own. */
static void grandchild(void)
{
    int with_child[2], with_grandchild[2], between[2];
    pair(with_child);
    pair(with_grandchild);
    pair(between);
    struct end unused = open_end();
    pid_t child = checked_fork();
    if (child == 0) {
        struct end unused_too = open_end();
        pid_t own_child = checked_fork();
        if (own_child == 0) {
            converse(between[1], ask);
            converse(with_grandchild[1], ask);
            exit(0);
        }
        converse(between[0], answer);
        converse(with_child[1], ask);
        expect_success(own_child);
        close_end(&unused_too);
        exit(0);
    }
    converse(with_child[0], answer);
    converse(with_grandchild[0], answer);
    expect_success(child);
    close_end(&unused);
}

/* Sockets and other descriptors of devices end at exec: only the standard ones and the given one are open. */
static void executed(int socket)
{
    for (int fd = 3; fd < 256; fd++)
        if (fd != socket && fcntl(fd, F_GETFD) != -1) {
            char entry[64];
            snprintf(entry, sizeof entry, "ls -l /proc/%d/fd >&2", getpid());
            CHECK(system(entry) == 0 && !"a descriptor has outlived exec");
        }
    converse(socket, ask);
}

static void fork_and_exec(void)
{
    struct traffic traffic;
    start_traffic(&traffic);
    for (int i = 0; i < 5; i++) {
        int sockets[2];
        pair(sockets);
        CHECK(fcntl(sockets[0], F_SETFD, FD_CLOEXEC) == 0);
        pid_t child = checked_fork();
        if (child == 0) {
            char number[16];
            snprintf(number, sizeof number, "%d", sockets[1]);
            execl(own_path, own_path, "executed", number, NULL);
            _exit(9);
        }
        close(sockets[1]);
        converse(sockets[0], answer);
        expect_success(child);
        close(sockets[0]);
    }
    end_traffic(&traffic);
}

/* Ways to start a program that copy no memory, and run no handlers. */
static void spawn(void)
{
    struct traffic traffic;
    start_traffic(&traffic);
    char *words[] = {"true", NULL};
    for (int i = 0; i < 30; i++) {
        CHECK(system("exit 0") == 0);
        pid_t child;
        CHECK(posix_spawnp(&child, "true", NULL, NULL, words, environ) == 0);
        expect_success(child);
        child = vfork();
        if (child == 0) {
            execvp("true", words);
            _exit(9);
        }
        CHECK(child > 0);
        expect_success(child);
        FILE *pipe = popen("echo heard", "r");
        char line[16];
        CHECK(pipe && fgets(line, sizeof line, pipe) && strcmp(line, "heard\n") == 0 && pclose(pipe) == 0);
    }
    end_traffic(&traffic);
}

/* The process that opened a device goes, and its child goes on in the background. */
static void becomes_daemon(void)
{
    int sockets[2];
    pair(sockets);
    pid_t launcher = checked_fork();
    if (launcher == 0) {
        struct end unused = open_end();
        CHECK(daemon(1, 1) == 0);
        use_inherited(&unused);
        converse(sockets[1], ask);
        exit(0);
    }
    close(sockets[1]);
    expect_success(launcher);
    converse(sockets[0], answer);
    /* The daemon is nobody's child: its end shows at the socket. */
    char mark;
    CHECK(read(sockets[0], &mark, 1) == 0);
}

/* A child that has answered, and ends right after one more message without running the handlers of exit, has
 * acknowledged it. */
static void child_leaves_at_once(void)
{
    for (int i = 0; i < 20; i++) {
        int sockets[2];
        pair(sockets);
        pid_t child = checked_fork();
        struct end end = open_end();
        connect_end(&end, sockets[child == 0]);
        for (uint32_t round = 0; round < 300; round++)
            (child == 0 ? answer : ask)(&end, round);
        if (child == 0) {
            await_one(&end, &end.received);
            _exit(0);
        }
        send_round(&end, 300);
        await_one(&end, &end.sent);
        expect_success(child);
        close_end(&end);
    }
}

/* A child of vfork works in its parent's memory, with files of its own: its end is not the end of its parent's devices,
 * and what they owe is sent by them. Programs that start others close files first, and leave when there is no such
 * program. */
static void vfork_leaves(void)
{
    /* The lost acknowledgement that shows is not asked for again. */
    struct patience no_patience = {.min_rnr_timer = 12, .timeout = 19 /* 2 s */, .rnr_retry = 7};
    for (int i = 0; i < 20; i++) {
        int sockets[2];
        pair(sockets);
        pid_t peer = checked_fork();
        struct end end = open_end();
        connect_with(&end, sockets[peer == 0], no_patience);
        for (uint32_t round = 0; round < 300; round++)
            (peer == 0 ? ask : answer)(&end, round);
        if (peer == 0) {
            send_round(&end, 300);
            await_one(&end, &end.sent);
            exit(0);
        }
        await_one(&end, &end.received);
        pid_t child = vfork();
        if (child == 0) {
            close_range(3, ~0U, 0);
            _exit(0);
        }
        CHECK(child > 0);
        expect_success(child);
        expect_success(peer);
        close_end(&end);
    }
}

static atomic_int stop_control;

static void *control_verbs(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop_control)) {
        struct end end = open_end();
        join_itself(&end);
        close_end(&end);
    }
    return NULL;
}

static void *wait_for_events(void *data)
{
    struct end *end = data;
    struct ibv_cq *cq;
    void *cookie;
    ibv_get_cq_event(end->channel, &cq, &cookie);
    return NULL;
}

/* Forks hit other threads in the middle of any verb, with whatever lock they hold. */
static void mid_control(void)
{
    struct end end = open_end();
    pthread_t threads[2], waiting;
    CHECK(pthread_create(&waiting, NULL, wait_for_events, &end) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, control_verbs, NULL) == 0);
    for (int i = 0; i < 60; i++) {
        pid_t child = checked_fork();
        if (child == 0) {
            alarm(PATIENCE_S);
            struct end own = open_end();
            join_itself(&own);
            ask_itself(&own, (uint32_t)i);
            close_end(&own);
            exit(0);
        }
        expect_success(child);
    }
    atomic_store(&stop_control, 1);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(pthread_cancel(waiting) == 0 && pthread_join(waiting, NULL) == 0);
    close_end(&end);
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"before-open", before_open},     {"after-open", after_open},   {"mid-traffic", mid_traffic},
        {"fork-init", fork_init_called},  {"inherited", inherited},     {"grandchild", grandchild},
        {"exec", fork_and_exec},          {"spawn", spawn},             {"daemon", becomes_daemon},
        {"mid-control", mid_control},     {"leaves-at-once", child_leaves_at_once},
        {"vfork-leaves", vfork_leaves},
    };
    own_path = words[0];
    /* A process that hangs is killed, and its parent tells. */
    alarm(2 * PATIENCE_S);
    if (count == 3 && strcmp(words[1], "executed") == 0) {
        executed(atoi(words[2]));
        return 0;
    }
    /* What was open before this program is none of its business. */
    CHECK(close_range(3, ~0U, 0) == 0);
    for (size_t i = 0; count == 2 && i < sizeof cases / sizeof *cases; i++)
        if (strcmp(words[1], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
    fprintf(stderr, "no such case\n");
    return 2;
}
