/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Signals that come all the time, to threads that are anywhere in tarn, with handlers that do
 * nothing: calls of the system are interrupted, and none of that is seen by the caller. tarn's own
 * threads get none. */
#include "base/thread/thread.h"
#include "support/every_call.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <tarn/live.h>
#include <tarn/metrics.h>
#include <unistd.h>

#include <cmocka.h>

enum { THREADS = 4 };

static _Atomic uint64_t delivered, astray;
static _Thread_local bool ours; /* a thread of the test's */

static void handler(int number)
{
    int saved = errno;
    (void)number;
    atomic_fetch_add_explicit(ours ? &delivered : &astray, 1, memory_order_relaxed);
    errno = saved;
}

/* The beginning of a thread that was started without signals. */
static void take_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    ours = true;
    CHECK(pthread_sigmask(SIG_SETMASK, &none, NULL) == 0);
}

/* Without SA_RESTART: what is interrupted says so. */
static void catch_all(void)
{
    static const int numbers[] = {SIGPROF, SIGUSR1, SIGALRM, SIGURG};
    struct sigaction action = {.sa_handler = handler};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        CHECK(sigaction(numbers[i], &action, NULL) == 0);
}

static int rounds(void)
{
    const char *times = getenv("TARN_LIFE_TIMES");
    return 200 * (times ? atoi(times) : 1);
}

static char folder[64];

static bool drop(const void *data, size_t size, void *user)
{
    (void)user;
    return data && size;
}

static void use_memory(tarn_stream own)
{
    unsigned char *blocks[40];
    for (size_t i = 0; i < 40; i++) {
        size_t size = (i + 1) * (i % 9 ? 1000 : 300000);
        blocks[i] = alloc_on(own, size);
        blocks[i][0] = blocks[i][size - 1] = (unsigned char)i;
    }
    for (size_t i = 0; i < 40; i++) {
        size_t size = (i + 1) * (i % 9 ? 1000 : 300000);
        CHECK(blocks[i][0] == i && blocks[i][size - 1] == i);
        OK(tarn_free(blocks[i]));
    }
    for (size_t i = 0; i < 2000; i++)
        OK(tarn_free(alloc_on(own, i % 5000 + 1)));
}

static void wait_for_work(tarn_stream own)
{
    tarn_event *event = NULL;
    void *block = alloc_on(own, 3 * MIB), *more = NULL;
    work_on(own, block, MIB, 100000);
    OK(tarn_record_stream(block, world.stream));
    OK(tarn_free(block));
    OK(tarn_event_create(0, &event));
    OK(tarn_event_record(event, own));
    OK(tarn_event_synchronize(event));
    OK(tarn_event_destroy(event));
    OK(tarn_stream_synchronize(own));
    tarn_status status = tarn_alloc_on(own, 2000 * MIB, &more);
    CHECK(status == TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_device_trim(0, 0));
}

static void write_files(tarn_stream own)
{
    char path[128];
    snprintf(path, sizeof path, "%s/file-%llx", folder, (unsigned long long)own);
    OK(tarn_snapshot_write(path, NULL));
    OK(tarn_snapshot_print(drop, NULL, NULL));
    OK(tarn_metrics_print(drop, NULL));
    (void)remove(path);
    const tarn_live_options live = {.size = sizeof live, .directory = folder, .interval_ms = 10};
    tarn_status status = tarn_live_start(&live);
    CHECK(status == TARN_OK || status == TARN_ERROR_BUSY); /* another thread's is there */
    OK(tarn_live_stop());
}

/* Pieces of a share by a socket that is full now and then. */
static void *receive(void *argument)
{
    int socket = *(int *)argument;
    tarn_share *share = NULL;
    void *seen = NULL;
    take_signals();
    OK(tarn_share_receive(socket, &share));
    OK(tarn_import(share, 0, &seen));
    OK(tarn_import_close(seen));
    OK(tarn_share_close(share));
    return argument;
}

static void send_shares(tarn_stream own)
{
    int sockets[2];
    pthread_t thread;
    tarn_share *share = NULL;
    void *block = alloc_on(own, 5 * MIB);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
    CHECK(thread_start(&thread, receive, &sockets[1]));
    OK(tarn_export(block, &share));
    OK(tarn_share_send(sockets[0], share));
    CHECK(pthread_join(thread, NULL) == 0);
    OK(tarn_share_close(share));
    OK(tarn_free(block));
    close(sockets[0]);
    close(sockets[1]);
}

static void use_others(tarn_stream own)
{
    void *handle = NULL, *pinned = NULL;
    tarn_pool *pool = NULL;
    OK(tarn_handle_get(world.library, own, &handle));
    OK(tarn_pinned_alloc(own, 100000, &pinned));
    OK(tarn_free(pinned));
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_alloc(pool, own, MIB, &handle));
    OK(tarn_free(handle));
    OK(tarn_pool_suspend(pool, true));
    OK(tarn_pool_resume(pool));
    OK(tarn_pool_release(pool));
}

static void (*const uses[])(tarn_stream own) = {use_memory, wait_for_work, write_files, send_shares,
                                                use_others};

static pthread_t threads[THREADS];
static atomic_int at_work;

static void *work(void *argument)
{
    take_signals();
    tarn_stream own = lease(0);
    for (int i = 0; i < rounds(); i++)
        uses[((size_t)(uintptr_t)argument + (size_t)i) % (sizeof uses / sizeof *uses)](own);
    atomic_fetch_sub(&at_work, 1);
    return NULL;
}

/* Signals to each thread by turns, as fast as they go, and to the process, whichever thread gets
 * those. */
static void a_storm_of_signals_is_not_seen(void **state)
{
    (void)state;
    world_make();
    ours = true;
    catch_all();
    atomic_store(&at_work, THREADS);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(thread_start(&threads[i], work, (void *)i));
    const struct itimerval fast = {{.tv_usec = 100}, {.tv_usec = 100}}, never = {{0}, {0}};
    CHECK(setitimer(ITIMER_PROF, &fast, NULL) == 0 && setitimer(ITIMER_REAL, &fast, NULL) == 0);
    for (unsigned i = 0; atomic_load(&at_work) > 0; i++) {
        if (atomic_load(&at_work) == THREADS) /* all are there to be sent one */
            CHECK(pthread_kill(threads[i % THREADS], i % 2 ? SIGUSR1 : SIGURG) == 0);
        if (i % 16 == 0)
            CHECK(kill(getpid(), SIGUSR1) == 0);
        usleep(20);
    }
    CHECK(setitimer(ITIMER_PROF, &never, NULL) == 0 && setitimer(ITIMER_REAL, &never, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    fprintf(stderr, "%llu signals\n", (unsigned long long)atomic_load(&delivered));
    CHECK(atomic_load(&delivered) > 100 && atomic_load(&astray) == 0);
    world_end();
    nothing_is_left(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_storm_of_signals_is_not_seen),
    };
    bool shared = access("/dev/shm", W_OK) == 0; /* a file system that is interrupted, too */
    snprintf(folder, sizeof folder, "%s/tarn-signal-XXXXXX", shared ? "/dev/shm" : "/tmp");
    CHECK(mkdtemp(folder) != NULL);
    host_start_with(2, 512 * MIB);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(folder);
    return failed;
}
