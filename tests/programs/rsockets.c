/* The calls of rsocket(7), as a program makes them: `rsockets ADDRESS calls`, or `killed`. A child listens and a parent connects; each has sockets of its own. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"

#define LAST_BYTES 300000

/* Fails with this number. */
#define REFUSED(call, number) CHECK((errno = 0, (call) == -1) && errno == (number))

static struct sockaddr_in address_of(const char *ip)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7471)};
    CHECK(inet_pton(AF_INET, ip, &address.sin_addr) == 1);
    return address;
}

static void expect(int socket, const char *text)
{
    char bytes[64] = "";
    CHECK(rrecv(socket, bytes, strlen(text), MSG_WAITALL) == (ssize_t)strlen(text));
    CHECK(memcmp(bytes, text, strlen(text)) == 0);
}

/* ---------------------------------------------------------------- the child */

static void serve(const char *ip)
{
    struct sockaddr_in address = address_of(ip), peer;
    socklen_t length = sizeof peer;
    int one = 1, listener = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(listener >= 0);
    CHECK(rsetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0);
    CHECK(rbind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(rlisten(listener, 4) == 0);
    struct pollfd entry = {.fd = listener, .events = POLLIN};
    CHECK(rpoll(&entry, 1, 20000) == 1 && entry.revents == POLLIN);
    int socket = raccept(listener, (struct sockaddr *)&peer, &length);
    CHECK(socket >= 0 && length == sizeof peer && peer.sin_family == AF_INET && peer.sin_port != 0);
    CHECK(rclose(listener) == 0);
    REFUSED(rclose(listener), EBADF);

    expect(socket, "say");
    CHECK(rwrite(socket, "something", 9) == 9);
    expect(socket, "gathered in three");
    CHECK(rsend(socket, "to be scattered", 15, MSG_NOSIGNAL) == 15);
    expect(socket, "go on");
    CHECK(rsend(socket, "on", 2, 0) == 2);
    expect(socket, "end");
    static char last[LAST_BYTES];
    memset(last, 'x', sizeof last);
    CHECK(rwrite(socket, last, sizeof last) == sizeof last);
    /* Without rclose: as for other sockets, what was written arrives, and then the end. */
    exit(0);
}

/* ---------------------------------------------------------------- the parent */

static int connect_to(const char *ip)
{
    struct sockaddr_in address = address_of(ip), name;
    for (int tries = 0; tries < 400; tries++) {
        int socket = rsocket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
        CHECK(socket >= 0);
        if (rconnect(socket, (struct sockaddr *)&address, sizeof address) == 0) {
            socklen_t length = sizeof name;
            CHECK(rgetpeername(socket, (struct sockaddr *)&name, &length) == 0);
            CHECK(name.sin_port == address.sin_port && name.sin_addr.s_addr == address.sin_addr.s_addr);
            return socket;
        }
        CHECK(errno == ECONNREFUSED);
        CHECK(rclose(socket) == 0);
        usleep(50000);
    }
    CHECK(!"it does not listen");
    return -1;
}

static int option(int socket, int level, int name)
{
    int value = -1;
    socklen_t length = sizeof value;
    CHECK(rgetsockopt(socket, level, name, &value, &length) == 0 && length == sizeof value);
    return value;
}

static void options(void)
{
    int socket = rsocket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1, small = 1, many = 100;
    CHECK(socket >= 0);
    CHECK(option(socket, SOL_SOCKET, SO_TYPE) == SOCK_STREAM && option(socket, SOL_SOCKET, SO_DOMAIN) == AF_INET6);
    CHECK(rfcntl(socket, F_GETFL) == (O_RDWR | O_NONBLOCK));
    CHECK(rfcntl(socket, F_SETFL, 0) == 0 && rfcntl(socket, F_GETFL) == O_RDWR);
    CHECK(rsetsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    CHECK(option(socket, IPPROTO_TCP, TCP_NODELAY) == 1);
    CHECK(rsetsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) == 0);
    CHECK(rsetsockopt(socket, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    CHECK(option(socket, SOL_SOCKET, SO_RCVBUF) >= 256);
    CHECK(rsetsockopt(socket, SOL_RDMA, RDMA_SQSIZE, &many, sizeof many) == 0);
    CHECK(option(socket, SOL_RDMA, RDMA_SQSIZE) == 100);
    struct linger linger = {.l_onoff = 1, .l_linger = 3}, read;
    socklen_t length = sizeof read;
    CHECK(rsetsockopt(socket, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    CHECK(rgetsockopt(socket, SOL_SOCKET, SO_LINGER, &read, &length) == 0 && read.l_onoff == 1 && read.l_linger == 3);
    REFUSED(rsetsockopt(socket, SOL_SOCKET, 9999, &one, sizeof one), ENOPROTOOPT);
    REFUSED(rsetsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &one, 1), EINVAL);
    REFUSED(rsetsockopt(socket, SOL_SOCKET, SO_REUSEADDR, NULL, sizeof one), EFAULT);
    int too_many = 1 << 20;
    REFUSED(rsetsockopt(socket, SOL_RDMA, RDMA_IOMAPSIZE, &too_many, sizeof too_many), EINVAL);
    CHECK(rclose(socket) == 0);
}

static void refusals(int pipe_end)
{
    char byte;
    struct sockaddr_in address = address_of("127.0.0.1");
    REFUSED(rsocket(AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
    REFUSED(rsocket(AF_INET, SOCK_RAW, 0), EPROTONOSUPPORT);
    REFUSED(rrecv(pipe_end, &byte, 1, 0), EBADF);
    REFUSED(rclose(-1), EBADF);
    int socket = rsocket(AF_INET, SOCK_STREAM, 0);
    REFUSED(rrecv(socket, &byte, 1, 0), ENOTCONN);
    REFUSED(rsend(socket, NULL, 1, 0), EFAULT);
    REFUSED(rsend(socket, &byte, 1, MSG_OOB), EOPNOTSUPP);
    REFUSED(rbind(socket, NULL, sizeof address), EINVAL);
    REFUSED(rbind(socket, (struct sockaddr *)&address, 3), EINVAL);
    REFUSED(rreadv(socket, NULL, -1), EINVAL);
    REFUSED(raccept(socket, NULL, NULL), EINVAL);
    REFUSED(rshutdown(socket, 7), EINVAL);
    REFUSED(rfcntl(socket, F_DUPFD, 0), EINVAL);
    REFUSED(riomap(socket, &byte, 1, PROT_READ, 0, -1), EINVAL);
    REFUSED(riomap(socket, &byte, 1, PROT_WRITE, 0, -1), ENOTCONN);
    CHECK(riowrite(socket, &byte, 1, 0, 0) == (size_t)-1 && errno == ENOTCONN);
    REFUSED(rpoll(NULL, 1, 0), EINVAL);
    CHECK(rclose(socket) == 0);
}

/* One thread, and nobody else, has both ends. */
static void with_itself(const char *ip)
{
    struct sockaddr_in address = address_of(ip), from;
    socklen_t length = sizeof address;
    char bytes[8];
    address.sin_port = 0;
    int one = rsocket(AF_INET, SOCK_DGRAM, 0), two = rsocket(AF_INET, SOCK_DGRAM, 0);
    CHECK(rbind(two, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(rgetsockname(two, (struct sockaddr *)&address, &length) == 0 && address.sin_port != 0);
    CHECK(rsendto(one, "there", 5, 0, (struct sockaddr *)&address, sizeof address) == 5);
    length = sizeof from;
    CHECK(rrecvfrom(two, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &length) == 5);
    CHECK(rsendto(two, "back", 4, 0, (struct sockaddr *)&from, sizeof from) == 4);
    CHECK(rrecv(one, bytes, sizeof bytes, 0) == 4 && memcmp(bytes, "back", 4) == 0);
    CHECK(rclose(one) == 0 && rclose(two) == 0);

    int listener = rsocket(AF_INET, SOCK_STREAM, 0), client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    address.sin_port = 0;
    CHECK(rbind(listener, (struct sockaddr *)&address, sizeof address) == 0 && rlisten(listener, 1) == 0);
    length = sizeof address;
    CHECK(rgetsockname(listener, (struct sockaddr *)&address, &length) == 0);
    REFUSED(rconnect(client, (struct sockaddr *)&address, sizeof address), EINPROGRESS);
    int server = raccept(listener, NULL, NULL);
    CHECK(server >= 0);
    struct pollfd entry = {.fd = client, .events = POLLOUT};
    CHECK(rpoll(&entry, 1, 20000) == 1 && entry.revents == POLLOUT);
    CHECK(rsend(client, "hello", 5, 0) == 5);
    expect(server, "hello");
    CHECK(rclose(client) == 0 && rclose(server) == 0 && rclose(listener) == 0);
}

/* As sockets of UDP do: told once, shown until then, and that is not input. */
static void refused(const char *ip)
{
    struct sockaddr_in nobody = address_of(ip);
    int socket = rsocket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    nobody.sin_port = htons(7596);
    for (int way = 0; way < 4; way++) {
        char byte;
        int number = 0;
        socklen_t length = sizeof number;
        CHECK(rconnect(socket, (struct sockaddr *)&nobody, sizeof nobody) == 0);
        struct pollfd entry = {.fd = socket, .events = POLLIN};
        CHECK(rpoll(&entry, 1, 20000) == 1 && entry.revents == POLLERR);
        fd_set readable;
        FD_ZERO(&readable);
        FD_SET(socket, &readable);
        CHECK(rselect(socket + 1, &readable, NULL, NULL, &(struct timeval){.tv_sec = 20}) == 1);
        switch (way) {
        case 0:
            REFUSED(rrecv(socket, &byte, 1, 0), ECONNREFUSED);
            break;
        case 1:
            REFUSED(rrecv(socket, &byte, 1, MSG_PEEK), ECONNREFUSED);
            break;
        case 2:
            REFUSED(rsend(socket, "x", 1, 0), ECONNREFUSED);
            break;
        case 3:
            CHECK(rgetsockopt(socket, SOL_SOCKET, SO_ERROR, &number, &length) == 0 && number == ECONNREFUSED);
            break;
        }
        CHECK(rpoll(&entry, 1, 0) == 0);
        CHECK(rgetsockopt(socket, SOL_SOCKET, SO_ERROR, &number, &length) == 0 && number == 0);
        REFUSED(rrecv(socket, &byte, 1, 0), EAGAIN);
    }
    CHECK(rclose(socket) == 0);
}

static void waiting(int socket, int pipe[2])
{
    struct pollfd list[3] = {
        {.fd = pipe[0], .events = POLLIN}, {.fd = -1, .events = POLLIN}, {.fd = socket, .events = POLLIN | POLLOUT}};
    CHECK(rpoll(list, 3, -1) == 1 && list[0].revents == 0 && list[2].revents == POLLOUT);
    list[2].events = POLLIN;
    CHECK(rpoll(list, 3, 0) == 0);
    CHECK(rpoll(list, 3, 30) == 0);
    CHECK(write(pipe[1], "p", 1) == 1);
    CHECK(rpoll(list, 3, -1) == 1 && list[0].revents == POLLIN && list[2].revents == 0);
    CHECK(rsend(socket, "say", 3, 0) == 3);
    list[0].events = 0;
    CHECK(rpoll(list, 3, 20000) == 1 && list[2].revents == POLLIN);
    fd_set readable, writable;
    FD_ZERO(&readable);
    FD_ZERO(&writable);
    FD_SET(pipe[0], &readable);
    FD_SET(socket, &readable);
    FD_SET(socket, &writable);
    int most = socket > pipe[0] ? socket : pipe[0];
    struct timeval time = {.tv_sec = 20};
    CHECK(rselect(most + 1, &readable, &writable, NULL, &time) == 3);
    char byte;
    CHECK(read(pipe[0], &byte, 1) == 1);
    expect(socket, "something");
    CHECK(rselect(most + 1, &readable, NULL, NULL, &(struct timeval){.tv_usec = 1000}) == 0);
    CHECK(!FD_ISSET(socket, &readable) && !FD_ISSET(pipe[0], &readable));
}

static void lists(int socket)
{
    struct iovec out[3] = {{"gathered ", 9}, {NULL, 0}, {"in three", 8}};
    CHECK(rwritev(socket, out, 3) == 17);
    char first[6] = "", second[20] = "";
    struct iovec in[2] = {{first, 5}, {second, sizeof second}};
    struct msghdr message = {.msg_iov = in, .msg_iovlen = 2};
    struct pollfd entry = {.fd = socket, .events = POLLIN};
    CHECK(rpoll(&entry, 1, 20000) == 1);
    CHECK(rrecvmsg(socket, &message, MSG_PEEK) == 15 && memcmp(first, "to be", 5) == 0);
    memset(first, 0, 5);
    CHECK(rreadv(socket, in, 2) == 15);
    CHECK(strcmp(first, "to be") == 0 && strcmp(second, " scattered") == 0);
    REFUSED(rrecv(socket, first, 1, MSG_DONTWAIT), EAGAIN);
}

static void caught(int number)
{
    (void)number;
}

static void interrupted(int socket)
{
    char byte;
    struct sigaction action = {.sa_handler = caught};
    struct itimerval time = {.it_value = {.tv_usec = 100000}, .it_interval = {.tv_usec = 100000}}, none = {0};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &time, NULL) == 0);
    REFUSED(rrecv(socket, &byte, 1, 0), EINTR);
    struct pollfd entry = {.fd = socket, .events = POLLIN};
    REFUSED(rpoll(&entry, 1, -1), EINTR);
    CHECK(setitimer(ITIMER_REAL, &none, NULL) == 0);
}

/* A child has no use of its parent's socket, and does no harm to it. */
static void forked(int socket)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        CHECK(rrecv(socket, &byte, 1, 0) == -1);
        CHECK(rsend(socket, "x", 1, 0) == -1);
        struct pollfd entry = {.fd = socket, .events = POLLIN};
        CHECK(rpoll(&entry, 1, -1) == 1 && (entry.revents & POLLERR));
        CHECK(rclose(socket) == 0);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(rsend(socket, "go on", 5, 0) == 5);
    expect(socket, "on");
}

static void to_the_end(int socket)
{
    static char bytes[10000];
    struct msghdr message = {.msg_iov = &(struct iovec){"end", 3}, .msg_iovlen = 1};
    CHECK(rsendmsg(socket, &message, 0) == 3);
    size_t total = 0;
    ssize_t count;
    while ((count = rread(socket, bytes, sizeof bytes)) > 0)
        total += count;
    CHECK(count == 0 && total == LAST_BYTES);
    struct pollfd entry = {.fd = socket, .events = POLLIN};
    CHECK(rpoll(&entry, 1, 20000) == 1 && (entry.revents & POLLIN));
    CHECK(rshutdown(socket, SHUT_RDWR) == 0);
    REFUSED(rwrite(socket, "x", 1), EPIPE);
    CHECK(rclose(socket) == 0);
}

/* A peer that is killed says nothing; who waits for it is told all the same, also who asks again and again. */
static void killed(const char *ip, int flags, int polls)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct sockaddr_in address = address_of(ip);
        int listener = rsocket(AF_INET, SOCK_STREAM, 0);
        CHECK(rbind(listener, (struct sockaddr *)&address, sizeof address) == 0 && rlisten(listener, 1) == 0);
        int socket = raccept(listener, NULL, NULL);
        CHECK(rsend(socket, "I", 1, 0) == 1);
        pause();
    }
    char byte;
    int status, socket = connect_to(ip);
    expect(socket, "I");
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    for (int i = 0; (flags & MSG_DONTWAIT) && i < 20000; i++) {
        if (rrecv(socket, &byte, 1, flags) != -1 || errno != EAGAIN)
            break;
        usleep(1000);
    }
    struct pollfd entry = {.fd = socket, .events = POLLIN};
    CHECK(!polls || (rpoll(&entry, 1, -1) == 1 && (entry.revents & POLLERR) && (entry.revents & POLLHUP)));
    REFUSED(rrecv(socket, &byte, 1, flags), ECONNRESET);
    /* As of TCP: what was told is no error that waits, and the connection is over all the same. */
    CHECK(rpoll(&entry, 1, -1) == 1 && (entry.revents & (POLLERR | POLLHUP | POLLIN)) == (POLLHUP | POLLIN));
    REFUSED(rrecv(socket, &byte, 1, flags), ECONNRESET);
    CHECK(rclose(socket) == 0);
}

int main(int count, char **arguments)
{
    CHECK(count == 3);
    if (strcmp(arguments[2], "killed") == 0) {
        killed(arguments[1], 0, 0);
        killed(arguments[1], 0, 1);
        killed(arguments[1], MSG_DONTWAIT, 0);
        return 0;
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        serve(arguments[1]);
    int both[2], status;
    CHECK(pipe(both) == 0);
    options();
    refusals(both[0]);
    with_itself(arguments[1]);
    refused(arguments[1]);
    int socket = connect_to(arguments[1]);
    waiting(socket, both);
    lists(socket);
    interrupted(socket);
    forked(socket);
    to_the_end(socket);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    printf("all calls did what they should\n");
    return 0;
}
