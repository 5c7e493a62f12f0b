/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The calls of a library's functions. Each stands alone in a function, so that tarn knows what to
 * undo if the library throws or ends the thread (base/thread/callback.h). Owns nothing. */
#include "base/pages.h"
#include "base/thread/callback.h"
#include "handle/registry.h"

CALLS_BACK static int create(int (*function)(void **handle), void **place)
{
    struct callback callback;
    callback_begin(&callback);
    int code = function(place);
    callback_end(&callback);
    return code;
}

CALLS_BACK static int create_with_number(int (*function)(void **handle, int number), void **place,
                                         int number)
{
    struct callback callback;
    callback_begin(&callback);
    int code = function(place, number);
    callback_end(&callback);
    return code;
}

int library_create(const struct entry *entry, void **made)
{
    const struct library *row = entry->row;
    if (row->create_takes_number)
        return create_with_number(entry->calls.create_with_number, made, row->create_number);
    if (!row->handle_bytes)
        return create(entry->calls.create, made);
    void *place = *made;
    int code = create(entry->calls.create, place);
    *made = code ? NULL : place;
    return code;
}

CALLS_BACK static int destroy(int (*function)(void *handle), void *vendor)
{
    struct callback callback;
    callback_begin(&callback);
    int code = function(vendor);
    callback_end(&callback);
    return code;
}

int library_destroy(const struct entry *entry, void *vendor)
{
    int code = destroy(entry->calls.destroy, vendor);
    /* Also after a failure, since a program would have lost its structure too. */
    if (entry->row->handle_bytes)
        pages_unmap(vendor, entry->row->handle_bytes);
    return code;
}

CALLS_BACK int library_set_stream(const struct entry *entry, void *vendor, void *native)
{
    struct callback callback;
    callback_begin(&callback);
    int code = entry->calls.set_stream(vendor, native);
    callback_end(&callback);
    return code;
}

CALLS_BACK int library_get_stream(const struct entry *entry, void *vendor, void **native)
{
    struct callback callback;
    callback_begin(&callback);
    int code = entry->calls.get_stream(vendor, native);
    callback_end(&callback);
    return code;
}

CALLS_BACK int library_set_workspace(const struct entry *entry, void *vendor, void *pointer,
                                     size_t size)
{
    struct callback callback;
    callback_begin(&callback);
    int code = entry->calls.set_workspace(vendor, pointer, size);
    callback_end(&callback);
    return code;
}

CALLS_BACK int library_set_mode(const struct mode_calls *calls, void *vendor, intptr_t value)
{
    struct callback callback;
    callback_begin(&callback);
    int code =
        calls->set ? calls->set(vendor, (int)value) : calls->set_pointer(vendor, (void *)value);
    callback_end(&callback);
    return code;
}

CALLS_BACK bool library_get_mode(const struct mode_calls *calls, void *vendor, intptr_t *value)
{
    int number = 0;
    void *pointer = NULL;
    struct callback callback;
    callback_begin(&callback);
    bool told = calls->get ? calls->get(vendor, &number) == 0
                           : calls->get_pointer && calls->get_pointer(vendor, &pointer) == 0;
    callback_end(&callback);
    if (told)
        *value = calls->get ? number : (intptr_t)pointer;
    return told;
}

CALLS_BACK const char *library_status_text(const struct entry *entry, int code)
{
    struct callback callback;
    if (!entry->calls.status_text)
        return NULL;
    callback_begin(&callback);
    const char *text = entry->calls.status_text(code);
    callback_end(&callback);
    return text;
}
