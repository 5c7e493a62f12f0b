/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* libFuzzer's way into the language of the settings: clang -fsanitize=fuzzer,address,undefined.
 * Seeds: corpus/config. A text that is refused names a column of its own and changes nothing; one
 * that is read is in range, and what is written of it gives the same settings from any others.
 *
 * Reader: src/memory/settings/config_text.c
 */
#include "memory/settings/config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void demand(bool condition)
{
    if (!condition)
        abort();
}

static bool same(const struct memory_config *one, const struct memory_config *other)
{
    return memcmp(one, other, sizeof *one) == 0;
}

static void check_ranges(const struct memory_config *config)
{
    demand(config->max_split_size >= config->large_segment_size);
    demand(config->max_non_split_rounding >= config->large_segment_size);
    demand(config->large_segment_size > 10 * CONFIG_MIB);
    demand(config->garbage_collection_threshold < CONFIG_ONE);
    demand(config->per_process_memory_fraction <= CONFIG_ONE);
    demand(config->pinned_num_register_threads >= 1 && config->pinned_num_register_threads <= 128);
    for (unsigned shift = 0; shift < 60; shift++) {
        size_t asked = ((size_t)1 << shift) + 1, rounded = config_round(config, asked);
        demand(rounded >= asked && rounded <= 2 * asked + TARN_BLOCK_UNIT &&
               rounded % TARN_BLOCK_UNIT == 0);
    }
}

static void check_writing(const struct memory_config *config, struct memory_config *others)
{
    char text[4096];
    struct memory_config fresh = memory_config_defaults;
    demand(config_format(config, text, sizeof text) <= sizeof text);
    demand(!config_parse("written", text, NULL, &fresh) && same(&fresh, config));
    demand(!config_parse("written", text, NULL, others) && same(others, config));
    demand(!config_parse("fixed", text, config, &fresh) && same(&fresh, config));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct memory_config last; /* what the last text left */
    static bool begun;
    if (!begun)
        last = memory_config_defaults;
    begun = true;
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';

    struct memory_config config = last;
    if (config_parse("here", text, NULL, &config)) {
        static const char before[] = "here, column ";
        demand(strncmp(tarn_last_error(), before, strlen(before)) == 0);
        char *end = NULL;
        unsigned long column = strtoul(tarn_last_error() + strlen(before), &end, 10);
        demand(column >= 1 && column <= strlen(text) + 1 && *end == ':');
        demand(same(&config, &last));
    } else {
        check_ranges(&config);
        check_writing(&config, &last);
    }
    free(text);
    return 0;
}
