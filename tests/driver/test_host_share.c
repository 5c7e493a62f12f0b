/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pieces between processes on the host device: what is imported is not the device's memory, and no
 * descriptor is trusted that is not a whole piece of a size that cannot change. */
#include "share_test.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

static void what_is_imported_is_not_in_the_books(void **state)
{
    (void)state;
    driver_piece made = 0, imported = 0;
    int file = -1;
    assert_ok(driver->create(0, 32 * MIB, DRIVER_PIECE_EXPORTABLE, &made));
    assert_ok(driver->export(0, made, &file));
    tarn_host_ledger before = ledger_of(1);
    assert_ok(driver->import(1, file, 32 * MIB, &imported)); /* on another device, too */
    uintptr_t range = new_range(1, 32 * MIB);
    map_at(1, range, 32 * MIB, imported);
    tarn_host_ledger ledger = ledger_of(1);
    assert_int_equal(ledger.created, before.created);
    assert_int_equal(ledger.pieces, before.pieces);
    assert_int_equal(ledger.mapped, 32 * MIB);
    assert_ok(driver->release(1, imported));
    assert_refused(driver->export(1, imported, &(int){0}), TARN_ERROR_INVALID_ARGUMENT,
                   "is not a piece");
    assert_ok(driver->unmap(1, range, 32 * MIB));
    assert_ok(driver->unreserve(1, range, 32 * MIB));
    assert_int_equal(ledger_of(1).created, before.created);
    assert_int_equal(ledger_of(1).mapped, 0);
    assert_refused(driver->release(1, imported), TARN_ERROR_INVALID_ARGUMENT, "is not a piece");

    assert_ok(driver->import(0, file, 32 * MIB, &imported)); /* and not exported again */
    assert_refused(driver->export(0, imported, &(int){0}), TARN_ERROR_INVALID_ARGUMENT,
                   "was imported");
    assert_ok(driver->release(0, imported));
    assert_ok(driver->release(0, made));
    assert_ok(driver->import(0, file, 32 * MIB, &imported)); /* the descriptor keeps the memory */
    assert_ok(driver->release(0, imported));
    close(file);
    assert_int_equal(ledger_of(0).created, 0);
}

static void refuse(int file, size_t size, const char *part)
{
    driver_piece none = 0;
    assert_refused(driver->import(0, file, size, &none), TARN_ERROR_INVALID_ARGUMENT, part);
    assert_int_equal(none, 0);
    close(file);
}

static void a_descriptor_that_is_not_a_piece_is_refused(void **state)
{
    (void)state;
    driver_piece made = 0;
    int file = -1;
    assert_ok(driver->create(0, 2 * GRANULE, DRIVER_PIECE_EXPORTABLE, &made));
    assert_ok(driver->export(0, made, &file));
    refuse(dup(file), GRANULE, "has 4194304 bytes, and 2097152 were announced");
    refuse(dup(file), 3 * GRANULE, "has 4194304 bytes");
    refuse(dup(file), 2 * GRANULE - 1, "not a multiple of 2 MiB");
    refuse(dup(file), 0, "not a multiple of 2 MiB");
    assert_int_equal(ftruncate(file, (off_t)GRANULE), -1); /* the size of a piece stays */
    assert_int_equal(ftruncate(file, (off_t)GRANULE * 4), -1);

    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    refuse(open(path, O_RDONLY | O_CLOEXEC), 2 * GRANULE, "is not of an exported piece");
    close(file);
    assert_ok(driver->release(0, made));

    /* Could shrink under a mapping */
    int growing = memfd_create("growing", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(growing, (off_t)GRANULE), 0);
    refuse(growing, GRANULE, "it is not a memfd of a sealed size");
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[1]);
    refuse(ends[0], GRANULE, "is not of an exported piece");
    refuse(1000000, GRANULE, "is not an open file descriptor");
}

static void no_more_descriptors_is_a_failure_like_any_other(void **state)
{
    (void)state;
    driver_piece made = 0, imported = 0;
    int file = -1, more = -1, used[256], count = 0;
    struct rlimit before, low;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = (struct rlimit){.rlim_cur = 128, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_ok(driver->create(0, GRANULE, DRIVER_PIECE_EXPORTABLE, &made));
    assert_ok(driver->export(0, made, &file));
    while (count < 256 && (used[count] = dup(file)) >= 0)
        count++;
    assert_refused(driver->export(0, made, &more), TARN_ERROR_DRIVER, "Too many open files");
    assert_refused(driver->import(0, file, GRANULE, &imported), TARN_ERROR_DRIVER,
                   "Too many open files");
    assert_true(more == -1 && imported == 0);
    while (count > 0)
        close(used[--count]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_ok(driver->import(0, file, GRANULE, &imported));
    assert_ok(driver->release(0, imported));
    assert_ok(driver->release(0, made));
    close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pieces_go_through_descriptors),
        TEST(what_is_imported_is_not_in_the_books),
        TEST(a_descriptor_that_is_not_a_piece_is_refused),
        TEST(no_more_descriptors_is_a_failure_like_any_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
