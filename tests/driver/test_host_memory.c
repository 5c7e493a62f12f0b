/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pieces, ranges, mappings, plain allocations: what the host device refuses, its ledger, and the
 * bytes themselves. */
#include "host_test.h"

#include "base/pages.h"
#include "driver/host/host.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define REFUSED(call, part) assert_refused((call), TARN_ERROR_INVALID_ARGUMENT, (part))

static void reserve_refuses(void **state)
{
    (void)state;
    uintptr_t address = 77;
    REFUSED(driver->reserve(0, 0, 0, &address), "multiple of 2 MiB");
    REFUSED(driver->reserve(0, MIB, 0, &address), "multiple of 2 MiB");
    REFUSED(driver->reserve(0, GRANULE, MIB, &address), "alignment");
    REFUSED(driver->reserve(0, GRANULE, 3 * GRANULE, &address), "alignment");
    assert_refused(driver->reserve(0, 4098 * MIB, 0, &address), TARN_ERROR_OUT_OF_MEMORY,
                   "4294967296");
    assert_status(driver->reserve(2, GRANULE, 0, &address), TARN_ERROR_INVALID_DEVICE);
    assert_int_equal(address, 77);
    assert_ok(driver->reserve(0, 2048 * MIB, 64 * MIB, &address));
    assert_int_equal(address % (64 * MIB), 0);
    assert_ok(driver->reserve(0, 2048 * MIB, 0, &address));
    assert_status(driver->reserve(0, GRANULE, 0, &address), TARN_ERROR_OUT_OF_MEMORY);
    assert_int_equal(ledger_of(0).reserved_addresses, 4096 * MIB);
}

static void unreserve_takes_exactly_a_range(void **state)
{
    (void)state;
    uintptr_t range = new_range(0, 8 * MIB);
    REFUSED(driver->unreserve(0, range, 4 * MIB), "as it was reserved");
    REFUSED(driver->unreserve(0, range, 16 * MIB), "as it was reserved");
    REFUSED(driver->unreserve(0, range + GRANULE, 6 * MIB), "as it was reserved");
    REFUSED(driver->unreserve(1, range, 8 * MIB), "as it was reserved");
    REFUSED(driver->unreserve(0, 4096, 8 * MIB), "as it was reserved");
    driver_piece piece = new_piece(0, GRANULE);
    assert_ok(driver->map(0, range, GRANULE, piece));
    REFUSED(driver->unreserve(0, range, 8 * MIB), "1 pieces are mapped");
    assert_ok(driver->unmap(0, range, GRANULE));
    assert_ok(driver->unreserve(0, range, 8 * MIB));
    REFUSED(driver->unreserve(0, range, 8 * MIB), "as it was reserved");
    assert_int_equal(ledger_of(0).reserved_addresses, 0);
}

static void create_refuses(void **state)
{
    (void)state;
    driver_piece piece = 77;
    REFUSED(driver->create(0, 0, 0, &piece), "multiple of 2 MiB");
    REFUSED(driver->create(0, MIB, 0, &piece), "multiple of 2 MiB");
    REFUSED(driver->create(0, GRANULE, 8, &piece), "flags");
    assert_int_equal(piece, 77);
}

static void a_full_device_says_its_numbers(void **state)
{
    (void)state;
    driver_piece piece = new_piece(0, 60 * MIB), other = 0;
    uintptr_t address = 0;
    assert_refused(driver->create(0, 6 * MIB, 0, &other), TARN_ERROR_OUT_OF_MEMORY,
                   "6291456 bytes on device 0");
    assert_refused(driver->create(0, 6 * MIB, 0, &other), TARN_ERROR_OUT_OF_MEMORY,
                   "62914560 of 67108864");
    assert_refused(driver->alloc(0, 6 * MIB, &address), TARN_ERROR_OUT_OF_MEMORY,
                   "62914560 of 67108864");
    assert_status(driver->alloc(0, SIZE_MAX, &address), TARN_ERROR_OUT_OF_MEMORY);
    size_t free_bytes = 0, total = 0;
    assert_ok(driver->memory_info(0, &free_bytes, &total));
    assert_int_equal(free_bytes, 4 * MIB);
    assert_int_equal(total, 64 * MIB);
    assert_ok(driver->create(1, 6 * MIB, 0, &other));
    assert_ok(driver->create(0, 4 * MIB, 0, &other));
    assert_ok(driver->release(0, piece));
    assert_ok(driver->create(0, 60 * MIB, 0, &other));
}

static void map_refuses(void **state)
{
    (void)state;
    uintptr_t range = new_range(0, 8 * MIB), elsewhere = new_range(1, 8 * MIB), plain = 0;
    driver_piece piece = new_piece(0, 4 * MIB), other = new_piece(1, 4 * MIB);
    assert_ok(driver->alloc(0, 8 * MIB, &plain));
    REFUSED(driver->map(0, range + 4096, 4 * MIB, piece), "multiple of 2 MiB");
    REFUSED(driver->map(0, range, MIB, piece), "multiple of 2 MiB");
    REFUSED(driver->map(0, range, 0, piece), "multiple of 2 MiB");
    REFUSED(driver->map(0, range, GRANULE, piece), "mapped whole");
    REFUSED(driver->map(0, range, 8 * MIB, piece), "mapped whole");
    REFUSED(driver->map(0, range + 6 * MIB, 4 * MIB, piece), "not inside a reserved range");
    REFUSED(driver->map(0, range - 4 * MIB, 4 * MIB, piece), "not inside a reserved range");
    REFUSED(driver->map(0, plain, 4 * MIB, piece), "not inside a reserved range");
    REFUSED(driver->map(0, elsewhere, 4 * MIB, piece), "not inside a reserved range of device 0");
    REFUSED(driver->map(0, range, 4 * MIB, other), "not a piece of device 0");
    REFUSED(driver->map(0, range, 4 * MIB, 0), "not a piece");
    REFUSED(driver->map(0, range, 4 * MIB, 12345), "not a piece");
    assert_ok(driver->map(0, range + GRANULE, 4 * MIB, piece));
    REFUSED(driver->map(0, range, 4 * MIB, piece), "already");
    REFUSED(driver->map(0, range + GRANULE, 4 * MIB, piece), "already");
    REFUSED(driver->map(0, range + 4 * MIB, 4 * MIB, piece), "already");
    assert_int_equal(ledger_of(0).mappings, 1);
}

static void unmap_and_access_take_whole_mappings(void **state)
{
    (void)state;
    uintptr_t range = new_range(0, 16 * MIB);
    driver_piece a = new_piece(0, 4 * MIB), b = new_piece(0, 4 * MIB);
    assert_ok(driver->map(0, range, 4 * MIB, a));
    assert_ok(driver->map(0, range + 8 * MIB, 4 * MIB, b));
    tarn_status (*const calls[])(int, uintptr_t, size_t) = {own_access, driver->unmap};
    for (size_t i = 0; i < 2; i++) {
        REFUSED(calls[i](0, range + 4096, 4 * MIB), "multiple of 2 MiB");
        REFUSED(calls[i](0, range, 0), "multiple of 2 MiB");
        REFUSED(calls[i](0, range, GRANULE), "cuts the mapping");
        REFUSED(calls[i](0, range + GRANULE, GRANULE), "cuts the mapping");
        REFUSED(calls[i](0, range, 10 * MIB), "nothing is mapped");
        REFUSED(calls[i](0, range, 12 * MIB), "nothing is mapped");
        REFUSED(calls[i](0, range + 4 * MIB, 8 * MIB), "nothing is mapped");
        REFUSED(calls[i](0, range + 12 * MIB, 8 * MIB), "not inside a reserved range");
        REFUSED(calls[i](1, range, 4 * MIB), "not inside a reserved range of device 1");
    }
    assert_int_equal(ledger_of(0).mappings, 2);
    driver_piece between = new_piece(0, 4 * MIB);
    assert_ok(driver->map(0, range + 4 * MIB, 4 * MIB, between));
    assert_ok(own_access(0, range, 12 * MIB));
    REFUSED(driver->unmap(0, range + GRANULE, 10 * MIB), "cuts the mapping");
    assert_ok(driver->unmap(0, range, 12 * MIB));
    REFUSED(driver->unmap(0, range, 4 * MIB), "nothing is mapped");
    assert_int_equal(ledger_of(0).mappings, 0);
}

static void release_refuses_anything_but_a_piece(void **state)
{
    (void)state;
    driver_piece piece = new_piece(0, GRANULE);
    REFUSED(driver->release(1, piece), "not a piece of device 1");
    REFUSED(driver->release(0, 0), "not a piece");
    REFUSED(driver->release(0, piece + 1), "not a piece");
    assert_ok(driver->release(0, piece));
    REFUSED(driver->release(0, piece), "not a piece");
    driver_piece next = new_piece(0, GRANULE);
    assert_int_not_equal(next, piece);
    REFUSED(driver->release(0, piece), "not a piece");
    uintptr_t range = new_range(0, GRANULE);
    assert_ok(driver->map(0, range, GRANULE, next));
    assert_ok(driver->release(0, next));
    REFUSED(driver->release(0, next), "released before");
    REFUSED(driver->map(0, range, GRANULE, next), "not a piece");
}

static void free_takes_the_start_of_a_plain_allocation(void **state)
{
    (void)state;
    uintptr_t plain = 77, range = new_range(0, GRANULE);
    REFUSED(driver->alloc(0, 0, &plain), "0 bytes");
    assert_int_equal(plain, 77);
    assert_ok(driver->alloc(0, 3 * MIB, &plain));
    assert_int_equal(plain % GRANULE, 0);
    REFUSED(driver->free(0, plain + GRANULE), "not a plain allocation");
    REFUSED(driver->free(1, plain), "not a plain allocation");
    REFUSED(driver->free(0, range), "not a plain allocation");
    REFUSED(driver->free(0, 0), "not a plain allocation");
    assert_ok(driver->free(0, plain));
    REFUSED(driver->free(0, plain), "not a plain allocation");
}

static void the_ledger_adds_up(void **state)
{
    (void)state;
    uintptr_t range = new_range(0, 16 * MIB), plain;
    driver_piece a = new_piece(0, 4 * MIB), b = new_piece(0, GRANULE);
    assert_ok(driver->alloc(0, 3 * MIB, &plain)); /* takes whole granules */
    assert_ok(driver->map(0, range, 4 * MIB, a));
    assert_ok(driver->map(0, range + 4 * MIB, GRANULE, b));
    /* An alias is mapped twice, created once */
    assert_ok(driver->map(0, range + 8 * MIB, 4 * MIB, a));
    tarn_host_ledger ledger = ledger_of(0);
    assert_int_equal(ledger.created, 10 * MIB);
    assert_int_equal(ledger.mapped, 10 * MIB);
    assert_int_equal(ledger.pieces, 2);
    assert_int_equal(ledger.mappings, 3);
    assert_int_equal(ledger.plain, 1);
    assert_int_equal(ledger.reserved_addresses, 16 * MIB);
    assert_int_equal(ledger.calls[DRIVER_CALL_map], 3);
    assert_int_equal(ledger.calls[DRIVER_CALL_create], 2);
    assert_int_equal(ledger.calls[DRIVER_CALL_unmap], 0);

    assert_ok(driver->free(0, plain));
    assert_ok(driver->release(0, a)); /* mapped still: nothing goes back yet */
    assert_int_equal(ledger_of(0).created, 6 * MIB);
    assert_ok(driver->unmap(0, range, 6 * MIB));
    assert_int_equal(ledger_of(0).created, 6 * MIB);
    assert_int_equal(ledger_of(0).pieces, 2);
    assert_ok(driver->unmap(0, range + 8 * MIB, 4 * MIB));
    assert_int_equal(ledger_of(0).created, GRANULE);
    assert_ok(driver->release(0, b));
    assert_ok(driver->unreserve(0, range, 16 * MIB));
    ledger = ledger_of(0);
    assert_int_equal(ledger.created, 0);
    assert_int_equal(ledger.mapped, 0);
    assert_int_equal(ledger.pieces + ledger.mappings + ledger.plain + ledger.reserved_addresses, 0);
    assert_int_equal(ledger.created_peak, 10 * MIB);
    assert_int_equal(ledger.mapped_peak, 10 * MIB);
    assert_ok(tarn_host_ledger_reset(0));
    ledger = ledger_of(0);
    assert_int_equal(ledger.created_peak + ledger.mapped_peak + ledger.calls[DRIVER_CALL_map] +
                         ledger.time_a_ns,
                     0);
    assert_int_equal(ledger_of(1).calls[DRIVER_CALL_map], 0);
}

static void contents_follow_the_piece(void **state)
{
    (void)state;
    uintptr_t range = new_range(0, 16 * MIB);
    driver_piece a = new_piece(0, 4 * MIB), b = 0;
    assert_ok(driver->create(0, 4 * MIB, DRIVER_PIECE_EXPORTABLE, &b));
    driver_piece pieces[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        map_at(0, range, 4 * MIB, pieces[i]);
        for (size_t at = 0; at < 4 * MIB; at += 4096)
            ((unsigned char *)range)[at] = (unsigned char)(at / 4096 + (size_t)i);
        assert_ok(driver->unmap(0, range, 4 * MIB));
        map_at(0, range + 4 * MIB, 4 * MIB, pieces[i]);
        map_at(0, range + 10 * MIB, 4 * MIB, pieces[i]);
        unsigned char *moved = (unsigned char *)(range + 4 * MIB),
                      *alias = (unsigned char *)(range + 10 * MIB);
        for (size_t at = 0; at < 4 * MIB; at += 4096)
            assert_int_equal(moved[at], (unsigned char)(at / 4096 + (size_t)i));
        moved[5000] = 201;
        assert_int_equal(alias[5000], 201);
        alias[5001] = 202;
        assert_int_equal(moved[5001], 202);
        assert_ok(driver->unmap(0, range + 4 * MIB, 4 * MIB));
        assert_int_equal(alias[5001], 202);
        assert_ok(driver->unmap(0, range + 10 * MIB, 4 * MIB));
    }
}

static uint64_t blocks_of_device(int device)
{
    struct stat file;
    assert_int_equal(fstat(host.device[device].file, &file), 0);
    return (uint64_t)file.st_blocks * 512;
}

static void memory_is_the_machines_only_between_touch_and_release(void **state)
{
    (void)state;
    if (THREAD_SANITIZER)
        return; /* the kernel and limits are measured, which a sanitizer distorts; the release build
                   does it */
    start_with(1, (size_t)300 << 30, 0);
    uintptr_t range = new_range(0, (size_t)1200 << 30);
    driver_piece big = new_piece(0, (size_t)200 << 30), small = new_piece(0, GRANULE);
    map_at(0, range, (size_t)200 << 30, big);
    map_at(0, range + ((size_t)200 << 30), GRANULE, small);
    assert_int_equal(blocks_of_device(0), 0);
    memset((void *)(range + ((size_t)100 << 30)), 1, MIB);
    memset((void *)(range + ((size_t)200 << 30)), 2, MIB);
    assert_in_range(blocks_of_device(0), 2 * MIB, 4 * MIB);
    assert_ok(driver->unmap(0, range, (size_t)200 << 30));
    assert_ok(driver->release(0, big));
    assert_in_range(blocks_of_device(0), MIB, GRANULE);
    assert_int_equal(*(unsigned char *)(range + ((size_t)200 << 30)), 2);
    assert_ok(driver->unmap(0, range + ((size_t)200 << 30), GRANULE));
    assert_ok(driver->release(0, small));
    assert_int_equal(blocks_of_device(0), 0);
    driver_piece next = new_piece(0, GRANULE);
    map_at(0, range, GRANULE, next);
    assert_int_equal(*(unsigned char *)range, 0);
}

static void extents_name_piece_offset_and_access(void **state)
{
    (void)state;
    uintptr_t range = new_range(0, 16 * MIB), plain;
    driver_piece a = new_piece(0, 4 * MIB), b = new_piece(0, GRANULE);
    assert_ok(driver->map(0, range, 4 * MIB, a));
    assert_ok(driver->map(0, range + 4 * MIB, GRANULE, b));
    assert_ok(own_access(0, range, 4 * MIB));
    assert_ok(driver->alloc(0, GRANULE, &plain));
    tarn_host_extent extent = {0};
    assert_ok(tarn_host_extent_get(0, (void *)(range + 3 * MIB), 8 * MIB, &extent));
    assert_int_equal(extent.piece, a);
    assert_int_equal(extent.offset, 3 * MIB);
    assert_int_equal(extent.length, MIB);
    assert_true(extent.accessible);
    assert_ok(tarn_host_extent_get(0, (void *)(range + 4 * MIB + 512), 512, &extent));
    assert_int_equal(extent.piece, b);
    assert_int_equal(extent.offset, 512);
    assert_int_equal(extent.length, 512);
    assert_false(extent.accessible);
    assert_ok(tarn_host_extent_get(0, (void *)(plain + 4096), SIZE_MAX, &extent));
    assert_int_not_equal(extent.piece, a);
    assert_int_not_equal(extent.piece, b);
    assert_int_not_equal(extent.piece, 0);
    assert_int_equal(extent.offset, 4096);
    assert_int_equal(extent.length, GRANULE - 4096);
    assert_status(tarn_host_extent_get(0, (void *)(range + 6 * MIB), 1, &extent),
                  TARN_ERROR_INVALID_POINTER);
    assert_status(tarn_host_extent_get(1, (void *)range, 1, &extent), TARN_ERROR_INVALID_POINTER);
    assert_status(tarn_host_extent_get(0, (void *)4096, 1, &extent), TARN_ERROR_INVALID_POINTER);
    assert_status(tarn_host_extent_get(0, (void *)range, 0, &extent), TARN_ERROR_INVALID_ARGUMENT);
    uint64_t first = 0;
    assert_ok(tarn_host_extent_get(0, (void *)plain, 1, &extent));
    first = extent.piece;
    assert_ok(driver->free(0, plain));
    assert_status(tarn_host_extent_get(0, (void *)plain, 1, &extent), TARN_ERROR_INVALID_POINTER);
    assert_ok(driver->alloc(0, GRANULE, &plain));
    assert_ok(tarn_host_extent_get(0, (void *)plain, 1, &extent));
    assert_int_not_equal(extent.piece, first);
}

/* Maps every second granule until the budget stops it; gives how many were mapped. */
static size_t fill_budget(uintptr_t range, size_t granules, driver_piece piece)
{
    size_t count = 0;
    for (size_t i = 1; i < granules; i += 2, count++) {
        tarn_status status = driver->map(0, range + i * GRANULE, GRANULE, piece);
        if (status) {
            assert_int_equal(status, TARN_ERROR_MAPPING_LIMIT);
            return count;
        }
    }
    fail_msg("the budget stopped nothing");
    return count;
}

static void the_budget_of_mappings_stops_maps_and_never_unmaps(void **state)
{
    (void)state;
    start_with(1, 64 * MIB, 21);
    uintptr_t range = new_range(0, 128 * MIB), other = 0;
    driver_piece piece = new_piece(0, GRANULE);
    /* The range is one, each island two more */
    assert_int_equal(fill_budget(range, 64, piece), 10);
    assert_non_null(strstr(tarn_last_error(), "tarn_host_configuration_set()"));
    assert_non_null(strstr(tarn_last_error(), "limit is 21"));
    assert_non_null(strstr(tarn_last_error(), "vm.max_map_count"));
    assert_status(driver->reserve(0, GRANULE, 0, &other), TARN_ERROR_MAPPING_LIMIT);
    assert_status(driver->alloc(0, GRANULE, &other), TARN_ERROR_MAPPING_LIMIT);
    /* Closes a hole: one for another */
    assert_ok(driver->map(0, range + 2 * GRANULE, GRANULE, piece));
    assert_ok(driver->unmap(0, range + GRANULE, 3 * GRANULE));
    for (size_t i = 5; i <= 19; i += 2)
        assert_ok(driver->unmap(0, range + i * GRANULE, GRANULE));
    assert_int_equal(fill_budget(range, 64, piece), 10);
    for (size_t i = 1; i <= 19; i += 2)
        assert_ok(driver->unmap(0, range + i * GRANULE, GRANULE));
    assert_ok(driver->unreserve(0, range, 128 * MIB));
    uintptr_t plain[21];
    for (int i = 0; i < 21; i++)
        assert_ok(driver->alloc(0, GRANULE, &plain[i]));
    assert_status(driver->alloc(0, GRANULE, &other), TARN_ERROR_MAPPING_LIMIT);
    for (int i = 0; i < 21; i++)
        assert_ok(driver->free(0, plain[i]));
}

/* How many of the kernel's mappings a range has. What the test, a library or a sanitizer maps
 * elsewhere meanwhile is not ours. */
static size_t kernel_mappings(uintptr_t range, size_t size)
{
    size_t count = 0;
    uintptr_t start, end;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fscanf(maps, "%" SCNxPTR "-%" SCNxPTR "%*[^\n]", &start, &end) == 2)
        count += start < range + size && end > range;
    fclose(maps);
    return count;
}

/* Random maps and unmaps: what is counted is never less than what the kernel has. Found out from
 * outside by asking how many plain allocations still fit. */
static void the_budget_is_an_upper_bound_of_the_kernels_count(void **state)
{
    (void)state;
    if (THREAD_SANITIZER)
        return; /* the kernel and limits are measured, which a sanitizer distorts; the release build
                   does it */
    enum { GRANULES = 64 };
    start_with(1, 256 * MIB, GRANULES + 40);
    uintptr_t range = new_range(0, GRANULES * GRANULE);
    driver_piece pieces[GRANULES];
    for (int i = 0; i < GRANULES; i++)
        pieces[i] = new_piece(0, GRANULE);
    bool mapped[GRANULES] = {false};
    uint32_t random = 1;
    for (int round = 0; round < 4000; round++) {
        random = random * 1664525u + 1013904223u;
        size_t i = random >> 26;
        if (mapped[i])
            assert_ok(driver->unmap(0, range + i * GRANULE, GRANULE));
        else
            map_at(0, range + i * GRANULE, GRANULE, pieces[i]);
        mapped[i] = !mapped[i];
        if (round % 200)
            continue;
        size_t islands = 1; /* by hand: each mapping, each hole */
        for (size_t k = 0; k < GRANULES; k++)
            islands += mapped[k] || (k > 0 && mapped[k - 1]);
        islands -= mapped[0];
        size_t kernels = kernel_mappings(range, GRANULES * GRANULE);
        assert_true(kernels > 0 && kernels <= islands);
        uintptr_t plain[GRANULES + 40];
        size_t fit = 0;
        while (fit < GRANULES && driver->alloc(0, GRANULE, &plain[fit]) == TARN_OK)
            fit++;
        if (fit < GRANULES)
            assert_int_equal(fit, GRANULES + 40 - islands);
        while (fit > 0)
            assert_ok(driver->free(0, plain[--fit]));
    }
}

/* Beyond the budget the kernel's own limit stands: the same status, and unmapping works there too.
 * A mapping takes two of the kernel's, so whether the last one reaches the limit or exceeds it by
 * one depends on whether there were `more` before. */
static void reach_the_kernels_limit(size_t more)
{
    const size_t granules = 400000;
    void *other = more ? mmap(NULL, 4096, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) : NULL;
    start_with(1, granules * GRANULE, 10 * granules);
    uintptr_t range = new_range(0, granules * GRANULE);
    driver_piece piece = new_piece(0, GRANULE);
    size_t mapped = 0;
    tarn_status status = TARN_OK;
    while (2 * mapped + 1 < granules &&
           !(status = driver->map(0, range + (2 * mapped + 1) * GRANULE, GRANULE, piece)))
        mapped++;
    if (status == TARN_OK)
        skip(); /* a machine without such a limit */
    assert_status(status, TARN_ERROR_MAPPING_LIMIT);
    assert_non_null(strstr(tarn_last_error(), "vm.max_map_count"));
    assert_non_null(strstr(tarn_last_error(), "ENOMEM"));
    assert_int_equal(ledger_of(0).mappings, mapped);
    for (size_t i = 0; i < mapped; i++)
        assert_ok(driver->unmap(0, range + (2 * i + 1) * GRANULE, GRANULE));
    assert_ok(driver->map(0, range + GRANULE, GRANULE, piece));
    if (other)
        munmap(other, 4096);
}

static void the_kernels_limit_is_the_same_status(void **state)
{
    (void)state;
    if (SANITIZER)
        return; /* the kernel and limits are measured, which a sanitizer distorts; the release build
                   does it */
    reach_the_kernels_limit(0);
    reach_the_kernels_limit(1);
}

static void what_the_system_refuses_has_no_effect(void **state)
{
    (void)state;
    if (SANITIZER)
        return; /* the kernel and limits are measured, which a sanitizer distorts; the release build
                   does it */
    struct rlimit before, less = {0};
    uintptr_t address = 0;
    driver_piece piece = 0;
    new_piece(0, GRANULE);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    less = (struct rlimit){.rlim_cur = MIB, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
    tarn_status reserved = driver->reserve(0, GRANULE, 0, &address);
    tarn_status allocated = driver->alloc(0, GRANULE, &address);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(allocated, TARN_ERROR_MAPPING_LIMIT);
    assert_non_null(strstr(tarn_last_error(), "ulimit -v"));
    assert_true(reserved == TARN_ERROR_MAPPING_LIMIT || reserved == TARN_ERROR_OUT_OF_HOST_MEMORY);

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    less = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &less), 0);
    tarn_status exportable = driver->create(0, GRANULE, DRIVER_PIECE_EXPORTABLE, &piece);
    tarn_status first = driver->create(1, GRANULE, 0, &piece);
    tarn_status ordinary = driver->create(0, GRANULE, 0, &piece);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(exportable, TARN_ERROR_DRIVER);
    assert_int_equal(first, TARN_ERROR_DRIVER);
    assert_non_null(strstr(tarn_last_error(), "memfd_create"));
    assert_ok(ordinary); /* needs no file of its own */
    assert_int_equal(ledger_of(0).created, 2 * GRANULE);
    assert_int_equal(ledger_of(1).created, 0);
    assert_int_equal(ledger_of(0).reserved_addresses, 0);
    assert_ok(driver->create(1, GRANULE, 0, &piece));
    assert_ok(driver->create(0, GRANULE, DRIVER_PIECE_EXPORTABLE, &piece));
}

/* Where files may not grow, memory is not available, and the program goes on. */
static void a_limit_of_files_is_a_status(void **state)
{
    (void)state;
    struct rlimit before, less = {0};
    driver_piece piece = 0;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    less = (struct rlimit){.rlim_cur = MIB, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    tarn_status ordinary = driver->create(0, GRANULE, 0, &piece);
    tarn_status exportable = driver->create(0, GRANULE, DRIVER_PIECE_EXPORTABLE, &piece);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(ordinary, TARN_ERROR_DRIVER);
    assert_int_equal(exportable, TARN_ERROR_DRIVER);
    assert_non_null(strstr(tarn_last_error(), "File too large"));
    assert_int_equal(ledger_of(0).created, 0);
    assert_ok(driver->create(0, GRANULE, 0, &piece));
    assert_ok(driver->create(0, GRANULE, DRIVER_PIECE_EXPORTABLE, &piece));
}

static void the_first_piece_needs_host_memory(void **state)
{
    (void)state;
    driver_piece piece = 0;
    uintptr_t plain = 0;
    pages_fail(1, true);
    tarn_status created = driver->create(0, GRANULE, 0, &piece);
    tarn_status allocated = driver->alloc(0, GRANULE, &plain);
    pages_fail(0, false);
    assert_int_equal(created, TARN_ERROR_OUT_OF_HOST_MEMORY);
    assert_int_equal(allocated, TARN_ERROR_OUT_OF_HOST_MEMORY);
    assert_int_equal(ledger_of(0).created, 0);
    assert_ok(driver->create(0, GRANULE, 0, &piece));
    assert_ok(driver->alloc(0, GRANULE, &plain));
}

static void a_fork_child_does_not_see_device_memory(void **state)
{
    (void)state;
    if (THREAD_SANITIZER)
        return; /* the kernel and limits are measured, which a sanitizer distorts; the release build
                   does it */
    uintptr_t range = new_range(0, GRANULE), plain;
    map_at(0, range, GRANULE, new_piece(0, GRANULE));
    assert_ok(driver->alloc(0, GRANULE, &plain));
    const uintptr_t addresses[2] = {range, plain};
    for (int i = 0; i < 2; i++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) /* write() gives EFAULT where the address is not mapped */
            _exit(write(ends[1], (void *)addresses[i], 1) == 1);
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        close(ends[0]);
        close(ends[1]);
    }
}

static size_t open_files(void)
{
    size_t count = 0;
    for (int i = 0; i < 256; i++)
        count += fcntl(i, F_GETFD) >= 0;
    return count;
}

static void finish_gives_everything_back(void **state)
{
    (void)state;
    if (THREAD_SANITIZER)
        return; /* the kernel and limits are measured, which a sanitizer distorts; the release build
                   does it */
    driver_finish();
    size_t files = open_files(), mappings = kernel_mappings(0, SIZE_MAX);
    for (int round = 0; round < 50; round++) {
        start_with(2, 64 * MIB, 0);
        uintptr_t range = new_range(1, 64 * MIB), plain;
        driver_piece piece = new_piece(1, GRANULE), exportable;
        assert_ok(driver->create(1, GRANULE, DRIVER_PIECE_EXPORTABLE, &exportable));
        map_at(1, range + 4 * MIB, GRANULE, piece);
        map_at(1, range + 8 * MIB, GRANULE, exportable);
        assert_ok(driver->release(1, exportable));
        assert_ok(driver->alloc(0, GRANULE, &plain));
        assert_ok(driver->set(0, plain, 1, GRANULE, NULL));
        recorded(0, new_stream(0, true));
        driver_finish();
    }
    assert_int_equal(open_files(), files);
    /* Chunks of objects, and stacks that libc keeps */
    assert_in_range(kernel_mappings(0, SIZE_MAX), 0, mappings + 40);
}

static void pieces_by_the_thousand(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    start_with(1, COUNT * GRANULE, 0);
    static driver_piece pieces[COUNT];
    uintptr_t range = new_range(0, COUNT * GRANULE);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            pieces[i] = new_piece(0, GRANULE);
            assert_ok(driver->map(0, range + i * GRANULE, GRANULE, pieces[i]));
        }
        assert_ok(own_access(0, range, COUNT * GRANULE));
        for (size_t i = 0; i < COUNT; i++) {
            tarn_host_extent extent;
            assert_ok(tarn_host_extent_get(0, (void *)(range + i * GRANULE), 1, &extent));
            assert_int_equal(extent.piece, pieces[i]);
        }
        assert_ok(driver->unmap(0, range, COUNT * GRANULE));
        for (size_t i = 0; i < COUNT; i++)
            assert_ok(driver->release(0, pieces[i]));
    }
    assert_int_equal(ledger_of(0).created, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reserve_refuses),
        TEST(unreserve_takes_exactly_a_range),
        TEST(create_refuses),
        TEST(a_full_device_says_its_numbers),
        TEST(map_refuses),
        TEST(unmap_and_access_take_whole_mappings),
        TEST(release_refuses_anything_but_a_piece),
        TEST(free_takes_the_start_of_a_plain_allocation),
        TEST(the_ledger_adds_up),
        TEST(contents_follow_the_piece),
        TEST(memory_is_the_machines_only_between_touch_and_release),
        TEST(extents_name_piece_offset_and_access),
        TEST(the_budget_of_mappings_stops_maps_and_never_unmaps),
        TEST(the_budget_is_an_upper_bound_of_the_kernels_count),
        TEST(the_kernels_limit_is_the_same_status),
        TEST(what_the_system_refuses_has_no_effect),
        TEST(a_limit_of_files_is_a_status),
        TEST(the_first_piece_needs_host_memory),
        TEST(a_fork_child_does_not_see_device_memory),
        TEST(finish_gives_everything_back),
        TEST(pieces_by_the_thousand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
