/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The end of a process with threads at full speed in every part of tarn: it ends at once, without a
 * crash, with the status that the program gave. And exec() after use: the new program inherits
 * nothing. */
#include "support/every_call.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tarn/live.h>
#include <tarn/metrics.h>
#include <unistd.h>

#include <cmocka.h>

enum { WELL = 7 };

static int rounds(void)
{
    const char *times = getenv("TARN_LIFE_TIMES");
    return 3 * (times ? atoi(times) : 1);
}

/* Threads at work ------------------------------------------------------------------------------ */

static char folder[64];

static bool drop(const void *data, size_t size, void *user)
{
    (void)user;
    return data && size;
}

static void allocate(tarn_stream own)
{
    void *blocks[30];
    for (int i = 0; i < 30; i++)
        (void)tarn_alloc_on(own, (size_t)(i + 1) * (i % 6 ? 1000 : 300000), &blocks[i]);
    for (int i = 0; i < 30; i++)
        (void)tarn_free(blocks[i]);
}

static void capture(tarn_stream own)
{
    void *graph = NULL, *block = NULL;
    if (tarn_pool_capture_begin(world.pool, own, TARN_CAPTURE_RELAXED))
        return;
    if (tarn_alloc_on(own, 3 * MIB, &block) == TARN_OK)
        (void)tarn_free(block);
    if (tarn_capture_end(own, &graph) == TARN_OK)
        (void)tarn_host_graph_destroy(graph);
}

/* More than there is, while work holds what is free: waits on the ladder's last step. */
static void run_out(tarn_stream own)
{
    void *large = NULL;
    if (tarn_alloc_on(own, 60 * MIB, &large) == TARN_OK) {
        (void)tarn_record_stream(large, world.stream);
        (void)tarn_host_work(0, native_of(world.stream), large, 1, 1000);
        (void)tarn_free(large);
    }
}

static void write_snapshot(tarn_stream own)
{
    char path[128];
    snprintf(path, sizeof path, "%s/snapshot-%llx", folder, (unsigned long long)own);
    (void)tarn_snapshot_write(path, NULL);
    (void)tarn_snapshot_print(drop, NULL, NULL);
    (void)tarn_metrics_print(drop, NULL);
}

static void move_pools(tarn_stream own)
{
    tarn_pool *pool = NULL;
    void *block = NULL;
    if (tarn_pool_create(NULL, &pool))
        return;
    if (tarn_pool_alloc(pool, own, 3 * MIB, &block) == TARN_OK)
        (void)tarn_free(block);
    (void)tarn_pool_release(pool);
    (void)tarn_device_trim(0, 0);
}

static void ask_for_others(tarn_stream own)
{
    void *handle = NULL, *pinned = NULL;
    (void)tarn_handle_get(world.library, own, &handle);
    if (tarn_pinned_alloc(own, 100000, &pinned) == TARN_OK)
        (void)tarn_free(pinned);
}

static void (*const works[])(tarn_stream own) = {allocate,       capture,    run_out,
                                                 write_snapshot, move_pools, ask_for_others};
enum { WORKS = sizeof works / sizeof *works };

static atomic_int busy;

static void *work(void *argument)
{
    tarn_stream own = lease(0);
    atomic_fetch_add(&busy, 1);
    for (;;)
        works[(size_t)(uintptr_t)argument](own);
    return NULL;
}

static void *take_one(void *argument)
{
    (void)argument;
    return tarn_malloc(1000);
}

/* Threads that end. */
static void *come_and_go(void *argument)
{
    (void)argument;
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, take_one, NULL) == 0) {
            void *block = NULL;
            (void)pthread_join(thread, &block);
            (void)tarn_free(block);
        }
    }
    return NULL;
}

static void start_all(void)
{
    pthread_t thread;
    world_make();
    (void)alloc_on(lease(1), MIB); /* where pieces are not exportable, they share a file */
    const tarn_live_options live = {.size = sizeof live, .directory = folder, .interval_ms = 10};
    const tarn_trace_options trace = {.size = sizeof trace, .records = 1000};
    OK(tarn_trace_start(&trace));
    OK(tarn_live_start(&live));
    for (uintptr_t i = 0; i < WORKS; i++)
        CHECK(pthread_create(&thread, NULL, work, (void *)i) == 0);
    CHECK(pthread_create(&thread, NULL, come_and_go, NULL) == 0);
    while (atomic_load(&busy) < WORKS)
        usleep(100);
    usleep(2000);
}

/* Ends ----------------------------------------------------------------------------------------- */

static void by_exit(void)
{
    start_all();
    exit(WELL);
}

static void *exit_here(void *argument)
{
    (void)tarn_malloc(1000);
    exit(WELL);
    return argument;
}

static void by_another_thread(void)
{
    pthread_t thread;
    start_all();
    CHECK(pthread_create(&thread, NULL, exit_here, NULL) == 0);
    for (;;)
        allocate(world.stream);
}

static void at_once(void)
{
    start_all();
    _exit(WELL);
}

static void quickly(void)
{
    start_all();
    quick_exit(WELL);
}

/* Exit handlers that use tarn while the threads go on. */
static void use_once_more(void)
{
    for (int i = 0; i < 2; i++) {
        for (size_t j = 0; j < WORKS; j++)
            works[j](world.stream);
    }
    OK(tarn_free(world.block));
}

static void with_a_handler(void)
{
    CHECK(atexit(use_once_more) == 0);
    start_all();
    exit(WELL);
}

static void remove_files(void)
{
    DIR *open = opendir(folder);
    CHECK(open != NULL);
    for (struct dirent *entry; (entry = readdir(open));)
        (void)unlinkat(dirfd(open), entry->d_name, 0);
    closedir(open);
}

static void ends_well(void (*end)(void))
{
    for (int i = 0; i < rounds(); i++) {
        in_child_that_exits(end, WELL);
        remove_files();
    }
}

static void exit_ends_it(void **state)
{
    (void)state;
    ends_well(by_exit);
}

static void another_thread_ends_it(void **state)
{
    (void)state;
    ends_well(by_another_thread);
}

static void it_ends_at_once(void **state)
{
    (void)state;
    ends_well(at_once);
    ends_well(quickly);
}

static void exit_handlers_use_tarn(void **state)
{
    (void)state;
    ends_well(with_a_handler);
}

/* exec() --------------------------------------------------------------------------------------- */

static char *const arguments[] = {(char *)"files", NULL};

/* In the new program: what it has open is what every program has. */
static int list_files(void)
{
    int ours = 0;
    DIR *open = opendir("/proc/self/fd");
    for (struct dirent *entry; open && (entry = readdir(open));) {
        char path[300], to[256] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (atoi(entry->d_name) <= STDERR_FILENO || atoi(entry->d_name) == dirfd(open) ||
            readlink(path, to, sizeof to - 1) < 0)
            continue;
        if (!strstr(to, "memfd:tarn") && !strstr(to, folder) && !strstr(to, "socket:"))
            continue; /* what the test was started with */
        fprintf(stderr, "inherited: %s\n", to);
        ours++;
    }
    if (open)
        closedir(open);
    return ours ? 1 : WELL;
}

static void execute_itself(void)
{
    (void)execv("/proc/self/exe", arguments);
    _exit(1);
}

static void exec_after_use(void)
{
    start_all();
    execute_itself();
}

static void wait_well(pid_t child)
{
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == WELL);
}

static void spawn_after_use(void)
{
    extern char **environ;
    pid_t child = -1;
    start_all();
    for (int i = 0; i < 5; i++) {
        in_child_that_exits(execute_itself, WELL);
        CHECK(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ) == 0);
        wait_well(child);
        child = vfork(); /* shares all with its parent until it executes */
        if (child == 0)
            execute_itself();
        wait_well(child);
    }
    for (int i = 0; i < 10; i++)
        allocate(world.stream);
    OK(tarn_free(world.block));
    _exit(WELL);
}

static void a_new_program_inherits_nothing(void **state)
{
    (void)state;
    in_child_that_exits(exec_after_use, WELL);
    in_child_that_exits(spawn_after_use, WELL);
    remove_files();
}

int main(int count, char **values)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_ends_it),
        cmocka_unit_test(another_thread_ends_it),
        cmocka_unit_test(it_ends_at_once),
        cmocka_unit_test(exit_handlers_use_tarn),
        cmocka_unit_test(a_new_program_inherits_nothing),
    };
    const char *inherited = getenv("TARN_LIFE_FOLDER");
    if (count == 1 && strcmp(values[0], arguments[0]) == 0 && inherited) {
        snprintf(folder, sizeof folder, "%s", inherited);
        return list_files();
    }
    snprintf(folder, sizeof folder, "/tmp/tarn-exit-XXXXXX");
    CHECK(mkdtemp(folder) && setenv("TARN_LIFE_FOLDER", folder, 1) == 0);
    host_start_with(2, 128 * MIB);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(folder);
    return failed;
}
