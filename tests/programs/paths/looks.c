/* Looks at the files of an RDMA device through every function of the C library that takes a path, the way NCCL, UCX,
 * libibumad and scripts do. Prints what was wrong, line by line; exit status 0 when nothing was. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static int wrong;
#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        errno = 0;                                                                                           \
        if (!(condition)) {                                                                                  \
            printf("line %d: %s (errno: %s)\n", __LINE__, #condition, strerror(errno));                      \
            wrong = 1;                                                                                       \
        }                                                                                                    \
    } while (0)

#define CLASS "/sys/class/infiniband"
#define CARD CLASS "/softroce0"
#define PORT CARD "/ports/1"
#define STATE PORT "/state"
#define NODE "/dev/infiniband/uverbs0"
#define REAL "/sys/devices/virtual/softroce/softroce0/infiniband/softroce0"

/* Volatile, so that the compiler picks the checked functions that headers keep for flags it cannot see. */
static volatile int read_only = O_RDONLY;

static int holds_state(int descriptor) {
    char text[64] = "";
    ssize_t length = read(descriptor, text, sizeof text - 1);
    close(descriptor);
    return length > 0 && strcmp(text, "4: ACTIVE\n") == 0;
}

static int reads(const char *path, const char *expected) {
    char text[128] = "";
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    int right = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    text[strcspn(text, "\n")] = 0;
    if (right && strcmp(text, expected) != 0) printf("%s holds `%s`\n", path, text);
    return right && strcmp(text, expected) == 0;
}

static int lists(DIR *directory, const char *name) {
    struct dirent *entry;
    int found = 0;
    if (!directory) return 0;
    while ((entry = readdir(directory))) found |= strcmp(entry->d_name, name) == 0;
    closedir(directory);
    return found;
}

/* The functions by which programs of older C libraries reach `stat`. */
typedef int (*old_stat)(int, const char *, struct stat *);
typedef int (*old_stat_at)(int, int, const char *, struct stat *, int);
#ifdef __x86_64__
#define STAT_VERSION 1
#else
#define STAT_VERSION 0
#endif

static void opening(void) {
    CHECK(holds_state(open(STATE, read_only)));
    CHECK(holds_state(open64(STATE, read_only)));
    CHECK(holds_state(openat(AT_FDCWD, STATE, read_only)));
    CHECK(holds_state(openat64(AT_FDCWD, STATE, O_RDONLY)));
    CHECK(holds_state(openat(-1, STATE, O_RDONLY | O_CLOEXEC)));
    CHECK(reads(STATE, "4: ACTIVE"));
    FILE *stream = freopen(STATE, "r", fopen64("/dev/null", "r"));
    CHECK(stream && holds_state(dup(fileno(stream))));
    if (stream) fclose(stream);
    CHECK(open(CARD "/none", O_RDONLY) == -1 && errno == ENOENT);
    CHECK(open(CARD, O_WRONLY) == -1 && errno == EISDIR);
}

static void relative(void) {
    int class = open("/sys/class", O_RDONLY | O_DIRECTORY);
    int own = open(CLASS, O_RDONLY | O_DIRECTORY);
    struct stat state;
    CHECK(class >= 0 && own >= 0);
    CHECK(holds_state(openat(class, "infiniband/softroce0/ports/1/state", read_only)));
    CHECK(holds_state(openat(class, "./infiniband//softroce0/ports/1/state", O_RDONLY)));
    CHECK(holds_state(openat(own, "softroce0/ports/1/state", O_RDONLY)));
    CHECK(holds_state(openat(own, "../infiniband/softroce0/ports/1/state", O_RDONLY)));
    CHECK(fstatat(class, "infiniband", &state, 0) == 0 && S_ISDIR(state.st_mode));
    CHECK(fstatat(own, "../net/lo", &state, 0) == 0);
    CHECK(faccessat(class, "infiniband/softroce0", R_OK, 0) == 0);
    close(class);
    close(own);
    char before[PATH_MAX], now[PATH_MAX];
    CHECK(getcwd(before, sizeof before));
    CHECK(chdir("/sys") == 0 && access("class/infiniband/softroce0", F_OK) == 0);
    CHECK(access("../dev/infiniband/uverbs0", R_OK | W_OK) == 0);
    CHECK(chdir(CARD) == 0 && access("ports/1/state", R_OK) == 0);
    CHECK(getcwd(now, sizeof now) && strcmp(now, REAL) == 0);
    CHECK(chdir(before) == 0);
}

static void looking(void) {
    struct stat plain, link;
    struct stat64 large;
    struct statx extended;
    struct statfs system;
    struct statvfs view;
    CHECK(stat(CARD, &plain) == 0 && S_ISDIR(plain.st_mode));
    CHECK(lstat(CARD, &link) == 0 && S_ISLNK(link.st_mode));
    CHECK(stat64(STATE, &large) == 0 && S_ISREG(large.st_mode));
    CHECK(lstat64(STATE, &large) == 0 && S_ISREG(large.st_mode));
    CHECK(fstatat64(AT_FDCWD, STATE, &large, 0) == 0);
    CHECK(statx(AT_FDCWD, STATE, 0, STATX_BASIC_STATS, &extended) == 0 && S_ISREG(extended.stx_mode));
    CHECK(stat(NODE, &plain) == 0 && S_ISCHR(plain.st_mode));
    CHECK(stat(PORT "/gids/255", &plain) == -1 && errno == ENOENT);
    old_stat old = (old_stat)dlsym(RTLD_DEFAULT, "__xstat");
    old_stat old_link = (old_stat)dlsym(RTLD_DEFAULT, "__lxstat");
    old_stat_at old_at = (old_stat_at)dlsym(RTLD_DEFAULT, "__fxstatat");
    CHECK(old && old(STAT_VERSION, CARD, &plain) == 0 && S_ISDIR(plain.st_mode));
    CHECK(old_link && old_link(STAT_VERSION, CARD, &link) == 0 && S_ISLNK(link.st_mode));
    CHECK(old_at && old_at(STAT_VERSION, AT_FDCWD, CARD, &plain, 0) == 0 && S_ISDIR(plain.st_mode));
    CHECK(access(NODE, R_OK | W_OK) == 0);
    CHECK(access("/dev/infiniband/umad0", F_OK) == 0);
    CHECK(eaccess(STATE, R_OK) == 0 && euidaccess(STATE, R_OK) == 0);
    CHECK(access(CARD "/none", F_OK) == -1 && errno == ENOENT);
    CHECK(statfs(CARD, &system) == 0 && statvfs(CARD, &view) == 0);
    CHECK(getxattr(CARD, "user.none", NULL, 0) == -1 && errno != ENOENT);
    CHECK(lgetxattr(CARD, "user.none", NULL, 0) == -1 && errno != ENOENT);
    CHECK(listxattr(STATE, NULL, 0) >= 0 || errno == ENOTSUP);
    CHECK(llistxattr(STATE, NULL, 0) >= 0 || errno == ENOTSUP);
    int watch = inotify_init1(IN_CLOEXEC);
    CHECK(inotify_add_watch(watch, CLASS, IN_CREATE) >= 0);
    close(watch);
}

static int hidden(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static void listing(void) {
    struct dirent **names = NULL;
    glob_t found;
    CHECK(lists(opendir("/sys/class"), "infiniband") && lists(opendir("/sys/class"), "net"));
    CHECK(lists(opendir("/dev"), "infiniband") && lists(opendir("/dev"), "null"));
    CHECK(lists(fdopendir(open("/sys/class", O_RDONLY | O_DIRECTORY)), "infiniband_verbs"));
    CHECK(!lists(opendir("/sys"), "infiniband"));
    CHECK(glob("/sys/class/infini*/*0", 0, NULL, &found) == 0 && found.gl_pathc == 3);
    globfree(&found);
    CHECK(lists(opendir(CLASS), "softroce0"));
    CHECK(lists(opendir("/sys/class/infiniband_verbs"), "uverbs0"));
    CHECK(lists(opendir("/sys/class/infiniband_mad"), "umad0"));
    CHECK(lists(opendir("/dev/infiniband"), "uverbs0"));
    CHECK(lists(fdopendir(open(PORT "/gids", O_RDONLY | O_DIRECTORY)), "0"));
    CHECK(scandir(CLASS, &names, hidden, alphasort) == 1 && strcmp(names[0]->d_name, "softroce0") == 0);
    free(names ? names[0] : NULL);
    free(names);
    int class = open("/sys/class", O_RDONLY | O_DIRECTORY);
    CHECK(scandirat(class, "infiniband", &names, hidden, alphasort) == 1);
    free(names[0]);
    free(names);
    close(class);
    CHECK(glob(CLASS "/*/ports/*/gid*/0", 0, NULL, &found) == 0 && found.gl_pathc == 1 &&
          strcmp(found.gl_pathv[0], PORT "/gids/0") == 0);
    globfree(&found);
    CHECK(glob("/dev/infiniband/uverbs[0-9]", GLOB_NOSORT, NULL, &found) == 0 && found.gl_pathc == 1 &&
          strcmp(found.gl_pathv[0], NODE) == 0);
    globfree(&found);
    CHECK(glob("/dev/nul?", 0, NULL, &found) == 0 && found.gl_pathc == 1);
    globfree(&found);
    CHECK(glob(CLASS "/none*", 0, NULL, &found) == GLOB_NOMATCH);
    globfree(&found);
}

static void links(void) {
    char text[PATH_MAX];
    volatile size_t room = sizeof text;
    ssize_t length;
    CHECK((length = readlink(CARD, text, room)) > 0 &&
          memcmp(text, "../../devices/virtual/softroce/softroce0/infiniband/softroce0", (size_t)length) == 0);
    CHECK(readlinkat(AT_FDCWD, CARD "/device", text, room) > 0);
    CHECK(readlink(STATE, text, room) == -1 && errno == EINVAL);
    CHECK(realpath(CARD, text) == text && strcmp(text, REAL) == 0);
    CHECK(realpath(CARD "/device", text) &&
          strcmp(text, "/sys/devices/virtual/softroce/softroce0") == 0);
    char *made = realpath(CLASS "/../infiniband/softroce0/subsystem", NULL);
    CHECK(made && strcmp(made, CLASS) == 0);
    free(made);
    made = canonicalize_file_name(REAL "/ports");
    CHECK(made && strcmp(made, REAL "/ports") == 0);
    free(made);
    CHECK(realpath(CARD "/none", NULL) == NULL && errno == ENOENT);
    CHECK(realpath("/proc/self/../../usr", text) && strcmp(text, "/usr") == 0);
    CHECK(realpath(NODE, text) && strncmp(text, "/dev/", 5) == 0);
}

static void contents(void) {
    CHECK(reads(CARD "/node_type", "1: CA"));
    CHECK(reads(CARD "/hca_type", "softroce"));
    CHECK(reads(CARD "/board_id", "softroce"));
    CHECK(reads(CARD "/device/numa_node", "-1"));
    CHECK(reads(PORT "/gid_attrs/types/0", "RoCE v2"));
    CHECK(reads(PORT "/gid_attrs/ndevs/0", "lo"));
    CHECK(reads(PORT "/gids/0", "0000:0000:0000:0000:0000:ffff:7f00:0001"));
    CHECK(reads(PORT "/lid", "0x0"));
    CHECK(reads(PORT "/pkeys/0", "0xffff"));
    CHECK(reads(PORT "/rate", "25 Gb/sec (1X EDR)"));
    CHECK(reads(PORT "/link_layer", "Ethernet"));
    /* Those that are never counted. */
    CHECK(reads(PORT "/counters/symbol_error", "0"));
    CHECK(reads(PORT "/hw_counters/lifespan", "0"));
    CHECK(reads("/sys/class/infiniband_verbs/abi_version", "6"));
    CHECK(reads("/sys/class/infiniband_verbs/uverbs0/ibdev", "softroce0"));
    CHECK(reads("/sys/class/infiniband_verbs/uverbs0/dev", "231:192"));
    CHECK(reads("/sys/class/infiniband_mad/umad0/port", "1"));
}

static void hostile(void) {
    static char monster[100000];
    const char *volatile nothing = NULL;
    struct stat plain;
    memset(monster, 'x', sizeof monster - 1);
    memcpy(monster, CARD "/", sizeof CARD);
    CHECK(open(nothing, O_RDONLY) == -1 && errno == EFAULT);
    CHECK(stat(nothing, &plain) == -1 && errno == EFAULT);
    CHECK(access(nothing, F_OK) == -1 && errno == EFAULT);
    CHECK(realpath(nothing, NULL) == NULL && errno == EINVAL);
    CHECK(open(monster, O_RDONLY) == -1 && errno == ENAMETOOLONG);
    CHECK(stat(monster, &plain) == -1 && errno == ENAMETOOLONG);
    CHECK(open("", O_RDONLY) == -1 && errno == ENOENT);
    CHECK(open(CLASS "/\xff\xfe", O_RDONLY) == -1 && errno == ENOENT);
    CHECK(stat("//sys//class/./infiniband///softroce0/", &plain) == 0);
    CHECK(stat("/sys/class/net/../infiniband", &plain) == -1 || S_ISDIR(plain.st_mode));
    CHECK(openat(12345, "class/infiniband", O_RDONLY) == -1 && errno == EBADF);
    CHECK(stat("/sys/class/infinibandx", &plain) == -1 && errno == ENOENT);
    /* The node takes nothing: no command of a driver succeeds by silence. */
    int node = open(NODE, O_RDWR | O_CLOEXEC);
    CHECK(node >= 0 && write(node, "command", 7) == -1 && errno == ENOSPC);
    close(node);
    errno = 77;
    CHECK(access(STATE, R_OK) == 0);
    errno = 77;
    int state = open(STATE, O_RDONLY);
    if (errno != 77) {
        printf("errno was changed by a call that succeeded\n");
        wrong = 1;
    }
    close(state);
}

static void children(void) {
    int status = -1;
    pid_t child = vfork();
    if (child == 0) {
        if (access(STATE, R_OK) != 0) _exit(1);
        execlp("cat", "cat", STATE, NULL);
        _exit(127);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    opening();
    relative();
    looking();
    listing();
    links();
    contents();
    hostile();
    children();
    return wrong;
}
