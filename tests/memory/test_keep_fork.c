/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A process forks at each system call of one of its threads, which takes a kept pool over, adds a
 * segment, seals a block, suspends and resumes the pool, and gives a segment back. The child goes
 * on, executes another program or exits; the process is killed there, or goes on and is killed at
 * the end. A child that goes on has the devices open: nobody gets the pool before it has ended, and
 * it is named. Nobody waits for the others. What was sealed is there in any case. */
#include "keep_test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include <cmocka.h>

#define NEW (12 * MIB)

#define GET_INFO ((enum __ptrace_request)0x420e) /* PTRACE_GET_SYSCALL_INFO */
enum { FORK_MS = 3000 };

/* ---- The process ---- */

static int to_test; /* the socket */

static void *use_pool(void *unused)
{
    tarn_kept kept;
    pid_t self = (pid_t)syscall(SYS_gettid);
    (void)unused;
    OK(tarn_free(alloc_on(0, MIB))); /* what a device opens is open */
    CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
    send_all(to_test, &self, sizeof self);
    raise(SIGSTOP);
    tarn_pool *pool = keep("weights", &kept);
    CHECK(kept.blocks == 2);
    void *block = alloc_in(pool, 0, NEW);
    fill(block, NEW, 21);
    OK(tarn_pool_block_seal(block, "new", NULL, NULL));
    OK(tarn_pool_suspend(pool, true));
    OK(tarn_pool_resume(pool));
    OK(tarn_free(alloc_in(pool, 0, 9 * MIB)));
    OK(tarn_pool_trim(pool, 0));
    raise(SIGSTOP);
    return NULL;
}

/* What a child does: it lives on, executes this program again, or exits. */
static void be_child(char how)
{
    char number[16];
    struct pollfd test = {.fd = to_test};
    if (how == 'x') {
        snprintf(number, sizeof number, "%d", to_test);
        execl("/proc/self/exe", "side", "live on", number, (char *)NULL);
    }
    while (how == 'l' && poll(&test, 1, -1) < 0)
        ;
    _exit(0);
}

/* Another thread uses the pool; this one forks whenever it is told to. */
static void fork_when_told(int socket)
{
    pthread_t thread;
    to_test = socket;
    signal(SIGCHLD, SIG_IGN);
    CHECK(pthread_create(&thread, NULL, use_pool, NULL) == 0);
    for (char how; recv(socket, &how, 1, 0) == 1;) {
        pid_t child = fork();
        if (child == 0)
            be_child(how);
        send_all(socket, &child, sizeof child);
    }
    _exit(0);
}

/* ---- The test ---- */

/* One process of these, and its thread. */
struct forker {
    struct side side;
    pid_t thread;
    pid_t child; /* 0: it did not fork */
    bool hears;  /* it is in a call of recvmsg() */
    bool asked;  /* the owner has answered, so it knows that it wants the pool */
};

/* The thread's next stop. False if it has done everything, or has ended. */
static bool goes_on(struct forker *forker)
{
    struct {
        uint8_t op, unused[3];
        uint32_t machine;
        uint64_t at, stack, number, arguments[6], more[2];
    } info = {0};
    int status = 0;
    CHECK(ptrace(PTRACE_SYSCALL, forker->thread, NULL, NULL) == 0);
    CHECK(waitpid(forker->thread, &status, __WALL) == forker->thread);
    CHECK(WIFSTOPPED(status));
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) { /* its own SIGSTOP */
        CHECK(WSTOPSIG(status) == SIGSTOP);
        return false;
    }
    CHECK(ptrace(GET_INFO, forker->thread, (void *)sizeof info, &info) > 0);
    forker->asked |= forker->hears && info.op == 2;
    forker->hears = info.op == 1 && info.number == SYS_recvmsg;
    return true;
}

static struct forker start_forker(void)
{
    struct forker forker = {.side = start_side("fork when told", SOCK_STREAM)};
    int status = 0;
    receive_all(forker.side.socket, &forker.thread, sizeof forker.thread);
    CHECK(waitpid(forker.thread, &status, __WALL) == forker.thread && WIFSTOPPED(status));
    CHECK(ptrace(PTRACE_SETOPTIONS, forker.thread, NULL, (void *)PTRACE_O_TRACESYSGOOD) == 0);
    return forker;
}

/* The thread may have a lock that a fork waits for: then there is no child. */
static void tell_to_fork(struct forker *forker, char how)
{
    struct pollfd answers = {.fd = forker->side.socket, .events = POLLIN};
    say(forker->side.socket, how);
    if (poll(&answers, 1, FORK_MS) > 0)
        receive_all(forker->side.socket, &forker->child, sizeof forker->child);
    CHECK(forker->child >= 0);
}

static void kill_forker(const struct forker *forker)
{
    int status = 0;
    CHECK(kill(forker->side.process, SIGKILL) == 0);
    CHECK(waitpid(forker->thread, &status, __WALL) == forker->thread);
    CHECK(waitpid(forker->side.process, &status, 0) == forker->side.process);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Whether a pool that a child may hold is refused, and the child named. */
static bool names_child(const struct forker *forker, bool *held)
{
    char text[40];
    tarn_pool *pool = NULL;
    tarn_kept kept = {.size = sizeof kept};
    tarn_keep_options options = small_segments();
    options.wait_ms = 20;
    tarn_status status = tarn_pool_keep("weights", &options, &pool, &kept);
    snprintf(text, sizeof text, "process %d, a child", (int)forker->child);
    *held = status == TARN_ERROR_BUSY;
    if (*held)
        return strstr(tarn_last_error(), text) != NULL;
    OK(status);
    return true;
}

/* A successor has what was sealed, and room for more. */
static void succeed(int socket)
{
    tarn_kept kept;
    tarn_sealed_block block = {.size = sizeof block};
    tarn_pool *pool = keep("weights", &kept);
    CHECK(kept.adopted && !kept.moved && both_are_whole(pool));
    if (tarn_pool_block_find(pool, "new", &block) == TARN_OK) {
        CHECK(block.bytes == NEW && holds(block.pointer, NEW, 21) && kept.blocks == 3);
        OK(tarn_free(block.pointer));
    } else {
        CHECK(kept.blocks == 2);
    }
    OK(tarn_free(alloc_in(pool, 0, 40 * MIB)));
    OK(tarn_pool_trim(pool, 0));
    CHECK(reserved() >= 23 * MIB && reserved() < 23 * MIB + 2 * SEGMENT);
    say(socket, 'w');
    _exit(0);
}

/* Asks while the child lives: in a process of its own, since whoever gets the pool keeps it. */
static void ask(int socket)
{
    struct forker forker;
    bool held;
    receive_all(socket, &forker, sizeof forker);
    bool named = names_child(&forker, &held);
    char word = !named ? 'u' : held ? 'h' : 'g';
    if (!named)
        fprintf(stderr, "child %d is not named: %s\n", (int)forker.child, tarn_last_error());
    say(socket, word);
    _exit(0);
}

static char answer_of(const char *role, const struct forker *forker)
{
    struct side side = start_side(role, SOCK_STREAM);
    char word = 0;
    if (forker)
        send_all(side.socket, forker, sizeof *forker);
    (void)!recv(side.socket, &word, 1, 0);
    end_side(side, 0);
    return word;
}

static unsigned held_count; /* how often a child kept the pool from others */

/* One process forks before its thread goes on from a stop. `to_end`: it is killed only after its
 * thread has done all. False if there is no such stop. */
static bool fork_at(unsigned stop, char how, bool to_end, unsigned *without)
{
    struct forker forker = start_forker();
    bool goes = true;
    for (unsigned i = 0; goes && i < stop; i++)
        goes = goes_on(&forker);
    bool is_there = goes;
    tell_to_fork(&forker, how);
    while (to_end && goes)
        goes = goes_on(&forker);
    kill_forker(&forker);
    *without += !forker.child;
    if (forker.child && how == 'l') {
        char word = answer_of("ask", &forker);
        bool well = word == 'h' || (word == 'g' && !forker.asked);
        held_count += word == 'h';
        if (!well)
            fprintf(stderr, "stop %u, %s: %c\n", stop, to_end ? "killed later" : "killed", word);
        CHECK(well);
    }
    if (how != 'x')
        close(forker.side.socket);
    bool well = answer_of("succeed", NULL) == 'w';
    if (!well)
        fprintf(stderr, "stop %u, child '%c', %s\n", stop, how, to_end ? "later" : "at once");
    CHECK(well);
    if (how == 'x')
        close(forker.side.socket);
    return is_there;
}

static void a_fork_at_each_step_is_noticed(void **state)
{
    (void)state;
    struct told told;
    unsigned stop = 0, without = 0, every = getenv("TARN_NIGHTLY") ? 1 : 3;
    kill_side(filled(&told));
    for (bool goes = true; goes; stop++) {
        goes = fork_at(stop, 'l', stop % 2, &without);
        if (stop % every == 0) {
            (void)fork_at(stop, 'x', stop % 4 >= 2, &without);
            (void)fork_at(stop, 'e', stop % 4 < 2, &without);
        }
    }
    CHECK(stop > 50 && without < stop / 10 && held_count > stop / 2);
    tarn_kept kept;
    end_pool(keep("weights", &kept));
}

static int start(void **state)
{
    (void)state;
    host_start_with(1, 256 * MIB);
    keep_name_socket("keep-fork");
    start_owner();
    return 0;
}

static int as_other_side(const char *role, int socket)
{
    if (strcmp(role, "live on") == 0) {
        struct pollfd test = {.fd = socket};
        while (poll(&test, 1, -1) < 0)
            ;
        return 0;
    }
    host_start_with(1, 256 * MIB);
    if (strcmp(role, "fill and wait") == 0)
        fill_and_wait(socket);
    else if (strcmp(role, "fork when told") == 0)
        fork_when_told(socket);
    else if (strcmp(role, "ask") == 0)
        ask(socket);
    else
        succeed(socket);
    return 0;
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fork_at_each_step_is_noticed),
    };
    return cmocka_run_group_tests(tests, start, owner_ends);
}
