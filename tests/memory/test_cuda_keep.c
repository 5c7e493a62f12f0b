/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Kept pools on the machines of `tarn sim --card` (sim/common/card.h), with as much memory as they
 * have: those whose drivers or kernels have few addresses have kept pools too. Where none can be
 * had, the error says what is missing. The thread sanitizer leaves a process too few addresses for
 * both pools of a large card to be at places of their own, so there they may move. */
#include "keep_test.h"
#include "memory/keep/keep.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define BLOCK (300 * MIB)

static const struct card {
    const char *name;
    size_t memory; /* MiB of the device */
    size_t room;   /* MiB of addresses that a pool has at least */
} cards[] = {
    {"orin", 64 * 1024, 16 * 1024},   {"thor", 128 * 1024, 128 * 1024},
    {"gb10", 128 * 1024, 128 * 1024}, {"mig", 10 * 1024, 10 * 1024},
    {"mps", 80 * 1024, 80 * 1024},    {"gh200", 96 * 1024, 96 * 1024},
    {"va39", 200 * 1024, 100 * 1024}, {NULL, 141 * 1024, 141 * 1024},
};
enum { CARDS = sizeof cards / sizeof *cards };

static void begin_on(const struct card *card)
{
    if (card->name)
        CHECK(setenv("TARN_SIM_CARD", card->name, 1) == 0);
    host_start_with(1, card->memory * MIB);
}

static tarn_pool *keep_large(const char *name, tarn_kept *kept)
{
    tarn_keep_options options = {.size = sizeof options, .wait_ms = 10000};
    tarn_pool *pool = NULL;
    *kept = (tarn_kept){.size = sizeof *kept};
    OK(tarn_pool_keep(name, &options, &pool, kept));
    return pool;
}

/* Fills a pool, or checks what the process before has left. `how`: the card, and which of both. */
static void be_process(int socket)
{
    unsigned char how[2];
    receive_all(socket, how, sizeof how);
    const struct card *card = &cards[how[0]];
    begin_on(card);
    tarn_kept kept;
    tarn_pool *pool = keep_large("weights", &kept), *other = keep_large("cache", &kept);
    CHECK(kept.adopted == how[1] && (!kept.moved || thread_sanitizer));
    CHECK(keep_of_store(store_of_public(pool))->window >= card->room * MIB);
    void *block = how[1] ? found(pool, "first").pointer : alloc_in(pool, 0, BLOCK);
    if (how[1]) {
        CHECK(holds(block, BLOCK, 3));
        send_all(socket, &block, sizeof block);
        OK(tarn_free(block));
        OK(tarn_free(found(other, "first").pointer));
        OK(tarn_pool_release(other));
        OK(tarn_pool_release(pool));
        nothing_is_left(0);
        return;
    }
    fill(block, BLOCK, 3);
    OK(tarn_pool_block_seal(block, "first", NULL, NULL));
    OK(tarn_pool_block_seal(alloc_in(other, 0, MIB), "first", NULL, NULL));
    send_all(socket, &block, sizeof block);
    hear(socket, 'e');
}

static void each_card_keeps_pools(void **state)
{
    (void)state;
    for (unsigned char i = 0; i < CARDS; i++) {
        void *told[2];
        for (unsigned char late = 0; late < 2; late++) {
            struct side side = start_side("process", SOCK_STREAM);
            send_all(side.socket, (unsigned char[]){i, late}, 2);
            receive_all(side.socket, &told[late], sizeof told[late]);
            if (late)
                end_side(side, 0);
            else
                kill_side(side);
        }
        CHECK(told[0] == told[1] || thread_sanitizer);
    }
}

static void be_on_wsl2(int socket)
{
    CHECK(setenv("WSL_DISTRO_NAME", "Debian", 1) == 0);
    begin_on(&(struct card){"wsl2", 24 * 1024, 0});
    tarn_pool *pool = NULL;
    GIVES(tarn_pool_keep("weights", NULL, &pool, NULL), TARN_ERROR_NOT_SUPPORTED);
    CHECK(strstr(tarn_last_error(), "no virtual memory that other processes can open"));
    say(socket, 'w');
}

static void wsl2_has_none_and_says_so(void **state)
{
    (void)state;
    struct side side = start_side("on wsl2", SOCK_STREAM);
    hear(side.socket, 'w');
    end_side(side, 0);
}

/* The process before had more addresses than this one can have. */
static void be_small(int socket)
{
    begin_on(&(struct card){"orin", 64 * 1024, 0});
    tarn_pool *pool = NULL;
    tarn_keep_options options = {.size = sizeof options, .wait_ms = 10000};
    GIVES(tarn_pool_keep("weights", &options, &pool, NULL), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(tarn_last_error(), "addresses in one piece, as the process before had"));
    CHECK(reserved() == 0);
    say(socket, 'w');
}

static void too_few_addresses_for_a_pool_are_said(void **state)
{
    (void)state;
    void *told;
    for (unsigned char late = 0; late < 2; late++) {
        struct side side = start_side("process", SOCK_STREAM);
        send_all(side.socket, (unsigned char[]){CARDS - 1, late}, 2);
        receive_all(side.socket, &told, sizeof told);
        if (late) {
            end_side(side, 0);
            break;
        }
        kill_side(side);
        side = start_side("small", SOCK_STREAM);
        hear(side.socket, 'w');
        end_side(side, 0);
    }
}

static int start(void **state)
{
    (void)state;
    CHECK(setenv("TARN_DRIVER", "cuda", 1) == 0);
    keep_name_socket("cuda-keep");
    start_owner();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        int socket = atoi(argv[2]);
        if (strcmp(argv[1], "on wsl2") == 0)
            be_on_wsl2(socket);
        else if (strcmp(argv[1], "small") == 0)
            be_small(socket);
        else
            be_process(socket);
        return 0;
    }
    if (!keep_has_program())
        return 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_card_keeps_pools),
        cmocka_unit_test(wsl2_has_none_and_says_so),
        cmocka_unit_test(too_few_addresses_for_a_pool_are_said),
    };
    return cmocka_run_group_tests(tests, start, owner_ends);
}
