/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A process with a kept pool is killed at each of its system calls, before the kernel makes the
 * call and after it: while a segment is made and handed over, a block is sealed, and a segment is
 * released in two steps. The next process has what was sealed, and nothing is in the way of it. */
#include "keep_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/ptrace.h>

#include <cmocka.h>

#define NEW (12 * MIB)

/* What is cut short somewhere. */
static void be_traced(int socket)
{
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    (void)socket;
    CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 && raise(SIGSTOP) == 0);
    void *block = alloc_in(pool, 0, NEW);
    fill(block, NEW, 21);
    OK(tarn_pool_block_seal(block, "new", NULL, NULL));
    void *other = alloc_in(pool, 0, 9 * MIB);
    OK(tarn_free(other));
    OK(tarn_pool_trim(pool, 0));
    OK(tarn_pool_block_unseal(block));
    OK(tarn_free(block));
    OK(tarn_pool_trim(pool, 0));
    _exit(0);
}

static void check(int socket)
{
    tarn_kept kept;
    tarn_sealed_block block = {.size = sizeof block};
    tarn_pool *pool = keep("weights", &kept);
    CHECK(both_are_whole(pool));
    if (tarn_pool_block_find(pool, "new", &block) == TARN_OK) {
        CHECK(block.bytes == NEW && holds(block.pointer, NEW, 21) && kept.blocks == 3);
        OK(tarn_free(block.pointer));
    } else {
        CHECK(kept.blocks == 2);
    }
    OK(tarn_pool_trim(pool, 0));
    size_t least = reserved();
    CHECK(least >= 23 * MIB && least < 23 * MIB + 2 * SEGMENT);
    void *more = alloc_in(pool, 0, 40 * MIB); /* at the offsets that were released */
    OK(tarn_free(more));
    OK(tarn_pool_trim(pool, 0));
    CHECK(reserved() == least);
    say(socket, 'w');
    _exit(0);
}

/* Lets a process go on for a number of stops, and kills it. True if it ended before. */
static bool cut_short(unsigned stops)
{
    struct side side = start_side("be traced", SOCK_STREAM);
    int status = 0;
    CHECK(waitpid(side.process, &status, 0) == side.process && WIFSTOPPED(status));
    for (unsigned i = 0; i < stops && WIFSTOPPED(status); i++) {
        CHECK(ptrace(PTRACE_SYSCALL, side.process, NULL, NULL) == 0);
        CHECK(waitpid(side.process, &status, 0) == side.process);
    }
    close(side.socket);
    if (WIFSTOPPED(status)) {
        CHECK(kill(side.process, SIGKILL) == 0);
        CHECK(waitpid(side.process, &status, 0) == side.process);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        return false;
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return true;
}

static void a_kill_at_each_step_loses_nothing(void **state)
{
    (void)state;
    struct told told;
    unsigned stops = 1;
    kill_side(filled(&told));
    for (bool ended = false; !ended; stops++) {
        ended = cut_short(stops);
        struct side side = start_side("check", SOCK_STREAM);
        char word = 0;
        bool well = recv(side.socket, &word, 1, 0) == 1 && word == 'w';
        if (!well)
            fprintf(stderr, "after a kill at stop %u\n", stops);
        CHECK(well);
        end_side(side, 0);
    }
    CHECK(stops > 50);
    tarn_kept kept;
    end_pool(keep("weights", &kept));
}

static int start(void **state)
{
    (void)state;
    host_start_with(1, 256 * MIB);
    keep_name_socket("keep-steps");
    start_owner();
    return 0;
}

static int as_other_side(const char *role, int socket)
{
    host_start_with(1, 256 * MIB);
    if (strcmp(role, "fill and wait") == 0)
        fill_and_wait(socket);
    else if (strcmp(role, "be traced") == 0)
        be_traced(socket);
    else
        check(socket);
    return 0;
}

/* Whether a process may trace its child. */
static bool may_trace(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0);
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
    if (argc == 3)
        return as_other_side(argv[1], atoi(argv[2]));
    if (!keep_has_program())
        return 0;
    if (!may_trace()) {
        puts("skipped: a process may not trace its children here");
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_kill_at_each_step_loses_nothing)};
    return cmocka_run_group_tests(tests, start, owner_ends);
}
