/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Statuses and each thread's last error. Owns two thread-local values and nothing else; takes no lock. */
#include "base/status.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ERROR_TEXT_BYTES 1024

static _Thread_local char last_error[ERROR_TEXT_BYTES];
static _Thread_local tarn_status last_status;
static _Thread_local int attempts; /* begun and not ended */

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
    return last_error;
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
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    log_write(attempts ? LOG_INFO : LOG_ERRORS, "%s: %s", tarn_status_name(status), last_error);
}

void error_within(tarn_status status, const char *format, ...)
{
    char inner[ERROR_TEXT_BYTES];
    memcpy(inner, last_error, sizeof inner);

    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < sizeof last_error)
        snprintf(last_error + length, sizeof last_error - (size_t)length, ": %.900s", inner);
    log_write(attempts ? LOG_INFO : LOG_ERRORS, "%s: %s", tarn_status_name(status), last_error);
}

void error_attempt_begin(struct error_before *before)
{
    memcpy(before->text, last_error, sizeof before->text);
    attempts++;
}

void error_attempt_end(const struct error_before *before, tarn_status status)
{
    attempts--;
    if (!status)
        memcpy(last_error, before->text, sizeof before->text);
    else if (!attempts)
        log_write(LOG_ERRORS, "%s: %s", tarn_status_name(status), last_error);
}
