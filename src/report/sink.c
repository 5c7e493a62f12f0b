/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Writes sinks. Owns nothing. A file is created for its owner only, in the folder of its final
 * name, and never through a link. */
#include "report/sink.h"
#include "base/file.h"
#include "base/status.h"
#include "base/thread/callback.h"
#include "base/thread/quiet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define NAMES 16 /* names tried for a temporary file */

static void begin(struct sink *sink)
{
    sink->write = NULL;
    sink->user = NULL;
    sink->bytes = 0;
    sink->used = 0;
    sink->failed = false;
    sink->error = 0;
    sink->file = -1;
}

void sink_to_function(struct sink *sink, sink_function write, void *user)
{
    begin(sink);
    sink->write = write;
    sink->user = user;
}

void sink_to_nowhere(struct sink *sink)
{
    begin(sink);
}

static bool write_file(const void *data, size_t size, void *user)
{
    struct sink *sink = user;
    struct quiet quiet;
    quiet_begin(&quiet);
    sink->error = file_write(sink->file, data, size) ? 0 : errno;
    quiet_end(&quiet);
    return !sink->error;
}

/* "/a/.b.PID.N.tmp" for "/a/b": a name in the same folder that no other code uses. A file system
 * may allow 255 bytes, so it has only the beginning of a long name. */
static bool name_temporary(struct sink *sink)
{
    static atomic_uint count;
    const char *slash = strrchr(sink->path, '/'), *name = slash ? slash + 1 : sink->path;
    snprintf(sink->temporary, sizeof sink->temporary, "%.*s.%.200s.%ld.%u.tmp",
             (int)(name - sink->path), sink->path, name, (long)getpid(),
             atomic_fetch_add(&count, 1));
    return *name;
}

tarn_status sink_to_file(struct sink *sink, const char *path, mode_t rights)
{
    begin(sink);
    size_t length = path ? strlen(path) : 0;
    if (!length || length >= sizeof sink->path)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the path is NULL, empty, or longer than %zu bytes", sizeof sink->path - 1);
    if (!file_may_be_replaced(path))
        return failed(TARN_ERROR_SYSTEM,
                      "%s exists and is not a regular file, so it is not replaced", path);
    memcpy(sink->path, path, length + 1);
    /* A file with this name may have been put there by another user. */
    for (int i = 0; i < NAMES && sink->file < 0; i++) {
        if (!name_temporary(sink))
            return failed(TARN_ERROR_INVALID_ARGUMENT, "%s is not a file name", path);
        sink->file = file_renumber(
            open(sink->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, rights));
        if (sink->file < 0 && errno != EEXIST)
            break;
    }
    if (sink->file < 0)
        return failed(TARN_ERROR_SYSTEM,
                      "%s cannot be written: a temporary file beside it cannot be created: %s",
                      path, strerror(errno));
    sink->write = write_file;
    sink->user = sink;
    return TARN_OK;
}

CALLS_BACK static bool call_write(const struct sink *sink)
{
    struct callback callback;
    callback_begin(&callback);
    bool goes_on = sink->write(sink->buffer, sink->used, sink->user);
    callback_end(&callback);
    return goes_on;
}

void sink_flush(struct sink *sink)
{
    if (sink->write && !sink->failed && sink->used)
        sink->failed = !call_write(sink);
    sink->bytes += sink->used;
    sink->used = 0;
}

void sink_write(struct sink *sink, const void *data, size_t size)
{
    for (const char *at = data; size;) {
        (void)sink_room(sink);
        size_t part = SINK_BYTES + 64 - sink->used < size ? SINK_BYTES + 64 - sink->used : size;
        memcpy(sink->buffer + sink->used, at, part);
        sink->used += part;
        at += part;
        size -= part;
    }
}

void sink_print(struct sink *sink, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length > 0)
        sink_write(sink, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

/* Gives a file its name, or removes it. */
static tarn_status file_end(struct sink *sink, bool abandon)
{
    if (close(sink->file) && !sink->failed) {
        sink->failed = true;
        sink->error = errno;
    }
    if (!abandon && !sink->failed && rename(sink->temporary, sink->path)) {
        sink->failed = true;
        sink->error = errno;
    }
    if (abandon || sink->failed)
        (void)unlink(sink->temporary);
    sink->file = -1;
    return sink->failed ? failed(TARN_ERROR_SYSTEM, "%s could not be written: %s", sink->path,
                                 strerror(sink->error))
                        : TARN_OK;
}

tarn_status sink_end(struct sink *sink, bool abandon)
{
    if (!abandon)
        sink_flush(sink);
    if (sink->file >= 0)
        return file_end(sink, abandon);
    return sink->failed
               ? failed(TARN_ERROR_SYSTEM, "the write callback returned false after %llu bytes",
                        (unsigned long long)sink->bytes)
               : TARN_OK;
}
