/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The log. Owns the level, read from the environment once. A line is one write(), so that threads
 * do not mix. */
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "base/thread/cancel.h"
#include "base/thread/quiet.h"
#include "base/variable.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Writes to standard error. */
static void say(const char *text, size_t size)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct quiet quiet;
    quiet_begin(&quiet);
    while (write(STDERR_FILENO, text, size) < 0 && errno == EINTR)
        ; /* there is nowhere to report another failure */
    quiet_end(&quiet);
}

static enum log_level level_from_environment(void)
{
    const char *wanted = variable_get("TARN_LOG");
    if (!wanted)
        return LOG_NOTHING;
    if (strcmp(wanted, "errors") == 0)
        return LOG_ERRORS;
    if (strcmp(wanted, "info") == 0)
        return LOG_INFO;
    if (strcmp(wanted, "all") == 0)
        return LOG_ALL;
    static const char hint[] =
        "tarn: TARN_LOG is none of errors, info and all; nothing is logged\n";
    say(hint, sizeof hint - 1);
    return LOG_NOTHING;
}

static void write_line(const char *format, va_list arguments)
{
    char line[ERROR_TEXT_BYTES + 64] = "tarn: "; /* with a status before the text */
    size_t start = strlen(line);
    size_t room = sizeof line - start - 1; /* and one for its end */
    int length = vsnprintf(line + start, room, format, arguments);
    if (length < 0)
        return;
    size_t end = text_was_cut(line + start, room, length) ? strlen(line) : start + (size_t)length;
    text_make_plain_lines(line + start);
    line[end++] = '\n';
    say(line, end);
}

void log_write(enum log_level level, const char *format, ...)
{
    static atomic_int known = -1;
    int wanted = atomic_load_explicit(&known, memory_order_relaxed);
    if (wanted < 0) {
        wanted = (int)level_from_environment();
        atomic_store_explicit(&known, wanted, memory_order_relaxed);
    }
    if ((int)level > wanted)
        return;
    va_list arguments;
    va_start(arguments, format);
    write_line(format, arguments);
    va_end(arguments);
}

void log_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_line(format, arguments);
    va_end(arguments);
}
