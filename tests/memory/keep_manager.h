/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A service manager for `tarn keep`: it listens for the owner, holds the descriptors that the owner
 * has it hold, and hands them to the next owner after a kill (systemd's sd_pid_notify_with_fds(3),
 * sd_listen_fds(3)). */
#ifndef TESTS_MEMORY_KEEP_MANAGER_H
#define TESTS_MEMORY_KEEP_MANAGER_H

#include "keep_test.h"

#include <linux/kcmp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/un.h>

enum { HELD_MOST = 4096, PASSED_FROM = 3, HIGH = 1000 };

static struct {
    pthread_mutex_t lock; /* of all that a message changes */
    pthread_t thread;
    int notifications, listener, stop[2];
    char path[100];
    _Atomic unsigned room; /* FileDescriptorStoreMax */
    _Atomic unsigned late; /* us that it takes its time */
    unsigned count;
    _Atomic unsigned ready;
    struct held {
        char name[96];
        int file;
    } held[HELD_MOST];
} manager = {.lock = PTHREAD_MUTEX_INITIALIZER, .room = HELD_MOST};

/* Whether two descriptors are of one open file. False where the system does not tell. */
static inline bool is_same(int one, int other)
{
    pid_t self = getpid();
    return syscall(SYS_kcmp, self, self, KCMP_FILE, one, other) == 0;
}

/* As systemd does: no open file twice, whatever its name, and no more than there is room for, with
 * a line in its journal. */
static inline void hold_locked(const char *name, int file)
{
    bool fits = manager.count < manager.room;
    for (unsigned i = 0; fits && i < manager.count; i++)
        fits = !is_same(manager.held[i].file, file);
    if (!fits) {
        close(file);
        return;
    }
    struct held *held = &manager.held[manager.count++];
    snprintf(held->name, sizeof held->name, "%s", name);
    held->file = file;
}

static inline void let_go_locked(const char *name)
{
    for (unsigned i = manager.count; i-- > 0;)
        if (strcmp(manager.held[i].name, name) == 0) {
            close(manager.held[i].file);
            manager.held[i] = manager.held[--manager.count];
        }
}

/* The value of a field of a message. */
static inline const char *field(const char *text, const char *name, char value[96])
{
    const char *found = strstr(text, name);
    if (!found)
        return NULL;
    snprintf(value, 96, "%.*s", (int)strcspn(found + strlen(name), "\n"), found + strlen(name));
    return value;
}

static inline void obey_locked(const char *text, int file)
{
    char name[96], value[96];
    if (strstr(text, "READY=1"))
        manager.ready++;
    if (strstr(text, "FDSTOREREMOVE=1"))
        let_go_locked(field(text, "FDNAME=", name));
    else if (strstr(text, "FDSTORE=1") && file >= 0) {
        CHECK(field(text, "FDPOLL=", value) && strcmp(value, "0") == 0);
        hold_locked(field(text, "FDNAME=", name), file);
        return;
    }
    if (file >= 0) /* among them that of BARRIER=1 */
        close(file);
}

/* Reads the messages that have come. */
static inline void obey_all(void)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } rights;
    char text[1000];
    pthread_mutex_lock(&manager.lock);
    for (;;) {
        struct iovec whole = {text, sizeof text - 1};
        struct msghdr header = {.msg_iov = &whole,
                                .msg_iovlen = 1,
                                .msg_control = &rights,
                                .msg_controllen = sizeof rights};
        ssize_t came = recvmsg(manager.notifications, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (came < 0)
            break;
        int file = -1;
        struct cmsghdr *control = CMSG_FIRSTHDR(&header);
        if (control && control->cmsg_type == SCM_RIGHTS)
            memcpy(&file, CMSG_DATA(control), sizeof file);
        text[came] = '\0';
        obey_locked(text, file);
    }
    pthread_mutex_unlock(&manager.lock);
}

static inline void *serve(void *unused)
{
    (void)unused;
    for (;;) {
        struct pollfd files[] = {{.fd = manager.notifications, .events = POLLIN},
                                 {.fd = manager.stop[0], .events = POLLIN}};
        if (poll(files, 2, -1) < 0)
            continue;
        usleep(manager.late);
        obey_all();
        if (files[1].revents)
            return NULL;
    }
}

static inline int bound(int type, const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    int file = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    CHECK(file >= 0 && bind(file, (struct sockaddr *)&name, sizeof name) == 0);
    return file;
}

static inline void manager_begin(void)
{
    snprintf(manager.path, sizeof manager.path, "/tmp/tarn-manager-%d", (int)getpid());
    manager.notifications = bound(SOCK_DGRAM, manager.path);
    manager.listener = bound(SOCK_SEQPACKET, keep_path);
    CHECK(listen(manager.listener, 64) == 0 && pipe2(manager.stop, O_CLOEXEC) == 0);
    CHECK(pthread_create(&manager.thread, NULL, serve, NULL) == 0);
}

static inline void manager_end(void)
{
    close(manager.stop[1]);
    CHECK(pthread_join(manager.thread, NULL) == 0);
    close(manager.notifications);
    close(manager.listener);
    CHECK(unlink(manager.path) == 0 && unlink(keep_path) == 0);
}

/* The number of descriptors that the manager holds. */
static inline unsigned held_now(void)
{
    pthread_mutex_lock(&manager.lock);
    unsigned count = manager.count;
    pthread_mutex_unlock(&manager.lock);
    return count;
}

/* The same when all messages that were sent have been read. */
static inline unsigned held_count(void)
{
    obey_all();
    return held_now();
}

/* As at the stop of a service: nothing is held any more. */
static inline void give_all_up(void)
{
    obey_all();
    pthread_mutex_lock(&manager.lock);
    while (manager.count > 0)
        let_go_locked(manager.held[0].name);
    pthread_mutex_unlock(&manager.lock);
}

/* Runs in the owner's process: the listener and what is held become its descriptors from 3 on. */
static inline void pass_on(void)
{
    int high[HELD_MOST + 1];
    unsigned count = 0;
    high[count++] = fcntl(manager.listener, F_DUPFD_CLOEXEC, HIGH);
    for (unsigned i = 0; i < manager.count; i++)
        high[count++] = fcntl(manager.held[i].file, F_DUPFD_CLOEXEC, HIGH);
    for (unsigned i = 0; i < count; i++)
        if (high[i] < 0 || dup2(high[i], PASSED_FROM + (int)i) < 0)
            _exit(126);
}

/* Starts an owner with what is held, as a manager does: the shell has the number of the process. */
static inline void start_service(void)
{
    static char names[HELD_MOST * 96];
    char number[16];
    obey_all(); /* what an owner has sent, it has sent */
    pthread_mutex_lock(&manager.lock);
    size_t length = (size_t)snprintf(names, sizeof names, "tarn-keep.socket");
    for (unsigned i = 0; i < manager.count; i++)
        length +=
            (size_t)snprintf(names + length, sizeof names - length, ":%s", manager.held[i].name);
    snprintf(number, sizeof number, "%u", manager.count + 1);
    CHECK(setenv("LISTEN_FDS", number, 1) == 0 && setenv("LISTEN_FDNAMES", names, 1) == 0 &&
          setenv("NOTIFY_SOCKET", manager.path, 1) == 0);
    pthread_mutex_unlock(&manager.lock);
    owner = start_listening((char *[]){"/bin/sh", "-c", "LISTEN_PID=$$ exec \"$0\" \"$@\"",
                                       getenv("TARN_PROGRAM"), "keep", "--socket", keep_path, NULL},
                            pass_on);
    CHECK(unsetenv("LISTEN_FDS") == 0 && unsetenv("LISTEN_FDNAMES") == 0 &&
          unsetenv("NOTIFY_SOCKET") == 0);
}

static inline void restart_service(int signal)
{
    end_owner(signal);
    start_service();
}

#endif
