/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A service manager for `tarn keep`: it listens for the owner, holds the descriptors that the owner
 * has it hold, and hands them to the next owner after a kill (systemd's sd_pid_notify_with_fds(3),
 * sd_listen_fds(3)). */
#ifndef TESTS_MEMORY_KEEP_MANAGER_H
#define TESTS_MEMORY_KEEP_MANAGER_H

#include "keep_test.h"
#include "support/fd_store.h"

#include <poll.h>
#include <pthread.h>

static struct {
    pthread_mutex_t lock; /* of `store` */
    pthread_t thread;
    int stop[2];
    _Atomic unsigned late; /* us that it takes its time */
    struct fd_store store;
} manager = {.lock = PTHREAD_MUTEX_INITIALIZER, .store.room = FD_STORE_MOST};

/* Reads the messages that have come. */
static inline void obey_all(void)
{
    pthread_mutex_lock(&manager.lock);
    fd_store_obey(&manager.store);
    pthread_mutex_unlock(&manager.lock);
}

static inline void *serve(void *unused)
{
    (void)unused;
    for (;;) {
        struct pollfd files[] = {{.fd = manager.store.notifications, .events = POLLIN},
                                 {.fd = manager.stop[0], .events = POLLIN}};
        if (poll(files, 2, -1) < 0)
            continue;
        usleep(manager.late);
        obey_all();
        if (files[1].revents)
            return NULL;
    }
}

static inline void manager_begin(void)
{
    char path[100];
    snprintf(path, sizeof path, "/tmp/tarn-manager-%d", (int)getpid());
    fd_store_begin(&manager.store, path, keep_path);
    CHECK(pipe2(manager.stop, O_CLOEXEC) == 0);
    CHECK(pthread_create(&manager.thread, NULL, serve, NULL) == 0);
}

static inline void manager_end(void)
{
    close(manager.stop[1]);
    CHECK(pthread_join(manager.thread, NULL) == 0);
    fd_store_end(&manager.store, keep_path);
}

/* The number of descriptors that the manager holds. */
static inline unsigned held_now(void)
{
    pthread_mutex_lock(&manager.lock);
    unsigned count = manager.store.count;
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
    while (manager.store.count > 0)
        fd_store_let_go(&manager.store, manager.store.held[0].name);
    pthread_mutex_unlock(&manager.lock);
}

static inline void pass_on(void)
{
    fd_store_pass_on(&manager.store);
}

/* Starts an owner with what is held, as a manager does: the shell has the number of the process. */
static inline void start_service(void)
{
    obey_all(); /* what an owner has sent, it has sent */
    pthread_mutex_lock(&manager.lock);
    fd_store_name(&manager.store);
    pthread_mutex_unlock(&manager.lock);
    owner = start_listening((char *[]){"/bin/sh", "-c", "LISTEN_PID=$$ exec \"$0\" \"$@\"",
                                       getenv("TARN_PROGRAM"), "keep", "--socket", keep_path, NULL},
                            pass_on);
    fd_store_unname();
}

static inline void restart_service(int signal)
{
    end_owner(signal);
    start_service();
}

#endif
