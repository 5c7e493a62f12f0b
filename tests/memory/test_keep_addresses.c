/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Whether each of many successors has its predecessor's addresses. Each is a process of its own,
 * with two kept pools, whose addresses Linux chooses anew. Now and then another one has these
 * addresses first: then the call says so, the blocks are found by name, and the next successor has
 * them where they are now.
 *
 * TARN_TEST_SUCCESSORS is their number: 40, and 1,000 with TARN_NIGHTLY. TARN_TEST_BEFORE names
 * shared libraries, with colons between them, that each process opens before it uses tarn. */
#include "keep_test.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

#define DEVICE_BYTES (512 * MIB)

enum { POOLS = 2, BLOCK = 5 * 1024 * 1024, SMALL = 4096 };
static const char *const pool_names[POOLS] = {"weights", "cache"};

/* A block has its own address at its start, and that of another one. */
struct linked {
    struct linked *self, *next;
};

/* What a successor found. */
struct finding {
    struct linked *first[POOLS];
    bool moved[POOLS];
    double seconds; /* of both adoptions */
};

static void link_blocks(struct linked *first, struct linked *second)
{
    *first = (struct linked){first, second};
    *second = (struct linked){second, first};
}

static void make_pools(void)
{
    for (int i = 0; i < POOLS; i++) {
        tarn_kept kept;
        tarn_pool *pool = keep(pool_names[i], &kept);
        char *first = alloc_in(pool, 0, BLOCK), *second = alloc_in(pool, 0, SMALL);
        CHECK(!kept.adopted);
        fill(first + SMALL, BLOCK - SMALL, i);
        link_blocks((struct linked *)first, (struct linked *)second);
        OK(tarn_pool_block_seal(first, "first", NULL, NULL));
        OK(tarn_pool_block_seal(second, "second", NULL, NULL));
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void open_libraries(void)
{
    const char *before = getenv("TARN_TEST_BEFORE");
    char names[4096], *rest = names;
    snprintf(names, sizeof names, "%s", before ? before : "");
    for (char *name; (name = strtok_r(rest, ":", &rest));)
        if (!dlopen(name, RTLD_NOW | RTLD_GLOBAL)) {
            fprintf(stderr, "%s\n", dlerror());
            _exit(1);
        }
}

/* Another one has an address of the pool already. */
static void take_page(const void *address)
{
    size_t page = 2 * MIB;
    void *start = (void *)((uintptr_t)address & ~(uintptr_t)(page - 1));
    CHECK(mmap(start, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == start);
}

/* One successor: `taken` are pointers whose addresses another one has. */
static void succeed(int socket)
{
    struct finding finding;
    tarn_kept kept[POOLS];
    tarn_pool *pools[POOLS];
    void *taken[POOLS];
    receive_all(socket, taken, sizeof taken);
    open_libraries();
    for (int i = 0; i < POOLS; i++)
        if (taken[i])
            take_page(taken[i]);
    OK(tarn_free(alloc_on(0, MIB))); /* what a device opens is open */
    double start = now();
    for (int i = 0; i < POOLS; i++)
        pools[i] = keep(pool_names[i], &kept[i]);
    finding.seconds = now() - start;
    for (int i = 0; i < POOLS; i++) {
        struct linked *first = found(pools[i], "first").pointer,
                      *second = found(pools[i], "second").pointer;
        CHECK(kept[i].blocks == 2 && kept[i].adopted);
        CHECK(holds((char *)first + SMALL, BLOCK - SMALL, i));
        CHECK(kept[i].moved == (first->self != first) && kept[i].moved == (second->self != second));
        CHECK(kept[i].moved || (first->next == second && second->next == first));
        link_blocks(first, second);
        finding.first[i] = first;
        finding.moved[i] = kept[i].moved;
    }
    send_all(socket, &finding, sizeof finding);
}

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int count_of_successors(void)
{
    const char *count = getenv("TARN_TEST_SUCCESSORS");
    return count ? atoi(count) : getenv("TARN_NIGHTLY") ? 1000 : 40;
}

static void each_successor_has_the_addresses(void **state)
{
    (void)state;
    int count = count_of_successors(), had = 0, wished = 0, elsewhere = 0;
    double *seconds = calloc((size_t)count, sizeof *seconds);
    struct linked *last[POOLS] = {NULL};
    CHECK(count > 0 && seconds);
    in_child(make_pools);
    for (int i = 0; i < count; i++) {
        struct finding finding;
        struct side side = start_side("succeed", SOCK_STREAM);
        void *taken[POOLS] = {i % 10 == 4 || i % 10 == 7 ? last[0] : NULL,
                              i % 10 == 6 || i % 10 == 7 ? last[1] : NULL};
        send_all(side.socket, taken, sizeof taken);
        receive_all(side.socket, &finding, sizeof finding);
        kill_side(side);
        seconds[i] = finding.seconds;
        for (int k = 0; k < POOLS; k++) {
            CHECK(!taken[k] || finding.moved[k]);
            CHECK(!last[k] || finding.moved[k] == (finding.first[k] != last[k]));
            wished += !taken[k];
            had += !taken[k] && !finding.moved[k];
            /* Where neither programs nor libraries lie */
            elsewhere += (uintptr_t)finding.first[k] >> 44 > 4;
            last[k] = finding.first[k];
        }
    }
    qsort(seconds, (size_t)count, sizeof *seconds, by_size);
    printf("%d successors with two pools: %d of %d had the addresses that nobody else had, %d were "
           "moved; both adoptions %.2f ms, at most %.2f ms\n",
           count, had, wished, POOLS * count - had, 1e3 * seconds[count / 2],
           1e3 * seconds[count - 1]);
    CHECK(had == wished && !elsewhere);
    for (int k = 0; k < POOLS; k++) {
        tarn_kept kept;
        tarn_pool *pool = keep(pool_names[k], &kept);
        OK(tarn_free(found(pool, "first").pointer));
        OK(tarn_free(found(pool, "second").pointer));
        OK(tarn_pool_release(pool));
    }
    free(seconds);
    nothing_is_left(0);
}

static int start(void **state)
{
    (void)state;
    host_start_with(1, DEVICE_BYTES);
    keep_name_socket("keep-addresses");
    start_owner();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        int socket = atoi(argv[2]);
        host_start_with(1, DEVICE_BYTES);
        succeed(socket);
        hear(socket, 'e'); /* it is killed meanwhile */
        return 0;
    }
    if (!keep_has_program())
        return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_successor_has_the_addresses)};
    return cmocka_run_group_tests(tests, start, owner_ends);
}
