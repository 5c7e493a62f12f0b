/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The language of the settings, read and written:
 *
 *      text  := [item {"," item} [","]]
 *      item  := key ":" (word | "[" word ":" word {"," word ":" word} "]")
 *
 * Blanks are ignored everywhere except in a path, even inside a word, as in PyTorch. Every value
 * must be complete, in its range and in its order, even where PyTorch is more tolerant. Owns the
 * table of keys, which is constant. Takes no lock and allocates nothing. */
#include "base/status.h"
#include "memory/settings/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BLANKS " \t\n\v\f\r"
#define SEPARATORS ",:[]"
#define NO_PATH "none"
#define WORD_BYTES 64 /* longer than any word with a meaning */
#define GIB ((size_t)1 << 30)
#define MOST_GIB (TARN_MAX_SIZE >> 30)
#define MOST_DIVISIONS ((size_t)1 << 30)

/* Keys ----------------------------------------------------------------------------------------- */

struct key {
    const char *name, *note;
    size_t offset, bytes; /* of the field */
    enum config_kind kind;
    enum config_rule rule;
    size_t least, most;
    bool has_effect;
};

static const struct key keys[CONFIG_KEYS] = {
#define X(key, field, kind, rule, initial, least, most, reason) \
    {#key,                                                      \
     #key ": " reason,                                          \
     offsetof(struct memory_config, field),                     \
     sizeof((struct memory_config *)0)->field,                  \
     kind,                                                      \
     rule,                                                      \
     least,                                                     \
     most,                                                      \
     sizeof(reason) == sizeof("")},
    MEMORY_CONFIG_LIST(X)
#undef X
};

static const struct {
    const char *name;
    enum config_key key;
} aliases[] = {
#define X(alias, key) {#alias, CONFIG_KEY_##key},
    MEMORY_CONFIG_ALIASES(X)
#undef X
};

const struct memory_config memory_config_defaults = {
#define X(key, field, kind, rule, initial, ...) .field = initial,
    MEMORY_CONFIG_LIST(X)
#undef X
};

static const char *const words[][5] = {
    [CONFIG_BOOLEAN] = {"False", "True"},
    [CONFIG_BACKEND] = {"native", "cudaMallocAsync"},
    [CONFIG_SEGMENTS] = {"driver", "virtual", "plain", "exact"},
    [CONFIG_COMPACTION] = {"off", "on_oom", "on_oom_quiet"},
};

static void *field_of(struct memory_config *config, const struct key *key)
{
    return (char *)config + key->offset;
}

static const void *value_of(const struct memory_config *config, const struct key *key)
{
    return (const char *)config + key->offset;
}

/* The value of a key that is not named. */
static const void *default_of(const struct memory_config *config, const struct key *key)
{
    if (key == &keys[CONFIG_KEY_max_non_split_rounding_mb])
        return &config->large_segment_size;
    return value_of(&memory_config_defaults, key);
}

static bool is_default(const struct memory_config *config, const struct key *key)
{
    return memcmp(value_of(config, key), default_of(config, key), key->bytes) == 0;
}

static const struct key *key_find(const char *name)
{
    for (size_t i = 0; i < CONFIG_KEYS; i++)
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(aliases[i].name, name) == 0)
            return &keys[aliases[i].key];
    return NULL;
}

/* The edit distance of two words: letters to add, drop or change. */
static size_t distance(const char *one, const char *other)
{
    size_t row[WORD_BYTES], length = strlen(other);
    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 1; one[i - 1]; i++) {
        size_t before = row[0]; /* the value above and to the left */
        row[0] = i;
        for (size_t j = 1; j <= length; j++) {
            size_t change = before + (one[i - 1] != other[j - 1]);
            size_t least = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            before = row[j];
            row[j] = change < least ? change : least;
        }
    }
    return row[length];
}

/* The key that `name` may be meant for, or NULL: a word of which half differs is no typo. */
static const char *key_closest(const char *name)
{
    const char *closest = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < CONFIG_KEYS; i++) {
        size_t changes = distance(name, keys[i].name);
        if (changes < least) {
            least = changes;
            closest = keys[i].name;
        }
    }
    return 2 * least < strlen(name) ? closest : NULL;
}

const char *config_note(const struct memory_config *config, int key)
{
    return keys[key].has_effect || is_default(config, &keys[key]) ? NULL : keys[key].note;
}

/* Words ---------------------------------------------------------------------------------------- */

enum token { TOKEN_END = 0, TOKEN_WORD = 'w' }; /* or a separator character */

struct parser {
    const char *source, *text;
    const char *from, *next; /* start of the token; what is behind it */
    size_t column;           /* of the token, from 1 */
    int token;
    bool cut; /* the word is longer than `word` holds */
    /* The token without blanks, also if it is a separator or the end; for errors. */
    char word[WORD_BYTES];
};

static void advance(struct parser *parser)
{
    const char *at = parser->next + strspn(parser->next, BLANKS);
    size_t length = 0;
    parser->column = (size_t)(at - parser->text) + 1;
    parser->from = at;
    parser->cut = false;
    if (!*at) {
        parser->token = TOKEN_END;
        memcpy(parser->word, "the end", sizeof "the end");
    } else if (strchr(SEPARATORS, *at)) {
        parser->word[0] = *at;
        parser->token = (unsigned char)*at++;
        parser->word[1] = '\0';
    } else {
        parser->token = TOKEN_WORD;
        for (; *at && !strchr(SEPARATORS, *at); at++) {
            if (strchr(BLANKS, *at))
                continue;
            parser->cut = parser->cut || length == WORD_BYTES - 1;
            if (!parser->cut)
                /* It may be printed. */
                parser->word[length++] = (unsigned char)*at < ' ' ? '?' : *at;
        }
        parser->word[length] = '\0';
    }
    parser->next = at;
}

/* Takes a separator, or fails with "[what] is missing before [word]". */
static tarn_status expect(struct parser *parser, int token, const char *what)
{
    if (parser->token != token)
        return failed(TARN_ERROR_CONFIGURATION, "%s, column %zu: %s is missing before %s",
                      parser->source, parser->column, what, parser->word);
    advance(parser);
    return TARN_OK;
}

/* Fails because the present word is not a value of the key. */
static __attribute__((format(printf, 3, 4))) tarn_status
refuse(const struct parser *parser, const char *name, const char *format, ...)
{
    char allowed[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(allowed, sizeof allowed, format, arguments);
    va_end(arguments);
    return failed(TARN_ERROR_CONFIGURATION, "%s, column %zu: %s is %s%s, but must be %s",
                  parser->source, parser->column, name, parser->word, parser->cut ? "..." : "",
                  allowed);
}

/* Reads digits, as far as the number fits. */
static bool read_number(const char **text, size_t *number)
{
    const char *at = *text;
    size_t value = 0;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, (size_t)10, &value) ||
            __builtin_add_overflow(value, (size_t)(*at - '0'), &value))
            return false;
    if (at == *text)
        return false;
    *text = at;
    *number = value;
    return true;
}

/* Reads the word as a whole number from `least` to `most`. */
static bool word_number(const struct parser *parser, size_t least, size_t most, size_t *number)
{
    const char *at = parser->word;
    size_t value = 0;
    if (parser->token != TOKEN_WORD || parser->cut || !read_number(&at, &value) || *at ||
        value < least || value > most)
        return false;
    *number = value;
    return true;
}

/* Reads the word as a decimal number, in billionths. Digits after the ninth are dropped, but a
 * value that they take above `most` is refused. */
static bool word_fraction(const struct parser *parser, size_t least, size_t most,
                          size_t *billionths)
{
    const char *at = parser->word;
    size_t value = 0, whole = 0;
    bool more = false;
    if (parser->token != TOKEN_WORD || parser->cut || !read_number(&at, &whole) || whole > 9)
        return false;
    value = whole * CONFIG_ONE;
    if (*at == '.')
        at++;
    for (size_t unit = CONFIG_ONE / 10; *at >= '0' && *at <= '9'; at++, unit /= 10) {
        value += (size_t)(*at - '0') * unit;
        more = more || (unit == 0 && *at != '0');
    }
    if (*at || value < least || value > most || (value == most && more))
        return false;
    *billionths = value;
    return true;
}

static bool is_power(size_t number)
{
    return number && !(number & (number - 1));
}

static unsigned log2_of(size_t number)
{
    return (unsigned)(8 * sizeof number) - 1 - (unsigned)__builtin_clzl(number);
}

/* Values --------------------------------------------------------------------------------------- */

static tarn_status parse_word(struct parser *parser, const struct key *key, size_t *value)
{
    const char *const *allowed = words[key->kind];
    for (size_t i = 0; allowed[i]; i++) {
        if (strcmp(parser->word, allowed[i]) != 0)
            continue;
        *value = i;
        advance(parser);
        return TARN_OK;
    }
    if (allowed[2] && allowed[3])
        return refuse(parser, key->name, "%s, %s, %s or %s", allowed[0], allowed[1], allowed[2],
                      allowed[3]);
    if (allowed[2])
        return refuse(parser, key->name, "%s, %s or %s", allowed[0], allowed[1], allowed[2]);
    return refuse(parser, key->name, "%s or %s", allowed[0], allowed[1]);
}

static tarn_status parse_mebibytes(struct parser *parser, const struct key *key, size_t large,
                                   size_t *bytes)
{
    size_t least = key->least == CONFIG_LARGE_SEGMENT ? large / CONFIG_MIB : key->least, number = 0;
    if (!word_number(parser, 0, SIZE_MAX, &number))
        return refuse(parser, key->name, "a whole number of MiB");
    if (number > key->most)
        return refuse(parser, key->name, "at most %zu", key->most);
    if (number < least && key->least == CONFIG_LARGE_SEGMENT)
        return refuse(parser, key->name, "at least large_segment_size_mb (%zu)", least);
    if (number < least)
        return refuse(parser, key->name, "at least %zu", least);
    *bytes = number * CONFIG_MIB;
    advance(parser);
    return TARN_OK;
}

static tarn_status parse_power(struct parser *parser, const struct key *key, size_t *value)
{
    size_t number = 0;
    if (!word_number(parser, key->least, key->most, &number) || !is_power(number))
        return refuse(parser, key->name, "a power of two from %zu to %zu", key->least, key->most);
    *value = number;
    advance(parser);
    return TARN_OK;
}

static tarn_status parse_milliseconds(struct parser *parser, const struct key *key, size_t *value)
{
    if (!word_number(parser, key->least, key->most, value))
        return refuse(parser, key->name, "a whole number of milliseconds, at most %zu", key->most);
    advance(parser);
    return TARN_OK;
}

static tarn_status parse_fraction(struct parser *parser, const struct key *key, size_t *billionths)
{
    if (!word_fraction(parser, key->least, key->most, billionths))
        return refuse(parser, key->name,
                      key->least ? "a number above 0 and below 1, such as 0.8"
                                 : "a number from 0 to 1, such as 0.8");
    advance(parser);
    return TARN_OK;
}

/* A fraction above 0, which is capped, or a number of GiB followed by G. */
static tarn_status parse_reserve(struct parser *parser, const char *name,
                                 struct config_reserve *reserve)
{
    const char *at = parser->word;
    size_t number = 0;
    struct config_reserve found = {0};
    if (parser->token == TOKEN_WORD && !parser->cut && read_number(&at, &number) &&
        strcmp(at, "G") == 0 && number > 0 && number <= MOST_GIB)
        found = (struct config_reserve){.absolute = true, .amount = number * GIB};
    else if (!word_fraction(parser, 1, 10 * CONFIG_ONE, &found.amount))
        return refuse(
            parser, name,
            "a fraction of the memory above 0 and below 10, or a number of GiB such as 40G");
    else if (found.amount > CONFIG_RESERVE_MOST)
        found.amount = CONFIG_RESERVE_MOST;
    *reserve = found;
    advance(parser);
    return TARN_OK;
}

static tarn_status parse_divisions_of(struct parser *parser, const struct key *key,
                                      size_t *divisions)
{
    size_t number = 0;
    if (!word_number(parser, 0, MOST_DIVISIONS, &number) || (number && !is_power(number)))
        return refuse(parser, key->name, "0 or a power of two up to %zu", MOST_DIVISIONS);
    *divisions = number;
    advance(parser);
    return TARN_OK;
}

static void fill(size_t divisions[CONFIG_DIVISIONS], size_t from, size_t to, size_t value)
{
    for (size_t i = from; i < to; i++)
        divisions[i] = value;
}

/* One "size:divisions" of a list with rising sizes; `known` entries are set so far. The first sets
 * also all sizes below it; ">" sets all above the last. */
static tarn_status parse_division(struct parser *parser, const struct key *key,
                                  size_t divisions[CONFIG_DIVISIONS], size_t *known)
{
    size_t size = 0, value = 0, from = *known, end = CONFIG_DIVISIONS;
    bool above = parser->token == TOKEN_WORD && strcmp(parser->word, ">") == 0;
    if (!above) {
        if (!word_number(parser, 1, (size_t)1 << (CONFIG_DIVISIONS - 1), &size) || !is_power(size))
            return refuse(parser, "a size of roundup_power2_divisions",
                          "a power of two from 1 to %zu, of MiB, or >",
                          (size_t)1 << (CONFIG_DIVISIONS - 1));
        if (log2_of(size) < *known)
            return refuse(parser, "a size of roundup_power2_divisions",
                          "larger than the sizes before it");
        end = log2_of(size) + 1;
        from = *known ? end - 1 : 0;
    } else if (*known == CONFIG_DIVISIONS) {
        return refuse(parser, "a size of roundup_power2_divisions",
                      "a smaller one than %zu before it, or nothing",
                      (size_t)1 << (CONFIG_DIVISIONS - 1));
    }
    advance(parser);
    tarn_status status = expect(parser, ':', "\":\" and a number of divisions");
    if (!status)
        status = parse_divisions_of(parser, key, &value);
    if (status)
        return status;
    fill(divisions, from, end, value);
    *known = end;
    if (above && parser->token == ',')
        return failed(TARN_ERROR_CONFIGURATION,
                      "%s, column %zu: nothing may follow \">\" in a list of divisions",
                      parser->source, parser->column);
    return TARN_OK;
}

static tarn_status parse_divisions(struct parser *parser, const struct key *key,
                                   size_t result[CONFIG_DIVISIONS])
{
    size_t divisions[CONFIG_DIVISIONS] = {0}, known = 0;
    tarn_status status = TARN_OK;
    if (parser->token != '[') {
        status = parse_divisions_of(parser, key, &divisions[0]);
        fill(divisions, 1, CONFIG_DIVISIONS, divisions[0]);
    } else {
        do {
            advance(parser);
            status = parse_division(parser, key, divisions, &known);
        } while (!status && parser->token == ',');
        if (!status)
            status = expect(parser, ']', "\",\" or \"]\"");
    }
    if (!status)
        memcpy(result, divisions, sizeof divisions);
    return status;
}

static tarn_status parse_class(struct parser *parser, struct config_class classes[CONFIG_CLASSES],
                               size_t count)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    if (parser->token != TOKEN_WORD || parser->cut || strlen(parser->word) >= CONFIG_CLASS_BYTES ||
        parser->word[strspn(parser->word, letters)])
        return refuse(parser, "the name of a class", "at most %d letters, digits, _, - and .",
                      CONFIG_CLASS_BYTES - 1);
    for (size_t i = 0; i < count; i++)
        if (strcmp(classes[i].name, parser->word) == 0)
            return refuse(parser, "the name of a class", "another than those before it");
    if (count == CONFIG_CLASSES)
        return refuse(parser, "the name of a class", "one of %d at most", CONFIG_CLASSES);
    memcpy(classes[count].name, parser->word, strlen(parser->word));
    advance(parser);
    tarn_status status = expect(parser, ':', "\":\" and a value");
    return status ? status : parse_reserve(parser, classes[count].name, &classes[count].reserve);
}

static tarn_status parse_classes(struct parser *parser, struct config_class result[CONFIG_CLASSES])
{
    struct config_class classes[CONFIG_CLASSES] = {{.name = ""}};
    size_t count = 0;
    tarn_status status = TARN_OK;
    if (parser->token != '[')
        return refuse(parser, "expandable_segments_reserve_by_class",
                      "a list such as [a:0.5,b:40G]");
    do {
        advance(parser);
        status = parse_class(parser, classes, count++);
    } while (!status && parser->token == ',');
    if (!status)
        status = expect(parser, ']', "\",\" or \"]\"");
    if (!status)
        memcpy(result, classes, sizeof classes);
    return status;
}

/* Any text without separators, without the blanks at its ends. */
static tarn_status parse_path(struct parser *parser, const struct key *key,
                              char path[CONFIG_PATH_BYTES])
{
    size_t length = strcspn(parser->from, SEPARATORS);
    while (length > 0 && strchr(BLANKS, parser->from[length - 1]))
        length--;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)parser->from[i] < ' ')
            return refuse(parser, key->name, "the path of a file, without control characters");
    if (parser->token != TOKEN_WORD || length >= CONFIG_PATH_BYTES)
        return refuse(parser, key->name,
                      "the path of a file, of at most %d bytes without , : [ and ]",
                      CONFIG_PATH_BYTES - 1);
    memset(path, 0, CONFIG_PATH_BYTES);
    if (length != strlen(NO_PATH) || memcmp(parser->from, NO_PATH, length) != 0)
        memcpy(path, parser->from, length);
    advance(parser);
    return TARN_OK;
}

static tarn_status parse_value(struct parser *parser, const struct key *key,
                               struct memory_config *config)
{
    void *field = field_of(config, key);
    if (parser->token != TOKEN_WORD && parser->token != '[')
        return failed(TARN_ERROR_CONFIGURATION,
                      "%s, column %zu: the value of %s is missing before %s", parser->source,
                      parser->column, key->name, parser->word);
    switch (key->kind) {
    case CONFIG_MEBIBYTES:
        return parse_mebibytes(parser, key, config->large_segment_size, field);
    case CONFIG_MILLISECONDS:
        return parse_milliseconds(parser, key, field);
    case CONFIG_POWER:
        return parse_power(parser, key, field);
    case CONFIG_FRACTION:
        return parse_fraction(parser, key, field);
    case CONFIG_RESERVE:
        return parse_reserve(parser, key->name, field);
    case CONFIG_LIST_OF_DIVISIONS:
        return parse_divisions(parser, key, field);
    case CONFIG_LIST_OF_CLASSES:
        return parse_classes(parser, field);
    case CONFIG_PATH:
        return parse_path(parser, key, field);
    default:
        return parse_word(parser, key, field);
    }
}

/* Items ---------------------------------------------------------------------------------------- */

/* A value that cannot change after memory was used. It may be set again to the value that it
 * has. */
static tarn_status parse_loaded(struct parser *parser, const struct key *key,
                                const struct memory_config *fixed, struct memory_config *config)
{
    struct parser before = *parser;
    struct memory_config asked = *config;
    tarn_status status = parse_value(parser, key, &asked);
    const void *value = value_of(&asked, key), *in_force = value_of(fixed, key);
    if (status || memcmp(value, value_of(config, key), key->bytes) == 0 ||
        memcmp(value, in_force, key->bytes) == 0)
        return status;
    const char *path = in_force;
    return refuse(&before, key->name, "%s: memory was used with it, and it counts only until then",
                  key->kind != CONFIG_PATH ? words[key->kind][*(const size_t *)in_force]
                  : *path                  ? path
                                           : NO_PATH);
}

static tarn_status parse_item(struct parser *parser, const struct memory_config *fixed,
                              struct memory_config *config)
{
    if (parser->token != TOKEN_WORD)
        return failed(TARN_ERROR_CONFIGURATION, "%s, column %zu: a key is missing before %s",
                      parser->source, parser->column, parser->word);
    const struct key *key = parser->cut ? NULL : key_find(parser->word);
    if (!key && strcmp(parser->word, "all") == 0)
        return failed(TARN_ERROR_CONFIGURATION,
                      "%s, column %zu: all:default may only stand at the beginning", parser->source,
                      parser->column);
    const char *closest = key ? NULL : key_closest(parser->word);
    if (closest)
        return failed(TARN_ERROR_CONFIGURATION,
                      "%s, column %zu: unknown key \"%s%s\"; did you mean \"%s\"?", parser->source,
                      parser->column, parser->word, parser->cut ? "..." : "", closest);
    if (!key)
        return failed(TARN_ERROR_CONFIGURATION,
                      "%s, column %zu: unknown key \"%s%s\"; docs/configuration.md lists the keys",
                      parser->source, parser->column, parser->word, parser->cut ? "..." : "");
    advance(parser);
    size_t large = config->large_segment_size; /* set already (find_large_segment()) */
    tarn_status status = expect(parser, ':', "\":\" and a value");
    if (!status)
        status = key->rule == CONFIG_LOADED && fixed ? parse_loaded(parser, key, fixed, config)
                                                     : parse_value(parser, key, config);
    config->large_segment_size = large;
    return status;
}

/* "all:default" resets every value that may change. */
static tarn_status parse_all(struct parser *parser, const struct memory_config *fixed,
                             struct memory_config *config)
{
    if (parser->token != TOKEN_WORD || strcmp(parser->word, "all") != 0)
        return TARN_OK;
    advance(parser);
    tarn_status status = expect(parser, ':', "\":default\"");
    if (status)
        return status;
    if (parser->token != TOKEN_WORD || strcmp(parser->word, "default") != 0)
        return refuse(parser, "all", "default");
    for (const struct key *key = keys; key < keys + CONFIG_KEYS; key++)
        if (!fixed || key->rule != CONFIG_LOADED)
            memcpy(field_of(config, key), value_of(&memory_config_defaults, key), key->bytes);
    advance(parser);
    return parser->token == TOKEN_END ? TARN_OK : expect(parser, ',', "\",\"");
}

/* Reads large_segment_size_mb first, wherever it stands, because ranges of other keys depend on
 * it. */
static tarn_status find_large_segment(struct parser parser, struct memory_config *config)
{
    const struct key *key = &keys[CONFIG_KEY_large_segment_size_mb];
    int before = ',';
    for (; parser.token != TOKEN_END; advance(&parser)) {
        bool here =
            before == ',' && parser.token == TOKEN_WORD && strcmp(parser.word, key->name) == 0;
        before = parser.token;
        if (!here)
            continue;
        advance(&parser);
        tarn_status status = expect(&parser, ':', "\":\" and a value");
        if (!status)
            status = parse_value(&parser, key, config);
        if (status)
            return status;
        before = parser.token;
        if (before == TOKEN_END)
            break;
    }
    return TARN_OK;
}

static tarn_status parse(struct parser *parser, const struct memory_config *fixed,
                         struct memory_config *config)
{
    advance(parser);
    tarn_status status = parse_all(parser, fixed, config);
    if (!status)
        status = find_large_segment(*parser, config);
    for (const struct key *key = keys; key < keys + CONFIG_KEYS && !status; key++)
        if (key->rule == CONFIG_RESETS)
            memcpy(field_of(config, key), default_of(config, key), key->bytes);
    while (!status && parser->token != TOKEN_END) {
        status = parse_item(parser, fixed, config);
        if (!status && parser->token != TOKEN_END)
            status = expect(parser, ',', "\",\"");
    }
    return status;
}

tarn_status config_parse(const char *source, const char *text, const struct memory_config *fixed,
                         struct memory_config *config)
{
    struct parser parser = {.source = source, .text = text, .next = text};
    struct memory_config changed = *config;
    tarn_status status = parse(&parser, fixed, &changed);
    if (!status)
        *config = changed;
    return status;
}

/* Writing -------------------------------------------------------------------------------------- */

struct writer {
    char *buffer;
    size_t size, length; /* bytes; text that does not fit counts too */
};

static __attribute__((format(printf, 2, 3))) void write_text(struct writer *writer,
                                                             const char *format, ...)
{
    bool room = writer->length < writer->size;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(room ? writer->buffer + writer->length : NULL,
                           room ? writer->size - writer->length : 0, format, arguments);
    va_end(arguments);
    writer->length += length > 0 ? (size_t)length : 0;
}

static void write_fraction(struct writer *writer, size_t billionths)
{
    int digits = 9;
    size_t rest = billionths % CONFIG_ONE;
    for (; digits > 1 && rest % 10 == 0; digits--)
        rest /= 10;
    write_text(writer, "%zu.%0*zu", billionths / CONFIG_ONE, digits, rest);
}

static void write_reserve(struct writer *writer, const struct config_reserve *reserve)
{
    if (reserve->absolute)
        write_text(writer, "%zuG", reserve->amount / GIB);
    else
        write_fraction(writer, reserve->amount);
}

static void write_divisions(struct writer *writer, const size_t divisions[CONFIG_DIVISIONS])
{
    size_t same = 1;
    while (same < CONFIG_DIVISIONS && divisions[same] == divisions[0])
        same++;
    if (same == CONFIG_DIVISIONS) {
        write_text(writer, "%zu", divisions[0]);
        return;
    }
    for (size_t i = 0; i < CONFIG_DIVISIONS; i++)
        write_text(writer, "%c%zu:%zu", i ? ',' : '[', (size_t)1 << i, divisions[i]);
    write_text(writer, "]");
}

static void write_classes(struct writer *writer, const struct config_class classes[CONFIG_CLASSES])
{
    for (size_t i = 0; i < CONFIG_CLASSES && classes[i].name[0]; i++) {
        write_text(writer, "%c%s:", i ? ',' : '[', classes[i].name);
        write_reserve(writer, &classes[i].reserve);
    }
    write_text(writer, "]");
}

static void write_value(struct writer *writer, const struct key *key, const void *value)
{
    const size_t *number = value;
    switch (key->kind) {
    case CONFIG_MEBIBYTES:
        write_text(writer, "%zu", *number / CONFIG_MIB);
        break;
    case CONFIG_MILLISECONDS:
    case CONFIG_POWER:
        write_text(writer, "%zu", *number);
        break;
    case CONFIG_FRACTION:
        write_fraction(writer, *number);
        break;
    case CONFIG_RESERVE:
        write_reserve(writer, value);
        break;
    case CONFIG_LIST_OF_DIVISIONS:
        write_divisions(writer, value);
        break;
    case CONFIG_LIST_OF_CLASSES:
        write_classes(writer, value);
        break;
    case CONFIG_PATH:
        write_text(writer, "%s", (const char *)value);
        break;
    default:
        write_text(writer, "%s", words[key->kind][*number]);
    }
}

size_t config_format(const struct memory_config *config, char *buffer, size_t size)
{
    struct writer writer = {.size = size};
    writer.buffer = buffer;
    write_text(&writer, "all:default");
    for (const struct key *key = keys; key < keys + CONFIG_KEYS; key++) {
        if (is_default(config, key))
            continue;
        write_text(&writer, ",%s:", key->name);
        write_value(&writer, key, value_of(config, key));
    }
    return writer.length + 1;
}
