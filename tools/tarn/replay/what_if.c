/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The language of --what-if. Owns nothing: values are written into the options, and the text of conf is pointed to. */
#include "replay/what_if.h"

#include "replay/crew.h"
#include "units.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define VALUE_BYTES 64 /* longer than any value that makes sense, but for conf */

struct parser {
    struct replay_options *options;
    char *error;
    size_t error_size;
    unsigned named; /* a bit an item that was there already */
    bool tarns;     /* something was named that PyTorch's policy does not have */
};

static bool fail(struct parser *parser, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(struct parser *parser, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(parser->error, parser->error_size, format, arguments);
    va_end(arguments);
    return false;
}

static bool read_memory(struct parser *parser, const char *value)
{
    uint64_t *memory = &parser->options->device_memory;
    return (units_parse_bytes(value, memory) && *memory >= REPLAY_MIN_MEMORY) ||
           fail(parser, "memory wants a size of 2 MiB or more, as 24G, not \"%s\"", value);
}

static bool read_lag(struct parser *parser, const char *value)
{
    double lag;
    if (!units_parse_number(value, 0, REPLAY_MAX_LAG, &lag))
        return fail(parser, "lag wants milliseconds from 0 to 10^9, not \"%s\"", value);
    parser->options->lag = (uint64_t)(lag * 1e6);
    return true;
}

static bool read_count(struct parser *parser, const char *name, const char *value, uint64_t most, uint32_t *count)
{
    uint64_t number;
    if (!units_parse_count(value, 1, most, &number))
        return fail(parser, "%s wants a number from 1 to %u, not \"%s\"", name, (unsigned)most, value);
    *count = (uint32_t)number;
    return true;
}

static bool read_repeat(struct parser *parser, const char *value)
{
    return read_count(parser, "repeat", value, REPLAY_MAX_REPEAT, &parser->options->repeat);
}

static bool read_streams(struct parser *parser, const char *value)
{
    return read_count(parser, "deal-streams", value, REPLAY_MAX_STREAMS, &parser->options->deal_streams);
}

static bool read_threads(struct parser *parser, const char *value)
{
    parser->tarns = true;
    return read_count(parser, "deal-threads", value, CREW_MAX, &parser->options->deal_threads);
}

static bool read_vary(struct parser *parser, const char *value)
{
    return units_parse_count(value, 1, REPLAY_MAX_SEED, &parser->options->vary) ||
           fail(parser, "vary wants a seed from 1 to 10^9, not \"%s\"", value);
}

static bool read_policy(struct parser *parser, const char *value)
{
    parser->options->pytorch = strcmp(value, "pytorch") == 0;
    return parser->options->pytorch || strcmp(value, "tarn") == 0 ||
           fail(parser, "policy wants tarn or pytorch, not \"%s\"", value);
}

static bool read_conf(struct parser *parser, const char *value)
{
    parser->tarns = true;
    parser->options->conf = value;
    return *value || fail(parser, "conf wants what TARN_ALLOC_CONF may say, as conf=profile:footprint");
}

static const struct item {
    const char *name;
    bool (*read)(struct parser *parser, const char *value);
} items[] = {
    {"memory", read_memory},        {"lag", read_lag},   {"repeat", read_repeat}, {"deal-streams", read_streams},
    {"deal-threads", read_threads}, {"vary", read_vary}, {"policy", read_policy}, {"conf", read_conf},
};

static const struct item *item_find(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        if (strlen(items[i].name) == length && memcmp(items[i].name, name, length) == 0)
            return &items[i];
    return NULL;
}

/* Takes one item; gives where the next one begins, the end of the text behind the last, or NULL. */
static const char *parse_item(struct parser *parser, const char *text)
{
    size_t length = strcspn(text, "=,");
    const struct item *item = text[length] == '=' ? item_find(text, length) : NULL;
    if (!item) {
        fail(parser,
             "\"%.*s\" is no item; there are memory=, lag=, repeat=, deal-streams=, deal-threads=, vary=, policy= and "
             "conf=",
             (int)(length < VALUE_BYTES ? length : VALUE_BYTES), text);
        return NULL;
    }
    if (parser->named & 1U << (item - items)) {
        fail(parser, "%s is there twice", item->name);
        return NULL;
    }
    parser->named |= 1U << (item - items);
    const char *at = text + length + 1;
    if (item->read == read_conf) /* the rest, whatever is in it */
        return read_conf(parser, at) ? at + strlen(at) : NULL;

    char value[VALUE_BYTES];
    length = strcspn(at, ",");
    snprintf(value, sizeof value, "%.*s", (int)(length < VALUE_BYTES ? length : VALUE_BYTES), at);
    if (!item->read(parser, value))
        return NULL;
    if (at[length] && !at[length + 1]) {
        fail(parser, "nothing follows the last comma");
        return NULL;
    }
    return at + length + (at[length] != '\0');
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the parser writes through it */
bool what_if_parse(const char *spec, struct replay_options *options, char *error, size_t error_size)
{
    struct parser parser = {.options = options, .error = error, .error_size = error_size};
    if (!*spec)
        return fail(&parser, "nothing is said; an item is for example memory=24G");
    for (const char *at = spec; *at;)
        if (!(at = parse_item(&parser, at)))
            return false;
    options->what_if = spec;
    return !options->pytorch || !parser.tarns ||
           fail(&parser, "conf and deal-threads are tarn's; PyTorch's policy runs with its defaults, by one thread");
}
