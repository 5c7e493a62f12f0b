/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The owner's socket: who may connect, and whose request is next. Owns the connections. Requests
 * are short and answered at once, so one thread serves all, and never waits: a process that does
 * not read its answers loses its connection. */
#include "command.h"
#include "keep/keep.h"
#include "keep/keep_store.h"
#include "units.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { PEERS_MOST = 512 };

static struct keep_peer peers[PEERS_MOST]; /* socket -1: free */
static int spare = -1; /* a descriptor, by which a connection can be refused when none is left */

static int failed(const char *path, const char *what)
{
    fprintf(stderr, "tarn keep: %s: %s: %s\n", path, what, strerror(errno));
    return COMMAND_FAILED;
}

static bool listen_at(int listener, const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path, path, strlen(path));
    return bind(listener, (struct sockaddr *)&name, sizeof name) == 0 && listen(listener, 64) == 0;
}

static int folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[KEEP_SOCKET_BYTES] = ".";
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
    return open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Puts a socket in the place of one that nobody answers. If another owner has done that meanwhile,
 * its socket stays. A file system that cannot exchange two files does not tell. */
static bool replace(const char *beside, const char *path, const struct stat *silent)
{
    struct stat about;
    if (syscall(SYS_renameat2, AT_FDCWD, beside, AT_FDCWD, path, RENAME_EXCHANGE) != 0)
        return rename(beside, path) == 0;
    bool replaced = lstat(beside, &about) == 0 && is_same(&about, silent);
    if (!replaced)
        (void)rename(beside, path);
    else
        (void)unlink(beside);
    errno = EADDRINUSE;
    return replaced;
}

/* Binds the socket, which only this user may open. A socket that nobody answers is replaced. It is
 * there all the time: to a process that waits for an owner, none means that the owner has ended. */
static int bind_socket(const char *path, int *listener, struct stat *own)
{
    char beside[64];
    struct stat about;
    int other = wire_connect(path);
    if (other >= 0) {
        close(other);
        errno = EADDRINUSE;
        return failed(path, "another owner answers there");
    }
    if (errno == ENAMETOOLONG)
        return failed(path, "a socket");
    bool replaces = errno == ECONNREFUSED && lstat(path, &about) == 0 && S_ISSOCK(about.st_mode);
    int folder = replaces ? folder_of(path) : -1;
    snprintf(beside, sizeof beside, "/proc/self/fd/%d/tarn-keep~%d", folder, (int)getpid());
    *listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(0177);
    bool bound = *listener >= 0 && listen_at(*listener, replaces ? beside : path) &&
                 lstat(replaces ? beside : path, own) == 0 &&
                 (!replaces || replace(beside, path, &about));
    int code = errno;
    umask(before);
    if (!bound && replaces)
        (void)unlink(beside);
    if (folder >= 0)
        close(folder);
    errno = code;
    if (bound)
        return COMMAND_OK;
    return failed(path, code == EADDRINUSE
                            ? "something that is no socket is there, or another owner"
                            : "the socket cannot be made");
}

/* Removes the socket that was there when the owner began, and no other. */
static void remove_socket(const char *path, const struct stat *own)
{
    struct stat about;
    if (lstat(path, &about) == 0 && is_same(&about, own))
        (void)unlink(path);
}

static void keep_spare(void)
{
    if (spare < 0)
        spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Ends a connection for which there is no descriptor. Otherwise poll() would name it at once
 * again. */
static void turn_away(int listener)
{
    if (spare >= 0)
        close(spare);
    int file = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (file >= 0)
        close(file);
    spare = -1;
    keep_spare();
}

/* A connection of this user, or of root. */
static void welcome(int listener)
{
    struct ucred who;
    socklen_t size = sizeof who;
    keep_spare();
    int file = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (file < 0 && (errno == EMFILE || errno == ENFILE))
        turn_away(listener);
    if (file < 0)
        return;
    bool known = getsockopt(file, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
                 (who.uid == geteuid() || who.uid == 0);
    struct keep_peer *place = peers;
    while (place < peers + PEERS_MOST && place->socket >= 0)
        place++;
    if (!known || place == peers + PEERS_MOST) {
        close(file);
        return;
    }
    *place = (struct keep_peer){.socket = file, .process = who.pid};
}

static void serve(struct keep_peer *peer)
{
    struct keep_message request;
    int files[KEEP_BATCH];
    unsigned count = 0;
    int came = wire_receive(peer->socket, &request, files, &count);
    bool goes_on = came > 0 ? keep_serve(peer, &request, files, count)
                            : came < 0 && errno == EMFILE && keep_refuse_files(peer);
    while (count > 0)
        if (files[--count] >= 0)
            close(files[count]);
    if (goes_on)
        return;
    close(peer->socket);
    keep_part(peer);
    peer->socket = -1;
}

/* Serves until a signal comes. */
static void serve_all(int listener, int signals)
{
    struct pollfd files[PEERS_MOST + 2];
    struct keep_peer *of[PEERS_MOST + 2];
    for (;;) {
        nfds_t count = 0;
        files[count++] = (struct pollfd){.fd = signals, .events = POLLIN};
        files[count++] = (struct pollfd){.fd = listener, .events = POLLIN};
        for (struct keep_peer *peer = peers; peer < peers + PEERS_MOST; peer++)
            if (peer->socket >= 0) {
                of[count] = peer;
                files[count++] = (struct pollfd){.fd = peer->socket, .events = POLLIN};
            }
        int came = poll(files, count, keep_groups_wait_ms());
        keep_groups_look();
        if (came <= 0)
            continue;
        if (files[0].revents)
            return;
        for (nfds_t i = 2; i < count; i++)
            if (files[i].revents)
                serve(of[i]);
        if (files[1].revents)
            welcome(listener);
    }
}

/* As many files as the system lets this process have: each segment takes one. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void say_what_is_lost(void)
{
    unsigned count = 0;
    uint64_t bytes = 0;
    for (const struct kept_pool *pool = keep_pools(); pool; pool = pool->next) {
        count += !pool->is_over;
        bytes += kept_bytes(pool);
    }
    if (count)
        fprintf(stderr, "tarn keep: ends with %u pool%s of %s, %s\n", count, count == 1 ? "" : "s",
                units_bytes(bytes).text,
                store_is_there() ? "which the service manager holds over a restart"
                                 : "of which what no process has mapped is lost");
}

int keep_listen(const char *path)
{
    sigset_t ends;
    struct stat own = {0};
    for (int i = 0; i < PEERS_MOST; i++)
        peers[i].socket = -1;
    (void)signal(SIGPIPE, SIG_IGN); /* of its messages, whose reader may end before it */
    store_begin();
    int listener = store_claim_listener();
    bool binds = listener < 0;
    int status = binds ? bind_socket(path, &listener, &own) : COMMAND_OK;
    if (status != COMMAND_OK)
        return status;
    keep_restore();
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    int signals = signalfd(-1, &ends, SFD_CLOEXEC);
    if (signals < 0)
        return failed(path, "signalfd");
    raise_file_limit();
    keep_spare();
    printf("tarn keep: listening at %s\n", path);
    fflush(stdout);
    store_ready();
    serve_all(listener, signals);
    say_what_is_lost();
    keep_groups_leave();
    if (binds)
        remove_socket(path, &own);
    return COMMAND_OK;
}
