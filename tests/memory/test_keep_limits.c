/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The most of kept pools, and one more: sealed blocks of a pool, pools of an owner, connections to
 * it. */
#include "keep_test.h"
#include "memory/keep/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/resource.h>

#include <cmocka.h>

enum { SEALS = 32768, POOLS = 256, CONNECTIONS = 512 };

static tarn_status seal_as(void *block, unsigned number)
{
    char name[24];
    snprintf(name, sizeof name, "block.%u", number);
    return tarn_pool_block_seal(block, name, NULL, NULL);
}

static void as_many_seals_as_a_pool_has_and_one_more(void **state)
{
    (void)state;
    static void *blocks[SEALS + 1];
    tarn_kept kept;
    tarn_pool *pool = keep("weights", &kept);
    for (unsigned i = 0; i <= SEALS; i++)
        blocks[i] = alloc_in(pool, 0, 512);
    for (unsigned i = 0; i < SEALS; i++)
        OK(seal_as(blocks[i], i));
    GIVES(seal_as(blocks[SEALS], SEALS), TARN_ERROR_NO_ROOM);
    OK(tarn_pool_block_unseal(blocks[100]));
    OK(seal_as(blocks[SEALS], SEALS));
    GIVES(seal_as(blocks[100], 100), TARN_ERROR_NO_ROOM);
    CHECK(found(pool, "block.32768").pointer == blocks[SEALS]);
    CHECK(found(pool, "block.101").pointer == blocks[101]);
    for (unsigned i = 0; i <= SEALS; i++)
        OK(tarn_free(blocks[i]));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* Makes a request of a connection. The answer's files are closed. */
static struct keep_message ask(int connection, enum keep_verb verb, unsigned number, int file)
{
    struct keep_message request = keep_message(verb), answer = {.verb = 0};
    int files[KEEP_BATCH];
    unsigned count = 0;
    snprintf(request.name, sizeof request.name, "pool.%u", number);
    CHECK(wire_send(connection, &request, &file, file >= 0));
    CHECK(wire_receive(connection, &answer, files, &count) > 0);
    while (count > 0)
        close(files[--count]);
    return answer;
}

/* A process has no addresses for so many: this one only asks for them. */
static void as_many_pools_as_an_owner_has_and_one_more(void **state)
{
    (void)state;
    int ends[2], connections[POOLS + 1];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    for (unsigned i = 0; i <= POOLS; i++) {
        connections[i] = wire_connect(keep_path);
        CHECK(connections[i] >= 0);
        struct keep_message answer = ask(connections[i], KEEP_CREATE, i, ends[0]);
        CHECK(answer.verb == (i < POOLS ? KEEP_GIVES : KEEP_REFUSED));
        CHECK(i < POOLS || strstr(answer.text, "256 pools, its most"));
    }
    CHECK(lines_of_list("") == POOLS);
    CHECK(ask(connections[17], KEEP_END, 17, -1).verb == KEEP_OK);
    CHECK(ask(connections[POOLS], KEEP_CREATE, POOLS, ends[0]).verb == KEEP_GIVES);
    for (unsigned i = 0; i <= POOLS; i++) {
        CHECK(ask(connections[i], KEEP_END, i, -1).verb == KEEP_OK);
        close(connections[i]);
    }
    close(ends[0]);
    close(ends[1]);
    CHECK(lines_of_list("") == 1); /* "no pools" */
}

/* Whether the owner answers on a connection. */
static bool is_served(int connection)
{
    struct keep_message request = keep_message(KEEP_LIST), answer;
    int files[KEEP_BATCH];
    unsigned count = 0;
    return wire_send(connection, &request, NULL, 0) &&
           wire_receive(connection, &answer, files, &count) > 0;
}

static void as_many_connections_as_an_owner_has_and_one_more(void **state)
{
    (void)state;
    static int connections[CONNECTIONS];
    tarn_keep_options options = small_segments();
    tarn_pool *pool = NULL;
    for (int i = 0; i < CONNECTIONS; i++) {
        connections[i] = wire_connect(keep_path);
        CHECK(connections[i] >= 0 && is_served(connections[i]));
    }
    int more = wire_connect(keep_path);
    CHECK(more >= 0 && !is_served(more));
    close(more);
    GIVES(tarn_pool_keep("weights", &options, &pool, NULL), TARN_ERROR_SYSTEM);
    CHECK(is_served(connections[0]) && is_served(connections[CONNECTIONS - 1]));
    close(connections[0]);
    for (int i = 0; i < 1000 && tarn_pool_keep("weights", &options, &pool, NULL); i++)
        usleep(5000);
    CHECK(pool);
    OK(tarn_pool_release(pool));
    for (int i = 1; i < CONNECTIONS; i++)
        close(connections[i]);
    nothing_is_left(0);
}

/* The last test needs a descriptor per connection. */
static int start(void **state)
{
    struct rlimit files;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    CHECK(files.rlim_max > 2 * CONNECTIONS && setrlimit(RLIMIT_NOFILE, &files) == 0);
    host_start_with(1, 128 * MIB);
    keep_name_socket("keep-limits");
    return owner_begins(state);
}

int main(void)
{
    if (!keep_has_program())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_seals_as_a_pool_has_and_one_more),
        cmocka_unit_test(as_many_pools_as_an_owner_has_and_one_more),
        cmocka_unit_test(as_many_connections_as_an_owner_has_and_one_more),
    };
    return cmocka_run_group_tests(tests, start, owner_ends);
}
