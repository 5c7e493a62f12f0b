/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A process with a kept pool, or its owner, is killed at each of its system calls, before the
 * kernel makes the call and after it: while a segment is made and handed over, a block is sealed,
 * and a segment is released in two steps. The next process has what was sealed, and nothing is in
 * the way of it. */
#include "keep_test.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include <cmocka.h>

#define GET_INFO ((enum __ptrace_request)0x420e) /* PTRACE_GET_SYSCALL_INFO */
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

/* ---- The owner ---- */

/* Releases segments, unless it is told 'n', and makes others while the owner is killed, and says
 * what it has. */
static void outlive(int socket)
{
    char word = 0;
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    void *other = alloc_in(pool, 0, 9 * MIB);
    OK(tarn_free(other));
    say(socket, 'r');
    CHECK(recv(socket, &word, 1, 0) == 1);
    if (word != 'n')
        OK(tarn_pool_trim(pool, 0));
    void *block = alloc_in(pool, 0, NEW);
    fill(block, NEW, 21);
    OK(tarn_pool_block_seal(block, "new", NULL, NULL));
    say(socket, 'd');
    hear(socket, 's'); /* there is an owner */
    OK(tarn_free(alloc_in(pool, 0, 40 * MIB)));
    OK(tarn_pool_trim(pool, 0));
    size_t bytes = reserved();
    send_all(socket, &bytes, sizeof bytes);
    hear(socket, 'e'); /* it is killed meanwhile */
}

/* Has a pool of several segments, one of them free, and releases that when there is another owner:
 * then it tells the owner of the pool. */
static void register_again(int socket)
{
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    char *first = alloc_in(pool, 0, 3 * MIB + 100), *second = alloc_in(pool, 0, 20 * MIB);
    fill(first, 3 * MIB, 3);
    fill(second, 20 * MIB, 9);
    OK(tarn_pool_block_seal(first, "first", NULL, NULL));
    OK(tarn_pool_block_seal(second, "second", NULL, NULL));
    OK(tarn_free(alloc_in(pool, 0, 40 * MIB)));
    CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
    say(socket, 'r');
    CHECK(raise(SIGSTOP) == 0);
    OK(tarn_pool_trim(pool, 0));
    _exit(0);
}

/* One attempt of a process to tell another owner of its pool, which is cut short. A reader has all
 * that is sealed meanwhile. Afterwards there is all of the pool, or nothing. */
static bool cut_registration(unsigned stops, unsigned *whole)
{
    struct side side = start_side("register again", SOCK_STREAM);
    tarn_keep_options options = small_segments();
    tarn_kept kept = {.size = sizeof kept};
    tarn_pool *reader = NULL;
    int status = 0;
    hear(side.socket, 'r');
    CHECK(waitpid(side.process, &status, 0) == side.process && WIFSTOPPED(status));
    options.read = true;
    OK(tarn_pool_keep("weights", &options, &reader, &kept));
    CHECK(kept.blocks == 2);
    end_owner(SIGKILL);
    start_owner();
    for (unsigned i = 0; i < stops && WIFSTOPPED(status); i++) {
        CHECK(ptrace(PTRACE_SYSCALL, side.process, NULL, NULL) == 0);
        CHECK(waitpid(side.process, &status, 0) == side.process);
    }
    bool ended = !WIFSTOPPED(status);
    OK(tarn_pool_trim(reader, 0));
    CHECK(both_are_whole(reader));
    if (!ended) {
        CHECK(kill(side.process, SIGKILL) == 0);
        CHECK(waitpid(side.process, &status, 0) == side.process);
    }
    close(side.socket);
    tarn_pool *pool = keep("weights", &kept);
    *whole += kept.adopted;
    CHECK(kept.adopted || !kept.mapped);
    if (kept.adopted)
        CHECK(kept.blocks == 2 && both_are_whole(pool));
    CHECK(kept.adopted || !ended);
    OK(tarn_pool_release(reader));
    if (kept.adopted)
        end_pool(pool);
    else
        OK(tarn_pool_release(pool));
    return ended;
}

static void a_kill_in_a_registration_leaves_all_or_nothing(void **state)
{
    (void)state;
    unsigned stops = 1, whole = 0;
    unsigned rounds = 1;
    for (; !cut_registration(stops, &whole); rounds++)
        stops += 2; /* after a call is as before the next */
    CHECK(stops > 20 && whole > 1 && whole < rounds);
}

/* Waits for the owner's next stop. False if the other side has done everything before. */
static bool stops(int other)
{
    struct pollfd done = {.fd = other, .events = POLLIN};
    int status = 0;
    pid_t came;
    while ((came = waitpid(owner, &status, WNOHANG)) == 0 && poll(&done, 1, 1) == 0)
        ;
    CHECK(came >= 0 && (came == 0 || WIFSTOPPED(status)));
    return came > 0;
}

/* Kills the owner after a number of stops, and starts another. True if there was no such stop. */
static bool cut_owner_short(int other, char word, unsigned count)
{
    bool stopped = true;
    int status = 0;
    CHECK(ptrace(PTRACE_SEIZE, owner, NULL, NULL) == 0 &&
          ptrace(PTRACE_INTERRUPT, owner, NULL, NULL) == 0);
    CHECK(waitpid(owner, &status, 0) == owner && WIFSTOPPED(status));
    say(other, word);
    for (unsigned i = 0; i < count && stopped; i++) {
        CHECK(ptrace(PTRACE_SYSCALL, owner, NULL, NULL) == 0);
        stopped = stops(other);
    }
    end_owner(SIGKILL);
    start_owner();
    return !stopped;
}

/* `twice`: the process has not noticed yet that the owner before was killed too. */
static void kill_owner_at_each_step(bool twice)
{
    struct told told;
    unsigned count = 1, step = twice ? 2 : 1; /* after a call is as before the next */
    kill_side(filled(&told));
    for (bool ended = false; !ended; count += step) {
        tarn_kept kept;
        size_t bytes = 0;
        struct side side = start_side("outlive", SOCK_STREAM);
        hear(side.socket, 'r');
        if (twice) {
            end_owner(SIGKILL);
            start_owner();
        }
        ended = cut_owner_short(side.socket, twice ? 'n' : 'g', count);
        hear(side.socket, 'd');
        say(side.socket, 's');
        receive_all(side.socket, &bytes, sizeof bytes);
        kill_side(side);
        tarn_pool *pool = keep("weights", &kept);
        bool well = kept.mapped == bytes && kept.blocks == 3 && both_are_whole(pool) &&
                    holds(found(pool, "new").pointer, NEW, 21);
        if (!well)
            fprintf(stderr,
                    "after a kill of the owner at stop %u: %zu bytes, and the process had %zu\n",
                    count, kept.mapped, bytes);
        CHECK(well);
        OK(tarn_free(found(pool, "new").pointer));
        end_pool(pool);
        kill_side(filled(&told));
    }
    CHECK(count > 20);
    tarn_kept kept;
    end_pool(keep("weights", &kept));
}

static void a_kill_of_the_owner_at_each_step_loses_nothing(void **state)
{
    (void)state;
    kill_owner_at_each_step(false);
}

static void a_second_kill_of_the_owner_at_each_step_loses_nothing(void **state)
{
    (void)state;
    kill_owner_at_each_step(true);
}

/* Starts an owner that stops at its first instruction. */
static pid_t traced_owner(int output)
{
    pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        dup2(output, STDOUT_FILENO);
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execl(getenv("TARN_PROGRAM"), "tarn", "keep", "--socket", keep_path, NULL);
        _exit(127);
    }
    return process;
}

/* An owner that was killed has left its socket. The next one replaces it, and at each of its steps
 * there is one: a process that finds none gives the owner up. */
static void there_is_a_socket_at_each_step(void **state)
{
    (void)state;
    int ends[2], status = 0;
    end_owner(SIGKILL);
    CHECK(pipe2(ends, O_CLOEXEC) == 0 && access(keep_path, F_OK) == 0);
    owner = traced_owner(ends[1]);
    struct pollfd listens = {.fd = ends[0], .events = POLLIN};
    while (poll(&listens, 1, 0) == 0) {
        CHECK(waitpid(owner, &status, 0) == owner && WIFSTOPPED(status));
        bool is_there = access(keep_path, F_OK) == 0;
        if (!is_there)
            (void)kill(owner, SIGKILL);
        CHECK(is_there);
        CHECK(ptrace(PTRACE_SYSCALL, owner, NULL, NULL) == 0);
    }
    CHECK(waitpid(owner, &status, 0) == owner && WIFSTOPPED(status));
    CHECK(ptrace(PTRACE_DETACH, owner, NULL, NULL) == 0);
    close(ends[0]);
    close(ends[1]);
    CHECK(lines_of_list("") == 1);
}

static void prepare_device(void)
{
    host_start_with(1, 256 * MIB);
}

static int start(void **state)
{
    (void)state;
    prepare_device();
    keep_name_socket("keep-steps");
    start_owner();
    return 0;
}

/* Two owners find the socket of one that was killed. The first has replaced it when the second
 * comes to that: the second gives up, and the first is there for all. */
static void of_two_owners_one_begins(void **state)
{
    (void)state;
    struct {
        uint8_t op, unused[3];
        uint32_t machine;
        uint64_t at, stack, number, arguments[6], more[2];
    } info = {0};
    int status = 0, nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    end_owner(SIGKILL);
    pid_t second = traced_owner(nothing);
    CHECK(waitpid(second, &status, 0) == second && WIFSTOPPED(status));
    CHECK(ptrace(PTRACE_SETOPTIONS, second, NULL, (void *)PTRACE_O_TRACESYSGOOD) == 0);
    while (info.op != 1 || info.number != SYS_bind) {
        CHECK(ptrace(PTRACE_SYSCALL, second, NULL, NULL) == 0);
        CHECK(waitpid(second, &status, 0) == second && WIFSTOPPED(status));
        CHECK(ptrace(GET_INFO, second, (void *)sizeof info, &info) > 0);
    }
    start_owner();
    CHECK(ptrace(PTRACE_DETACH, second, NULL, NULL) == 0);
    for (int i = 0; i < 200 && waitpid(second, &status, WNOHANG) == 0; i++)
        usleep(10000);
    bool gave_up = WIFEXITED(status) && WEXITSTATUS(status) == 1;
    (void)kill(second, SIGKILL);
    CHECK(gave_up && lines_of_list("") == 1);
    end_owner(SIGTERM);
    CHECK(access(keep_path, F_OK) != 0);
    start_owner();
    close(nothing);
}

static const struct role roles[] = {
    {"fill and wait", fill_and_wait},   {"be traced", be_traced}, {"outlive", outlive},
    {"register again", register_again}, {"check", check},         {NULL, NULL},
};

int main(int argc, char **argv)
{
    if (role_play(argc, argv, prepare_device, roles))
        return 0;
    if (!keep_has_program())
        return 0;
    if (!may_trace()) {
        puts("skipped: a process may not trace its children here");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_at_each_step_loses_nothing),
        cmocka_unit_test(a_kill_of_the_owner_at_each_step_loses_nothing),
        cmocka_unit_test(a_second_kill_of_the_owner_at_each_step_loses_nothing),
        cmocka_unit_test(a_kill_in_a_registration_leaves_all_or_nothing),
        cmocka_unit_test(there_is_a_socket_at_each_step),
        cmocka_unit_test(of_two_owners_one_begins),
    };
    return cmocka_run_group_tests(tests, start, owner_ends);
}
