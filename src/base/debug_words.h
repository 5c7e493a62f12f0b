/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What TARN_DEBUG asks for: a list of words, joined by commas. */
#ifndef TARN_BASE_DEBUG_WORDS_H
#define TARN_BASE_DEBUG_WORDS_H

#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <tarn/core.h>

/* X(word, NAME, bit, whether "all" has it) */
#define DEBUG_WORD_LIST(X)                           \
    X("handles", DEBUG_HANDLES, 1u << 0, true)       \
    X("redzone", DEBUG_REDZONE, 1u << 1, true)       \
    X("poison", DEBUG_POISON, 1u << 2, true)         \
    X("quarantine", DEBUG_QUARANTINE, 1u << 3, true) \
    X("sites", DEBUG_SITES, 1u << 4, true)           \
    X("check", DEBUG_CHECK, 1u << 5, true)           \
    X("context", DEBUG_CONTEXT, 1u << 6, true)       \
    X("leaks", DEBUG_LEAKS, 1u << 7, true)           \
    X("abort", DEBUG_ABORT, 1u << 8, false)          \
    X("quiet", DEBUG_QUIET, 1u << 9, false)          \
    X("graphs", DEBUG_GRAPHS, 1u << 10, true)

enum debug_word {
#define X(word, name, bit, all) name = bit,
    DEBUG_WORD_LIST(X)
#undef X
};

/* Words that need the contents of blocks to be written and checked; words that need blocks to be
 * recorded. */
#define DEBUG_CONTENTS (DEBUG_REDZONE | DEBUG_POISON | DEBUG_QUARANTINE)
#define DEBUG_BLOCKS (DEBUG_CONTENTS | DEBUG_SITES | DEBUG_CHECK | DEBUG_LEAKS)

#define DEBUG_QUARANTINE_BYTES ((size_t)64 << 20) /* per device, if TARN_DEBUG gives no number */

struct debug_settings {
    unsigned words;
    size_t quarantine; /* bytes per device */
};

/* Constant after the first successful debug_words_read(). */
extern struct debug_settings debug_settings;

/* Whether any of these words was given. One load. */
static inline bool debug_has(unsigned words)
{
    return (debug_settings.words & words) != 0;
}

/* Prints a line about a finding on standard error; with the word quiet only if TARN_LOG asks for
 * errors. */
#define debug_say(...) \
    (debug_has(DEBUG_QUIET) ? log_write(LOG_ERRORS, __VA_ARGS__) : log_say(__VA_ARGS__))

/* Parses the words in a text. TARN_ERROR_CONFIGURATION names the unknown word. */
tarn_status debug_words_parse(const char *text, struct debug_settings *settings);
/* Parses TARN_DEBUG into debug_settings. Called once, before the first use of anything. */
tarn_status debug_words_read(void);

#endif
