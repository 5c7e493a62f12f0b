/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* An owner that is killed and started again by hand, beside processes that have kept pools: they
 * give the new owner what they have, also what they took over themselves. */
#include "base/file.h"
#include "keep_generations.h"
#include "memory/keep/keep.h"

#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/resource.h>

#include <cmocka.h>

/* An owner is killed and started again beside a process that goes on. It gets the pool again with
 * the process's next request: what was sealed before and since is there for the next process. */
static void survive_owner(int socket)
{
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    struct told told = {alloc_in(pool, 0, 3 * MIB + 100), alloc_in(pool, 0, 20 * MIB)};
    void *block = alloc_in(pool, 0, 5 * MIB);
    fill(told.first, 3 * MIB, 3);
    fill(told.second, 20 * MIB, 9);
    OK(tarn_pool_block_seal(told.first, "first", NULL, NULL));
    send_all(socket, &told, sizeof told);
    hear(socket, 'g'); /* the owner is another one now, or is about to be */
    OK(tarn_free(block));
    OK(tarn_pool_trim(pool, 0)); /* REMOVE */
    OK(tarn_pool_block_seal(told.second, "second", NULL, NULL));
    block = alloc_in(pool, 0, 50 * MIB); /* ADD */
    fill(block, 50 * MIB, 11);
    OK(tarn_pool_block_seal(block, "third", NULL, NULL));
    say(socket, 'w');
    hear(socket, 'e');
}

static void check_survivor(const struct told *told)
{
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    CHECK(kept.blocks == 3 && both_are_whole(pool));
    tarn_sealed_block third = found(pool, "third");
    CHECK(holds(third.pointer, 50 * MIB, 11));
    CHECK(!kept.moved && found(pool, "first").pointer == told->first);
    OK(tarn_free(third.pointer));
    end_pool(pool);
    CHECK(lines_of_list("") == 1); /* "no pools" */
}

static void a_living_process_registers_with_a_new_owner(void **state)
{
    (void)state;
    struct told told;
    struct side side = start_side("survive owner", SOCK_STREAM);
    receive_all(side.socket, &told, sizeof told);
    end_owner(SIGKILL);
    start_owner();
    CHECK(lines_of_list("") == 1);
    say(side.socket, 'g');
    hear(side.socket, 'w');
    kill_side(side);
    check_survivor(&told);
}

/* The process asks while there is no owner: it waits for one. */
static void a_process_waits_for_an_owner_that_was_killed(void **state)
{
    (void)state;
    struct told told;
    struct side side = start_side("survive owner", SOCK_STREAM);
    receive_all(side.socket, &told, sizeof told);
    end_owner(SIGKILL);
    say(side.socket, 'g');
    usleep(200000);
    start_owner();
    hear(side.socket, 'w');
    kill_side(side);
    check_survivor(&told);
}

/* Takes the pool over, and goes on beside another owner: its next request gives that owner what was
 * taken over too. `spare`: how many files may be open beyond those that the take-over needs. */
static void inherit(int socket, rlim_t spare)
{
    struct rlimit before, little;
    tarn_keep_options options = small_segments();
    tarn_kept kept = {.size = sizeof kept};
    tarn_pool *pool = NULL;
    void *block = NULL;
    options.wait_ms = 10000;
    OK(tarn_free(alloc_on(0, MIB)));
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    little = before;
    for (little.rlim_cur = 3; !pool; little.rlim_cur++) {
        rlim_t most = little.rlim_cur;
        little.rlim_cur += spare;
        CHECK(most < 100 && setrlimit(RLIMIT_NOFILE, &little) == 0);
        (void)tarn_pool_keep("weights", &options, &pool, &kept);
        little.rlim_cur = most;
    }
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(kept.blocks == 2 && both_are_whole(pool));
    say(socket, 'k');
    hear(socket, 'g');
    tarn_status status = tarn_pool_alloc(pool, lease(0), 50 * MIB, &block);
    CHECK(!status || strstr(tarn_last_error(), "ulimit -n"));
    CHECK(both_are_whole(pool));
    send_all(socket, &status, sizeof status);
    hear(socket, 'e');
}

static void inherit_with_files(int socket)
{
    inherit(socket, 100);
}

static void inherit_without_files(int socket)
{
    inherit(socket, 0);
}

/* What the request gives of a process that took the pool over, beside an owner that was started
 * after that; and whether that owner has the pool while the process lives. */
static tarn_status inherit_beside_new_owner(const char *how, bool *listed)
{
    struct told told;
    tarn_status status;
    kill_side(filled(&told));
    struct side side = start_side(how, SOCK_STREAM);
    hear(side.socket, 'k');
    end_owner(SIGKILL);
    start_owner();
    say(side.socket, 'g');
    receive_all(side.socket, &status, sizeof status);
    *listed = lines_of_list("| sed -n /weights/p") == 1;
    kill_side(side);
    return status;
}

static void what_was_taken_over_is_given_to_each_new_owner(void **state)
{
    (void)state;
    tarn_kept kept;
    bool listed;
    OK(inherit_beside_new_owner("inherit", &listed));
    CHECK(listed);
    tarn_pool *pool = keep("weights", &kept);
    CHECK(kept.blocks == 2 && both_are_whole(pool));
    for (int i = 0; i < 3; i++) {
        end_owner(SIGKILL);
        start_owner();
        OK(tarn_free(alloc_in(pool, 0, 50 * MIB)));
        OK(tarn_pool_trim(pool, 0));
        CHECK(both_are_whole(pool) && lines_of_list("") == 1);
    }
    const struct keep *own = keep_of_store(store_of_public(pool));
    CHECK(own->files.messages == 1);
    OK(tarn_free(found(pool, "first").pointer));
    OK(tarn_free(found(pool, "second").pointer));
    OK(tarn_pool_trim(pool, 0));
    CHECK(own->files.messages == 0); /* a file would keep the memory */
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* Pipes in place of segments: a file is closed if the end for reading says so. */
static void a_file_is_kept_until_it_is_dropped(void **state)
{
    (void)state;
    enum { BATCHES = 4, FILES = BATCHES * KEEP_BATCH };
    struct keep_files files;
    int ends[FILES][2];
    bool dropped[FILES] = {0};
    files_begin(&files);
    for (unsigned i = 0; i < BATCHES; i++) {
        struct keep_message batch = keep_message(KEEP_SEGMENTS);
        int list[KEEP_BATCH];
        for (batch.count = 0; batch.count < KEEP_BATCH; batch.count++) {
            unsigned at = i * KEEP_BATCH + batch.count;
            CHECK(pipe2(ends[at], O_CLOEXEC | O_NONBLOCK) == 0);
            batch.segments[batch.count].offset = at;
            list[batch.count] = ends[at][1];
        }
        files_put(&files, &batch, list);
    }
    for (unsigned i = 0; i < FILES; i++)
        CHECK(close(ends[i][1]) == 0);
    for (unsigned i = 0; i < 4 * FILES; i++) {
        unsigned at = pick(FILES);
        char word = 'w';
        int file = files_get(&files, at);
        CHECK((file < 0) == dropped[at]);
        if (file >= 0) {
            CHECK(write(file, &word, 1) == 1 && read(ends[at][0], &word, 1) == 1);
            file_close(file);
        }
        if (pick(2)) {
            files_drop(&files, at);
            dropped[at] = true;
        }
        for (unsigned j = 0; j < FILES; j++) /* 0: no process can write to it any more */
            CHECK(read(ends[j][0], &word, 1) == (dropped[j] ? 0 : -1));
    }
    files_drop_all(&files);
    for (unsigned i = 0; i < FILES; i++) {
        char word;
        CHECK(read(ends[i][0], &word, 1) == 0 && close(ends[i][0]) == 0);
    }
    mutex_finish(&files.lock);
}

static void without_its_files_a_new_owner_gets_nothing(void **state)
{
    (void)state;
    tarn_kept kept;
    bool listed;
    GIVES(inherit_beside_new_owner("inherit without files", &listed), TARN_ERROR_SYSTEM);
    CHECK(!listed);
    tarn_pool *pool = keep("weights", &kept);
    CHECK(!kept.adopted);
    OK(tarn_pool_release(pool));
}

/* The owner that is there after a word has descriptors for a part of the pool, the next one for
 * all. */
static void survive_owner_without_files(int socket)
{
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    struct told told = {alloc_in(pool, 0, 3 * MIB + 100), alloc_in(pool, 0, 20 * MIB)};
    void *block = NULL;
    fill(told.first, 3 * MIB, 3);
    fill(told.second, 20 * MIB, 9);
    OK(tarn_pool_block_seal(told.first, "first", NULL, NULL));
    OK(tarn_pool_block_seal(told.second, "second", NULL, NULL));
    say(socket, 'k');
    hear(socket, 'g');
    GIVES(tarn_pool_alloc(pool, 0, 50 * MIB, &block), TARN_ERROR_SYSTEM);
    CHECK(strstr(tarn_last_error(), "ulimit -n") && both_are_whole(pool));
    say(socket, 'f');
    hear(socket, 'g');
    OK(tarn_pool_alloc(pool, 0, 50 * MIB, &block));
    say(socket, 'w');
    hear(socket, 'e');
}

/* As many descriptors as the owner needs to have the pool of a process and one segment of it. */
static void give_owner_few_files(void)
{
    struct rlimit few = {0, 0};
    for (int free = 0; free < 5; few.rlim_max++) {
        char path[40];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)owner, (int)few.rlim_max);
        free += access(path, F_OK) != 0;
    }
    few.rlim_cur = few.rlim_max;
    CHECK(prlimit(owner, RLIMIT_NOFILE, &few, NULL) == 0);
}

/* An owner that cannot have all of a pool forgets it. The pool is not over: its reader goes on, and
 * the next owner has what was sealed before. */
static void a_failed_registration_takes_no_seal_off(void **state)
{
    (void)state;
    tarn_kept kept = {.size = sizeof kept};
    tarn_keep_options options = small_segments();
    tarn_pool *reader = NULL;
    struct side side = start_side("survive owner without files", SOCK_STREAM);
    hear(side.socket, 'k');
    options.read = true;
    OK(tarn_pool_keep("weights", &options, &reader, &kept));
    end_owner(SIGKILL);
    start_owner();
    give_owner_few_files();
    say(side.socket, 'g');
    hear(side.socket, 'f');
    CHECK(both_are_whole(reader));
    OK(tarn_pool_release(reader));
    end_owner(SIGKILL);
    start_owner();
    say(side.socket, 'g');
    hear(side.socket, 'w');
    kill_side(side);
    tarn_pool *pool = keep("weights", &kept);
    CHECK(kept.blocks == 2 && both_are_whole(pool));
    end_pool(pool);
}

/* Becomes a user of its own, so that no other process counts, and one who has no more files on
 * their way than may be open. The owner still sees root. */
static bool become_limited(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2];
    if (setreuid((uid_t)(100000 + getpid()), 0) || syscall(SYS_capget, &header, sets))
        return false;
    sets[0].effective &= ~(1u << CAP_SYS_RESOURCE | 1u << CAP_SYS_ADMIN);
    return syscall(SYS_capset, &header, sets) == 0;
}

static int way[2]; /* a pair of sockets */

/* Sends files that nobody receives, until there are as many more than the limit as can be. `before`
 * files are on their way already. */
static void fill_the_way(unsigned before)
{
    struct keep_message message = keep_message(KEEP_SEGMENTS);
    struct rlimit few = {15 * KEEP_BATCH, 15 * KEEP_BATCH};
    int files[KEEP_BATCH];
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, way) == 0);
    for (int i = 0; i < KEEP_BATCH; i++)
        files[i] = way[0];
    for (; before % KEEP_BATCH; before++)
        CHECK(wire_send(way[0], &message, files, 1));
    for (; wire_send(way[0], &message, files, KEEP_BATCH); before += KEEP_BATCH)
        ;
    CHECK(errno == ETOOMANYREFS && before == 16 * KEEP_BATCH);
}

/* What another process has on its way arrives. */
static void *empty_the_way(void *unused)
{
    usleep(100000);
    CHECK(close(way[0]) == 0 && close(way[1]) == 0);
    return unused;
}

static void grow_at_the_limit(int socket)
{
    tarn_kept kept;
    pthread_t other;
    bool limited = become_limited();
    say(socket, limited ? 'l' : 'n');
    tarn_pool *pool = keep("weights", &kept);
    const struct keep *own = keep_of_store(store_of_public(pool));
    CHECK(kept.blocks == 2 && own->files.messages == 1 && own->piece_count < KEEP_BATCH);
    if (limited) {
        fill_the_way(own->piece_count);
        CHECK(pthread_create(&other, NULL, empty_the_way, NULL) == 0);
    }
    OK(tarn_free(alloc_in(pool, 0, 50 * MIB)));
    CHECK(own->files.messages == !limited && both_are_whole(pool));
    if (limited)
        CHECK(pthread_join(other, NULL) == 0);
    say(socket, 'w');
    hear(socket, 'e');
}

/* What a process has on its way for another owner does not keep the pool from growing, and for what
 * others have it waits. */
static void files_on_their_way_give_way(void **state)
{
    (void)state;
    struct told told;
    tarn_kept kept;
    char limited;
    kill_side(filled(&told));
    struct side side = start_side("grow at the limit", SOCK_STREAM);
    receive_all(side.socket, &limited, 1);
    hear(side.socket, 'w');
    kill_side(side);
    end_pool(keep("weights", &kept));
    if (limited != 'l')
        skip(); /* only root can be another user */
}

static void prepare_device(void)
{
    host_start_with(1, 512 * MIB);
}

static int start(void **state)
{
    (void)state;
    prepare_device();
    keep_name_socket("keep-owner");
    start_owner();
    return 0;
}

static int end(void **state)
{
    (void)state;
    end_owner(SIGTERM);
    return 0;
}

static const struct role roles[] = {
    {"survive owner", survive_owner},
    {"inherit", inherit_with_files},
    {"inherit without files", inherit_without_files},
    {"survive owner without files", survive_owner_without_files},
    {"grow at the limit", grow_at_the_limit},
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
        cmocka_unit_test(a_living_process_registers_with_a_new_owner),
        cmocka_unit_test(a_process_waits_for_an_owner_that_was_killed),
        cmocka_unit_test(a_file_is_kept_until_it_is_dropped),
        cmocka_unit_test(what_was_taken_over_is_given_to_each_new_owner),
        cmocka_unit_test(without_its_files_a_new_owner_gets_nothing),
        cmocka_unit_test(a_failed_registration_takes_no_seal_off),
        cmocka_unit_test(files_on_their_way_give_way),
    };
    return cmocka_run_group_tests(tests, start, end);
}
