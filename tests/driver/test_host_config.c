/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What decides what the host device is, and what a caller learns about it. */
#include "driver/loader.h"
#include "host_test.h"

#include <stdio.h>

static void clear_environment(void)
{
    unsetenv("TARN_DRIVER");
    unsetenv("TARN_HOST_DEVICES");
    unsetenv("TARN_HOST_MEMORY");
    unsetenv("TARN_HOST_MAPS");
    unsetenv("TARN_HOST_PEERS");
}

/* Whatever GPU the machine has, these tests are about the host device. */
static int setup(void **state)
{
    (void)state;
    driver_finish();
    loader_fail("libcuda.so.1 libamdhip64.so.7 libamdhip64.so.6 libamdhip64.so.5");
    clear_environment();
    return 0;
}

static int teardown(void **state)
{
    driver_finish();
    return setup(state);
}

static void the_defaults_are_one_device_of_16_gib(void **state)
{
    (void)state;
    assert_ok(driver_init());
    int count = 0;
    assert_ok(driver->device_count(&count));
    assert_int_equal(count, 1);
    struct driver_properties properties;
    assert_ok(driver->device_properties(0, &properties));
    assert_int_equal(properties.memory, (size_t)16 << 30);
    assert_int_equal(properties.address_limit, (size_t)1 << 40);
    assert_int_equal(properties.granule, GRANULE);
    assert_string_equal(properties.name, "tarn host device");
    assert_int_equal(properties.least_priority, 0);
    assert_int_equal(properties.greatest_priority, -3);
    assert_true(properties.virtual_memory);
    assert_true(properties.alias);
}

static void the_environment_says_how_many_and_how_large(void **state)
{
    (void)state;
    setenv("TARN_HOST_DEVICES", "64", 1);
    setenv("TARN_HOST_MEMORY", "300G", 1);
    assert_ok(driver_init());
    int count = 0;
    assert_ok(driver->device_count(&count));
    assert_int_equal(count, 64);
    size_t free_bytes = 0, total = 0;
    assert_ok(driver->memory_info(63, &free_bytes, &total));
    assert_int_equal(total, (size_t)300 << 30);
    assert_int_equal(free_bytes, total);
}

static void sizes_have_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t bytes;
    } cases[] = {{"4194304", 4 * MIB},
                 {"2048K", GRANULE},
                 {"6M", 6 * MIB},
                 {"1G", 1024 * MIB},
                 {"2T", (size_t)2 << 40}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        driver_finish();
        setenv("TARN_HOST_MEMORY", cases[i].text, 1);
        assert_ok(driver_init());
        size_t free_bytes, total = 0;
        assert_ok(driver->memory_info(0, &free_bytes, &total));
        assert_int_equal(total, cases[i].bytes);
    }
}

static void malformed_variables_are_named_with_their_value(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"TARN_HOST_MEMORY", "16X"},
        {"TARN_HOST_MEMORY", "16GB"},
        {"TARN_HOST_MEMORY", "-1"},
        {"TARN_HOST_MEMORY", "0"},
        {"TARN_HOST_MEMORY", "G"},
        {"TARN_HOST_MEMORY", "3M"},
        {"TARN_HOST_MEMORY", "99999999999999999999"},
        {"TARN_HOST_MEMORY", "99999999T"},
        {"TARN_HOST_MEMORY", " 2M"},
        {"TARN_HOST_DEVICES", "two"},
        {"TARN_HOST_DEVICES", "0"},
        {"TARN_HOST_DEVICES", "65"},
        {"TARN_HOST_DEVICES", "1K"},
        {"TARN_HOST_MAPS", "many"},
        {"TARN_HOST_MAPS", "0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clear_environment();
        setenv(cases[i][0], cases[i][1], 1);
        char part[64];
        snprintf(part, sizeof part, "%s=%s ", cases[i][0], cases[i][1]);
        assert_refused(driver_init(), TARN_ERROR_CONFIGURATION, part);
        assert_null(driver);
    }
    clear_environment();
    assert_ok(driver_init());
}

static void peers_reach_each_other_unless_told_otherwise(void **state)
{
    (void)state;
    bool possible = false;
    uintptr_t plain = 0;
    setenv("TARN_HOST_DEVICES", "2", 1);
    assert_ok(driver_init());
    assert_ok(driver->peer_possible(0, 1, &possible));
    assert_true(possible);
    tarn_host_extent extent;
    assert_ok(driver->alloc(1, GRANULE, &plain));
    assert_status(tarn_host_extent_get(0, (void *)plain, 1, &extent), TARN_ERROR_INVALID_POINTER);
    assert_ok(driver->peer_enable(0, 1));
    assert_ok(tarn_host_extent_get(0, (void *)plain, 1, &extent));
    assert_true(extent.accessible);
    assert_status(driver->peer_enable(0, 2), TARN_ERROR_INVALID_DEVICE);

    driver_finish();
    setenv("TARN_HOST_PEERS", "none", 1);
    assert_ok(driver_init());
    assert_ok(driver->peer_possible(0, 1, &possible));
    assert_false(possible);
    assert_ok(driver->peer_possible(0, 0, &possible));
    assert_true(possible);
    assert_status(driver->peer_enable(0, 1), TARN_ERROR_NOT_SUPPORTED);
    uintptr_t range = new_range(0, GRANULE);
    assert_ok(driver->map(0, range, GRANULE, new_piece(0, GRANULE)));
    assert_status(driver->set_access(0, range, GRANULE, (int[]){0, 1}, 2),
                  TARN_ERROR_NOT_SUPPORTED);
    assert_ok(driver->set_access(0, range, GRANULE, (int[]){0}, 1));
    assert_status(driver->set_access(0, range, GRANULE, NULL, 0), TARN_ERROR_INVALID_ARGUMENT);

    driver_finish();
    setenv("TARN_HOST_PEERS", "some", 1);
    assert_refused(driver_init(), TARN_ERROR_CONFIGURATION, "TARN_HOST_PEERS=some");
}

static void the_driver_is_chosen_by_name(void **state)
{
    (void)state;
    setenv("TARN_DRIVER", "cuda", 1);
    assert_string_equal(driver_reason(), "");
    assert_refused(driver_init(), TARN_ERROR_NO_DRIVER, "TARN_DRIVER=cuda: libcuda.so.1: missing");
    setenv("TARN_DRIVER", "hip", 1);
    assert_refused(driver_init(), TARN_ERROR_NO_DRIVER, "TARN_DRIVER=hip: ");
    setenv("TARN_DRIVER", "vulkan", 1);
    assert_refused(driver_init(), TARN_ERROR_CONFIGURATION, "auto, host, cuda and hip");
    setenv("TARN_DRIVER", "auto", 1);
    assert_ok(driver_init());
    assert_string_equal(driver->name, "host");
    assert_non_null(strstr(driver_reason(), "host: libcuda.so.1: missing"));
    driver_finish();
    setenv("TARN_DRIVER", "host", 1);
    assert_ok(driver_init());
    assert_ok(driver_init());
    assert_string_equal(driver_reason(), "host: asked for");
}

static int slot(void)
{
    return 3;
}

static void what_one_driver_counts_ends_with_it(void **state)
{
    (void)state;
    assert_ok(driver_init());
    driver_counting = (struct driver_counting){.slot = slot}; /* as under `tarn run` */
    driver_finish();
    assert_ok(driver_init());
    assert_null(driver_counting.slot);
}

static void configure_comes_before_the_environment_and_before_use(void **state)
{
    (void)state;
    setenv("TARN_HOST_MEMORY", "nonsense", 1);
    tarn_host_configuration config = {.size = sizeof config, .devices = 3, .memory = 8 * MIB};
    assert_ok(tarn_host_configuration_set(&config));
    assert_ok(driver_init());
    int count = 0;
    assert_ok(driver->device_count(&count));
    assert_int_equal(count, 3);
    assert_refused(tarn_host_configuration_set(&config), TARN_ERROR_BUSY, "in use");
}

static void configure_refuses_impossible_devices(void **state)
{
    (void)state;
    assert_status(tarn_host_configuration_set(NULL), TARN_ERROR_INVALID_ARGUMENT);
    tarn_host_configuration config = {.devices = 1};
    assert_status(tarn_host_configuration_set(&config), TARN_ERROR_INVALID_ARGUMENT);
    config = (tarn_host_configuration){.size = sizeof config, .devices = 65};
    assert_refused(tarn_host_configuration_set(&config), TARN_ERROR_INVALID_ARGUMENT, "65");
    config = (tarn_host_configuration){.size = sizeof config, .devices = -1};
    assert_status(tarn_host_configuration_set(&config), TARN_ERROR_INVALID_ARGUMENT);
    config = (tarn_host_configuration){.size = sizeof config, .memory = 3 * MIB};
    assert_refused(tarn_host_configuration_set(&config), TARN_ERROR_INVALID_ARGUMENT, "3145728");
}

static void kinds_of_calls_have_names(void **state)
{
    (void)state;
    for (int kind = 0; kind < DRIVER_CALLS; kind++)
        assert_non_null(tarn_host_call_name(kind));
    assert_string_equal(tarn_host_call_name(DRIVER_CALL_map), "map");
    assert_string_equal(tarn_host_call_name(DRIVER_CALL_event_record), "event_record");
    assert_null(tarn_host_call_name(DRIVER_CALLS));
    assert_null(tarn_host_call_name(-1));
}

static void the_current_device_belongs_to_the_thread(void **state)
{
    (void)state;
    start_with(2, GRANULE, 0);
    int current = -1;
    assert_ok(driver->current(&current));
    assert_int_equal(current, 0);
    assert_ok(driver->activate(1));
    assert_ok(driver->current(&current));
    assert_int_equal(current, 1);
    assert_refused(driver->activate(2), TARN_ERROR_INVALID_DEVICE, "no device 2");
    assert_refused(driver->activate(-1), TARN_ERROR_INVALID_DEVICE, "no device -1");
    assert_ok(driver->activate(0));
}

static void the_ledger_wants_its_size(void **state)
{
    (void)state;
    tarn_host_ledger ledger = {.size = 1};
    assert_status(tarn_host_ledger_get(0, &ledger), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_host_ledger_get(0, NULL), TARN_ERROR_INVALID_ARGUMENT);
    ledger.size = sizeof ledger;
    assert_status(tarn_host_ledger_get(7, &ledger), TARN_ERROR_INVALID_DEVICE);
    assert_ok(tarn_host_ledger_get(0, &ledger));
}

#undef TEST
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_defaults_are_one_device_of_16_gib),
        TEST(the_environment_says_how_many_and_how_large),
        TEST(sizes_have_units),
        TEST(malformed_variables_are_named_with_their_value),
        TEST(peers_reach_each_other_unless_told_otherwise),
        TEST(the_driver_is_chosen_by_name),
        TEST(what_one_driver_counts_ends_with_it),
        TEST(configure_comes_before_the_environment_and_before_use),
        TEST(configure_refuses_impossible_devices),
        TEST(kinds_of_calls_have_names),
        TEST(the_current_device_belongs_to_the_thread),
        TEST(the_ledger_wants_its_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
