/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The settings: their language, where they come from, and what changes with them. The device has
 * 512 MiB. */
#include "base/pages.h"
#include "driver/driver.h"
#include "memory/settings/config.h"
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (512 * MIB)

static struct memory_config parsed(const char *text)
{
    struct memory_config config = memory_config_defaults;
    OK(config_parse("here", text, NULL, &config));
    return config;
}

static bool same(const struct memory_config *one, const struct memory_config *other)
{
    return memcmp(one, other, sizeof *one) == 0;
}

/* A text that gives exactly the values below, from the defaults. */
#define GIVES_FIELD(text, field, value) CHECK(parsed(text).field == (value))

static void says(const char *text)
{
    check_at(strcmp(tarn_last_error(), text) == 0, text, __FILE__, __LINE__);
}

/* The text is refused in these words, and nothing is changed. */
static void refused(const char *text, const char *words)
{
    struct memory_config before = parsed(
                             "max_split_size_mb:77,compaction:on_oom,expandable_segments:True,"
                             "roundup_power2_divisions:8,large_segment_size_mb:30"),
                         config = before;
    char wanted[400];
    GIVES(config_parse("here", text, NULL, &config), TARN_ERROR_CONFIGURATION);
    snprintf(wanted, sizeof wanted, "here, column %s", words);
    says(wanted);
    CHECK(same(&config, &before));
}

/* The language --------------------------------------------------------------------------------- */

static void every_key_is_read(void **state)
{
    (void)state;
    GIVES_FIELD("backend:native", backend, CONFIG_NATIVE);
    GIVES_FIELD("backend:cudaMallocAsync", backend, CONFIG_ASYNC);
    GIVES_FIELD("max_split_size_mb:20", max_split_size, 20 * MIB);
    GIVES_FIELD("max_non_split_rounding_mb:21", max_non_split_rounding, 21 * MIB);
    GIVES_FIELD("large_segment_size_mb:11", large_segment_size, 11 * MIB);
    GIVES_FIELD("large_segment_size_mb:11", max_non_split_rounding, 11 * MIB);
    GIVES_FIELD("garbage_collection_threshold:0.8", garbage_collection_threshold, 800000000u);
    GIVES_FIELD("roundup_power2_divisions:4", roundup_power2_divisions[15], 4);
    GIVES_FIELD("expandable_segments:True", expandable_segments, 1);
    GIVES_FIELD("expandable_segments_reserve:0.5", expandable_segments_reserve.amount,
                CONFIG_ONE / 2);
    GIVES_FIELD("expandable_segments_reserve:9", expandable_segments_reserve.amount,
                CONFIG_RESERVE_MOST);
    GIVES_FIELD("expandable_segments_reserve:40G", expandable_segments_reserve.amount,
                (size_t)40 << 30);
    GIVES_FIELD("expandable_segments_reserve:40G", expandable_segments_reserve.absolute, 1);
    GIVES_FIELD("expandable_segments_reserve_by_class:[a:1G,b-2:0.25]",
                expandable_segments_reserve_by_class[1].reserve.amount, CONFIG_ONE / 4);
    GIVES_FIELD("release_lock_on_cudamalloc:True", release_lock_on_cudamalloc, 1);
    GIVES_FIELD("release_lock_on_hipmalloc:True", release_lock_on_cudamalloc, 1);
    GIVES_FIELD("graph_capture_record_stream_reuse:True", graph_capture_record_stream_reuse, 1);
    GIVES_FIELD("per_process_memory_fraction:0", per_process_memory_fraction, 0);
    GIVES_FIELD("per_process_memory_fraction:1.0", per_process_memory_fraction, CONFIG_ONE);
    GIVES_FIELD("throw_on_cudamalloc_oom:True", throw_on_cudamalloc_oom, 1);
    GIVES_FIELD("pinned_use_cuda_host_register:True", pinned_use_cuda_host_register, 1);
    GIVES_FIELD("pinned_use_hip_host_register:True", pinned_use_cuda_host_register, 1);
    GIVES_FIELD("pinned_num_register_threads:128", pinned_num_register_threads, 128);
    GIVES_FIELD("pinned_use_background_threads:True", pinned_use_background_threads, 1);
    GIVES_FIELD("pinned_reserve_segment_size_mb:1", pinned_reserve_segment_size, MIB);
    GIVES_FIELD("pinned_free_catch_all:True", pinned_free_catch_all, 1);
    GIVES_FIELD("pinned_max_round_threshold_mb:0", pinned_max_round_threshold, 0);
    GIVES_FIELD("pinned_max_cached_size_mb:3", pinned_max_cached_size, 3 * MIB);
    GIVES_FIELD("segments:plain", segments, CONFIG_SEGMENTS_PLAIN);
    GIVES_FIELD("segments:exact", segments, CONFIG_SEGMENTS_EXACT);
    GIVES_FIELD("limit_mb:5", limit, 5 * MIB);
    GIVES_FIELD("leave_free_mb:6", leave_free, 6 * MIB);
    GIVES_FIELD("pinned_limit_mb:7", pinned_limit, 7 * MIB);
    CHECK(strcmp(parsed("plan:\t/a folder/x.plan ,compaction:on_oom").plan, "/a folder/x.plan") ==
          0);
    CHECK(strcmp(parsed("plan:/a,plan:none").plan, "") == 0);
}

static void the_defaults_are_pytorchs(void **state)
{
    (void)state;
    struct memory_config config = parsed("");
    CHECK(same(&config, &memory_config_defaults));
    CHECK(config.backend == CONFIG_NATIVE && config.max_split_size == CONFIG_NONE);
    CHECK(config.max_non_split_rounding == 20 * MIB && config.large_segment_size == 20 * MIB);
    CHECK(config.garbage_collection_threshold == 0 && config.expandable_segments == 0);
    CHECK(config.per_process_memory_fraction == CONFIG_ONE &&
          config.pinned_num_register_threads == 1);
    CHECK(config.expandable_segments_reserve.amount == CONFIG_ONE / 8 * 9);
    CHECK(config.limit == CONFIG_NONE && config.leave_free == 0 &&
          config.pinned_limit == CONFIG_NONE);
}

static void blanks_count_nowhere(void **state)
{
    (void)state;
    struct memory_config plain =
        parsed("max_split_size_mb:64,roundup_power2_divisions:[256:2,>:4]");
    struct memory_config wide =
        parsed(" max_split _size_mb :\t6 4 ,\nroundup_power2_divisions : [ 25 6 : 2 , > : 4 ] , ");
    CHECK(same(&plain, &wide) && plain.max_split_size == 64 * MIB);
}

static void the_last_of_two_counts(void **state)
{
    (void)state;
    GIVES_FIELD("expandable_segments:True,expandable_segments:False", expandable_segments, 0);
    struct memory_config config =
        parsed("large_segment_size_mb:90,max_split_size_mb:30,large_segment_size_mb:25");
    CHECK(config.large_segment_size == 25 * MIB && config.max_split_size == 30 * MIB);
}

static void a_parse_resets_four_keys_and_no_others(void **state)
{
    (void)state;
    struct memory_config config =
        parsed("large_segment_size_mb:30,max_split_size_mb:40,max_non_split_rounding_mb:50,"
               "garbage_collection_threshold:0.5,roundup_power2_divisions:4,"
               "expandable_segments:True,leave_free_mb:3,compaction:on_oom");
    OK(config_parse("here", "pinned_num_register_threads:2", NULL, &config));
    struct memory_config wanted =
        parsed("large_segment_size_mb:30,expandable_segments:True,leave_free_mb:3,"
               "compaction:on_oom,pinned_num_register_threads:2");
    CHECK(same(&config, &wanted));
    CHECK(config.max_split_size == CONFIG_NONE && config.max_non_split_rounding == 30 * MIB);
    OK(config_parse("here", "all:default", NULL, &config));
    CHECK(same(&config, &memory_config_defaults));
    OK(config_parse("here", "compaction:on_oom", NULL, &config));
    OK(config_parse("here", "all:default,leave_free_mb:3", NULL, &config));
    CHECK(config.compaction == CONFIG_COMPACTION_OFF && config.leave_free == 3 * MIB);
}

static void the_large_segment_is_read_first(void **state)
{
    (void)state;
    GIVES_FIELD("max_split_size_mb:15,large_segment_size_mb:12", max_split_size, 15 * MIB);
    GIVES_FIELD(
        "roundup_power2_divisions:[2:2],max_non_split_rounding_mb:15,large_segment_size_mb:12",
        max_non_split_rounding, 15 * MIB);
    refused("max_split_size_mb:25,large_segment_size_mb:26",
            "19: max_split_size_mb is 25, but must be at least large_segment_size_mb (26)");
    refused("max_split_size_mb:x,large_segment_size_mb:10",
            "43: large_segment_size_mb is 10, but must be at least 11");
}

static void divisions_are(const char *text, const size_t wanted[CONFIG_DIVISIONS])
{
    struct memory_config config = parsed(text);
    for (int i = 0; i < CONFIG_DIVISIONS; i++)
        CHECK(config.roundup_power2_divisions[i] == wanted[i]);
}

static void lists_of_divisions(void **state)
{
    (void)state;
    divisions_are("roundup_power2_divisions:2",
                  (size_t[]){2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2});
    divisions_are("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
                  (size_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8});
    divisions_are("roundup_power2_divisions:[4:16,64:8]",
                  (size_t[]){16, 16, 16, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    divisions_are("roundup_power2_divisions:[1:0,32768:4]", (size_t[]){[15] = 4});
    divisions_are("roundup_power2_divisions:[>:2]",
                  (size_t[]){2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2});
    refused("roundup_power2_divisions:3",
            "26: roundup_power2_divisions is 3, but must be 0 or a power of two up to "
            "1073741824");
    refused("roundup_power2_divisions:[3:2]",
            "27: a size of roundup_power2_divisions is 3, but must be a power of two "
            "from 1 to 32768, of MiB, or >");
    refused("roundup_power2_divisions:[65536:2]",
            "27: a size of roundup_power2_divisions is 65536, but must be a power "
            "of two from 1 to 32768, of MiB, or >");
    refused("roundup_power2_divisions:[4:2,4:2]",
            "31: a size of roundup_power2_divisions is 4, but must be larger than "
            "the sizes before it");
    refused("roundup_power2_divisions:[32768:2,>:2]",
            "35: a size of roundup_power2_divisions is >, but must be a smaller "
            "one than 32768 before it, or nothing");
    refused("roundup_power2_divisions:[>:2,4:2]",
            "30: nothing may follow \">\" in a list of divisions");
    refused("roundup_power2_divisions:[4:2", "30: \",\" or \"]\" is missing before the end");
    refused("roundup_power2_divisions:[4]",
            "28: \":\" and a number of divisions is missing before ]");
}

/* The seven of PyTorch's test_allocator_settings (test/test_cuda.py) first. */
static void what_makes_no_sense_is_refused_where_it_stands(void **state)
{
    (void)state;
    refused("foo:1,bar:2", "1: unknown key \"foo\"; docs/configuration.md lists the keys");
    refused("plam:1", "1: unknown key \"plam\"; did you mean \"plan\"?");
    refused("garbage_collection_threshold:1.2", "30: garbage_collection_threshold is 1.2, but must "
                                                "be a number above 0 and below 1, such as 0.8");
    refused("max_split_size_mb:2",
            "19: max_split_size_mb is 2, but must be at least large_segment_size_mb (30)");
    refused("release_lock_on_cudamalloc:none",
            "28: release_lock_on_cudamalloc is none, but must be False or True");
    refused("pinned_use_cuda_host_register:none",
            "31: pinned_use_cuda_host_register is none, but must be False or True");
    refused("pinned_num_register_threads:none",
            "29: pinned_num_register_threads is none, but must be a power of two from 1 to 128");
    refused("pinned_num_register_threads:1024",
            "29: pinned_num_register_threads is 1024, but must be a power of two from 1 to 128");

    refused("expandable_segments:true",
            "21: expandable_segments is true, but must be False or True");
    refused("leave_free_mb:1,expandable_segment:True",
            "17: unknown key \"expandable_segment\"; did you mean \"expandable_segments\"?");
    refused("max_split_size_mb", "18: \":\" and a value is missing before the end");
    refused("max_split_size_mb:", "19: the value of max_split_size_mb is missing before the end");
    refused("max_split_size_mb::64", "19: the value of max_split_size_mb is missing before :");
    refused("max_split_size_mb:64,,compaction:on_oom", "22: a key is missing before ,");
    refused(",", "1: a key is missing before ,");
    refused("segments:plain]", "15: \",\" is missing before ]");
    refused("segments:plain:2", "15: \",\" is missing before :");
    refused("max_split_size_mb:64MB",
            "19: max_split_size_mb is 64MB, but must be a whole number of MiB");
    refused("max_split_size_mb:-1",
            "19: max_split_size_mb is -1, but must be a whole number of MiB");
    refused("max_split_size_mb:99999999999999999999",
            "19: max_split_size_mb is 99999999999999999999, but must be a whole number of MiB");
    refused("leave_free_mb:1099511627777",
            "15: leave_free_mb is 1099511627777, but must be at most 1099511627776");
    refused("pinned_reserve_segment_size_mb:0",
            "32: pinned_reserve_segment_size_mb is 0, but must be at least 1");
    refused("garbage_collection_threshold:0",
            "30: garbage_collection_threshold is 0, but must be a number above 0 and "
            "below 1, such as 0.8");
    refused("per_process_memory_fraction:1.0000000001",
            "29: per_process_memory_fraction is 1.0000000001, but must be a "
            "number from 0 to 1, such as 0.8");
    refused("per_process_memory_fraction:1e-1",
            "29: per_process_memory_fraction is 1e-1, but must be a number from 0 "
            "to 1, such as 0.8");
    refused("pinned_num_register_threads:[1:2]",
            "29: pinned_num_register_threads is [, but must be a power of two from 1 to 128");
    refused("compaction:on", "12: compaction is on, but must be off, on_oom or on_oom_quiet");
    refused("segments:any", "10: segments is any, but must be driver, virtual, plain or exact");
    refused("segments:plain,all:default", "16: all:default may only stand at the beginning");
    refused("all:none", "5: all is none, but must be default");
    refused("all", "4: \":default\" is missing before the end");
    refused("all:default;segments:plain", "5: all is default;segments, but must be default");
    refused("expandable_segments_reserve:0G",
            "29: expandable_segments_reserve is 0G, but must be a fraction of the "
            "memory above 0 and below 10, or a number of GiB such as 40G");
    refused("expandable_segments_reserve_by_class:[a:1G,a:1G]",
            "44: the name of a class is a, but must be another than those before it");
    refused("expandable_segments_reserve_by_class:1G",
            "38: expandable_segments_reserve_by_class is 1G, but must be a "
            "list such as [a:0.5,b:40G]");
    refused("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:1",
            "1: unknown key "
            "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...\"; "
            "docs/configuration.md lists the keys");
    refused("leave_free_mb:000000000000000000000000000000000000000000000000000000000000000000001",
            "15: leave_free_mb is "
            "000000000000000000000000000000000000000000000000000000000000000..., but must be a "
            "whole number of MiB");
    char path[300] = "plan:";
    memset(path + 5, 'x', 256);
    refused(path, "6: plan is xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..., "
                  "but must be the path "
                  "of a file, of at "
                  "most 255 bytes without , : [ and ]");
    refused("plan:a\nb",
            "6: plan is ab, but must be the path of a file, without control characters");
    refused(
        "plan:[a]",
        "6: plan is [, but must be the path of a file, of at most 255 bytes without , : [ and ]");
}

/* What is written is read as the same, in a fresh process and in one with other settings. */
static void a_written_text_gives_the_same_settings(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "max_split_size_mb:64,max_non_split_rounding_mb:40,large_segment_size_mb:30",
        "roundup_power2_divisions:[4:16,64:8,>:2]",
        "roundup_power2_divisions:8,garbage_collection_threshold:0.123456789",
        "per_process_memory_fraction:0.05,expandable_segments_reserve:40G,backend:cudaMallocAsync",
        "expandable_segments_reserve_by_class:[one:0.5,two:7G],pinned_num_register_threads:16",
        "compaction:on_oom,segments:virtual,limit_mb:0,leave_free_mb:1,pinned_limit_mb:9",
        "plan:/a folder/of plans/x.plan",
        "per_process_memory_fraction:0,release_lock_on_cudamalloc:True,throw_on_cudamalloc_oom:"
        "True",
        "pinned_max_round_threshold_mb:0,pinned_max_cached_size_mb:1,pinned_reserve_segment_size_"
        "mb:2",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct memory_config config = parsed(texts[i]), fresh = parsed(""),
                             other = parsed(texts[5]);
        char text[1024], part[1024];
        size_t bytes = config_format(&config, text, sizeof text);
        CHECK(bytes == strlen(text) + 1 && bytes == config_format(&config, NULL, 0));
        OK(config_parse("here", text, NULL, &fresh));
        OK(config_parse("here", text, NULL, &other));
        CHECK(same(&fresh, &config) && same(&other, &config));
        for (size_t room = 1; room < bytes; room++) {
            memset(part, 1, sizeof part);
            CHECK(config_format(&config, part, room) == bytes);
            CHECK(strlen(part) == room - 1 && memcmp(part, text, room - 1) == 0 && part[room] == 1);
        }
    }
    struct memory_config config = parsed("leave_free_mb:3,garbage_collection_threshold:0.5");
    char text[200];
    (void)config_format(&config, text, sizeof text);
    assert_string_equal(text, "all:default,garbage_collection_threshold:0.5,leave_free_mb:3");
}

/* Rounding ------------------------------------------------------------------------------------- */

/* The rule in other words: the least size in steps from a power of two that is enough. */
static size_t stepped(size_t size, size_t divisions)
{
    size_t power = 1;
    while (power * 2 <= size)
        power *= 2;
    size_t result = power;
    while (result < size)
        result += power / divisions;
    return result;
}

static void sizes_are_rounded_to_divisions(void **state)
{
    (void)state;
    struct memory_config off = parsed(""), four = parsed("roundup_power2_divisions:4"),
                         list =
                             parsed("roundup_power2_divisions:[64:8,128:2,256:2,512:2,1024:4,>:1]");
    CHECK(config_round(&off, 84 * MIB) == 84 * MIB);
    CHECK(config_round(&four, 84 * MIB) == 96 * MIB && stepped(84 * MIB, 4) == 96 * MIB);
    CHECK(config_round(&list, 84 * MIB) == 88 * MIB && stepped(84 * MIB, 8) == 88 * MIB);
    CHECK(config_round(&list, 400 * MIB) == 512 * MIB && stepped(400 * MIB, 2) == 512 * MIB);
    CHECK(config_round(&list, 3000 * MIB) == 3000 * MIB); /* one division is none */

    CHECK(config_round(&off, 1) == 512 && config_round(&off, 512) == 512 &&
          config_round(&off, 513) == 1024);
    /* 4 x 512: not divided */
    CHECK(config_round(&four, 1) == 512 && config_round(&four, 2048) == 2048);
    CHECK(config_round(&four, 2049) == 2560 && config_round(&four, 4097) == 5120);
    CHECK(config_round(&four, TARN_MAX_SIZE) == TARN_MAX_SIZE);
    CHECK(config_round(&four, TARN_MAX_SIZE - 1) == TARN_MAX_SIZE);
    for (size_t power = 4096; power <= (size_t)1 << 40; power *= 2)
        CHECK(config_round(&four, power) == power &&
              config_round(&four, power + 1) == stepped(power + 1, 4));
}

static void each_entry_is_for_its_sizes(void **state)
{
    (void)state;
    struct memory_config config = memory_config_defaults;
    for (size_t i = 0; i < CONFIG_DIVISIONS; i++)
        config.roundup_power2_divisions[i] = (size_t)2 << (i % 4);
    for (size_t i = 0; i < 18; i++) {
        size_t power = MIB << i, divisions = (size_t)2 << ((i < 16 ? i : 15) % 4);
        CHECK(config_round(&config, power + 1) == power + power / divisions);
        CHECK(config_round(&config, 2 * power - 1) == 2 * power);
    }
    CHECK(config_round(&config, MIB - 1) == MIB &&
          config_round(&config, MIB / 2 + 1) == MIB / 4 * 3);
}

/* The environment: each in a process of its own ------------------------------------------------ */

static void expect_use(tarn_status status)
{
    size_t bytes = 0;
    void *pointer = &bytes;
    GIVES(tarn_alloc_on(TARN_STREAM_LEGACY, 100, &pointer), status);
    CHECK(status ? pointer == &bytes : pointer != NULL);
    GIVES(tarn_device_limit_set(0, MEMORY), status);
    GIVES(tarn_configuration_get(NULL, 0, &bytes), status);
}

static void settings_are(const char *wanted)
{
    char text[1024] = "";
    OK(tarn_configuration_get(text, sizeof text, NULL));
    check_at(strcmp(text, wanted) == 0, text, __FILE__, __LINE__);
}

static void child_reads_own(void)
{
    setenv("TARN_ALLOC_CONF", "leave_free_mb:3", 1);
    setenv("PYTORCH_CUDA_ALLOC_CONF", "leave_free_mb:4", 1);
    settings_are("all:default,leave_free_mb:3");
    setenv("TARN_ALLOC_CONF", "leave_free_mb:5", 1); /* it was read */
    expect_use(TARN_OK);
    settings_are("all:default,leave_free_mb:3");
}

static void child_without(void)
{
    setenv("PYTORCH_CUDA_ALLOC_CONF", "nonsense", 1);
    expect_use(TARN_OK);
    settings_are("all:default");
}

static void child_reads_pytorchs(void)
{
    setenv("TARN_ALLOC_CONF", "pytorch", 1);
    setenv("PYTORCH_CUDA_ALLOC_CONF", "", 1);        /* as if it were unset */
    setenv("PYTORCH_HIP_ALLOC_CONF", "nonsense", 1); /* the driver is not HIP */
    setenv("PYTORCH_ALLOC_CONF", "leave_free_mb:4", 1);
    expect_use(TARN_OK);
    settings_are("all:default,leave_free_mb:4");
}

static void child_reads_pytorchs_first(void)
{
    setenv("TARN_ALLOC_CONF", "pytorch", 1);
    setenv("PYTORCH_CUDA_ALLOC_CONF", "leave_free_mb:3", 1);
    setenv("PYTORCH_ALLOC_CONF", "nonsense", 1);
    expect_use(TARN_OK);
    settings_are("all:default,leave_free_mb:3");
}

static void child_malformed(void)
{
    setenv("TARN_ALLOC_CONF", "backend:native, expandable_segments:yes", 1);
    expect_use(TARN_ERROR_CONFIGURATION);
    says("TARN_ALLOC_CONF, column 37: expandable_segments is yes, but must be False or True");
    CHECK(!tarn_malloc(1));
    GIVES(tarn_last_status(), TARN_ERROR_CONFIGURATION);
    GIVES(tarn_configuration_set(""), TARN_ERROR_CONFIGURATION);
    setenv("TARN_ALLOC_CONF", "expandable_segments:True", 1);
    expect_use(TARN_OK);
    settings_are("all:default,expandable_segments:True");
}

static void child_malformed_pytorchs(void)
{
    setenv("TARN_ALLOC_CONF", "pytorch", 1);
    setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:10", 1);
    expect_use(TARN_ERROR_CONFIGURATION);
    says("PYTORCH_CUDA_ALLOC_CONF, column 19: max_split_size_mb is 10, but must be at least "
         "large_segment_size_mb (20)");
}

static void child_limits(void)
{
    size_t limit = 0;
    setenv("TARN_ALLOC_CONF", "per_process_memory_fraction:0.25", 1);
    OK(tarn_device_limit_get(0, &limit)); /* before there is an arena */
    CHECK(limit == MEMORY / 4);
    OK(tarn_free(alloc_on(TARN_STREAM_LEGACY, 100)));
    OK(tarn_device_limit_get(0, &limit));
    CHECK(limit == MEMORY / 4);
}

static void child_without_host_memory(void)
{
    setenv("TARN_ALLOC_CONF", "leave_free_mb:3", 1);
    size_t bytes = 0;
    pages_fail(1, true);
    GIVES(tarn_configuration_get(NULL, 0, &bytes), TARN_ERROR_OUT_OF_HOST_MEMORY);
    CHECK(pages_fail_hits() == 1);
    pages_fail(0, false);
    settings_are("all:default,leave_free_mb:3");
}

static void the_environment_is_read_once_and_strictly(void **state)
{
    (void)state;
    static void (*const children[])(void) = {
        child_reads_own,      child_without,
        child_reads_pytorchs, child_reads_pytorchs_first,
        child_malformed,      child_malformed_pytorchs,
        child_limits,         child_without_host_memory,
    };
    for (size_t i = 0; i < sizeof children / sizeof *children; i++)
        in_child(children[i]);
}

/* Run time ------------------------------------------------------------------------------------- */

static void a_failed_change_changes_nothing(void **state)
{
    (void)state;
    OK(tarn_configuration_set("leave_free_mb:3,max_split_size_mb:64"));
    const struct memory_config *before = memory_config();
    GIVES(tarn_configuration_set("leave_free_mb:4,max_split_size_mb:1"), TARN_ERROR_CONFIGURATION);
    says("tarn_configuration_set(), column 35: max_split_size_mb is 1, but must be at least "
         "large_segment_size_mb (20)");
    CHECK(memory_config() == before && before->leave_free == 3 * MIB);
    GIVES(tarn_configuration_set(NULL), TARN_ERROR_INVALID_ARGUMENT);
    pages_fail(1, true);
    GIVES(tarn_configuration_set("leave_free_mb:12345"), TARN_ERROR_OUT_OF_HOST_MEMORY);
    pages_fail(0, false);
    CHECK(memory_config() == before);
    OK(tarn_configuration_set("all:default"));
    CHECK(memory_config() == &memory_config_defaults);
}

static void settings_are_given_as_text(void **state)
{
    (void)state;
    char text[64], small[8] = "before";
    size_t needed = 0;
    OK(tarn_configuration_set("leave_free_mb:3"));
    OK(tarn_configuration_get(NULL, 0, &needed));
    CHECK(needed == sizeof "all:default,leave_free_mb:3");
    needed = 0;
    GIVES(tarn_configuration_get(small, sizeof small, &needed), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(strcmp(small, "before") == 0 && needed == sizeof "all:default,leave_free_mb:3");
    GIVES(tarn_configuration_get(NULL, 100, NULL), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_configuration_get(text, needed, NULL));
    assert_string_equal(text, "all:default,leave_free_mb:3");
    OK(tarn_configuration_set("all:default"));
}

static void what_has_no_effect_is_named(void **state)
{
    (void)state;
    const char *text = "";
    OK(tarn_configuration_note_get(0, &text));
    CHECK(text == NULL);
    OK(tarn_configuration_set("leave_free_mb:3,pinned_free_catch_all:True,release_lock_on_"
                              "cudamalloc:True,backend:native,max_"
                              "split_size_mb:64"));
    OK(tarn_configuration_note_get(0, &text));
    CHECK(strncmp(text, "release_lock_on_cudamalloc: ", 28) == 0);
    OK(tarn_configuration_note_get(1, &text));
    assert_string_equal(text, "pinned_free_catch_all: tarn's free throws no exception");
    OK(tarn_configuration_note_get(2, &text));
    CHECK(text == NULL);
    GIVES(tarn_configuration_note_get(-1, &text), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_configuration_note_get(0, NULL), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_configuration_set("all:default"));
}

static void the_same_settings_take_no_more_memory(void **state)
{
    (void)state;
    OK(tarn_configuration_set("leave_free_mb:1"));
    const struct memory_config *first = memory_config();
    uint64_t bytes = pages_bytes();
    for (int i = 0; i < 10000; i++)
        OK(tarn_configuration_set(i % 2 ? "leave_free_mb:1" : "all:default"));
    CHECK(memory_config() == first && pages_bytes() == bytes);
    OK(tarn_configuration_set("all:default"));
}

static void what_counts_at_load_time_stays(void **state)
{
    (void)state;
    OK(tarn_free(alloc_on(TARN_STREAM_LEGACY, 100)));
    OK(tarn_configuration_set("backend:native,segments:driver"));
    OK(tarn_configuration_set("segments:virtual")); /* what the driver's choice is here */
    settings_are("all:default");
    GIVES(tarn_configuration_set("leave_free_mb:1,segments:plain"), TARN_ERROR_CONFIGURATION);
    says("tarn_configuration_set(), column 26: segments is plain, but must be virtual: memory was "
         "used with it, and it "
         "counts "
         "only until then");
    GIVES(tarn_configuration_set("backend:cudaMallocAsync"), TARN_ERROR_CONFIGURATION);
    settings_are("all:default");
}

static void divisions_round_large_blocks(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    OK(tarn_configuration_set("roundup_power2_divisions:4"));
    tarn_stats before = stats_of(0);
    void *block = alloc_on(stream, 84 * MIB), *small = alloc_on(stream, 3000);
    tarn_stats after = stats_of(0);
    CHECK(usable_size(block) == 96 * MIB && usable_size(small) < 4096);
    CHECK(after.requested_bytes[0].current - before.requested_bytes[0].current ==
          (int64_t)(84 * MIB + 3000));
    OK(tarn_free(block));
    OK(tarn_configuration_set("")); /* resets */
    block = alloc_on(stream, 84 * MIB);
    CHECK(usable_size(block) == 84 * MIB);
    OK(tarn_free(block));
    OK(tarn_free(small));
    nothing_is_left(0);
}

static size_t limit_of(int device)
{
    size_t limit = 0;
    OK(tarn_device_limit_get(device, &limit));
    return limit;
}

static void limits_follow_the_settings_that_change_them(void **state)
{
    (void)state;
    OK(tarn_free(alloc_on(TARN_STREAM_LEGACY, 100)));
    OK(tarn_configuration_set("per_process_memory_fraction:0.5"));
    CHECK(limit_of(0) == MEMORY / 2 && limit_of(1) == MEMORY / 2);
    OK(tarn_configuration_set("limit_mb:100"));
    CHECK(limit_of(0) == 100 * MIB);
    OK(tarn_device_limit_set(0, 64 * MIB));
    OK(tarn_configuration_set("leave_free_mb:1")); /* no other limit than before: the caller's
                                                      stays */
    CHECK(limit_of(0) == 64 * MIB && limit_of(1) == 100 * MIB);
    void *pointer = NULL;
    GIVES(tarn_alloc_on(TARN_STREAM_LEGACY, 65 * MIB, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_configuration_set("all:default"));
    CHECK(limit_of(0) == SIZE_MAX && limit_of(1) == SIZE_MAX);

    /* A text that names a limit counts from then on, also with the value that it had. */
    OK(tarn_device_limit_set(0, 64 * MIB));
    OK(tarn_configuration_set("all:default"));
    CHECK(limit_of(0) == SIZE_MAX);
    OK(tarn_configuration_set("limit_mb:100"));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_configuration_set("leave_free_mb:1,limit_mb:100"));
    CHECK(limit_of(0) == 100 * MIB);
    OK(tarn_device_limit_set(0, 64 * MIB));
    OK(tarn_configuration_set("pinned_limit_mb:9,leave_free_mb:1"));
    CHECK(limit_of(0) == 64 * MIB);
    OK(tarn_configuration_set("all:default"));
    nothing_is_left(0);
}

static void memory_is_left_to_others(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    void *pointer = NULL;
    uintptr_t foreign = 0;
    OK(tarn_device_trim(0, 0));
    OK(tarn_configuration_set("leave_free_mb:112"));
    OK(driver->alloc(0, 200 * MIB, &foreign)); /* somebody else */
    void *most = alloc_on(stream, 200 * MIB);  /* exactly */
    uint64_t creates = calls_of(0, "create");
    GIVES(tarn_alloc_on(stream, 2 * MIB, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(calls_of(0, "create") == creates);
    CHECK(strstr(tarn_last_error(), "leave_free_mb keeps 112 MiB"));
    OK(driver->free(0, foreign)); /* it is measured, not set */
    void *more = alloc_on(stream, 200 * MIB);
    GIVES(tarn_alloc_on(stream, 2 * MIB, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_configuration_set("all:default"));
    OK(tarn_free(alloc_on(stream, 2 * MIB)));
    OK(tarn_free(most));
    OK(tarn_free(more));
    nothing_is_left(0);
}

static void a_device_that_cannot_tell_is_asked_for_nothing(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    void *pointer = NULL;
    OK(tarn_configuration_set("leave_free_mb:100"));
    OK(tarn_host_fail_set(kind_of("memory_info"), 1, false, TARN_ERROR_DRIVER));
    GIVES(tarn_alloc_on(stream, 20 * MIB, &pointer), TARN_ERROR_DRIVER);
    CHECK(!pointer && ledger_of(0).created == 0);
    OK(tarn_free(alloc_on(stream, 20 * MIB)));
    OK(tarn_configuration_set("all:default"));
    nothing_is_left(0);
}

static void a_request_above_the_limit_is_rejected_when_that_is_asked_for(void **state)
{
    (void)state;
    tarn_stream own = lease(0), other = lease(0);
    void *pointer = NULL;
    OK(tarn_device_limit_set(0, 100 * MIB));
    for (int asked = 0; asked < 2; asked++) {
        OK(tarn_configuration_set(asked ? "throw_on_cudamalloc_oom:True" : ""));
        OK(tarn_free(alloc_on(other, 60 * MIB))); /* another stream's, and idle */
        tarn_stats before = stats_of(0);
        GIVES(tarn_alloc_on(own, 80 * MIB, &pointer), asked ? TARN_ERROR_OUT_OF_MEMORY : TARN_OK);
        CHECK(stats_of(0).num_oom_rejections - before.num_oom_rejections == asked);
        /* What is idle elsewhere is no emergency */
        CHECK(stats_of(0).num_alloc_retries == before.num_alloc_retries);
        OK(tarn_free(asked ? NULL : pointer));
        OK(tarn_free(alloc_on(own, 40 * MIB))); /* below the limit: as ever */
        OK(tarn_device_trim(0, 0));
    }
    OK(tarn_configuration_set("all:default"));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    nothing_is_left(0);
}

static atomic_bool stop;

static void *read_on(void *argument)
{
    (void)argument;
    while (!atomic_load(&stop)) {
        const struct memory_config *config = memory_config();
        CHECK(config->leave_free == config->pinned_limit || config->pinned_limit == CONFIG_NONE);
        OK(tarn_free(alloc_on(TARN_STREAM_LEGACY, 70000)));
    }
    return NULL;
}

static void readers_see_whole_settings(void **state)
{
    (void)state;
    pthread_t readers[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_on, NULL), 0);
    for (int i = 0; i < 2000; i++) {
        char text[100];
        snprintf(text, sizeof text, "leave_free_mb:%d,pinned_limit_mb:%d", i % 50 + 1, i % 50 + 1);
        OK(tarn_configuration_set(text));
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(readers[i], NULL);
    OK(tarn_configuration_set("all:default"));
    nothing_is_left(0);
}

static void child_shuts_down(void)
{
    size_t bytes = 0;
    const char *text = NULL;
    GIVES(tarn_configuration_set(""), TARN_ERROR_FORKED);
    GIVES(tarn_configuration_get(NULL, 0, &bytes), TARN_ERROR_FORKED);
    GIVES(tarn_configuration_note_get(0, &text), TARN_ERROR_FORKED);
}

static void after_the_end_nothing_is_configured(void **state)
{
    (void)state;
    in_child(child_shuts_down);
    OK(tarn_configuration_set("leave_free_mb:3"));
    OK(tarn_shutdown());
    GIVES(tarn_configuration_set(""), TARN_ERROR_SHUTDOWN);
    CHECK(memory_config()->leave_free == 3 * MIB);
}

int main(void)
{
    const struct CMUnitTest language[] = {
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(the_defaults_are_pytorchs),
        cmocka_unit_test(blanks_count_nowhere),
        cmocka_unit_test(the_last_of_two_counts),
        cmocka_unit_test(a_parse_resets_four_keys_and_no_others),
        cmocka_unit_test(the_large_segment_is_read_first),
        cmocka_unit_test(lists_of_divisions),
        cmocka_unit_test(what_makes_no_sense_is_refused_where_it_stands),
        cmocka_unit_test(a_written_text_gives_the_same_settings),
        cmocka_unit_test(sizes_are_rounded_to_divisions),
        cmocka_unit_test(each_entry_is_for_its_sizes),
        cmocka_unit_test(the_environment_is_read_once_and_strictly),
    };
    const struct CMUnitTest run_time[] = {
        cmocka_unit_test(a_failed_change_changes_nothing),
        cmocka_unit_test(settings_are_given_as_text),
        cmocka_unit_test(what_has_no_effect_is_named),
        cmocka_unit_test(the_same_settings_take_no_more_memory),
        cmocka_unit_test(what_counts_at_load_time_stays),
        cmocka_unit_test(divisions_round_large_blocks),
        cmocka_unit_test(limits_follow_the_settings_that_change_them),
        cmocka_unit_test(memory_is_left_to_others),
        cmocka_unit_test(a_device_that_cannot_tell_is_asked_for_nothing),
        cmocka_unit_test(a_request_above_the_limit_is_rejected_when_that_is_asked_for),
        cmocka_unit_test(readers_see_whole_settings),
        cmocka_unit_test(after_the_end_nothing_is_configured),
    };
    unsetenv("TARN_ALLOC_CONF");
    host_start_with(2, MEMORY);
    int failed = cmocka_run_group_tests(language, NULL, NULL);
    return failed + cmocka_run_group_tests(run_time, NULL, NULL);
}
