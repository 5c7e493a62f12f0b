/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Statuses and each thread's last error. A thread's text is allocated at its first error and freed
 * at its end. A thread-local array would use up the small space that the loader keeps for libraries
 * opened at run time. If the host has no memory, a short text serves until a later error gets some.
 * In a child of fork(), another thread of the parent may have held the lock of that memory. So
 * there a new text comes from mmap, and no text is freed, not even one from before the fork. */
#include "base/status.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/text.h"
#include "base/thread/process.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SHORT_BYTES 80

static _Thread_local char *own_text; /* NULL before the first error */
static _Thread_local char short_text[SHORT_BYTES];
static _Thread_local tarn_status last_status;
_Thread_local int error_attempts;

static pthread_key_t text_key; /* only for its destructor */
static bool has_key;

static bool is_forked(void)
{
    return atomic_load_explicit(&process_state, memory_order_relaxed) == PROCESS_IS_FORKED;
}

static void text_end(void *value)
{
    char *text = own_text;
    (void)value; /* not used: see thread_end() */
    own_text = NULL;
    if (!is_forked())
        pages_free(text, ERROR_TEXT_BYTES);
}

static void key_make(void)
{
    has_key = pthread_key_create(&text_key, text_end) == 0;
}

/* NULL: not available. */
static char *text_make(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (is_forked())
        return pages_map(ERROR_TEXT_BYTES); /* takes no lock */
    pthread_once(&once, key_make);
    char *made = has_key ? pages_alloc(ERROR_TEXT_BYTES) : NULL;
    if (made && pthread_setspecific(text_key, made)) {
        pages_free(made, ERROR_TEXT_BYTES);
        return NULL;
    }
    return made;
}

/* The thread's text, created if possible. `size` receives its bytes. */
static char *text_of_thread(size_t *size)
{
    char *made = own_text ? NULL : text_make();
    if (made) {
        memcpy(made, short_text, sizeof short_text);
        own_text = made;
    }
    *size = own_text ? ERROR_TEXT_BYTES : SHORT_BYTES;
    return own_text ? own_text : short_text;
}

const char *tarn_status_name(tarn_status status)
{
    switch (status) {
#define X(name, value, text) \
    case name:               \
        return #name;
        TARN_STATUS_LIST(X)
#undef X
    }
    return "TARN_UNKNOWN";
}

const char *tarn_status_text(tarn_status status)
{
    switch (status) {
#define X(name, value, text) \
    case name:               \
        return text;
        TARN_STATUS_LIST(X)
#undef X
    }
    return "a status that this version does not know";
}

const char *tarn_last_error(void)
{
    return own_text ? own_text : short_text;
}

tarn_status tarn_last_status(void)
{
    return last_status;
}

void status_set_last(tarn_status status)
{
    last_status = status;
}

void error_set(tarn_status status, const char *format, ...)
{
    size_t size;
    char *text = text_of_thread(&size);
    va_list arguments;
    va_start(arguments, format);
    (void)text_was_cut(text, size, vsnprintf(text, size, format, arguments));
    va_end(arguments);
    log_write(error_attempts ? LOG_INFO : LOG_ERRORS, "%s: %s", tarn_status_name(status), text);
}

void error_within(tarn_status status, const char *format, ...)
{
    char inner[ERROR_TEXT_BYTES];
    size_t size;
    char *text = text_of_thread(&size);
    memcpy(inner, text, size);

    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, size, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < size)
        length += snprintf(text + length, size - (size_t)length, ": %s", inner);
    (void)text_was_cut(text, size, length);
    log_write(error_attempts ? LOG_INFO : LOG_ERRORS, "%s: %s", tarn_status_name(status), text);
}

void error_attempt_begin(struct error_before *before)
{
    snprintf(before->text, sizeof before->text, "%s", tarn_last_error());
    error_attempts++;
}

void error_attempt_end(const struct error_before *before, tarn_status status)
{
    error_attempts--;
    if (!status && strcmp(tarn_last_error(), before->text) == 0)
        return;
    size_t size;
    char *text = text_of_thread(&size);
    if (!status)
        (void)text_was_cut(text, size, snprintf(text, size, "%s", before->text));
    else if (!error_attempts)
        log_write(LOG_ERRORS, "%s: %s", tarn_status_name(status), text);
}
