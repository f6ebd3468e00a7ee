/* Makes one chosen call to the C library fail.

   Loaded with LD_PRELOAD. A process takes part once it is attached to a control block, a small file
   that the harness shares with it: the harness calls `fault_attach`; a program that is started
   attaches through the variable FAULT_CONTROL. Calls are counted by kind. The call whose number is
   asked for fails with the error asked for.

   A call counts if it concerns a path below `root` and none below `excluded`. A call without a path
   (a new thread, a socket, an allocation) counts if its thread is armed. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind {
    OPEN, READ, WRITE, CLOSE, FSYNC, STAT, LIST, MKDIR, RENAME, UNLINK, TRUNCATE, LOCK, MAP,
    FORK, EXEC, THREAD, SOCKET, SEND, RECEIVE, PIPE, MEMORY, KINDS
};

struct control {
    char root[1024], excluded[1024];
    int64_t role;      /* whose call fails: 0 the attached process, 1 a program that it starts */
    int64_t kind;      /* -1 for none */
    int64_t number;    /* counted from 1 */
    int64_t error;
    int64_t persists;  /* whether all later calls of the kind fail too */
    _Atomic int64_t fired;
    _Atomic int64_t calls[2][KINDS];
    char failed[1024]; /* the path of the call that failed first */
};

static struct control *control;
static int role;
static __thread int armed __attribute__((tls_model("initial-exec")));
static _Atomic int all_armed;

/* The C library's own function, looked up once. */
#define REAL(name) (__extension__({ \
    static __typeof__(&name) function; \
    if (!function) function = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
    function; }))

int fault_attach(const char *path, int as_role) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return -1;
    void *block = REAL(mmap)(0, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (block == MAP_FAILED) return -1;
    role = as_role;
    control = block;
    return 0;
}

/* Without arguments, so that Python calls them without an allocation. */
void fault_arm(void) { armed++; }
void fault_disarm(void) { armed--; }
void fault_arm_all(int on) { all_armed = on; /* -1: no thread, even if it is armed */ }
int64_t fault_control_size(void) { return sizeof(struct control); }

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("FAULT_CONTROL");
    if (path && fault_attach(path, 1) == 0) all_armed = 1;
}

/* Whether this call, which counts, is to fail. */
static int fails(enum kind kind, const char *what) {
    struct control *c = control;
    int64_t number = atomic_fetch_add(&c->calls[role][kind], 1) + 1;
    if (role != c->role || (int64_t)kind != c->kind) return 0;
    if (number != c->number && !(c->persists && number > c->number)) return 0;
    if (atomic_fetch_add(&c->fired, 1) == 0) strncpy(c->failed, what, sizeof c->failed - 1);
    errno = (int)c->error;
    return 1;
}

static int below(const char *path, const char *root) {
    size_t n = strlen(root);
    return n && !strncmp(path, root, n) && (path[n] == '/' || path[n] == 0 || path[n] == ' ');
}

static int path_fails(enum kind kind, const char *path) {
    if (!control || !path) return 0;
    char full[PATH_MAX * 2] = "";
    if (path[0] != '/') {
        if (!getcwd(full, PATH_MAX)) return 0;
        strcat(full, "/");
    }
    strncat(full, path, PATH_MAX - 1);
    if (!below(full, control->root) || below(full, control->excluded)) return 0;
    return fails(kind, full);
}

static int name_of(int fd, char *name, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, name, size - 1);
    if (n < 0) return 0;
    name[n] = 0;
    return 1;
}

static int fd_fails(enum kind kind, int fd) {
    if (!control) return 0;
    int saved = errno;
    char name[PATH_MAX];
    if (!name_of(fd, name, sizeof name)) return errno = saved, 0;
    errno = saved;
    return path_fails(kind, name);
}

static int at_fails(enum kind kind, int folder, const char *path) {
    if (!control || !path) return 0;
    if (path[0] == '/' || folder == AT_FDCWD) return path_fails(kind, path);
    char name[PATH_MAX * 2];
    if (!name_of(folder, name, PATH_MAX)) return 0;
    strcat(name, "/");
    strncat(name, path, PATH_MAX - 1);
    return path_fails(kind, name);
}

static int bare_fails(enum kind kind, const char *what) {
    return control && all_armed >= 0 && (armed || all_armed) && fails(kind, what);
}

/* Opening. */
#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }
int open(const char *path, int flags, ...) {
    MODE(flags)
    return path_fails(OPEN, path) ? -1 : REAL(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags)
    return path_fails(OPEN, path) ? -1 : REAL(open64)(path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
    MODE(flags)
    return at_fails(OPEN, folder, path) ? -1 : REAL(openat)(folder, path, flags, mode);
}
int openat64(int folder, const char *path, int flags, ...) {
    MODE(flags)
    return at_fails(OPEN, folder, path) ? -1 : REAL(openat64)(folder, path, flags, mode);
}
FILE *fopen(const char *path, const char *how) {
    return path_fails(OPEN, path) ? NULL : REAL(fopen)(path, how);
}
FILE *fopen64(const char *path, const char *how) {
    return path_fails(OPEN, path) ? NULL : REAL(fopen64)(path, how);
}

/* Calls on a path, a folder and a name, or an open file: one line each. */
#define ON_PATH(kind, type, bad, name, declared, passed) \
    type name declared { return path_fails(kind, path) ? bad : REAL(name) passed; }
#define AT_PATH(kind, name, declared, passed) \
    int name declared { return at_fails(kind, folder, path) ? -1 : REAL(name) passed; }
#define ON_FD(kind, type, bad, name, declared, passed) \
    type name declared { return fd_fails(kind, fd) ? bad : REAL(name) passed; }
#define BARE(kind, type, bad, name, declared, passed) \
    type name declared { return bare_fails(kind, #name) ? bad : REAL(name) passed; }

ON_FD(READ, ssize_t, -1, read, (int fd, void *to, size_t n), (fd, to, n))
ON_FD(READ, ssize_t, -1, pread, (int fd, void *to, size_t n, off_t at), (fd, to, n, at))
ON_FD(READ, ssize_t, -1, pread64, (int fd, void *to, size_t n, off64_t at), (fd, to, n, at))
ON_FD(READ, ssize_t, -1, readv, (int fd, const struct iovec *v, int n), (fd, v, n))
ON_FD(WRITE, ssize_t, -1, write, (int fd, const void *from, size_t n), (fd, from, n))
ON_FD(WRITE, ssize_t, -1, pwrite, (int fd, const void *b, size_t n, off_t at), (fd, b, n, at))
ON_FD(WRITE, ssize_t, -1, pwrite64, (int fd, const void *b, size_t n, off64_t at), (fd, b, n, at))
ON_FD(WRITE, ssize_t, -1, writev, (int fd, const struct iovec *v, int n), (fd, v, n))
ON_FD(FSYNC, int, -1, fsync, (int fd), (fd))
ON_FD(FSYNC, int, -1, fdatasync, (int fd), (fd))
ON_FD(TRUNCATE, int, -1, ftruncate, (int fd, off_t size), (fd, size))
ON_FD(TRUNCATE, int, -1, ftruncate64, (int fd, off64_t size), (fd, size))
ON_FD(LOCK, int, -1, flock, (int fd, int how), (fd, how))
ON_FD(STAT, int, -1, fstat, (int fd, struct stat *to), (fd, to))
ON_FD(STAT, int, -1, fstat64, (int fd, struct stat64 *to), (fd, to))
ON_FD(LIST, DIR *, NULL, fdopendir, (int fd), (fd))
ON_PATH(LIST, DIR *, NULL, opendir, (const char *path), (path))
ON_PATH(STAT, int, -1, stat, (const char *path, struct stat *to), (path, to))
ON_PATH(STAT, int, -1, stat64, (const char *path, struct stat64 *to), (path, to))
ON_PATH(STAT, int, -1, lstat, (const char *path, struct stat *to), (path, to))
ON_PATH(STAT, int, -1, lstat64, (const char *path, struct stat64 *to), (path, to))
AT_PATH(STAT, fstatat, (int folder, const char *path, struct stat *to, int how), (folder, path, to, how))
AT_PATH(STAT, fstatat64, (int folder, const char *path, struct stat64 *to, int how), (folder, path, to, how))
AT_PATH(STAT, statx, (int folder, const char *path, int how, unsigned what, struct statx *to), (folder, path, how, what, to))
ON_PATH(MKDIR, int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
AT_PATH(MKDIR, mkdirat, (int folder, const char *path, mode_t mode), (folder, path, mode))
ON_PATH(RENAME, int, -1, rename, (const char *path, const char *to), (path, to))
AT_PATH(RENAME, renameat, (int folder, const char *path, int other, const char *to), (folder, path, other, to))
ON_PATH(UNLINK, int, -1, unlink, (const char *path), (path))
ON_PATH(UNLINK, int, -1, rmdir, (const char *path), (path))
AT_PATH(UNLINK, unlinkat, (int folder, const char *path, int how), (folder, path, how))
BARE(SOCKET, int, -1, socket, (int domain, int type, int protocol), (domain, type, protocol))
BARE(SOCKET, int, -1, socketpair, (int domain, int type, int protocol, int ends[2]), (domain, type, protocol, ends))
BARE(SEND, ssize_t, -1, send, (int fd, const void *from, size_t n, int how), (fd, from, n, how))
BARE(SEND, ssize_t, -1, sendto, (int fd, const void *from, size_t n, int how, const struct sockaddr *to, socklen_t m), (fd, from, n, how, to, m))
BARE(RECEIVE, ssize_t, -1, recv, (int fd, void *to, size_t n, int how), (fd, to, n, how))
BARE(RECEIVE, ssize_t, -1, recvfrom, (int fd, void *to, size_t n, int how, struct sockaddr *from, socklen_t *m), (fd, to, n, how, from, m))
BARE(PIPE, int, -1, pipe, (int ends[2]), (ends))
BARE(PIPE, int, -1, pipe2, (int ends[2], int flags), (ends, flags))
BARE(FORK, pid_t, -1, fork, (void), ())
BARE(EXEC, int, -1, execve, (const char *path, char *const *arguments, char *const *variables), (path, arguments, variables))
BARE(EXEC, int, -1, execv, (const char *path, char *const *arguments), (path, arguments))

/* A fork does what the caller of vfork expects, and can be called from here. */
pid_t vfork(void) { return fork(); }

/* At a lower priority, a busy machine would starve the writer process in each of hundreds of runs. */
int nice(int by) { return 0 * by; }

int close(int fd) {
    int broken = fd_fails(CLOSE, fd), error = errno;
    int result = REAL(close)(fd);
    return broken ? (errno = error, -1) : result;
}

void *mmap(void *at, size_t n, int allowed, int flags, int fd, off_t offset) {
    if (fd >= 0 && !(flags & MAP_ANONYMOUS) && fd_fails(MAP, fd)) return MAP_FAILED;
    return REAL(mmap)(at, n, allowed, flags, fd, offset);
}
void *mmap64(void *at, size_t n, int allowed, int flags, int fd, off64_t offset) {
    if (fd >= 0 && !(flags & MAP_ANONYMOUS) && fd_fails(MAP, fd)) return MAP_FAILED;
    return REAL(mmap64)(at, n, allowed, flags, fd, offset);
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *how, char *const *arguments, char *const *variables) {
    if (bare_fails(FORK, "posix_spawn")) return errno;
    return REAL(posix_spawn)(pid, path, actions, how, arguments, variables);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*body)(void *), void *with) {
    if (bare_fails(THREAD, "pthread_create")) return EAGAIN;
    return REAL(pthread_create)(thread, how, body, with);
}

/* Allocations: glibc's own names, because looking a name up allocates. */
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
static inline int no_memory(void) {
    return control && control->kind == MEMORY && bare_fails(MEMORY, "malloc");
}
void *malloc(size_t n) { return no_memory() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return no_memory() ? NULL : __libc_calloc(n, size); }
void *realloc(void *old, size_t n) { return no_memory() ? NULL : __libc_realloc(old, n); }
