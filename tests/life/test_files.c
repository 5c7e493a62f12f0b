/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A program that has closed its standard streams, as daemons do: no file of tarn takes their
 * numbers, so that what the program still writes there as messages goes nowhere, and into no
 * memory. */
#include "support/every_call.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <tarn/live.h>
#include <unistd.h>

#include <cmocka.h>

static void streams_are_closed(void)
{
    for (int file = 0; file < 3; file++) {
        CHECK(write(file, "a message", 9) == -1 && errno == EBADF);
        CHECK(fcntl(file, F_GETFD) == -1);
    }
}

static bool take(const void *data, size_t size, void *user)
{
    (void)user;
    streams_are_closed();
    return data && size;
}

static void use_without_streams(void)
{
    char folder[] = "/tmp/tarn-files-XXXXXX";
    const tarn_live_options live = {.size = sizeof live, .directory = folder, .interval_ms = 10};
    tarn_share *received = NULL;
    void *imported = NULL;
    CHECK(mkdtemp(folder) != NULL);
    world_make(); /* with its sockets before the streams go */
    OK(tarn_share_send(world.sockets[0], world.share));
    OK(tarn_import_close(world.imported));
    OK(tarn_share_close(world.share));
    for (int file = 0; file < 3; file++)
        close(file);
    OK(tarn_share_receive(world.sockets[1], &received));
    streams_are_closed();
    OK(tarn_import(received, 0, &imported));
    streams_are_closed();
    OK(tarn_import_close(imported));
    OK(tarn_export(world.exported, &world.share));
    streams_are_closed();
    OK(tarn_live_start(&live));
    streams_are_closed();
    OK(tarn_snapshot_print(take, NULL, NULL));
    OK(tarn_share_close(received));
    OK(tarn_live_stop());
    CHECK(rmdir(folder) == 0);
    streams_are_closed();
}

static void memory_without_streams(void)
{
    static const char zeros[4096];
    for (int file = 0; file < 3; file++)
        close(file);
    char *block = alloc_on(TARN_STREAM_LEGACY, 4096);
    memset(block, 0, 4096);
    streams_are_closed();
    CHECK(memcmp(block, zeros, 4096) == 0);
    OK(tarn_free(block));
}

static void test_closed_streams(void **state)
{
    (void)state;
    in_child(memory_without_streams);
    in_child(use_without_streams);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_streams),
    };
    host_start_with(1, 256 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
