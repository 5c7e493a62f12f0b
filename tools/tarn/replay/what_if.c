/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The language of --what-if. Owns nothing: values are written into the options, and `conf` points
 * into the text. */
#include "replay/what_if.h"

#include "replay/replay.h"
#include "replay/run_options.h"
#include "units.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define VALUE_BYTES 64 /* no valid value is longer, except that of conf */

struct parser {
    struct replay_options *options;
    char *error;
    size_t error_size;
    unsigned named; /* one bit per item that was named */
    bool threads;   /* deal-threads was named, which PyTorch's policies lack */
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

static bool take_policy(void *options, const char *value)
{
    static const char *const names[] = {
        [REPLAY_TARN] = "tarn", [REPLAY_NATIVE] = "pytorch", [REPLAY_EXPANDABLE] = "expandable"};
    for (enum replay_policy policy = REPLAY_TARN; policy < REPLAY_POLICIES; policy++)
        if (strcmp(value, names[policy]) == 0) {
            ((struct replay_options *)options)->policy = policy;
            return true;
        }
    return false;
}

static bool take_least(void *options, const char *value)
{
    bool yes = strcmp(value, "yes") == 0;
    ((struct replay_options *)options)->least = yes;
    return yes || strcmp(value, "no") == 0;
}

static bool take_conf(void *options, const char *value)
{
    ((struct replay_options *)options)->conf = value;
    return *value != '\0';
}

static const struct item {
    const char *name, *wants;
    bool (*take)(void *options, const char *value);
} items[] = {
    {"memory", UNITS_WANTS_MEMORY, run_take_memory},
#define X(field, name, wants) {(name), (wants), run_take_##field},
    RUN_OPTION_LIST(X)
#undef X
        {"policy", "tarn, pytorch or expandable", take_policy},
    {"least", "yes or no", take_least},
    {"conf", "what TARN_ALLOC_CONF may say, as conf=segments:plain", take_conf},
};

static const struct item *item_find(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        if (strlen(items[i].name) == length && memcmp(items[i].name, name, length) == 0)
            return &items[i];
    return NULL;
}

/* Reads one item. Returns where the next one begins, the end of the text after the last one, or
 * NULL. */
static const char *parse_item(struct parser *parser, const char *text)
{
    size_t length = strcspn(text, "=,");
    const struct item *item = text[length] == '=' ? item_find(text, length) : NULL;
    if (!item) {
        fail(parser,
             "\"%.*s\" is no item; there are memory=, lag=, repeat=, deal-streams=, deal-threads=, "
             "vary=, policy=, "
             "least= and conf=",
             (int)(length < VALUE_BYTES ? length : VALUE_BYTES), text);
        return NULL;
    }
    if (parser->named & 1U << (item - items)) {
        fail(parser, "%s is there twice", item->name);
        return NULL;
    }
    parser->named |= 1U << (item - items);
    const char *at = text + length + 1;
    parser->threads |= item->take == run_take_deal_threads;
    /* conf takes the rest of the text */
    length = item->take == take_conf ? strlen(at) : strcspn(at, ",");

    char value[VALUE_BYTES];
    snprintf(value, sizeof value, "%.*s", (int)(length < VALUE_BYTES ? length : VALUE_BYTES), at);
    if (!item->take(parser->options, item->take == take_conf ? at : value)) {
        fail(parser, "%s wants %s, not \"%s\"", item->name, item->wants, value);
        return NULL;
    }
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
    for (const char *at = spec; *at;) {
        at = parse_item(&parser, at);
        if (!at)
            return false;
    }
    options->what_if = spec;
    if (options->policy == REPLAY_TARN)
        return true;
    if (parser.threads)
        return fail(&parser, "deal-threads is tarn's; PyTorch's policies run by one thread");
    struct c10_policy settings = c10_policy_default(false);
    char text[256];
    return !options->conf || c10_policy_parse(options->conf, &settings, text, sizeof text) ||
           fail(&parser, "conf: %s", text);
}
