/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Memory between processes: this program runs itself again as the other side, with a socket that it
 * inherits. What one writes the other sees, whoever dies first; nothing that is not a share is
 * imported; and no file stays open. */
#include "share_test.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static tarn_stream own;

/* ---- The other side ---- */

/* Imports what comes and finds 5 in it, puts 9 there, says so, and waits for the end. */
static void import_and_answer(int socket)
{
    tarn_share *share = NULL;
    OK(tarn_share_receive(socket, &share));
    tarn_share_info info = info_of(share);
    int files = open_files();
    char *block = import_of(share, 0);
    CHECK(info.device == 0 && ledger_of(0).created == 0 && ledger_of(0).mapped == info.mapped);
    OK(tarn_share_close(share));
    CHECK(open_files() <= files);
    CHECK(holds(block, info.bytes, 5));
    fill(block, info.bytes, 9);
    say(socket, 'w');
    hear(socket, 'e');
    CHECK(holds(block, info.bytes, 7));
    OK(tarn_import_close(block));
    nothing_is_left(0);
}

/* Exports, and dies before anyone has imported. */
static void export_and_die(int socket)
{
    OK(tarn_export_enable(0));
    char *block = alloc_on(TARN_STREAM_LEGACY, 2 * PIECE + 5 * MIB);
    fill(block, usable_size(block), 5);
    OK(tarn_share_send(socket, export_of(block)));
    raise(SIGKILL);
}

/* Imports, and dies with it. */
static void import_and_die(int socket)
{
    tarn_share *share = NULL;
    OK(tarn_share_receive(socket, &share));
    char *block = import_of(share, 0);
    fill(block, info_of(share).bytes, 9);
    say(socket, 'w');
    hear(socket, 'e');
    raise(SIGKILL);
}

/* Imports each share that comes, and answers with what its first byte is and whether it got the
 * pointer before, until the other side closes. */
static void import_and_compare(int socket)
{
    void *before = NULL;
    for (tarn_share *share = NULL; tarn_share_receive(socket, &share) == TARN_OK; share = NULL) {
        char *pointer = import_of(share, 0);
        OK(tarn_share_close(share));
        say(socket, (char)(*pointer + (pointer == before ? 0 : 'A' - 'a')));
        before = pointer;
    }
}

/* Receives, maps and forgets what comes. */
static void import_many(int socket)
{
    int files = 0;
    for (int i = 0;; i++) {
        tarn_share *share = NULL;
        if (tarn_share_receive(socket, &share))
            break;
        OK(tarn_import_close(import_of(share, 0)));
        OK(tarn_share_close(share));
        files = i == 1 ? open_files() : files;
        CHECK(i < 1 || open_files() == files);
        say(socket, 'n');
    }
    nothing_is_left(0);
}

static const struct {
    const char *name;
    void (*play)(int socket);
} roles[] = {
    {"import_and_answer", import_and_answer},
    {"export_and_die", export_and_die},
    {"import_and_die", import_and_die},
    {"import_and_compare", import_and_compare},
    {"import_many", import_many},
};

static int play(const char *name, int socket)
{
    alarm(60);
    host_start_with(2, DEVICE);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(roles[i].name, name) == 0)
            roles[i].play(socket);
    return 0;
}

/* ---- Between processes ---- */

static void what_one_writes_the_other_sees(void **state)
{
    (void)state;
    static const size_t sizes[] = {512, 3 * MIB, PIECE, 3 * PIECE + 4096, 200 * MIB};
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        size_t size = sizes[i / 2];
        void *before = alloc_on(own, 6 * MIB); /* so that blocks do not begin where pieces do */
        char *block = alloc_on(own, size);
        size = usable_size(block);
        fill(block, size, 5);
        struct side side = start_side("import_and_answer", i % 2 ? SOCK_STREAM : SOCK_SEQPACKET);
        tarn_share *share = export_of(block);
        tarn_share_info info = info_of(share);
        CHECK(info.bytes == size && info.mapped >= info.offset + info.bytes &&
              info.generation != 0);
        CHECK(info.mapped % (2 * MIB) == 0 && info.pieces > 0);
        OK(tarn_share_send(side.socket, share));
        OK(tarn_share_close(share));
        hear(side.socket, 'w');
        CHECK(holds(block, size, 9));
        fill(block, size, 7);
        say(side.socket, 'e');
        end_side(side, 0);
        OK(tarn_free(block));
        OK(tarn_free(before));
        nothing_is_left(0);
    }
}

static void memory_outlives_the_process_that_exported_it(void **state)
{
    (void)state;
    struct side side = start_side("export_and_die", SOCK_SEQPACKET);
    tarn_share *share = NULL;
    OK(tarn_share_receive(side.socket, &share));
    end_side(side, 128 + SIGKILL);
    char *block = import_of(share, 0);
    size_t size = info_of(share).bytes;
    CHECK(holds(block, size, 5));
    fill(block, size, 6);
    CHECK(import_of(share, 0) == block && holds(block, size, 6));
    OK(tarn_share_close(share));
    OK(tarn_import_close(block));
    OK(tarn_import_close(block));
    nothing_is_left(0);
}

static void an_importer_that_dies_takes_nothing_along(void **state)
{
    (void)state;
    char *block = alloc_on(own, PIECE);
    struct side side = start_side("import_and_die", SOCK_STREAM);
    tarn_share *share = export_of(block);
    OK(tarn_share_send(side.socket, share));
    hear(side.socket, 'w');
    say(side.socket, 'e');
    end_side(side, 128 + SIGKILL);
    CHECK(holds(block, usable_size(block), 9));
    OK(tarn_share_close(share));
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void a_share_can_be_sent_on(void **state)
{
    (void)state;
    char *block = alloc_on(own, PIECE);
    fill(block, PIECE, 5);
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    tarn_share *share = export_of(block), *received = NULL;
    OK(tarn_share_send(ends[0], share));
    OK(tarn_share_receive(ends[1], &received));
    OK(tarn_share_close(share));
    struct side side = start_side("import_and_answer", SOCK_STREAM);
    OK(tarn_share_send(side.socket, received));
    OK(tarn_share_close(received));
    hear(side.socket, 'w');
    fill(block, PIECE, 7);
    say(side.socket, 'e');
    end_side(side, 0);
    close(ends[0]);
    close(ends[1]);
    OK(tarn_free(block));
    nothing_is_left(0);
}

/* Memory that goes back to the device, and other memory that comes to the same address: the
 * importer must not be given what it had mapped before (pytorch/pytorch#198305). */
static void an_address_that_is_mapped_anew_is_other_memory(void **state)
{
    (void)state;
    struct side side = start_side("import_and_compare", SOCK_SEQPACKET);
    uint64_t generation = 0, id[2] = {0};
    char *first = NULL;
    for (int i = 0; i < 6; i++) {
        char *block = alloc_on(own, PIECE);
        *block = (char)('a' + i);
        tarn_share *share = export_of(block);
        tarn_share_info info = info_of(share);
        CHECK(i == 0 || (block == first && info.id[0] == id[0] && info.id[1] == id[1]));
        CHECK(i % 2 ? info.generation == generation : info.generation > generation);
        generation = info.generation;
        id[0] = info.id[0];
        id[1] = info.id[1];
        first = block;
        OK(tarn_share_send(side.socket, share));
        OK(tarn_share_close(share));
        /* The same memory at the same pointer, every second time */
        hear(side.socket, (char)((i % 2 ? 'a' : 'A') + i));
        OK(tarn_free(block));
        if (i % 2)
            OK(tarn_device_trim(0, 0));
    }
    end_side(side, 0);
    nothing_is_left(0);
}

static void a_thousand_exports_leave_no_file_open(void **state)
{
    (void)state;
    struct side side = start_side("import_many", SOCK_SEQPACKET);
    char *block = alloc_on(own, 2 * PIECE + 2 * MIB);
    int files = open_files();
    for (int i = 0; i < 1000; i++) {
        tarn_share *share = export_of(block);
        OK(tarn_share_send(side.socket, share));
        OK(tarn_share_close(share));
        CHECK(open_files() == files);
        hear(side.socket, 'n');
    }
    end_side(side, 0);
    OK(tarn_free(block));
    nothing_is_left(0);
}

/* ---- In one process ---- */

static void what_is_exported_stays_where_it_is(void **state)
{
    (void)state;
    char *block = alloc_on(own, PIECE);
    *block = 3;
    tarn_share *share = export_of(block);
    char *seen = import_of(share, 0);
    OK(tarn_free(block));
    OK(tarn_device_trim(0, 0));
    CHECK(ledger_of(0).created == PIECE && *seen == 3);
    CHECK(alloc_on(own, PIECE) == block); /* its own stream may use it */
    *block = 4;
    CHECK(*seen == 4);
    OK(tarn_free(block));
    OK(tarn_share_close(share));
    OK(tarn_device_trim(0, 0));
    CHECK(ledger_of(0).created == 0 && *seen == 4); /* the importer has it still */
    OK(tarn_import_close(seen));
    nothing_is_left(0);
}

static void only_what_is_needed_is_mapped(void **state)
{
    (void)state;
    char *blocks[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = alloc_on(own, PIECE);
    size_t mapped = ledger_of(0).mapped, reserved = ledger_of(0).reserved_addresses;
    tarn_share *share = export_of(blocks[2]);
    tarn_share_info info = info_of(share);
    CHECK(info.mapped == PIECE && info.offset == 0 && info.bytes == PIECE);
    void *seen = import_of(share, 0);
    CHECK(ledger_of(0).mapped == mapped + PIECE && ledger_of(0).reserved_addresses == reserved);
    verify(0);
    OK(tarn_import_close(seen));
    OK(tarn_share_close(share));
    for (int i = 0; i < 4; i++)
        OK(tarn_free(blocks[i]));
    nothing_is_left(0);
}

static void imports_of_the_same_are_one_and_counted(void **state)
{
    (void)state;
    char *block = alloc_on(own, PIECE);
    tarn_share *share = export_of(block), *again = export_of(block);
    uint64_t maps = calls_of(0, "map"), pieces = info_of(share).pieces;
    void *first = import_of(share, 0), *second = import_of(again, 0), *far = import_of(again, 1);
    CHECK(first == second && far != first && calls_of(0, "map") == maps + pieces);
    OK(tarn_import_close(first));
    memset(second, 1, PIECE);
    OK(tarn_import_close(second));
    GIVES(tarn_import_close(first), TARN_ERROR_INVALID_POINTER);
    OK(tarn_import_close(far));
    void *anew = import_of(share, 0);
    CHECK(*(unsigned char *)anew == 1);
    OK(tarn_import_close(anew));
    OK(tarn_share_close(share));
    OK(tarn_share_close(again));
    OK(tarn_share_close(NULL));
    OK(tarn_free(block));
    nothing_is_left(0);
    nothing_is_left(1);
}

static void an_import_is_not_a_block(void **state)
{
    (void)state;
    char *block = alloc_on(own, 3 * MIB + 512);
    tarn_share *share = export_of(block);
    char *seen = import_of(share, 1);
    tarn_block_info info = {.size = sizeof info};
    GIVES(tarn_free(seen), TARN_ERROR_INVALID_POINTER);
    CHECK(strstr(tarn_last_error(), "tarn_import_close()"));
    GIVES(tarn_free_on(seen, TARN_STREAM_LEGACY), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_record_stream(seen + 100, TARN_STREAM_LEGACY), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_anchor(seen, 1), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_export(seen, &(tarn_share *){NULL}), TARN_ERROR_INVALID_POINTER);
    OK(tarn_pointer_info_get(seen + 1000, &info));
    CHECK(info.imported && info.base == seen && info.usable_size == usable_size(block) &&
          info.device == 1);
    OK(tarn_pointer_info_get(block, &info));
    CHECK(!info.imported && info.base == block);
    GIVES(tarn_import_close(seen + 512), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_import_close(block), TARN_ERROR_INVALID_POINTER);
    GIVES(tarn_import_close(NULL), TARN_ERROR_INVALID_POINTER);
    CHECK(stats_of(1).reserved_bytes[0].current == 0);
    OK(tarn_import_close(seen));
    GIVES(tarn_pointer_info_get(seen, &info), TARN_ERROR_INVALID_POINTER);
    OK(tarn_share_close(share));
    OK(tarn_free(block));
    nothing_is_left(0);
    nothing_is_left(1);
}

static void peers_reach_imports_made_before_and_after(void **state)
{
    (void)state;
    char *one = alloc_on(own, PIECE), *two = alloc_on(own, PIECE);
    tarn_share *first = export_of(one), *second = export_of(two);
    char *before = import_of(first, 1);
    CHECK(reaches(1, before) && !reaches(2, before));
    OK(tarn_device_peer_enable(2, 1));
    CHECK(reaches(2, before) && reaches(2, before + PIECE - 1));
    char *after = import_of(second, 1);
    CHECK(reaches(2, after) && reaches(2, after + PIECE - 1) && !reaches(0, after));
    OK(tarn_import_close(before));
    OK(tarn_import_close(after));
    OK(tarn_share_close(first));
    OK(tarn_share_close(second));
    OK(tarn_free(one));
    OK(tarn_free(two));
    nothing_is_left(0);
    nothing_is_left(1);
}

/* Where only a pool's memory is exportable, pieces of either kind serve the other only as room at
 * the driver. */
static void a_pool_of_another_kind_than_the_default(void **state)
{
    (void)state;
    tarn_stream stream = lease(2);
    tarn_pool_options options = {.size = sizeof options, .device = 2, .exportable = true};
    tarn_pool *pool = NULL;
    tarn_share *share = NULL;
    void *plain = alloc_on(stream, DEVICE / 2), *block = NULL, *more = NULL;
    OK(tarn_pool_create(&options, &pool));
    OK(tarn_pool_alloc(pool, stream, DEVICE / 4, &block));
    GIVES(tarn_export(plain, &share), TARN_ERROR_NOT_SUPPORTED);
    CHECK(strstr(tarn_last_error(), "`exportable`"));
    share = export_of(block);
    char *seen = import_of(share, 1);
    memset(block, 6, DEVICE / 4);
    CHECK(seen[DEVICE / 4 - 1] == 6);
    OK(tarn_import_close(seen));
    OK(tarn_share_close(share));

    OK(tarn_free(plain)); /* the pool needs room where the default pool has memory of another
                             kind */
    OK(tarn_pool_alloc(pool, stream, DEVICE / 2, &more));
    share = export_of(more);
    GIVES(tarn_pool_suspend(pool, true), TARN_ERROR_BUSY);
    OK(tarn_share_close(share));
    OK(tarn_pool_suspend(pool, true));
    GIVES(tarn_export(more, &share), TARN_ERROR_SUSPENDED);
    OK(tarn_pool_resume(pool));
    OK(tarn_share_close(export_of(more)));
    verify(2);
    OK(tarn_free(more));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool)); /* and what a pool leaves behind makes room for the default pool */
    plain = alloc_on(stream, DEVICE);
    GIVES(tarn_export(plain, &share), TARN_ERROR_NOT_SUPPORTED);
    verify(2);
    OK(tarn_free(plain));
    nothing_is_left(2);
    nothing_is_left(1);
}

/* A block in more pieces than one message carries. */
static void many_pieces_go_in_several_messages(void **state)
{
    (void)state;
    enum { PIECES = 150 };
    char *odd[PIECES], *even[PIECES];
    for (int i = 0; i < PIECES; i++) { /* the small zone makes pieces of a granule */
        odd[i] = alloc_on(own, MIB);
        even[i] = alloc_on(own, MIB);
    }
    for (int i = 0; i < PIECES; i++) {
        OK(tarn_free(odd[i]));
        OK(tarn_free(even[i]));
    }
    for (int type = 0; type < 2; type++) {
        char *block = alloc_on(own, PIECES * 2 * MIB);
        tarn_share *share = export_of(block), *received = NULL;
        CHECK(info_of(share).pieces > 128);
        fill(block, PIECES * 2 * MIB, 5);
        int ends[2], buffer = 1 << 20;
        CHECK(socketpair(AF_UNIX, type ? SOCK_STREAM : SOCK_SEQPACKET, 0, ends) == 0);
        CHECK(setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer) == 0);
        OK(tarn_share_send(ends[0], share));
        OK(tarn_share_receive(ends[1], &received));
        char *seen = import_of(received, 1);
        CHECK(holds(seen, PIECES * 2 * MIB, 5));
        OK(tarn_import_close(seen));
        OK(tarn_share_close(share));
        OK(tarn_share_close(received));
        close(ends[0]);
        close(ends[1]);
        OK(tarn_free(block));
    }
    nothing_is_left(0);
    nothing_is_left(1);
}

static void shutdown_leaves_imports_and_shares(void)
{
    host_start_with(1, DEVICE);
    OK(tarn_export_enable(0));
    char *block = alloc_on(TARN_STREAM_LEGACY, PIECE);
    tarn_share *share = export_of(block);
    char *seen = import_of(share, 0);
    OK(tarn_free(block));
    *block = 8;
    int files = open_files(), pieces = (int)info_of(share).pieces;
    OK(tarn_shutdown());
    CHECK(*seen == 8);
    GIVES(tarn_import_close(seen), TARN_ERROR_SHUTDOWN);
    GIVES(tarn_export(block, &(tarn_share *){NULL}), TARN_ERROR_SHUTDOWN);
    OK(tarn_share_close(share));
    CHECK(open_files() == files - pieces);
}

static void at_the_end(void **state)
{
    (void)state;
    in_child(shutdown_leaves_imports_and_shares);
}

static int start(void **state)
{
    (void)state;
    host_start_with(3, DEVICE);
    OK(tarn_export_enable(0));
    own = lease(0);
    OK(tarn_device_synchronize(1));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[0], "side") == 0)
        return play(argv[1], atoi(argv[2]));
    const struct CMUnitTest first[] = {cmocka_unit_test(at_the_end)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_one_writes_the_other_sees),
        cmocka_unit_test(memory_outlives_the_process_that_exported_it),
        cmocka_unit_test(an_importer_that_dies_takes_nothing_along),
        cmocka_unit_test(a_share_can_be_sent_on),
        cmocka_unit_test(an_address_that_is_mapped_anew_is_other_memory),
        cmocka_unit_test(a_thousand_exports_leave_no_file_open),
        cmocka_unit_test(what_is_exported_stays_where_it_is),
        cmocka_unit_test(only_what_is_needed_is_mapped),
        cmocka_unit_test(imports_of_the_same_are_one_and_counted),
        cmocka_unit_test(an_import_is_not_a_block),
        cmocka_unit_test(peers_reach_imports_made_before_and_after),
        cmocka_unit_test(a_pool_of_another_kind_than_the_default),
        cmocka_unit_test(many_pieces_go_in_several_messages),
    };
    int failures = cmocka_run_group_tests(first, NULL, NULL);
    return failures + cmocka_run_group_tests(tests, start, NULL);
}
