/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What every driver must do with pieces that go between processes; here both ends are one
 * process. */
#ifndef TARN_TESTS_DRIVER_SHARE_TEST_H
#define TARN_TESTS_DRIVER_SHARE_TEST_H

#include "host_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

static inline int open_files(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static inline void pieces_go_through_descriptors(void **state)
{
    (void)state;
    struct driver_properties properties;
    assert_ok(driver->device_properties(0, &properties));
    assert_true(properties.exportable);
    uintptr_t range = new_range(0, 8 * GRANULE);
    driver_piece made = 0, imported = 0, again = 0, plain = new_piece(0, GRANULE);
    int file = -1, other = -1;
    assert_ok(driver->create(0, 2 * GRANULE, DRIVER_PIECE_EXPORTABLE, &made));
    int before = open_files();
    assert_ok(driver->export(0, made, &file));
    assert_ok(driver->export(0, made, &other));
    assert_true(file >= 0 && other >= 0 && file != other);
    assert_true(fcntl(file, F_GETFD) & FD_CLOEXEC);
    assert_ok(driver->import(0, file, 2 * GRANULE, &imported));
    assert_ok(driver->import(0, other, 2 * GRANULE, &again));
    assert_true(imported != made && again != imported);
    close(file);
    close(other);

    map_at(0, range, 2 * GRANULE, made);
    map_at(0, range + 2 * GRANULE, 2 * GRANULE, imported);
    map_at(0, range + 4 * GRANULE, 2 * GRANULE, again);
    assert_ok(driver->set(0, range + GRANULE, 7, 16, NULL));
    assert_ok(driver->stream_synchronize(0, NULL));
    assert_int_equal(((unsigned char *)range)[3 * GRANULE + 15], 7);
    assert_int_equal(((unsigned char *)range)[5 * GRANULE + 15], 7);

    /* The one that made it goes first. */
    assert_ok(driver->unmap(0, range, 2 * GRANULE));
    assert_ok(driver->release(0, made));
    assert_ok(driver->set(0, range + 2 * GRANULE, 9, 16, NULL));
    assert_ok(driver->stream_synchronize(0, NULL));
    assert_int_equal(((unsigned char *)range)[4 * GRANULE + 15], 9);
    assert_ok(driver->unmap(0, range + 2 * GRANULE, 2 * GRANULE));
    assert_ok(driver->unmap(0, range + 4 * GRANULE, 2 * GRANULE));
    assert_ok(driver->release(0, imported));
    assert_ok(driver->release(0, again));
    assert_true(open_files() <= before);

    driver_piece none = 0;
    file = -1;
    assert_true(driver->export(0, plain, &file) != TARN_OK);
    assert_status(driver->import(0, -1, GRANULE, &none), TARN_ERROR_INVALID_ARGUMENT);
    int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
    assert_status(driver->import(0, zero, GRANULE, &none), TARN_ERROR_INVALID_ARGUMENT);
    close(zero);
    assert_true(file == -1 && none == 0);
    assert_ok(driver->release(0, plain));
    assert_ok(driver->unreserve(0, range, 8 * GRANULE));
}

#endif
