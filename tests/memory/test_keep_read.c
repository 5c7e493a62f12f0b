/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Kept pools that are read beside the process that has them. Another process, the writer, seals,
 * unseals, frees and is killed. This one finds what is sealed, with its contents, and never takes
 * for sealed what is not any more. */
#include "keep_generations.h"
#include "memory/keep/wire.h"
#include "record/ticks.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>

#include <cmocka.h>

#define DEVICE_BYTES (512 * MIB)

static bool drives(const char *vendor)
{
    const char *named = getenv("TARN_DRIVER");
    return named && strcmp(named, vendor) == 0;
}

static tarn_pool *read_pool(tarn_kept *kept)
{
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    options.read = true;
    options.wait_ms = 10000;
    *kept = (tarn_kept){.size = sizeof *kept};
    OK(tarn_pool_keep("weights", &options, &pool, kept));
    return pool;
}

static tarn_status seek(tarn_pool *pool, const char *name, tarn_sealed_block *block)
{
    *block = (tarn_sealed_block){.size = sizeof *block};
    return tarn_pool_block_find(pool, name, block);
}

/* How many connections read the pool, as the owner's list says. */
static int readers(void)
{
    char command[300];
    int count = 0;
    snprintf(
        command, sizeof command,
        "\"$TARN_PROGRAM\" keep --socket %s --list | sed -n 's/.*, \\([0-9]*\\) read it.*/\\1/p'",
        keep_path);
    FILE *out = popen(command, "r");
    CHECK(out != NULL);
    if (fscanf(out, "%d", &count) != 1)
        count = 0;
    CHECK(pclose(out) == 0);
    return count;
}

/* The bytes that linger with readers, of all pools of the owner's list. */
static uint64_t lingering(void)
{
    char command[300], line[300];
    uint64_t sum = 0;
    unsigned long long bytes;
    snprintf(command, sizeof command, "\"$TARN_PROGRAM\" keep --socket %s --list --json",
             keep_path);
    FILE *out = popen(command, "r");
    CHECK(out != NULL);
    while (fgets(line, sizeof line, out))
        sum += sscanf(line, " \"lingering\": %llu", &bytes) == 1 ? bytes : 0;
    CHECK(pclose(out) == 0);
    return sum;
}

static bool prints(const char *what, const char *text)
{
    char command[300];
    snprintf(command, sizeof command, "\"$TARN_PROGRAM\" %s | grep -q -- '%s'", what, text);
    return system(command) == 0;
}

static void release_read(tarn_pool *pool)
{
    OK(tarn_pool_release(pool));
    CHECK(reserved() == 0);
}

/* ---- The writer ---- */

enum { WRITER_MIB = 20 };

/* Does what it is told: a letter, and the seed of contents. */
static void obey(int socket)
{
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    char *block = kept.blocks ? found(pool, "third").pointer : NULL;
    for (char order[2]; recv(socket, order, 2, MSG_WAITALL) == 2; say(socket, 'd')) {
        if (order[0] == 'a')
            block = alloc_in(pool, 0, WRITER_MIB * MIB);
        if (order[0] == 'w')
            fill(block, WRITER_MIB * MIB, order[1]);
        if (order[0] == 's')
            OK(tarn_pool_block_seal(block, "third", NULL, NULL));
        if (order[0] == 'u')
            OK(tarn_pool_block_unseal(block));
        if (order[0] == 'f')
            OK(tarn_free(block));
        if (order[0] == 't')
            OK(tarn_pool_trim(pool, 0));
        if (order[0] == 'z')
            OK(tarn_pool_suspend(pool, order[1]));
        if (order[0] == 'r')
            OK(tarn_pool_resume(pool));
        if (order[0] == 'e')
            OK(tarn_pool_release(pool));
    }
}

/* Has the writer do this: each letter with the seed. */
static void order(struct side writer, const char *letters, char seed)
{
    for (; *letters; letters++) {
        send_all(writer.socket, (char[]){*letters, seed}, 2);
        hear(writer.socket, 'd');
    }
}

static bool third_is_there(tarn_pool *pool)
{
    tarn_sealed_block block;
    return seek(pool, "third", &block) == TARN_OK;
}

static bool third_holds(tarn_pool *pool, int seed)
{
    tarn_sealed_block block;
    OK(seek(pool, "third", &block));
    return block.bytes == WRITER_MIB * MIB && holds(block.pointer, WRITER_MIB * MIB, seed);
}

/* The writer's pool without blocks, and none that reads it. */
static void end_writer(struct side writer)
{
    order(writer, "e", 0);
    kill_side(writer);
    CHECK(lines_of_list("") == 1);
    nothing_is_left(0);
}

/* ---- Tests ---- */

static void sealed_blocks_are_read_beside_their_process(void **state)
{
    (void)state;
    struct told told;
    tarn_kept kept;
    struct side writer = filled(&told);
    tarn_pool *pool = read_pool(&kept);
    CHECK(kept.adopted && !kept.moved && kept.blocks == 2 && kept.bytes == 23 * MIB + 100);
    CHECK(kept.read_only == !drives("hip"));
    tarn_sealed_block first = found(pool, "first");
    CHECK(first.pointer == told.first && first.data[0] == 7 && first.seal);
    tarn_pool *second = read_pool(&kept);
    CHECK(kept.moved && kept.blocks == 2);
    CHECK(both_are_whole(pool) && both_are_whole(second));
    CHECK(found(second, "first").pointer != told.first);
    CHECK(reserved() == 0 && stats_of(0).allocation[0].current == 0);
    CHECK(readers() == 2);
    release_read(second);
    CHECK(readers() == 1 && both_are_whole(pool));
    release_read(pool);
    CHECK(readers() == 0);
    kill_side(writer);
    end_pool(keep("weights", &kept));
}

static void write_it(int socket)
{
    tarn_kept kept;
    tarn_pool *pool = read_pool(&kept);
    CHECK(both_are_whole(pool));
    hear(socket, 'w');
    (void)signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would exit */
    *(volatile char *)found(pool, "first").pointer = 1;
    CHECK(false);
}

static void a_write_of_a_reader_ends_it(void **state)
{
    (void)state;
    struct told told;
    tarn_kept kept;
    if (drives("hip"))
        return; /* it maps nothing only to read */
    struct side writer = filled(&told), reader = start_side("write it", SOCK_STREAM);
    say(reader.socket, 'w');
    end_side(reader, 128 + SIGSEGV);
    kill_side(writer);
    tarn_pool *pool = keep("weights", &kept);
    CHECK(both_are_whole(pool));
    end_pool(pool);
}

static void a_reader_follows_seals(void **state)
{
    (void)state;
    tarn_kept kept;
    tarn_sealed_block block, before;
    struct side writer = start_side("obey", SOCK_STREAM);
    tarn_pool *pool = read_pool(&kept);
    CHECK(!kept.blocks);
    order(writer, "aw", 3);
    GIVES(seek(pool, "third", &block), TARN_ERROR_INVALID_ARGUMENT);
    order(writer, "s", 0);
    CHECK(third_holds(pool, 3));
    OK(seek(pool, "third", &before));
    order(writer, "u", 0);
    GIVES(seek(pool, "third", &block), TARN_ERROR_INVALID_ARGUMENT);
    order(writer, "ws", 4);
    OK(seek(pool, "third", &block));
    CHECK(third_holds(pool, 4) && block.pointer == before.pointer && block.seal != before.seal);
    order(writer, "f", 0);
    GIVES(seek(pool, "third", &block), TARN_ERROR_INVALID_ARGUMENT);
    release_read(pool);
    end_writer(writer);
}

/* What the pool gives up stays with its reader until that trims. New memory at these addresses is
 * not taken for the old. */
static void a_reader_lets_go_by_a_trim(void **state)
{
    (void)state;
    tarn_kept kept;
    tarn_sealed_block block;
    struct side writer = start_side("obey", SOCK_STREAM);
    order(writer, "aws", 3);
    tarn_pool *pool = read_pool(&kept);
    CHECK(third_holds(pool, 3));
    order(writer, "ftaws", 5);
    GIVES(seek(pool, "third", &block), TARN_ERROR_BUSY);
    CHECK(strstr(tarn_last_error(), "tarn_pool_trim()"));
    OK(tarn_pool_trim(pool, 0));
    CHECK(third_holds(pool, 5));
    OK(tarn_pool_trim(pool, 0));
    CHECK(third_holds(pool, 5));
    order(writer, "z", 1);
    CHECK(third_holds(pool, 5)); /* it is asleep, and its memory is not */
    order(writer, "rz", 0);
    GIVES(seek(pool, "third", &block), TARN_ERROR_INVALID_ARGUMENT);
    order(writer, "rws", 6);
    GIVES(seek(pool, "third", &block), TARN_ERROR_BUSY);
    OK(tarn_pool_trim(pool, 0));
    CHECK(third_holds(pool, 6));
    order(writer, "ft", 0);
    release_read(pool);
    end_writer(writer);
}

/* Memory that a pool gave up and a reader has mapped is shown, once for all readers. */
static void what_only_readers_have_lingers(void **state)
{
    (void)state;
    tarn_kept kept;
    tarn_sealed_block block;
    struct side writer = start_side("obey", SOCK_STREAM);
    order(writer, "aws", 3);
    tarn_pool *pool = read_pool(&kept), *second = read_pool(&kept);
    size_t bytes = kept.mapped;
    CHECK(bytes >= WRITER_MIB * MIB && lingering() == 0);
    order(writer, "ft", 0);
    CHECK(lingering() == bytes && prints("keep --list", "2 read it, .* MiB linger"));
    release_read(second);
    CHECK(lingering() == bytes);
    OK(tarn_pool_trim(pool, 0));
    CHECK(lingering() == 0 && readers() == 1);
    order(writer, "aws", 5);
    CHECK(third_holds(pool, 5));
    order(writer, "z", 0);
    CHECK(lingering() == bytes);
    order(writer, "rws", 6);
    GIVES(seek(pool, "third", &block), TARN_ERROR_BUSY);
    CHECK(lingering() == bytes);
    order(writer, "ft", 0); /* what the reader never mapped */
    CHECK(lingering() == bytes);
    OK(tarn_pool_trim(pool, 0));
    CHECK(lingering() == 0);
    order(writer, "aws", 7);
    CHECK(third_holds(pool, 7));
    order(writer, "fe", 0);
    CHECK(lingering() == bytes && prints("keep --list", "ended, 1 read it, .* MiB linger"));
    CHECK(prints("top --once", "weights .* 0 B .* MiB *ended"));
    release_read(pool);
    CHECK(lingering() == 0 && lines_of_list("") == 1);
    kill_side(writer);
}

/* A trim lets go of all that an ended pool had. */
static void a_trim_lets_go_of_a_pool_that_ended(void **state)
{
    (void)state;
    tarn_kept kept;
    tarn_sealed_block block;
    for (int i = 0; i < 2; i++) {
        struct side writer = start_side("obey", SOCK_STREAM);
        order(writer, "aws", 3);
        tarn_pool *pool = read_pool(&kept);
        if (i)
            order(writer, "fe", 0);
        kill_side(writer);
        CHECK(i || third_holds(pool, 3));
        CHECK(i || system("\"$TARN_PROGRAM\" keep --drop weights") == 0);
        CHECK(lingering() == kept.mapped);
        OK(tarn_pool_trim(pool, 0));
        CHECK(lingering() == 0 && lines_of_list("") == 1 && readers() == 0);
        GIVES(seek(pool, "third", &block), TARN_ERROR_INVALID_ARGUMENT);
        OK(tarn_pool_trim(pool, 0));
        release_read(pool);
        nothing_is_left(0);
    }
}

/* An owner that was started again may not know the pool, which has not ended. */
static void a_trim_leaves_what_the_pool_has(void **state)
{
    (void)state;
    tarn_kept kept;
    struct side writer = start_side("obey", SOCK_STREAM);
    order(writer, "aws", 3);
    tarn_pool *pool = read_pool(&kept);
    end_owner(SIGKILL);
    start_owner();
    OK(tarn_pool_trim(pool, 0));
    CHECK(third_holds(pool, 3));
    char *third = found(pool, "third").pointer;
    order(writer, "u", 0);
    CHECK(!third_is_there(pool));
    OK(tarn_pool_trim(pool, 0));
    CHECK(holds(third, WRITER_MIB * MIB, 3));
    order(writer, "ws", 4);
    CHECK(third_holds(pool, 4));
    order(writer, "ft", 0);
    release_read(pool);
    end_writer(writer);
}

/* The next owner hears it from the reader. */
static void what_lingers_is_told_to_the_next_owner(void **state)
{
    (void)state;
    tarn_kept kept;
    tarn_sealed_block block;
    struct side writer = start_side("obey", SOCK_STREAM);
    order(writer, "aws", 3);
    tarn_pool *pool = read_pool(&kept);
    order(writer, "ft", 0);
    CHECK(lingering() == kept.mapped);
    end_owner(SIGKILL);
    start_owner();
    order(writer, "aws", 4);
    GIVES(seek(pool, "third", &block), TARN_ERROR_BUSY);
    CHECK(lingering() == kept.mapped);
    OK(tarn_pool_trim(pool, 0));
    CHECK(third_holds(pool, 4) && lingering() == 0);
    order(writer, "f", 0);
    release_read(pool);
    end_writer(writer);
}

static void a_reader_outlives_the_writer(void **state)
{
    (void)state;
    struct told told;
    tarn_kept kept;
    tarn_sealed_block block;
    struct side writer = start_side("obey", SOCK_STREAM);
    order(writer, "aws", 3);
    tarn_pool *pool = read_pool(&kept);
    kill_side(writer);
    CHECK(third_holds(pool, 3));
    writer = start_side("obey", SOCK_STREAM);
    order(writer, "u", 0);
    GIVES(seek(pool, "third", &block), TARN_ERROR_INVALID_ARGUMENT);
    order(writer, "wsaw", 8);
    CHECK(third_holds(pool, 8));
    kill_side(writer);
    OK(seek(pool, "third", &block));
    CHECK(system("\"$TARN_PROGRAM\" keep --drop weights") == 0);
    GIVES(seek(pool, "third", &block), TARN_ERROR_INVALID_ARGUMENT);
    uint64_t bytes = lingering();
    CHECK(bytes >= 2 * WRITER_MIB * MIB);
    writer = filled(&told); /* another pool of that name */
    CHECK(lines_of_list("") == 2 && lingering() == bytes);
    GIVES(seek(pool, "first", &block), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_pool_trim(pool, 0));
    release_read(pool);
    CHECK(lines_of_list("") == 1 && lingering() == 0);
    pool = read_pool(&kept);
    CHECK(both_are_whole(pool));
    release_read(pool);
    kill_side(writer);
    end_pool(keep("weights", &kept));
}

/* The pool grew after the reader had looked. */
static void a_reader_of_a_pool_that_ended_finds_nothing(void **state)
{
    (void)state;
    tarn_kept kept;
    tarn_sealed_block block;
    struct side writer = start_side("obey", SOCK_STREAM);
    tarn_pool *pool = read_pool(&kept);
    order(writer, "awsfe", 3);
    GIVES(seek(pool, "third", &block), TARN_ERROR_INVALID_ARGUMENT);
    release_read(pool);
    kill_side(writer);
    nothing_is_left(0);
}

static void a_reader_outlives_the_owner(void **state)
{
    (void)state;
    tarn_kept kept;
    tarn_sealed_block block;
    struct side writer = start_side("obey", SOCK_STREAM);
    order(writer, "aws", 3);
    tarn_pool *pool = read_pool(&kept);
    end_owner(SIGKILL);
    CHECK(third_holds(pool, 3));
    OK(tarn_pool_trim(pool, 0));
    CHECK(third_holds(pool, 3));
    order(writer, "uws", 4);
    CHECK(third_holds(pool, 4));
    start_owner();
    order(writer, "ua", 5); /* another block, for which the pool grows */
    GIVES(seek(pool, "third", &block), TARN_ERROR_INVALID_ARGUMENT);
    order(writer, "ws", 6);
    CHECK(third_holds(pool, 6) && readers() == 1);
    order(writer, "f", 0);
    release_read(pool);
    kill_side(writer);
    pool = keep("weights", &kept);
    CHECK(!kept.blocks);
    OK(tarn_pool_release(pool));
}

/* The reader has let go of memory while there was an owner, and the pool has not grown since. */
static void a_reader_that_has_let_go_outlives_the_owner(void **state)
{
    (void)state;
    tarn_kept kept;
    struct side writer = start_side("obey", SOCK_STREAM);
    order(writer, "aws", 3);
    tarn_pool *pool = read_pool(&kept);
    order(writer, "ftaws", 4); /* in new memory at the same addresses */
    OK(tarn_pool_trim(pool, 0));
    end_owner(SIGKILL);
    CHECK(third_holds(pool, 4));
    start_owner();
    order(writer, "ft", 0);
    release_read(pool);
    end_writer(writer);
}

/* An owner that did not answer is asked again when the reader needs it next. */
static void a_reader_asks_an_owner_that_was_silent_again(void **state)
{
    (void)state;
    tarn_kept kept;
    struct side writer = start_side("obey", SOCK_STREAM);
    order(writer, "aws", 3);
    wire_patience_ms = 100;
    tarn_pool *pool = read_pool(&kept);
    CHECK(kill(owner, SIGSTOP) == 0);
    OK(tarn_pool_trim(pool, 0));
    CHECK(third_holds(pool, 3) && kill(owner, SIGCONT) == 0);
    wire_patience_ms = 10000;
    order(writer, "uaws", 5); /* another block, for which the pool grows */
    CHECK(third_holds(pool, 5));
    order(writer, "f", 0);
    release_read(pool);
    kill_side(writer);
    pool = keep("weights", &kept);
    CHECK(!kept.blocks);
    OK(tarn_pool_release(pool));
}

/* The reader's process takes the pool over, and its reader goes on. */
static void a_reader_outlives_the_adoption_by_its_process(void **state)
{
    (void)state;
    struct told told;
    tarn_kept kept;
    struct side writer = filled(&told);
    tarn_pool *reader = read_pool(&kept);
    kill_side(writer);
    tarn_pool *pool = keep("weights", &kept);
    CHECK(kept.blocks == 2 && both_are_whole(pool) && both_are_whole(reader));
    char *third = alloc_in(pool, 0, WRITER_MIB * MIB); /* for which the pool grows */
    fill(third, WRITER_MIB * MIB, 5);
    OK(tarn_pool_block_seal(third, "third", NULL, NULL));
    CHECK(third_holds(reader, 5));
    OK(tarn_free(third));
    OK(tarn_pool_trim(pool, 0));
    CHECK(!third_is_there(reader));
    OK(tarn_pool_trim(reader, 0));
    OK(tarn_free(alloc_in(pool, 0, WRITER_MIB * MIB)));
    CHECK(both_are_whole(reader));
    OK(tarn_pool_release(reader));
    end_pool(pool);
}

/* A process fails to take over a pool that has no memory. The next one does, and the reader of
 * before sees what that seals. */
static void a_reader_outlives_a_failed_adoption(void **state)
{
    (void)state;
    tarn_kept kept;
    tarn_pool *none = NULL;
    tarn_keep_options options = small_segments();
    if (machine->fail)
        return; /* the simulated vendor's calls are counted otherwise */
    struct side writer = start_side("obey", SOCK_STREAM);
    order(writer, "az", 0);
    tarn_pool *pool = read_pool(&kept);
    kill_side(writer);
    options.wait_ms = 10000;
    OK(tarn_host_fail_set(kind_of("reserve"), 1, false, TARN_ERROR_DRIVER));
    GIVES(tarn_pool_keep("weights", &options, &none, NULL), TARN_ERROR_DRIVER);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    writer = start_side("obey", SOCK_STREAM);
    order(writer, "aws", 6);
    CHECK(third_holds(pool, 6));
    order(writer, "f", 0);
    release_read(pool);
    end_writer(writer);
}

static void read_and_wait(int socket)
{
    tarn_kept kept;
    CHECK(both_are_whole(read_pool(&kept)));
    say(socket, 'r');
    hear(socket, 'e');
}

static void of_a_dead_reader_nothing_is_left(void **state)
{
    (void)state;
    struct told told;
    tarn_kept kept;
    struct side writer = filled(&told), reader = start_side("read and wait", SOCK_STREAM);
    hear(reader.socket, 'r');
    CHECK(readers() == 1);
    kill_side(writer);
    tarn_pool *pool = keep("weights", &kept); /* a reader does not keep a successor out */
    CHECK(both_are_whole(pool));
    end_pool(pool);
    CHECK(readers() == 1 && lingering() >= 23 * MIB);
    kill_side(reader);
    for (int i = 0; i < 1000 && readers(); i++)
        usleep(5000);
    CHECK(lingering() == 0 && lines_of_list("") == 1);
}

/* A call that wants a block of this process says whose it is, and who can do it. */
static void refuses(tarn_status status)
{
    CHECK(status == TARN_ERROR_INVALID_POINTER);
    CHECK(strstr(tarn_last_error(), "is in the kept pool weights, which this process only reads: "
                                    "the process that has the pool frees, seals and unseals"));
}

static void refuses_its_pointers(char *block)
{
    tarn_share *share = NULL;
    size_t size = 0;
    refuses(tarn_pool_block_seal(block, "a", NULL, NULL));
    refuses(tarn_pool_block_unseal(block));
    refuses(tarn_free(block));
    refuses(tarn_free(block + 1));
    refuses(tarn_free_on(block, 0));
    refuses(tarn_record_stream(block, 0));
    refuses(tarn_extend(block, 2 * MIB));
    refuses(tarn_usable_size_get(block, &size));
    refuses(tarn_anchor(block, MIB));
    refuses(tarn_export(block, &share));
}

static void what_a_reader_cannot_do_it_says(void **state)
{
    (void)state;
    struct told told;
    tarn_kept kept = {.size = sizeof kept};
    void *block = NULL;
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    options.read = true;
    GIVES(tarn_pool_keep("weights", &options, &pool, &kept), TARN_ERROR_BUSY);
    CHECK(strstr(tarn_last_error(), "without `read`"));
    struct side writer = filled(&told);
    pool = read_pool(&kept);
    tarn_sealed_block first = found(pool, "first");
    GIVES(tarn_pool_alloc(pool, 0, MIB, &block), TARN_ERROR_NOT_SUPPORTED);
    CHECK(strstr(tarn_last_error(), "only read by this process"));
    int file = (int)syscall(SYS_memfd_create, "weights", 0);
    GIVES(tarn_pool_save(pool, file), TARN_ERROR_NOT_SUPPORTED);
    GIVES(tarn_pool_load(pool, file), TARN_ERROR_NOT_SUPPORTED);
    close(file);
    GIVES(tarn_pool_suspend(pool, true), TARN_ERROR_NOT_SUPPORTED);
    CHECK(strstr(tarn_last_error(), "only read by this process"));
    refuses_its_pointers(first.pointer);
    OK(tarn_sleep(NULL, NULL));
    OK(tarn_wake());
    CHECK(both_are_whole(pool));
    release_read(pool);
    kill_side(writer);
    pool = keep("weights", &kept);
    tarn_pool *second = NULL;
    options.wait_ms = 20000;
    for (int read = 0; read < 2; read++) {
        options.read = read;
        time_t began = time(NULL);
        GIVES(tarn_pool_keep("weights", &options, &second, NULL), TARN_ERROR_BUSY);
        CHECK(time(NULL) - began < 10 && strstr(tarn_last_error(), "this process has pool"));
    }
    end_pool(pool);
}

/* One block of a writer that tells nobody what it does. While its seal has the same number, its
 * contents are what its data say. */
static void check_block(tarn_pool *pool, unsigned i, int *checked)
{
    char name[16];
    tarn_sealed_block block, again;
    int seed;
    name_of(i, name);
    tarn_status status = seek(pool, name, &block);
    CHECK(!status || status == TARN_ERROR_INVALID_ARGUMENT || status == TARN_ERROR_BUSY);
    if (status == TARN_ERROR_BUSY)
        OK(tarn_pool_trim(pool, 0));
    if (status)
        return;
    memcpy(&seed, block.data, sizeof seed);
    bool right = holds(block.pointer, block.bytes, seed);
    if (seek(pool, name, &again) || again.seal != block.seal)
        return;
    CHECK(right && again.pointer == block.pointer && again.bytes == block.bytes);
    ++*checked;
}

/* One thread of a reader. Checks are the main thread's. */
struct looker {
    tarn_pool *pool;
    atomic_bool *ends;
    bool trims;
    atomic_uint found; /* blocks that were found */
    unsigned odd;      /* statuses that no call here may give */
};

/* Has a reference of its own, and gives it up at the same time as the others. */
static void *look_on(void *argument)
{
    struct looker *looker = argument;
    while (!atomic_load(looker->ends)) {
        tarn_sealed_block block;
        if (looker->trims) {
            looker->odd += tarn_pool_trim(looker->pool, 0) != TARN_OK;
            continue;
        }
        tarn_status status = seek(looker->pool, "third", &block);
        atomic_fetch_add(&looker->found, !status);
        looker->odd += status && status != TARN_ERROR_INVALID_ARGUMENT && status != TARN_ERROR_BUSY;
    }
    looker->odd += tarn_pool_release(looker->pool) != TARN_OK;
    return NULL;
}

static void threads_of_a_reader_find_trim_and_release_at_once(void **state)
{
    (void)state;
    tarn_kept kept;
    atomic_bool ends = false;
    pthread_t threads[4];
    struct looker lookers[4];
    struct side writer = start_side("obey", SOCK_STREAM);
    order(writer, "aws", 3);
    tarn_pool *pool = read_pool(&kept);
    for (int i = 0; i < 4; i++) {
        OK(tarn_pool_retain(pool));
        lookers[i] = (struct looker){.pool = pool, .ends = &ends, .trims = i % 2};
        CHECK(pthread_create(&threads[i], NULL, look_on, &lookers[i]) == 0);
    }
    for (int i = 0; i < 20; i++)
        order(writer, i % 2 ? "uws" : "ftaws", (char)i);
    unsigned left = 2000;
    while (left-- && !third_is_there(pool))
        OK(tarn_pool_trim(pool, 0));
    CHECK(third_holds(pool, 19));
    while (!atomic_load(&lookers[0].found) || !atomic_load(&lookers[2].found))
        sched_yield(); /* the two that do not trim; on a slow machine they wait for their turn */
    OK(tarn_pool_release(pool));
    atomic_store(&ends, true);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(!lookers[i].odd);
    CHECK(reserved() == 0 && readers() == 0);
    order(writer, "ft", 0);
    end_writer(writer);
}

static void writers_are_killed_beside_a_reader(void **state)
{
    (void)state;
    int count = count_of_kills(20, 1000), checked = 0;
    tarn_kept kept;
    tarn_pool *pool = NULL;
    for (int i = 0; i < count; i++) {
        struct side side = next_generation();
        if (!pool)
            pool = read_pool(&kept);
        uint64_t end = ticks_of_system() + pick(10000) * UINT64_C(1000);
        uint64_t latest = end + UINT64_C(1000000000); /* on a slow machine, until one was checked */
        for (uint64_t now = 0; now < end || (checked <= i && now < latest); now = ticks_of_system())
            check_block(pool, pick(NAMES), &checked);
        kill_side(side);
        for (unsigned block = 0; block < NAMES; block++)
            check_block(pool, block, &checked);
    }
    CHECK(checked > count);
    release_read(pool);
    last_generation();
}

static void prepare_device(void)
{
    host_start_with(1, DEVICE_BYTES);
}

static int start(void **state)
{
    (void)state;
    prepare_device();
    keep_name_socket("keep-read");
    start_owner();
    return 0;
}

static const struct role roles[] = {
    {"obey", obey}, {"write it", write_it}, {"read and wait", read_and_wait},
    KEEP_ROLES,     {NULL, NULL},
};

int main(int argc, char **argv)
{
    if (role_play(argc, argv, prepare_device, roles))
        return 0;
    if (!keep_has_program())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sealed_blocks_are_read_beside_their_process),
        cmocka_unit_test(a_write_of_a_reader_ends_it),
        cmocka_unit_test(a_reader_follows_seals),
        cmocka_unit_test(a_reader_lets_go_by_a_trim),
        cmocka_unit_test(what_only_readers_have_lingers),
        cmocka_unit_test(a_trim_lets_go_of_a_pool_that_ended),
        cmocka_unit_test(a_trim_leaves_what_the_pool_has),
        cmocka_unit_test(what_lingers_is_told_to_the_next_owner),
        cmocka_unit_test(a_reader_outlives_the_writer),
        cmocka_unit_test(a_reader_of_a_pool_that_ended_finds_nothing),
        cmocka_unit_test(a_reader_outlives_the_owner),
        cmocka_unit_test(a_reader_that_has_let_go_outlives_the_owner),
        cmocka_unit_test(a_reader_asks_an_owner_that_was_silent_again),
        cmocka_unit_test(a_reader_outlives_the_adoption_by_its_process),
        cmocka_unit_test(a_reader_outlives_a_failed_adoption),
        cmocka_unit_test(of_a_dead_reader_nothing_is_left),
        cmocka_unit_test(what_a_reader_cannot_do_it_says),
        cmocka_unit_test(threads_of_a_reader_find_trim_and_release_at_once),
        cmocka_unit_test(writers_are_killed_beside_a_reader),
    };
    return cmocka_run_group_tests(tests, start, owner_ends);
}
