/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Memory that outlives its process: an owner, `tarn keep`, and generations of this program that
 * fill a pool and are killed. A sealed block is there in the next generation, every byte of it, and
 * at its address; everything else is free memory. */
#include "base/pages.h"
#include "driver/host/host.h"
#include "keep_generations.h"
#include "memory/keep/wire.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cmocka.h>

#define DEVICE_BYTES (2304 * MIB) /* more than as many segments of a granule as are kept */

/* ---- Tests ---- */

static void sealed_blocks_are_there_after_a_kill(void **state)
{
    (void)state;
    struct told told;
    tarn_kept kept;
    kill_side(filled(&told));
    CHECK(system("\"$TARN_PROGRAM\" top --once | grep -q '^weights .* 2 *0 B *none$'") == 0);
    tarn_pool *pool = keep("weights", &kept);
    CHECK(kept.adopted && kept.blocks == 2 && kept.bytes == 23 * MIB + 100);
    CHECK(kept.mapped == reserved() && kept.mapped >= 28 * MIB);
    tarn_sealed_block first = found(pool, "first"), second = found(pool, "second");
    CHECK(first.bytes == 3 * MIB + 100 && first.data[0] == 7 && first.data[1] == 0);
    CHECK(holds(first.pointer, 3 * MIB, 3) && holds(second.pointer, 20 * MIB, 9));
    CHECK(!kept.moved && first.pointer == told.first && second.pointer == told.second);

    /* What was not sealed is free, and the rest is as any block. */
    size_t mapped = reserved();
    void *again = alloc_in(pool, 0, 5 * MIB);
    CHECK(reserved() == mapped);
    CHECK(stats_of(0).allocation[0].current == 3);
    tarn_sealed_block none = {.size = sizeof none};
    OK(tarn_free(first.pointer));
    GIVES(tarn_pool_block_find(pool, "first", &none), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_free(second.pointer));
    OK(tarn_free(again));
    CHECK(lines_of_list("") == 1);
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    CHECK(lines_of_list("") == 1); /* "no pools" */
    pool = keep("weights", &kept);
    CHECK(!kept.adopted && !kept.mapped);
    OK(tarn_pool_release(pool));
}

static void a_pool_is_given_only_when_its_process_has_ended(void **state)
{
    (void)state;
    struct told told;
    tarn_kept kept;
    struct side side = filled(&told);
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    GIVES(tarn_pool_keep("weights", &options, &pool, NULL), TARN_ERROR_BUSY);
    CHECK(strstr(tarn_last_error(), "process"));
    pid_t killer = fork();
    CHECK(killer >= 0);
    if (killer == 0) {
        usleep(100000);
        kill(side.process, SIGKILL);
        _exit(0);
    }
    /* A zombie has ended. */
    options.wait_ms = 20000;
    kept = (tarn_kept){.size = sizeof kept};
    OK(tarn_pool_keep("weights", &options, &pool, &kept));
    CHECK(kept.blocks == 2);
    end_side(side, 128 + SIGKILL);
    CHECK(waitpid(killer, NULL, 0) == killer);
    OK(tarn_free(found(pool, "first").pointer));
    OK(tarn_free(found(pool, "second").pointer));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void adopt_at_once(int socket)
{
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    say(socket, 'r');
    hear(socket, 'g');
    tarn_status status = tarn_pool_keep("weights", &options, &pool, NULL);
    CHECK(status == TARN_OK || status == TARN_ERROR_BUSY);
    say(socket, status ? 'b' : 'y');
    hear(socket, 'e');
}

/* Of several that ask for a pool at once one gets it, whether there is one, or it is to be made. */
static void one_of_many_gets_a_pool(void **state)
{
    (void)state;
    enum { MANY = 6 };
    struct told told;
    tarn_kept kept;
    for (int filled_before = 0; filled_before < 2; filled_before++) {
        struct side sides[MANY];
        int got = 0;
        if (filled_before)
            kill_side(filled(&told));
        for (int i = 0; i < MANY; i++)
            sides[i] = start_side("adopt at once", SOCK_STREAM);
        for (int i = 0; i < MANY; i++)
            hear(sides[i].socket, 'r');
        for (int i = 0; i < MANY; i++)
            say(sides[i].socket, 'g');
        for (int i = 0; i < MANY; i++) {
            char word = 0;
            receive_all(sides[i].socket, &word, 1);
            CHECK(word == 'y' || word == 'b');
            got += word == 'y';
        }
        CHECK(got == 1);
        for (int i = 0; i < MANY; i++)
            kill_side(sides[i]);
        tarn_pool *pool = keep("weights", &kept);
        CHECK(kept.adopted && kept.blocks == (filled_before ? 2 : 0));
        if (filled_before) {
            CHECK(both_are_whole(pool));
            end_pool(pool);
        } else {
            OK(tarn_pool_release(pool));
        }
    }
}

/* Has closed all descriptors that it does not know, as daemons do. */
static void fill_and_close(int socket)
{
    tarn_kept kept;
    (void)keep("weights", &kept);
    CHECK(close_range(3, (unsigned)socket - 1, 0) == 0);
    CHECK(close_range((unsigned)socket + 1, ~0u, 0) == 0);
    say(socket, 'c');
    hear(socket, 'e');
}

static void a_process_that_closed_its_files_has_its_pool(void **state)
{
    (void)state;
    char text[32];
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    struct side side = start_side("fill and close", SOCK_STREAM);
    hear(side.socket, 'c');
    GIVES(tarn_pool_keep("weights", &options, &pool, NULL), TARN_ERROR_BUSY);
    snprintf(text, sizeof text, "process %d has it", (int)side.process);
    CHECK(strstr(tarn_last_error(), text));
    kill_side(side);
    options.wait_ms = 20000;
    OK(tarn_pool_keep("weights", &options, &pool, NULL));
    OK(tarn_pool_release(pool));
}

/* Whether a file is the end of a pipe that can only be read from, or only written to. */
static bool is_end_of_pipe(int file, int mode)
{
    struct stat about;
    return fstat(file, &about) == 0 && S_ISFIFO(about.st_mode) &&
           (fcntl(file, F_GETFL) & O_ACCMODE) == mode;
}

/* Has closed what the owner reads from, and gets another pool before it forks. */
static void close_an_end_and_fork(int socket)
{
    tarn_kept kept;
    (void)keep("others", &kept);
    int end = 3;
    while (end < socket + 100 &&
           !(is_end_of_pipe(end, O_RDONLY) && is_end_of_pipe(end + 1, O_WRONLY)))
        end++;
    CHECK(close(end) == 0);
    fill_and_fork(socket);
}

/* Kills a process, and waits until it has ended. */
static void kill_unreaped(pid_t process)
{
    siginfo_t how;
    CHECK(kill(process, SIGKILL) == 0);
    CHECK(waitid(P_PID, (id_t)process, &how, WEXITED | WNOWAIT) == 0);
}

static void a_child_holds_pools_whose_pipe_lost_an_end(void **state)
{
    (void)state;
    static const char *const names[] = {"others", "weights"};
    char text[32];
    pid_t child = 0;
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    struct side side = start_side("close an end and fork", SOCK_STREAM);
    receive_all(side.socket, &child, sizeof child);
    snprintf(text, sizeof text, "process %d, a child", (int)child);
    kill_unreaped(side.process);
    options.wait_ms = 100;
    for (int i = 0; i < 2; i++) {
        GIVES(tarn_pool_keep(names[i], &options, &pool, NULL), TARN_ERROR_BUSY);
        CHECK(strstr(tarn_last_error(), text));
    }
    end_side(side, 128 + SIGKILL);
    options.wait_ms = 20000;
    for (int i = 0; i < 2; i++) {
        OK(tarn_pool_keep(names[i], &options, &pool, NULL));
        OK(tarn_pool_release(pool));
    }
}

static void a_child_of_its_process_is_named(void **state)
{
    (void)state;
    char number[32];
    pid_t child = 0;
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    struct side side = start_side("fill and fork", SOCK_STREAM);
    receive_all(side.socket, &child, sizeof child);
    kill_unreaped(side.process);
    options.wait_ms = 100;
    GIVES(tarn_pool_keep("weights", &options, &pool, NULL), TARN_ERROR_BUSY);
    snprintf(number, sizeof number, "process %d, a child", (int)child);
    CHECK(strstr(tarn_last_error(), number));
    end_side(side, 128 + SIGKILL);
    options.wait_ms = 20000;
    OK(tarn_pool_keep("weights", &options, &pool, NULL));
    OK(tarn_pool_release(pool));
}

/* The owner ends after the fork, and the process registers with another. */
static void fork_and_register(int socket)
{
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    started = fork();
    CHECK(started >= 0);
    if (started == 0) {
        struct pollfd test = {.fd = socket};
        (void)poll(&test, 1, -1);
        _exit(0);
    }
    send_all(socket, &started, sizeof started);
    hear(socket, 'g');
    (void)alloc_in(pool, 0, 30 * MIB); /* ADD */
    say(socket, 'w');
    hear(socket, 'e'); /* it is killed meanwhile */
}

static void a_child_is_named_by_an_owner_that_began_later(void **state)
{
    (void)state;
    char number[32];
    pid_t child = 0;
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    struct side side = start_side("fork and register", SOCK_STREAM);
    receive_all(side.socket, &child, sizeof child);
    end_owner(SIGTERM);
    start_owner();
    say(side.socket, 'g');
    hear(side.socket, 'w');
    kill_unreaped(side.process);
    options.wait_ms = 100;
    GIVES(tarn_pool_keep("weights", &options, &pool, NULL), TARN_ERROR_BUSY);
    snprintf(number, sizeof number, "process %d, a child", (int)child);
    CHECK(strstr(tarn_last_error(), number));
    end_side(side, 128 + SIGKILL);
    options.wait_ms = 20000;
    OK(tarn_pool_keep("weights", &options, &pool, NULL));
    OK(tarn_pool_release(pool));
}

static void a_seal_is_refused_with_its_reason(void **state)
{
    (void)state;
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept), *plain = NULL;
    tarn_event *event = NULL;
    tarn_sealed_block block = {.size = sizeof block};
    char *one = alloc_in(pool, 0, 100), *two = alloc_in(pool, 0, MIB), *other = NULL, name[80];
    memset(name, 'n', sizeof name);
    name[79] = 0;
    OK(tarn_alloc_on(0, MIB, (void **)&other));
    GIVES(tarn_pool_block_seal(other, "a", NULL, NULL), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_pool_block_seal(one + 1, "a", NULL, NULL), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_pool_block_seal(one, "", NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_block_seal(one, NULL, NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_block_seal(one, name, NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    name[63] = 0;
    OK(tarn_event_create(0, &event));
    OK(tarn_event_record(event, 0));
    OK(tarn_pool_block_seal(one, name, NULL, event));
    OK(tarn_event_destroy(event));
    GIVES(tarn_pool_block_seal(one, "a", NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_block_seal(two, name, NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(found(pool, name).pointer == one && found(pool, name).bytes == 100);
    OK(tarn_pool_block_unseal(one));
    GIVES(tarn_pool_block_unseal(one), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_pool_block_unseal(other), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_pool_block_find(pool, name, &block), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_pool_create(NULL, &plain));
    GIVES(tarn_pool_block_find(plain, name, &block), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_pool_block_seal(two, name, NULL, NULL));
    struct {
        tarn_sealed_block block;
        char more[16];
    } sized = {.block.size = 16, .more = "behind"}; /* an older caller's, and a newer one's */
    OK(tarn_pool_block_find(pool, name, &sized.block));
    CHECK(sized.block.pointer == two && sized.block.bytes == 0);
    sized.block.size = sizeof sized;
    OK(tarn_pool_block_find(pool, name, &sized.block));
    CHECK(sized.block.bytes == MIB && sized.more[0] == 0);
    sized.block.size = 3;
    GIVES(tarn_pool_block_find(pool, name, &sized.block), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_free(one));
    OK(tarn_free(two));
    OK(tarn_free(other));
    OK(tarn_pool_release(plain));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void what_a_kept_pool_cannot_do_it_says(void **state)
{
    (void)state;
    static char longest[10001];
    tarn_sealed_block sealed = {.size = sizeof sealed};
    tarn_kept kept;
    tarn_share *share = NULL;
    tarn_pool *pool = keep("weights", &kept), *second = NULL;
    void *block = alloc_in(pool, 0, MIB);
    tarn_keep_options options = small_segments();
    GIVES(tarn_export(block, &share), TARN_ERROR_NOT_SUPPORTED);
    GIVES(tarn_pool_keep("weights", &options, &second, NULL), TARN_ERROR_BUSY);
    GIVES(tarn_pool_keep("", &options, &second, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_keep(NULL, &options, &second, NULL), TARN_ERROR_INVALID_ARGUMENT);
    memset(longest, 'n', sizeof longest - 1);
    GIVES(tarn_pool_keep(longest, &options, &second, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_block_seal(block, longest, NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_block_find(pool, longest, &sealed), TARN_ERROR_INVALID_ARGUMENT);
    options.socket = longest;
    GIVES(tarn_pool_keep("other", &options, &second, NULL), TARN_ERROR_INVALID_ARGUMENT);
    options.socket = NULL;
    options.segment = 1000;
    GIVES(tarn_pool_keep("other", &options, &second, NULL), TARN_ERROR_INVALID_ARGUMENT);
    options.segment = 0;
    options.socket = "/nowhere/at/all";
    GIVES(tarn_pool_keep("other", &options, &second, NULL), TARN_ERROR_SYSTEM);
    CHECK(strstr(tarn_last_error(), "tarn keep --socket /nowhere/at/all"));
    OK(tarn_pool_keep("other", NULL, &second, NULL)); /* two at a time */
    OK(tarn_pool_release(second));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void a_limit_and_a_trim_hold_for_it(void **state)
{
    (void)state;
    tarn_kept kept;
    void *none = NULL, *block = NULL;
    tarn_pool *pool = keep("weights", &kept);
    OK(tarn_pool_limit_set(pool, 3 * SEGMENT));
    GIVES(tarn_pool_alloc(pool, 0, 4 * SEGMENT, &none), TARN_ERROR_OUT_OF_MEMORY);
    block = alloc_in(pool, 0, 2 * SEGMENT);
    OK(tarn_free(block));
    OK(tarn_pool_trim(pool, 0));
    CHECK(reserved() == 0);
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void without_its_owner_a_pool_works_and_does_not_grow(void **state)
{
    (void)state;
    tarn_kept kept;
    void *none = NULL;
    tarn_pool *pool = keep("weights", &kept);
    void *block = alloc_in(pool, 0, MIB);
    end_owner(SIGKILL);
    void *other = alloc_in(pool, 0, MIB);
    GIVES(tarn_pool_alloc(pool, 0, 30 * MIB, &none), TARN_ERROR_SYSTEM);
    CHECK(strstr(tarn_last_error(), "owner"));
    OK(tarn_free(block));
    OK(tarn_free(other));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    start_owner();
    pool = keep("weights", &kept);
    CHECK(!kept.adopted);
    OK(tarn_pool_release(pool));
}

/* As many segments as an owner keeps, and one more. Small ones are adopted by few calls of the
 * driver. */
static void as_many_segments_as_are_kept_and_one_more(void **state)
{
    (void)state;
    static char *blocks[KEEP_SEGMENTS_MOST];
    tarn_kept kept = {.size = sizeof kept};
    tarn_keep_options options = {.size = sizeof options, .segment = 2 * MIB, .device = 1};
    tarn_pool *pool = NULL;
    void *none = NULL;
    OK(tarn_pool_keep("many", &options, &pool, &kept));
    for (unsigned i = 0; i < KEEP_SEGMENTS_MOST; i++)
        blocks[i] = alloc_in(pool, 0, 2 * MIB);
    GIVES(tarn_pool_alloc(pool, 0, 2 * MIB, &none), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(tarn_last_error(), "a larger `segment` (tarn_keep_options) makes fewer of them"));
    OK(tarn_free(blocks[500]));
    OK(tarn_pool_trim(pool, 0));
    blocks[500] = alloc_in(pool, 0, 2 * MIB);
    for (unsigned i = 0; i < KEEP_SEGMENTS_MOST; i++)
        OK(tarn_free(blocks[i]));
    OK(tarn_pool_release(pool));
    nothing_is_left(1);
}

static void segments_of(int socket)
{
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    char name[16];
    void *blocks[70];
    for (unsigned i = 0; i < 70; i++)
        blocks[i] = alloc_in(pool, 0, 2 * MIB);
    for (unsigned i = 0; i < 70; i++) {
        snprintf(name, sizeof name, "block.%u", i);
        OK(tarn_pool_block_seal(blocks[i], name, NULL, NULL));
    }
    say(socket, 'w');
    hear(socket, 'e');
}

/* Calls of the driver without those that ask it how many devices it has, or set how the thread's
 * calls meet captures, twice for each call: these leave the driver's memory alone. */
static uint64_t calls_that_count(void)
{
    return all_calls(0) - calls_of(0, "capture_mode") - calls_of(0, "device_count");
}

/* The driver is asked for what it must do and no more: an import and a map for each segment, and
 * access once, as the segments lie side by side. */
static void an_adoption_makes_few_calls_of_the_driver(void **state)
{
    (void)state;
    static const char *const kinds[] = {"reserve", "unreserve", "create",     "export",
                                        "import",  "map",       "set_access", "unmap"};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    uint64_t before[KINDS], all;
    tarn_kept kept = {.size = sizeof kept};
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    char name[16];
    struct side side = start_side("segments", SOCK_STREAM);
    hear(side.socket, 'w');
    kill_side(side);
    options.wait_ms = 10000;
    OK(tarn_free(alloc_on(0, MIB)));
    for (unsigned i = 0; i < KINDS; i++)
        before[i] = calls_of(0, kinds[i]);
    all = calls_that_count();
    OK(tarn_pool_keep("weights", &options, &pool, &kept));
    all = calls_that_count() - all;
    uint64_t segments = kept.mapped / SEGMENT;
    CHECK(kept.blocks == 70 && segments >= 17 && kept.mapped == segments * SEGMENT);
    uint64_t wanted[KINDS] = {1, 0, 0, 0, segments, segments, 1, 0};
    for (unsigned i = 0; i < KINDS; i++)
        CHECK(calls_of(0, kinds[i]) - before[i] == wanted[i]);
    const char *vendor = getenv("TARN_DRIVER");
    if (!vendor || strcmp(vendor, "hip") != 0) /* which is asked more about itself */
        CHECK(all == 2 * segments + 1 + wanted[0] + wanted[1]);
    for (unsigned i = 0; i < 70; i++) {
        snprintf(name, sizeof name, "block.%u", i);
        OK(tarn_free(found(pool, name).pointer));
    }
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* A table of descriptors that has to grow would cost more than the adoption. */
static void an_adoption_has_few_files_open(void **state)
{
    (void)state;
    /* The connection, two files of the pool, two sockets in which files wait, those of some
     * segments, and one of each imported piece, which a simulated device keeps */
    enum { PIECES = 18, OPEN = 5 + 8 + PIECES };
    tarn_kept kept = {.size = sizeof kept};
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    struct rlimit before, little;
    char name[16];
    struct side side = start_side("segments", SOCK_STREAM);
    hear(side.socket, 'w');
    kill_side(side);
    options.wait_ms = 10000;
    OK(tarn_free(alloc_on(0, MIB)));
    int lowest = dup(STDERR_FILENO);
    CHECK(lowest >= 0 && close(lowest) == 0);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    little = before;
    little.rlim_cur = (rlim_t)lowest + OPEN;
    CHECK(setrlimit(RLIMIT_NOFILE, &little) == 0);
    tarn_status status = tarn_pool_keep("weights", &options, &pool, &kept);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    OK(status);
    CHECK(kept.blocks == 70 && kept.mapped / SEGMENT == PIECES);
    for (unsigned i = 0; i < 70; i++) {
        snprintf(name, sizeof name, "block.%u", i);
        OK(tarn_free(found(pool, name).pointer));
    }
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void two_on_two_devices(int socket)
{
    tarn_kept kept = {.size = sizeof kept};
    tarn_keep_options options = small_segments();
    void *blocks[4];
    for (int i = 0; i < 4; i++) {
        tarn_pool *pool = NULL;
        char name[24];
        options.device = i % 2;
        snprintf(name, sizeof name, "pool.%d", i);
        OK(tarn_pool_keep(name, &options, &pool, &kept));
        blocks[i] = alloc_in(pool, 0, 12 * MIB);
        fill(blocks[i], 12 * MIB, 100 + i);
        OK(tarn_pool_block_seal(blocks[i], "same name", NULL, NULL));
    }
    send_all(socket, blocks, sizeof blocks);
    hear(socket, 'e');
}

/* Two kept pools of each of two devices; a pool is of its device. */
static void pools_of_two_devices_are_kept_beside_each_other(void **state)
{
    (void)state;
    void *told[4];
    tarn_pool *pools[4] = {NULL}, *none = NULL;
    tarn_keep_options options = small_segments();
    struct side side = start_side("two on two devices", SOCK_STREAM);
    receive_all(side.socket, told, sizeof told);
    kill_side(side);
    CHECK(lines_of_list("") == 4);
    options.wait_ms = 10000;
    for (int i = 3; i >= 0; i--) {
        char name[24];
        tarn_kept kept = {.size = sizeof kept};
        snprintf(name, sizeof name, "pool.%d", i);
        options.device = (i + 1) % 2;
        GIVES(tarn_pool_keep(name, &options, &none, NULL), TARN_ERROR_SYSTEM);
        CHECK(strstr(tarn_last_error(), "it is memory of"));
        options.device = i % 2;
        OK(tarn_pool_keep(name, &options, &pools[i], &kept));
        CHECK(kept.blocks == 1 && kept.adopted);
        tarn_sealed_block block = found(pools[i], "same name");
        CHECK(!kept.moved && block.pointer == told[i]);
        CHECK(holds(block.pointer, 12 * MIB, 100 + i));
    }
    for (int i = 0; i < 4; i++) {
        OK(tarn_free(found(pools[i], "same name").pointer));
        OK(tarn_pool_release(pools[i]));
    }
    nothing_is_left(0);
    nothing_is_left(1);
}

/* One adoption in which a driver's call of a kind, or a host allocation, fails: the nth. */
static tarn_status adopt_failing(const char *kind, uint64_t nth, tarn_pool **pool)
{
    tarn_keep_options options = small_segments();
    tarn_kept kept = {.size = sizeof kept};
    if (kind)
        OK(tarn_host_fail_set(kind_of(kind), nth, false, TARN_ERROR_DRIVER));
    else
        pages_fail(nth, false);
    tarn_status status = tarn_pool_keep("weights", &options, pool, &kept);
    bool hit = kind ? host_fail_hits() != 0 : pages_fail_hits() != 0;
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    pages_fail(0, false);
    CHECK(!status || (hit && status == (kind ? TARN_ERROR_DRIVER : TARN_ERROR_OUT_OF_HOST_MEMORY)));
    CHECK(status || kept.blocks == 2);
    return status;
}

/* Each call that an adoption makes fails once: the owner still has everything. */
static void a_failed_adoption_loses_nothing(void **state)
{
    (void)state;
    if (machine->fail)
        return; /* the simulated vendor's calls are counted otherwise */
    static const char *const kinds[] = {"reserve", "import", "map", "set_access", NULL};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct told told;
        tarn_pool *pool = NULL;
        uint64_t nth = 1;
        kill_side(filled(&told));
        for (; adopt_failing(kinds[i], nth, &pool); nth++) {
            CHECK(!pool && nth < 1000 && lines_of_list("") == 1);
            nothing_is_left(0);
        }
        CHECK(nth > 1);
        CHECK(holds(found(pool, "first").pointer, 3 * MIB, 3));
        CHECK(holds(found(pool, "second").pointer, 20 * MIB, 9));
        OK(tarn_free(found(pool, "first").pointer));
        OK(tarn_free(found(pool, "second").pointer));
        OK(tarn_pool_release(pool));
        nothing_is_left(0);
    }
}

/* A pool whose addresses cannot be reserved leaves those alone at which it was to be, which another
 * pool may have. */
static void a_failed_reserve_ends_no_other_pool(void **state)
{
    (void)state;
    enum { POOLS = 16 }; /* as many as there are slots in the first place: the next is to be at 0 */
    tarn_pool *pools[POOLS], *none = NULL;
    tarn_keep_options options = small_segments();
    tarn_kept kept;
    char name[24];
    if (machine->fail)
        return; /* the simulated vendor's calls are counted otherwise */
    for (int i = 0; i < POOLS; i++) {
        snprintf(name, sizeof name, "pool.%d", i);
        pools[i] = keep(name, &kept);
    }
    OK(tarn_host_fail_set(kind_of("reserve"), 1, false, TARN_ERROR_DRIVER));
    GIVES(tarn_pool_keep("one more", &options, &none, NULL), TARN_ERROR_DRIVER);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    for (int i = 0; i < POOLS; i++) {
        OK(tarn_free(alloc_in(pools[i], 0, MIB)));
        OK(tarn_pool_release(pools[i]));
    }
    nothing_is_left(0);
}

/* How many descriptors of memory a process has: the built-in device's own of each piece, and those
 * that were made of pieces for the owner. */
static unsigned pieces_of(pid_t process)
{
    char path[64], name[64];
    unsigned count = 0;
    for (int file = 0; file < 1000; file++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)process, file);
        ssize_t length = readlink(path, name, sizeof name - 1);
        name[length > 0 ? length : 0] = '\0';
        count += strstr(name, "memfd:tarn-piece") != NULL;
    }
    return count;
}

static _Atomic pid_t grower;

static void *grow(void *pool)
{
    atomic_store(&grower, (pid_t)syscall(SYS_gettid));
    return alloc_in(pool, 0, 30 * MIB);
}

/* Whether the thread that lets the pool grow is in the call that hears the owner. */
static bool grower_waits(void)
{
    char path[64];
    long call = -1;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)atomic_load(&grower));
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    bool waits = fscanf(file, "%ld", &call) == 1 && call == SYS_recvmsg;
    (void)fclose(file);
    return waits;
}

/* The pool grows, and the owner does not answer yet. Then what the driver made for it, and no more
 * than that, is in a child too. */
static void a_child_has_no_file_of_a_segment(void **state)
{
    (void)state;
    tarn_kept kept;
    pthread_t thread;
    void *block = NULL;
    int ends[2]; /* says that the child has come out of fork(), where it closes files */
    if (machine->fail)
        return; /* the simulated vendor's memory is elsewhere */
    tarn_pool *pool = keep("weights", &kept);
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    CHECK(kill(owner, SIGSTOP) == 0);
    CHECK(pthread_create(&thread, NULL, grow, pool) == 0);
    for (int i = 0; i < 5000 && !grower_waits(); i++)
        usleep(1000);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        (void)!write(ends[1], "", 1);
        for (;;)
            pause();
    }
    CHECK(read(ends[0], &(char){0}, 1) == 1 && close(ends[0]) == 0 && close(ends[1]) == 0);
    CHECK(pieces_of(getpid()) == 2);
    unsigned count = pieces_of(child);
    CHECK(kill(owner, SIGCONT) == 0 && pthread_join(thread, &block) == 0);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    CHECK(count == 1 && pieces_of(getpid()) == 1);
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void generations_are_killed_at_any_moment(void **state)
{
    (void)state;
    int count = count_of_kills(60, 3000);
    for (int i = 0; i < count; i++) {
        struct side side = next_generation();
        usleep(pick(10000));
        kill_side(side);
        if ((i + 1) % 1000 == 0) {
            printf("%d generations were killed\n", i + 1);
            fflush(stdout);
        }
    }
    last_generation();
}

/* Allocates what each generation needs, and says how much the pool had before. */
static void fill_again(int socket)
{
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    for (size_t size = 64 << 10; size <= 16 * MIB; size *= 2)
        (void)alloc_in(pool, 0, size);
    send_all(socket, &kept.mapped, sizeof kept.mapped);
    hear(socket, 'e');
}

static void successors_use_what_was_free_again(void **state)
{
    (void)state;
    size_t mapped[4];
    for (int i = 0; i < 4; i++) {
        struct side side = start_side("fill again", SOCK_STREAM);
        receive_all(side.socket, &mapped[i], sizeof mapped[i]);
        kill_side(side);
    }
    CHECK(!mapped[0] && mapped[1] && mapped[2] == mapped[1] && mapped[3] == mapped[1]);

    /* Large blocks find it too where small ones would have larger segments now. */
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    options.wait_ms = 10000;
    options.segment = 32 * SEGMENT;
    OK(tarn_pool_keep("weights", &options, &pool, NULL));
    void *block = alloc_in(pool, 0, 2 * MIB);
    CHECK(reserved() == mapped[3]);
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
}

static void prepare_device(void)
{
    host_start_with(2, DEVICE_BYTES);
}

static int start(void **state)
{
    (void)state;
    prepare_device();
    keep_name_socket("keep");
    start_owner();
    return 0;
}

static int end(void **state)
{
    (void)state;
    end_owner(SIGTERM);
    CHECK(access(keep_path, F_OK) != 0);
    return 0;
}

static const struct role roles[] = {
    {"segments", segments_of},
    {"two on two devices", two_on_two_devices},
    {"adopt at once", adopt_at_once},
    {"fork and register", fork_and_register},
    {"fill and close", fill_and_close},
    {"fill again", fill_again},
    {"close an end and fork", close_an_end_and_fork},
    KEEP_ROLES,
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    if (role_play(argc, argv, prepare_device, roles))
        return 0;
    if (!keep_has_program())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sealed_blocks_are_there_after_a_kill),
        cmocka_unit_test(a_pool_is_given_only_when_its_process_has_ended),
        cmocka_unit_test(one_of_many_gets_a_pool),
        cmocka_unit_test(a_process_that_closed_its_files_has_its_pool),
        cmocka_unit_test(a_child_holds_pools_whose_pipe_lost_an_end),
        cmocka_unit_test(a_child_of_its_process_is_named),
        cmocka_unit_test(a_child_is_named_by_an_owner_that_began_later),
        cmocka_unit_test(a_seal_is_refused_with_its_reason),
        cmocka_unit_test(what_a_kept_pool_cannot_do_it_says),
        cmocka_unit_test(a_limit_and_a_trim_hold_for_it),
        cmocka_unit_test(without_its_owner_a_pool_works_and_does_not_grow),
        cmocka_unit_test(a_child_has_no_file_of_a_segment),
        cmocka_unit_test(successors_use_what_was_free_again),
        cmocka_unit_test(generations_are_killed_at_any_moment),
        cmocka_unit_test(as_many_segments_as_are_kept_and_one_more),
        cmocka_unit_test(an_adoption_makes_few_calls_of_the_driver),
        cmocka_unit_test(an_adoption_has_few_files_open),
        cmocka_unit_test(pools_of_two_devices_are_kept_beside_each_other),
        cmocka_unit_test(a_failed_adoption_loses_nothing),
        cmocka_unit_test(a_failed_reserve_ends_no_other_pool),
    };
    return cmocka_run_group_tests(tests, start, end);
}
