/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* PyTorch's settings as a text: KEY:VALUE, with commas, where a value may be a list in brackets.
 * Source: pytorch/pytorch, c10/core/AllocatorConfig.cpp and c10/cuda/CUDAAllocatorConfig.cpp. */
#include "policy/c10_model.h"
#include "units.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define VALUE_BYTES 200 /* no valid value is longer */
#define MOST_MIB (UINT64_C(1) << 28)

struct parser {
    struct c10_policy *policy;
    char *error;
    size_t error_size;
};

static bool fail(struct parser *parser, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static bool fail(struct parser *parser, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(parser->error, parser->error_size, format, arguments);
    va_end(arguments);
    return false;
}

static bool read_expandable(struct parser *parser, const char *value)
{
    parser->policy->expandable = strcmp(value, "True") == 0;
    return parser->policy->expandable || strcmp(value, "False") == 0 ||
           fail(parser, "expandable_segments wants True or False, not \"%s\"", value);
}

static bool read_mib(struct parser *parser, const char *name, const char *value, uint64_t least,
                     uint64_t *bytes)
{
    uint64_t mib;
    if (!units_parse_count(value, least, MOST_MIB, &mib))
        return fail(parser, "%s wants a number of MiB from %u on, not \"%s\"", name,
                    (unsigned)least, value);
    *bytes = mib * C10_MIB;
    return true;
}

static bool read_max_split(struct parser *parser, const char *value)
{
    return read_mib(parser, "max_split_size_mb", value, 20, &parser->policy->max_split);
}

static bool read_rounding(struct parser *parser, const char *value)
{
    return read_mib(parser, "max_non_split_rounding_mb", value, 20,
                    &parser->policy->max_non_split_rounding);
}

static bool read_large_segment(struct parser *parser, const char *value)
{
    return read_mib(parser, "large_segment_size_mb", value, 11, &parser->policy->large_segment);
}

static bool read_collect(struct parser *parser, const char *value)
{
    double part;
    if (!units_parse_number(value, 0, 1, &part) || part <= 0 || part >= 1)
        return fail(parser,
                    "garbage_collection_threshold wants a number between 0 and 1, not \"%s\"",
                    value);
    parser->policy->collect_above = part;
    return true;
}

static bool read_parts(struct parser *parser, const char *text, uint32_t *parts)
{
    uint64_t number;
    if (!units_parse_count(text, 0, UINT64_C(1) << 20, &number) || (number & (number - 1)))
        return fail(parser, "roundup_power2_divisions wants powers of two, not \"%s\"", text);
    *parts = (uint32_t)number;
    return true;
}

/* The class of a list's boundary: a power of two of MiB, or ">" for all sizes above the others. -1
 * for anything else. */
static int class_of(const char *text, int above)
{
    uint64_t mib;
    if (strcmp(text, ">") == 0)
        return above;
    if (!units_parse_count(text, 1, UINT64_C(1) << (C10_DIVISIONS - 1), &mib) || (mib & (mib - 1)))
        return -1;
    return __builtin_ctzll(mib);
}

/* Reads a list such as [256:1,512:2,>:4]. The first boundary also covers smaller sizes, ">" covers
 * sizes above the last. */
static bool read_divisions(struct parser *parser, const char *value)
{
    uint32_t *divisions = parser->policy->divisions;
    char list[VALUE_BYTES], *rest = NULL, *boundary_rest = NULL;
    int above = 0;
    memset(divisions, 0, sizeof parser->policy->divisions);
    if (*value != '[') {
        if (!read_parts(parser, value, &divisions[0]))
            return false;
        for (int i = 1; i < C10_DIVISIONS; i++)
            divisions[i] = divisions[0];
        return true;
    }
    snprintf(list, sizeof list, "%s", value + 1);
    if (!*list || list[strlen(list) - 1] != ']')
        return fail(parser, "roundup_power2_divisions wants ] at the end of \"%s\"", value);
    list[strlen(list) - 1] = '\0';
    for (char *entry = strtok_r(list, ",", &rest); entry; entry = strtok_r(NULL, ",", &rest)) {
        const char *boundary = strtok_r(entry, ":", &boundary_rest),
                   *parts = strtok_r(NULL, ":", &boundary_rest);
        int at = boundary ? class_of(boundary, above) : -1;
        if (at < 0 || !parts)
            return fail(parser,
                        "roundup_power2_divisions wants a power of two of MiB and its parts, as "
                        "256:4, in \"%s\"",
                        value);
        int last = strcmp(boundary, ">") == 0 ? C10_DIVISIONS - 1 : at;
        uint32_t number = 0;
        if (!read_parts(parser, parts, &number))
            return false;
        for (int i = above ? at : 0; i <= last && i < C10_DIVISIONS; i++)
            divisions[i] = number;
        above = last + 1;
    }
    return true;
}

/* Accepts a setting that does not affect where memory comes from. */
static bool read_nothing(struct parser *parser, const char *value)
{
    (void)parser;
    (void)value;
    return true;
}

static const struct key {
    const char *name;
    bool (*read)(struct parser *parser, const char *value);
} keys[] = {
    {"expandable_segments", read_expandable},
    {"max_split_size_mb", read_max_split},
    {"max_non_split_rounding_mb", read_rounding},
    {"large_segment_size_mb", read_large_segment},
    {"garbage_collection_threshold", read_collect},
    {"roundup_power2_divisions", read_divisions},
    {"release_lock_on_cudamalloc", read_nothing},
    {"release_lock_on_hipmalloc", read_nothing},
    {"pinned_use_cuda_host_register", read_nothing},
    {"pinned_use_hip_host_register", read_nothing},
    {"pinned_num_register_threads", read_nothing},
    {"pinned_use_background_threads", read_nothing},
    {"pinned_reserve_segment_size_mb", read_nothing},
};

static const struct key *key_named(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strlen(keys[i].name) == length && memcmp(keys[i].name, name, length) == 0)
            return &keys[i];
    return NULL;
}

/* Reads one setting. Returns where the next one begins, the end of the text after the last one, or
 * NULL. */
static const char *parse_setting(struct parser *parser, const char *text)
{
    char value[VALUE_BYTES];
    size_t length = strcspn(text, ":,");
    const struct key *key = text[length] == ':' ? key_named(text, length) : NULL;
    if (!key) {
        fail(parser, "\"%.*s\" is not a PyTorch setting that the model knows",
             (int)(length < VALUE_BYTES ? length : VALUE_BYTES), text);
        return NULL;
    }
    const char *at = text + length + 1;
    length = *at == '[' ? strcspn(at, "]") : strcspn(at, ",");
    length += at[length] == ']';
    if (length == 0 || length >= sizeof value ||
        (at[length] && (at[length] != ',' || !at[length + 1]))) {
        fail(parser, "%s has no value that makes sense", key->name);
        return NULL;
    }
    snprintf(value, sizeof value, "%.*s", (int)length, at);
    return key->read(parser, value) ? at + length + (at[length] == ',') : NULL;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the parser writes through it */
bool c10_policy_parse(const char *conf, struct c10_policy *policy, char *error, size_t error_size)
{
    struct parser parser = {.policy = policy, .error = error, .error_size = error_size};
    for (const char *at = conf; *at;) {
        at = parse_setting(&parser, at);
        if (!at)
            return false;
    }
    return policy->max_split >= policy->large_segment ||
           fail(&parser, "max_split_size_mb wants at least the size of a large segment, %u",
                (unsigned)(policy->large_segment / C10_MIB));
}
