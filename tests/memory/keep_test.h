/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of kept pools have in common: an owner, which is the program `tarn`, and pools
 * that it keeps. */
#ifndef TESTS_MEMORY_KEEP_TEST_H
#define TESTS_MEMORY_KEEP_TEST_H

#include "share_test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>

#define SEGMENT (8 * MIB)

#ifdef __SANITIZE_THREAD__
static const bool thread_sanitizer = true;
#else
static const bool thread_sanitizer = false;
#endif

static char keep_path[100];
static pid_t owner;

/* Starts a program, whose first line on its standard output says that it listens. `prepare`, which
 * may be NULL, runs in its process before. */
static inline pid_t start_listening(char *const words[], void (*prepare)(void))
{
    int ends[2];
    char line[200] = "";
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    fflush(NULL);
    pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        dup2(ends[1], STDOUT_FILENO);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* of a test that has failed nothing stays */
        if (prepare)
            prepare();
        execv(words[0], words);
        _exit(127);
    }
    close(ends[1]);
    CHECK(read(ends[0], line, sizeof line - 1) > 0 && strstr(line, "listening"));
    close(ends[0]);
    return process;
}

static inline void start_owner(void)
{
    owner = start_listening((char *[]){getenv("TARN_PROGRAM"), "keep", "--socket", keep_path, NULL},
                            NULL);
}

static inline void end_owner(int signal)
{
    int status = 0;
    CHECK(kill(owner, signal) == 0 && waitpid(owner, &status, 0) == owner);
}

/* For cmocka: an owner runs during each test. */
static inline int owner_begins(void **state)
{
    (void)state;
    start_owner();
    return 0;
}

static inline int owner_ends(void **state)
{
    (void)state;
    end_owner(SIGTERM);
    return 0;
}

/* Names the socket, for this process and those that it starts. */
static inline void keep_name_socket(const char *test)
{
    snprintf(keep_path, sizeof keep_path, "/tmp/tarn-%s-%d", test, (int)getpid());
    CHECK(setenv("TARN_KEEP", keep_path, 1) == 0);
}

/* False, and says so, if there is no program `tarn`. */
static inline bool keep_has_program(void)
{
    const char *program = getenv("TARN_PROGRAM");
    if (program && access(program, X_OK) == 0)
        return true;
    puts("skipped: there is no program tarn, which is the owner (TARN_PROGRAM)");
    return false;
}

/* Whether a process may trace its child. */
static inline bool may_trace(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0);
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

static inline tarn_keep_options small_segments(void)
{
    return (tarn_keep_options){.size = sizeof(tarn_keep_options), .segment = SEGMENT};
}

static inline tarn_pool *keep(const char *name, tarn_kept *kept)
{
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    options.wait_ms = 10000; /* for the end of a process that was killed */
    *kept = (tarn_kept){.size = sizeof *kept};
    OK(tarn_pool_keep(name, &options, &pool, kept));
    return pool;
}

static inline size_t reserved(void)
{
    return (size_t)stats_of(0).reserved_bytes[0].current;
}

static inline tarn_sealed_block found(tarn_pool *pool, const char *name)
{
    tarn_sealed_block block = {.size = sizeof block};
    OK(tarn_pool_block_find(pool, name, &block));
    return block;
}

/* The lines that the owner's list has. */
static inline int lines_of_list(const char *more)
{
    char command[300];
    int lines = 0;
    snprintf(command, sizeof command, "\"$TARN_PROGRAM\" keep --socket %s --list %s", keep_path,
             more);
    FILE *out = popen(command, "r");
    CHECK(out != NULL);
    for (int letter; (letter = getc(out)) != EOF;)
        lines += letter == '\n';
    CHECK(pclose(out) == 0);
    return lines; /* "no pools" is a line too */
}

static inline void send_all(int socket, const void *bytes, size_t size)
{
    CHECK(send(socket, bytes, size, MSG_NOSIGNAL) == (ssize_t)size);
}

static inline void receive_all(int socket, void *bytes, size_t size)
{
    CHECK(recv(socket, bytes, size, MSG_WAITALL) == (ssize_t)size);
}

static inline void kill_side(struct side side)
{
    CHECK(kill(side.process, SIGKILL) == 0);
    end_side(side, 128 + SIGKILL);
}

/* Two sealed blocks, and one that never is. */
struct told {
    char *first, *second;
};

static inline void fill_and_wait(int socket)
{
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    unsigned char data[TARN_KEEP_DATA_BYTES] = {7};
    CHECK(!kept.adopted && !kept.blocks);
    struct told told = {alloc_in(pool, 0, 3 * MIB + 100), NULL};
    (void)alloc_in(pool, 0, 5 * MIB); /* never sealed */
    told.second = alloc_in(pool, 0, 20 * MIB);
    fill(told.first, 3 * MIB, 3);
    fill(told.second, 20 * MIB, 9);
    OK(tarn_pool_block_seal(told.first, "first", data, NULL));
    OK(tarn_pool_block_seal(told.second, "second", NULL, NULL));
    send_all(socket, &told, sizeof told);
    hear(socket, 'e'); /* it is killed meanwhile, or its parent has gone */
}

static inline struct side filled(struct told *told)
{
    struct side side = start_side("fill and wait", SOCK_STREAM);
    receive_all(side.socket, told, sizeof *told);
    return side;
}

static pid_t started; /* a child of fill_and_fork() */

static inline void fill_and_fork(int socket)
{
    tarn_kept kept;
    (void)keep("weights", &kept);
    started = fork();
    CHECK(started >= 0);
    if (started == 0) {
        char word;
        (void)!read(socket, &word, 1); /* until the test ends */
        _exit(0);
    }
    send_all(socket, &started, sizeof started);
    hear(socket, 'e');
}

/* Whether both sealed blocks are whole. */
static inline bool both_are_whole(tarn_pool *pool)
{
    tarn_sealed_block first = found(pool, "first"), second = found(pool, "second");
    return first.bytes == 3 * MIB + 100 && holds(first.pointer, 3 * MIB, 3) &&
           second.bytes == 20 * MIB && holds(second.pointer, 20 * MIB, 9);
}

/* Frees what is sealed, and ends the pool. */
static inline void end_pool(tarn_pool *pool)
{
    OK(tarn_free(found(pool, "first").pointer));
    OK(tarn_free(found(pool, "second").pointer));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

#endif
